"""Token classes as segments of the vocabulary: their sums, maxima and entropies at each position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.automaton import Ints, TokenAutomaton
from agent_runtime.decoding.lattice import Floats

Logits = npt.NDArray[np.float32]
#: float32 exponentials below this, relative to the position's maximum, are computed again with care.
_TINY = 1e-30


@dataclass(frozen=True)
class ClassWeights:
    """What the logits say about each class; natural logarithms, [L, classes]."""

    total: Floats
    """log Σ exp over the class's tokens."""
    entropy: Floats
    """Entropy within the class, nats."""
    values: Logits
    """[L, usable tokens]: the logits grouped by class."""


class Classes:
    """The tokens of each class, side by side."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        order = np.argsort(automaton.class_of, kind="stable")
        self.tokens: Ints = order[: int((automaton.class_of < automaton.classes).sum())]
        """Every usable token, grouped by class."""
        self.group_of = automaton.class_of[self.tokens]
        self.starts = np.searchsorted(self.group_of, np.arange(automaton.classes))
        self.ends = np.append(self.starts[1:], len(self.tokens))
        self.sizes = self.ends - self.starts

    def gather(self, logits: Logits) -> Logits:
        """The logits [L, vocabulary] of the usable tokens, grouped by class."""
        return np.take(logits, self.tokens, axis=1)

    def tops(self, values: Logits) -> Logits:
        """The greatest logit of each class; `values` are grouped."""
        return np.maximum.reduceat(values, self.starts, axis=1)

    def weigh(self, values: Logits) -> ClassWeights:
        """Sums and entropies of each class; `values` are grouped, they need not be normalised."""
        top = values.max(axis=1, keepdims=True)
        if not np.isfinite(top).all():  # NaN, +inf, or nothing usable: there is no distribution
            return ClassWeights(np.full((len(values), len(self.starts)), np.nan), np.zeros((1, 1)), values)
        below = values - top
        chance = np.exp(below)
        total = np.add.reduceat(chance, self.starts, axis=1).astype(np.float64)
        if not (total > _TINY).all():
            return self._weigh_carefully(values)
        below *= chance
        logarithm = np.log(total)
        entropy = logarithm - np.add.reduceat(below, self.starts, axis=1) / total
        return ClassWeights(logarithm + top, entropy, values)

    def _weigh_carefully(self, values: Logits) -> ClassWeights:
        """`weigh` with a maximum for each class, for logits far apart or -inf."""
        top = self.tops(values)
        shift = np.where(np.isfinite(top), top, np.float32(0))
        below = values - np.take(shift, self.group_of, axis=1)
        chance = np.exp(below)
        total = np.add.reduceat(chance, self.starts, axis=1).astype(np.float64)
        below[chance == 0] = 0.0
        below *= chance
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithm = np.log(total)
            within = logarithm - np.add.reduceat(below, self.starts, axis=1) / total
        return ClassWeights(shift + logarithm, np.where(total > 0, within, 0.0), values)

    def members(self, which: int) -> Ints:
        """The tokens of one class."""
        return self.tokens[self.starts[which] : self.ends[which]]
