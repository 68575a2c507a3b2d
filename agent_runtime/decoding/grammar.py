"""A grammar: the token sequences that are valid values of a schema, or valid tool calls.

Members come in all tokenizations. On a canvas of L positions a member is followed by `<eos>` once and by
`<pad>` to the end; that tail is part of the automaton, so the canvas needs no stop rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch

from agent_runtime.chat import JSON
from agent_runtime.decoding.automaton import Ints, TokenAutomaton
from agent_runtime.decoding.call import ToolCall
from agent_runtime.decoding.classes import Logits
from agent_runtime.decoding.engine import Engine, Marginals, engine
from agent_runtime.decoding.regular import NOTHING, SPECIALS, Language
from agent_runtime.decoding.schema import Mode
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.errors import DecodingError

__all__ = ["Grammar", "Marginals", "Value"]

Value: TypeAlias = "JSON | ToolCall | Sequence[ToolCall]"
#: How often a draw is repeated when the check rejects it, before the smaller language is drawn from.
_DRAWS = 4
#: A guess of how many tokens a free string takes in a typical call.
_FREE_STRING_TOKENS = 12


class Grammar:
    """Valid token sequences. Made by `compile_schema` and `compile_calls` (`compiler.py`)."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        language_of: Callable[[Mode, Sequence[str]], Language],
        read: Callable[[Sequence[int]], Value],
        free_strings: int,
    ) -> None:
        """`language_of` gives the members' text in each mode of `schema.py`; `read` their value.

        Its second argument is the texts that the wide language led to, for the sure mode.
        """
        self.tokenizer = tokenizer
        self._language_of = language_of
        self._read = read
        self._free_strings = free_strings

    @cached_property
    def _symbols(self) -> dict[int, int]:
        specials = self.tokenizer.specials
        return {specials[name]: 256 + index for index, name in enumerate(SPECIALS) if name in specials}

    @cached_property
    def _exact(self) -> Language:
        return self._language_of("exact", ())

    @cached_property
    def _wide(self) -> Engine:
        return engine(self._language_of("wide", ()), self.tokenizer)

    def _sure(self, tokens: Ints) -> Engine:
        """What to decode on when `tokens`, decoded on the wide language, failed the check."""
        try:
            decoded = _texts(self._read(self._text(tokens.tolist())))
        except DecodingError:  # not canonical: a decimal that is too long, or free keys out of order
            decoded = []
        return engine(self._language_of("sure", decoded), self.tokenizer)

    @property
    def min_length(self) -> int:
        """Tokens of the shortest member, without the tail."""
        return self._wide.min_length

    @property
    def likely_length(self) -> int:
        """Tokens of a typical member: what to choose a canvas length from."""
        return self.min_length + _FREE_STRING_TOKENS * self._free_strings

    @property
    def automaton(self) -> TokenAutomaton:
        """States, classes and edges that decoding runs on."""
        return self._wide.automaton

    def viterbi(self, logp: torch.Tensor) -> torch.Tensor:
        """The most probable member, int64 [..., L], for log-probabilities or logits [..., L, V].

        Raises `CanvasTooSmall` when no member fits into L, `DecodingError` when the logits exclude all.
        """
        return self._each(logp, lambda engine, logits: engine.best(logits), repeats=1)

    def sample(self, logp: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        """A member, int64 [..., L], drawn with probability proportional to exp Σ logp [..., L, V]."""

        def draw(engine: Engine, logits: Logits) -> Ints:
            uniform = torch.rand((len(logits), 3), generator=generator, dtype=torch.float64).numpy()
            return engine.draw(logits, uniform)

        return self._each(logp, draw, repeats=_DRAWS)

    def marginals(self, logp: torch.Tensor) -> Marginals:
        """The distribution of each position's token over all members that fit; `logp` [L, V].

        A long `maxLength` and the order of free keys are not taken into account here.
        """
        return self._wide.marginals(_as_array(logp))

    def pinned(self, length: int) -> torch.Tensor:
        """Int64 [L]: the only token that any member has at a position, or -1 where there is a choice."""
        return torch.from_numpy(self._wide.pinned(length))

    def contains(self, tokens: Sequence[int] | torch.Tensor) -> bool:
        """Whether `tokens`, without `<eos>` and `<pad>` at the end, are a member."""
        try:
            self.parse(tokens)
        except DecodingError:
            return False
        return True

    def parse(self, tokens: Sequence[int] | torch.Tensor) -> Value:
        """The value of a member: plain Python, or a `ToolCall`; `DecodingError` for other tokens."""
        text = self._text(tokens)
        if not self._exact.contains(text):
            raise DecodingError("the tokens are not a member of the grammar")
        return self._read(text)

    def _text(self, tokens: Sequence[int] | torch.Tensor) -> list[int]:
        ids = [int(token) for token in tokens]
        specials = self.tokenizer.specials
        while ids and ids[-1] == specials.get("<pad>"):
            ids.pop()
        if ids and ids[-1] == specials.get("<eos>"):
            ids.pop()
        text: list[int] = []
        for token in ids:
            if token in self._symbols:
                text.append(self._symbols[token])
                continue
            spelled = self.tokenizer.token_bytes[token] if 0 <= token < self.tokenizer.vocab_size else None
            if not spelled:
                raise DecodingError(f"token {token} cannot stand in a member")
            text += spelled
        return text

    def continued(self, tokens: Sequence[int] | torch.Tensor) -> Grammar:
        """The grammar of what may follow `tokens`, for a member that goes on on a next canvas.

        `parse` of the result gives the value of the whole. `DecodingError` when no member begins so.
        """
        begun = self._text(tokens)

        def language_of(mode: Mode, decoded: Sequence[str]) -> Language:
            return self._language_of(mode, decoded).after(begun)

        def read(text: Sequence[int]) -> Value:
            return self._read([*begun, *text])

        if language_of("exact", ()) is NOTHING:
            raise DecodingError("no member of the grammar begins with these tokens")
        return Grammar(self.tokenizer, language_of, read, self._free_strings)

    def _each(
        self,
        logp: torch.Tensor,
        decode: Callable[[Engine, Logits], Ints],
        repeats: int,
    ) -> torch.Tensor:
        """Decodes each [L, V] of a batch on the wide language, and again on the sure one if it must be."""
        arrays = _as_array(logp)
        rows = arrays.reshape(-1, *arrays.shape[-2:])
        out = np.zeros(rows.shape[:2], dtype=np.int64)
        for index, logits in enumerate(rows):
            for _ in range(repeats):
                out[index] = decode(self._wide, logits)
                if self.contains(out[index]):
                    break
            else:
                out[index] = decode(self._sure(out[index]), logits)
        return torch.from_numpy(out.reshape(arrays.shape[:-1])).to(logp.device)


def _texts(value: Value) -> list[str]:
    """Every text inside a value."""
    if isinstance(value, ToolCall):
        return _texts(value.arguments)
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, Sequence) else ()
    return [text for item in items for text in _texts(item)]


def _as_array(logp: torch.Tensor) -> Logits:
    array: Logits = logp.detach().to("cpu", torch.float32).numpy()
    return array
