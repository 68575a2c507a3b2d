"""A language with a vocabulary, ready to decode: automaton, token classes, lattice; and its marginals."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from agent_runtime.decoding.automaton import Ints, byte_table
from agent_runtime.decoding.classes import Classes, ClassWeights, Logits
from agent_runtime.decoding.lattice import Floats, Lattice, pick
from agent_runtime.decoding.lifting import lift
from agent_runtime.decoding.regular import EOS, PAD, Language, join, optional, repeat, word
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.decoding.vocabulary import Vocabulary
from agent_runtime.errors import CanvasTooSmall, DecodingError

#: Stands for 0 where a logarithm is taken of a probability.
_LEAST = 1e-300


@dataclass(frozen=True)
class Marginals:
    """Constrained distributions of the tokens at each of L positions."""

    entropy: torch.Tensor
    """Float32 [L], nats: the entropy of the position's token given that the whole is a member."""
    log_z: float
    """Log of the total weight of all members that fit."""
    _weights: ClassWeights
    _chance: Floats

    @cached_property
    def argmax(self) -> torch.Tensor:
        """Int64 [L]: the most probable token of each position (together they need not be a member)."""
        return torch.from_numpy(self._weights.best_tokens(self._best.argmax(axis=1)))

    @cached_property
    def max_logp(self) -> torch.Tensor:
        """Float32 [L]: the log-probability of `argmax`."""
        return torch.from_numpy(np.log(self._best.max(axis=1))).float()

    @property
    def forced(self) -> torch.Tensor:
        """Bool [L]: positions whose token is certain (probability above 1 - 1e-6)."""
        return self.max_logp > -1e-6

    @cached_property
    def _best(self) -> Floats:
        """The probability of the best token of each class, [L, classes]."""
        return self._chance * self._weights.peak

    @cached_property
    def _shift(self) -> Floats:
        """What to add to a token's logit for its log-probability, by class; -inf where it cannot stand."""
        total = self._weights.total
        with np.errstate(divide="ignore"):
            chances = np.log(self._chance)
        possible = np.isfinite(chances) & np.isfinite(total)
        return np.subtract(chances, total, out=np.full_like(total, -np.inf), where=possible)

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
        log_z, chance = lattice.marginals(_usable(weights.total))
        _check(log_z)
        between = np.log(np.maximum(chance, _LEAST))
        entropy = np.einsum("lc,lc->l", chance, weights.entropy - between).clip(min=0.0)
        return Marginals(torch.from_numpy(entropy).float(), log_z, weights, chance)

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


_T = TypeVar("_T", bound=npt.NDArray[np.floating[Any]])


def _usable(weights: _T) -> _T:
    """`weights` without NaN and +inf, which would decode to nonsense."""
    if not (weights < np.inf).all():
        raise DecodingError("the logits are not finite")
    return weights


def _check(score: float) -> None:
    if score == -np.inf:
        raise DecodingError("the logits exclude every member of the grammar")
