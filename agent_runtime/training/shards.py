"""Draw functions, rename them, break them, and store the aligned cells in shards.

A shard is one ``.npz``: ``cells [n, 3] int16`` (see ``alignment``) of many samples in a row and
``ends [samples] int32``. Everything is a function of (seed, shard number), so shards can be made in any
order, by any number of processes, before or during training.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from agent_runtime.training import bugs
from agent_runtime.training.alignment import Cells, cells, regions
from agent_runtime.training.corpus import Function
from agent_runtime.training.lexer import Lexeme, LexError, lex

MAX_TOKENS = 224
SHARD_SAMPLES = 8192
#: Shares of samples without a bug, with one, two and three. More than one bug in a function triples the
#: number of changed tokens per pass; at run time there is one, which only shifts all scores alike.
BUG_COUNTS = (0.3, 0.45, 0.17, 0.08)
RENAMED = 0.35

Encode = Callable[[str], Sequence[int]]


def lexeme_encoder(tokenizer: Tokenizer) -> Encode:
    """Token ids of one lexeme, remembered: lexemes repeat, and no token spans two of them."""

    @lru_cache(maxsize=200_000)
    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    return encode


def rename(lexemes: Sequence[Lexeme], pool: Sequence[str], rng: random.Random) -> list[Lexeme]:
    """Give the function's own names new ones from ``pool``, the same new one everywhere.

    Memorized names are no help then: which name belongs where must be read off the function.
    """
    own = {
        item.text
        for before, item in zip([None, *lexemes], lexemes, strict=False)
        if item.kind == "name"
        and item.text not in bugs.BUILTINS
        and item.text not in ("self", "cls")
        and (before is None or before.text != ".")
    }
    taken = {item.text for item in lexemes}
    fresh = {}
    for name in sorted(own):
        if rng.random() < 0.75:
            new = rng.choice(pool)
            if new not in taken:
                taken.add(new)
                fresh[name] = new
    return [
        Lexeme(item.kind, fresh.get(item.text, item.text), item.lead)
        if item.kind == "name" and (before is None or before.text != ".")
        else item
        for before, item in zip([None, *lexemes], lexemes, strict=False)
    ]


def break_function(lexemes: Sequence[Lexeme], count: int, rng: random.Random) -> tuple[list[str], bugs.Bug]:
    """Up to ``count`` bugs whose edits stay two lexemes apart, and the names of their operators."""
    edits: list[bugs.Edit] = []
    kinds: list[str] = []
    for _ in range(count):
        drawn = bugs.draw_bug(lexemes, rng)
        if drawn is None:
            break
        kind, bug = drawn
        if all(new.stop + 1 < old.start or old.stop + 1 < new.start for new in bug for old in edits):
            edits += bug
            kinds.append(kind)
    return kinds, tuple(edits)


def samples(
    functions: Sequence[Function], names: Sequence[str], encode: Encode, seed: int, count: int
) -> list[Cells]:
    """``count`` aligned samples drawn by the functions' weights."""
    rng = random.Random(seed)
    totals = np.cumsum([item.weight for item in functions]).tolist()
    out: list[Cells] = []
    while len(out) < count:
        function = rng.choices(functions, cum_weights=totals)[0]
        try:
            lexemes = lex(function.source)
        except LexError:
            continue
        if rng.random() < RENAMED:
            lexemes = rename(lexemes, names, rng)
        number = rng.choices(range(len(BUG_COUNTS)), BUG_COUNTS)[0]
        _, bug = break_function(lexemes, number, rng)
        aligned = cells(regions(lexemes, bug), encode)
        if aligned is not None and len(aligned) <= MAX_TOKENS:
            out.append(aligned)
    return out


def name_pool(functions: Sequence[Function]) -> list[str]:
    """Names for renaming: those of the corpus, by how often functions use them, and single letters."""
    counts: dict[str, int] = {}
    for function in functions[:: max(1, len(functions) // 20_000)]:
        try:
            words = {item.text for item in lex(function.source) if item.kind == "name"}
        except LexError:
            continue
        for word in words:
            if len(word) < 16 and word not in bugs.BUILTINS:
                counts[word] = counts.get(word, 0) + 1
    frequent = sorted((word for word, number in counts.items() if number > 5), key=lambda word: (-counts[word], word))
    return frequent[:3000] + list("abcdefghijklmnpqrstuvwxyz") * 12


def write_shard(path: Path, aligned: Sequence[Cells]) -> None:
    """Write one shard; a reader sees all of it or nothing."""
    ends = np.cumsum([len(item) for item in aligned]).astype(np.int32)
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    np.savez(scratch, cells=np.concatenate(aligned), ends=ends)
    scratch.replace(path)


def read_shard(path: Path) -> list[Cells]:
    """The samples of one shard."""
    with np.load(path) as data:
        rows, ends = data["cells"], data["ends"]
    return [rows[start:stop] for start, stop in zip([0, *ends[:-1]], ends, strict=True)]
