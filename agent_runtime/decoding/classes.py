"""Token classes at each position: their sums, maxima and entropies under given logits.

Small classes stand side by side in one gathered array and are reduced segment by segment. A large class is
most of the vocabulary (all text that may stand in a free string); gathering it would copy the logits, so it
is reduced row by row in a buffer that stays in the cache: at 256 x 262,144 that takes a third of the time of
one log-softmax, and two rows of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch

from agent_runtime.decoding.automaton import Ints, TokenAutomaton

Floats = npt.NDArray[np.float64]
Logits = npt.NDArray[np.float32]
#: float32 exponentials below this, relative to the position's maximum, are computed again with care.
_TINY = 1e-30
#: Classes above this many tokens are reduced row by row.
_LARGE = 16_384
#: Added to the logits of other tokens; finite, because 0 · -inf would be NaN.
_OUTSIDE = np.float32(-1e30)


class Classes:
    """The tokens of each class."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        self.count = automaton.classes
        self.class_of = automaton.class_of
        order = np.argsort(automaton.class_of, kind="stable")
        self.tokens: Ints = order[: int((automaton.class_of < automaton.classes).sum())]
        """Every usable token, grouped by class."""
        self.group_of = automaton.class_of[self.tokens]
        self.starts = np.searchsorted(self.group_of, np.arange(automaton.classes))
        self.ends = np.append(self.starts[1:], len(self.tokens))
        self.sizes = self.ends - self.starts
        self.large = np.flatnonzero(self.sizes > _LARGE)
        self.small = np.flatnonzero(self.sizes <= _LARGE)
        self.outside = np.full((len(self.large), len(automaton.class_of)), _OUTSIDE)
        for row, which in zip(self.outside, self.large.tolist(), strict=True):
            row[self.members(which)] = 0.0
        gathered = self.sizes[self.group_of] <= _LARGE
        self.small_tokens = self.tokens[gathered]
        """The tokens of small classes, grouped by class."""
        self.small_group = np.searchsorted(self.small, self.group_of[gathered])
        self.small_starts = np.searchsorted(self.small_group, np.arange(len(self.small)))

    def members(self, which: int) -> Ints:
        """The tokens of one class."""
        return self.tokens[self.starts[which] : self.ends[which]]


class ClassWeights:
    """What logits [L, vocabulary] say about each class; they need not be normalised."""

    def __init__(self, classes: Classes, logits: Logits) -> None:
        self.classes = classes
        self.logits = logits
        self._small = np.take(logits, classes.small_tokens, axis=1)

    @cached_property
    def tops(self) -> Logits:
        """The greatest logit of each class, [L, classes]."""
        tops = np.empty((len(self.logits), self.classes.count), dtype=np.float32)
        if len(self.classes.small):
            tops[:, self.classes.small] = np.maximum.reduceat(self._small, self.classes.small_starts, axis=1)
        for column, which in enumerate(self.classes.large):
            tops[:, which] = self.logits[np.arange(len(self.logits)), self._large_best[:, column]]
        return tops

    @property
    def total(self) -> Floats:
        """log Σ exp over the tokens of each class, [L, classes]."""
        return self._sums[0]

    @property
    def entropy(self) -> Floats:
        """The entropy within each class, nats, [L, classes]."""
        return self._sums[1]

    def best_tokens(self, which: Ints) -> Ints:
        """The best token [L] of one class at each position."""
        tokens = np.empty(len(which), dtype=np.int64)
        for at, number in enumerate(which):
            column = np.searchsorted(self.classes.large, number)
            if column < len(self.classes.large) and self.classes.large[column] == number:
                tokens[at] = self._large_best[at, column]
            else:
                members = self.classes.members(number)
                tokens[at] = members[self.logits[at, members].argmax()]
        return tokens

    @cached_property
    def _large_best(self) -> Ints:
        """The best token of each large class, [L, large classes]."""
        best = np.empty((len(self.logits), len(self.classes.large)), dtype=np.int64)

        def look(column: int, rows: range) -> None:
            row = np.empty(self.logits.shape[1], dtype=np.float32)
            for at in rows:
                best[at, column] = np.add(self.logits[at], self.classes.outside[column], out=row).argmax()

        for column in range(len(self.classes.large)):
            _share_rows(len(self.logits), partial(look, column))
        return best

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        shape = (len(self.logits), self.classes.count)
        total, entropy = np.full(shape, np.nan), np.zeros(shape)
        if len(self.classes.small):
            total[:, self.classes.small], entropy[:, self.classes.small] = self._small_sums()
        best = np.empty((len(self.logits), len(self.classes.large)), dtype=np.int64)
        for column, which in enumerate(self.classes.large):
            total[:, which], entropy[:, which], best[:, column] = self._large_sums(column)
        self.__dict__["_large_best"] = best  # found on the way
        return total, entropy

    def _large_sums(self, column: int) -> tuple[Floats, Floats, Ints]:
        """Logarithm of the sum, entropy and best token of one large class at each position."""
        total, entropy = np.full(len(self.logits), np.nan), np.zeros(len(self.logits))
        best = np.zeros(len(self.logits), dtype=np.int64)

        def add_up(rows: range) -> None:
            below = np.empty(self.logits.shape[1], dtype=np.float32)
            chance = np.empty_like(below)
            for at in rows:
                np.add(self.logits[at], self.classes.outside[column], out=below)
                best[at] = below.argmax()
                top = float(below[best[at]])
                if np.isfinite(top):
                    below -= top
                    weight = float(np.exp(below, out=chance).sum())
                    total[at] = top + np.log(weight)
                    entropy[at] = np.log(weight) - float(chance @ below) / weight

        _share_rows(len(self.logits), add_up)
        return total, entropy, best

    def _small_sums(self) -> tuple[Floats, Floats]:
        top = self._small.max(axis=1, keepdims=True)
        starts = self.classes.small_starts
        if not np.isfinite(top).all():  # NaN, +inf, or nothing usable
            return self._small_sums_with_care()
        below = self._small - top
        chance = np.exp(below)
        total = np.add.reduceat(chance, starts, axis=1).astype(np.float64)
        if not (total > _TINY).all():
            return self._small_sums_with_care()
        below *= chance
        logarithm = np.log(total)
        return logarithm + top, logarithm - np.add.reduceat(below, starts, axis=1) / total

    def _small_sums_with_care(self) -> tuple[Floats, Floats]:
        """With a maximum for each class, for logits far apart or -inf."""
        starts = self.classes.small_starts
        top = np.maximum.reduceat(self._small, starts, axis=1)
        shift = np.where(np.isfinite(top), top, np.float32(0))
        below = self._small - np.take(shift, self.classes.small_group, axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # the caller looks for inf and NaN
            chance = np.exp(below)
            total = np.add.reduceat(chance, starts, axis=1).astype(np.float64)
            below[chance == 0] = 0.0
            below *= chance
            logarithm = np.log(total)
            within = logarithm - np.add.reduceat(below, starts, axis=1) / total
        return shift + logarithm, np.where(total > 0, within, 0.0)


def _share_rows(rows: int, work: Callable[[range], None]) -> None:
    """`work` on all rows, on as many threads as torch uses; numpy lets go of the interpreter in long rows."""
    threads = min(torch.get_num_threads(), rows)
    if threads < 2:
        work(range(rows))
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, [range(first, rows, threads) for first in range(threads)]))
