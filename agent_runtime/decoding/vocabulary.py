"""A tokenizer's tokens as a trie of symbols, built once per tokenizer."""

from __future__ import annotations

from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from agent_runtime.decoding.regular import SPECIALS, SYMBOLS
from agent_runtime.decoding.tokenizer import Tokenizer


class Vocabulary:
    """The tokens of a tokenizer as a trie: node 0 is the root, edges are symbols."""

    _known: ClassVar[WeakKeyDictionary[Tokenizer, Vocabulary]] = WeakKeyDictionary()

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.size = tokenizer.vocab_size
        words: list[bytes | None] = tokenizer.token_bytes
        specials = {tokenizer.specials[name]: 256 + i for i, name in enumerate(SPECIALS) if name in tokenizer.specials}
        tokens = np.array([index for index, word in enumerate(words) if word], dtype=np.int64)
        spellings = [word for word in words if word]
        lengths = np.array([len(word) for word in spellings], dtype=np.int64)
        letters = np.frombuffer(b"".join(spellings), dtype=np.uint8).astype(np.int64)
        begins = np.cumsum(lengths) - lengths
        at = np.zeros(len(tokens), dtype=np.int64)  # the node that each token has come to
        parents, symbols = [np.array([-1])], [np.array([-1])]
        count = 1
        self.node_of = np.full(self.size, -1, dtype=np.int64)
        for depth in range(int(lengths.max(initial=0))):
            going = np.flatnonzero(lengths > depth)
            key = at[going] * SYMBOLS + letters[begins[going] + depth]
            unique, node = np.unique(key, return_inverse=True)
            at[going] = count + node
            parents.append(unique // SYMBOLS)
            symbols.append(unique % SYMBOLS)
            count += len(unique)
        self.node_of[tokens] = at
        for token, symbol in specials.items():
            parents.append(np.array([0]))
            symbols.append(np.array([symbol]))
            self.node_of[token] = count
            count += 1
        parent = np.concatenate(parents)
        self.child = np.argsort(parent, kind="stable")[1:]
        """Nodes ordered by parent, the root left out."""
        self.symbol = np.concatenate(symbols)
        self.first_child = np.searchsorted(parent[self.child], np.arange(count + 1))
        self.is_token = np.zeros(count, dtype=bool)
        self.is_token[self.node_of[self.node_of >= 0]] = True

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """The vocabulary of `tokenizer`, made at most once."""
        if tokenizer not in cls._known:
            cls._known[tokenizer] = cls(tokenizer)
        return cls._known[tokenizer]
