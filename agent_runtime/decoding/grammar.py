"""A grammar: the token sequences that are valid values of a schema, or valid tool calls.

Members come in all tokenizations. On a canvas of L positions a member is followed by `<eos>` once and by
`<pad>` to the end; that tail is part of the automaton, so the canvas needs no stop rule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from agent_runtime.chat import JSON
from agent_runtime.decoding.automaton import Ints, TokenAutomaton, byte_table
from agent_runtime.decoding.call import ToolCall
from agent_runtime.decoding.classes import Classes, ClassWeights, Logits
from agent_runtime.decoding.lattice import Floats, Lattice, pick
from agent_runtime.decoding.lifting import lift
from agent_runtime.decoding.regular import EOS, PAD, SPECIALS, Language, join, optional, repeat, word
from agent_runtime.decoding.schema import Mode
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.decoding.vocabulary import Vocabulary
from agent_runtime.errors import CanvasTooSmall, DecodingError

Value: TypeAlias = "JSON | ToolCall"
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


@dataclass(frozen=True)
class Marginals:
    """Constrained distributions of the tokens at each of L positions."""

    entropy: torch.Tensor
    """Float32 [L], nats: the entropy of the position's token given that the whole is a member."""
    log_z: float
    """Log of the total weight of all members that fit."""
    _weights: ClassWeights
    _chances: Floats

    @cached_property
    def argmax(self) -> torch.Tensor:
        """Int64 [L]: the most probable token of each position (together they need not be a member)."""
        return torch.from_numpy(self._weights.best_tokens(self._best.argmax(axis=1)))

    @cached_property
    def max_logp(self) -> torch.Tensor:
        """Float32 [L]: the log-probability of `argmax`."""
        return torch.from_numpy(self._best.max(axis=1)).float()

    @property
    def forced(self) -> torch.Tensor:
        """Bool [L]: positions whose token is certain (probability above 1 - 1e-6)."""
        return self.max_logp > -1e-6

    @cached_property
    def _best(self) -> Floats:
        """The log-probability of the best token of each class, [L, classes]."""
        return self._chances + self._weights.peak

    @cached_property
    def _shift(self) -> Floats:
        """What to add to a token's logit for its log-probability, by class; -inf where it cannot stand."""
        total = self._weights.total
        possible = np.isfinite(self._chances) & np.isfinite(total)
        return np.subtract(self._chances, total, out=np.full_like(total, -np.inf), where=possible)

    def token_logp(self) -> torch.Tensor:
        """Float32 [L, V]: log-probabilities, -inf for tokens that no member has there."""
        classes, logits = self._weights.classes, self._weights.logits
        # The extra column is for tokens without a class.
        shift = np.pad(self._shift.astype(np.float32), ((0, 0), (0, 1)), constant_values=-np.inf)
        logp = torch.from_numpy(np.take(shift, classes.class_of, axis=1))
        return logp.add_(torch.from_numpy(logits)).nan_to_num_(nan=-torch.inf, neginf=-torch.inf)


_engines: WeakKeyDictionary[Tokenizer, OrderedDict[Language, Engine]] = WeakKeyDictionary()
_KEPT_ENGINES = 32


def engine(language: Language, tokenizer: Tokenizer) -> Engine:
    """The engine of a language; equal languages are one object, so that small changes often find theirs."""
    known = _engines.setdefault(tokenizer, OrderedDict())
    if language not in known:
        known[language] = Engine(language, tokenizer)
        while len(known) > _KEPT_ENGINES:
            known.popitem(last=False)
    known.move_to_end(language)
    return known[language]


class Engine:
    """One language with a vocabulary: automaton, classes and lattice."""

    def __init__(self, language: Language, tokenizer: Tokenizer) -> None:
        tail = repeat(word((PAD,))) if "<pad>" in tokenizer.specials else word("")
        if "<eos>" in tokenizer.specials:
            tail = optional(join(word((EOS,)), tail))
        vocabulary = Vocabulary.of(tokenizer)
        self.automaton = lift(*byte_table(join(language, tail)), vocabulary)
        self.lattice = Lattice(self.automaton) if len(self.automaton.source) else None
        self.classes = Classes(self.automaton)
        self.min_length = int(self.automaton.distance[0]) if self.automaton.states else -1

    def best(self, logits: Logits) -> Ints:
        lattice = self._lattice(len(logits))
        weights = ClassWeights(self.classes, logits)
        score, which = lattice.best(_usable(weights.tops))
        _check(score)
        return weights.best_tokens(which)

    def draw(self, logits: Logits, uniform: Floats) -> Ints:
        lattice = self._lattice(len(logits))
        log_z, which = lattice.draw(_usable(ClassWeights(self.classes, logits).total), uniform[:, :2])
        _check(log_z)
        tokens = np.zeros(len(logits), dtype=np.int64)
        for at, members in enumerate(map(self.classes.members, which)):
            weights = logits[at, members].astype(np.float64)
            tokens[at] = members[pick(np.exp(weights - weights.max()), uniform[at, 2])]
        return tokens

    def marginals(self, logits: Logits) -> Marginals:
        lattice = self._lattice(len(logits))
        weights = ClassWeights(self.classes, logits)
        log_z, chances = lattice.marginals(_usable(weights.total))
        _check(log_z)
        chance = np.exp(chances)
        between = np.multiply(chance, chances, out=np.zeros_like(chance), where=chance > 0)
        entropy = (chance * weights.entropy - between).sum(axis=1).clip(min=0.0)
        return Marginals(torch.from_numpy(entropy).float(), log_z, weights, chances)

    def pinned(self, length: int) -> Ints:
        self._lattice(length)
        automaton = self.automaton
        alive = np.zeros(automaton.states, dtype=bool)
        alive[0] = True
        pinned = np.full(length, -1, dtype=np.int64)
        for at in range(length):
            used = alive[automaton.source] & (automaton.distance[automaton.target] <= length - at - 1)
            labels = np.unique(automaton.label[used])
            if len(labels) == 1 and self.classes.sizes[labels[0]] == 1:
                pinned[at] = self.classes.members(int(labels[0]))[0]
            alive = np.zeros(automaton.states, dtype=bool)
            alive[automaton.target[used]] = True
        return pinned

    def _lattice(self, length: int) -> Lattice:
        if self.lattice is None or length < self.min_length:
            raise CanvasTooSmall(f"the shortest member takes {self.min_length} tokens, the canvas has {length}")
        return self.lattice


def _texts(value: Value) -> list[str]:
    """Every text inside a value."""
    if isinstance(value, ToolCall):
        value = value.arguments
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [text for item in value for text in _texts(item)] if isinstance(value, Sequence) else []


def _as_array(logp: torch.Tensor) -> Logits:
    array: Logits = logp.detach().to("cpu", torch.float32).numpy()
    return array


_T = TypeVar("_T", bound=npt.NDArray[np.floating[Any]])


def _usable(weights: _T) -> _T:
    """`weights` without NaN and +inf, which would decode to nonsense."""
    if not (weights < np.inf).all():
        raise DecodingError("the logits are not finite")
    return weights


def _check(score: float) -> None:
    if score == -np.inf:
        raise DecodingError("the logits exclude every member of the grammar")
