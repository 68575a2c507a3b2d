"""Token classes at each position: their sums, maxima and entropies under given logits.

Nearly all classes are a single token; one is most of the vocabulary: all text that may stand in a free string.
Such a large class is reduced by rows of the logits as they are, in buffers that stay in the cache, because
gathering it would copy the logits: at 256 x 262,144 this takes as long as one log-softmax, and no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from agent_runtime.decoding.automaton import Ints, TokenAutomaton

Floats = npt.NDArray[np.float64]
Logits = npt.NDArray[np.float32]
#: Added to the logits of tokens outside a class; finite, because 0 · -inf would be NaN.
_OUTSIDE = np.float32(-1e30)
#: Numbers in a buffer, 512 KiB: a few of them fit into a core's second-level cache.
_BLOCK = 1 << 17


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
        # A class is worth whole rows when it is a good part of them.
        vocabulary = len(automaton.class_of)
        large = self.sizes * 8 > vocabulary
        self.large = np.flatnonzero(large & (self.sizes > 1))
        self.single = np.flatnonzero(self.sizes == 1)
        self.several = np.flatnonzero(~large & (self.sizes > 1))
        self.single_tokens = self.tokens[self.starts[self.single]]
        members = [self.members(which) for which in self.several.tolist()]
        self.several_tokens = np.concatenate([np.zeros(0, dtype=np.int64), *members])
        sizes = self.sizes[self.several]
        self.several_starts = np.cumsum(sizes) - sizes
        self.several_group = np.repeat(np.arange(len(sizes)), sizes)
        self.outside = np.full((len(self.large), vocabulary), _OUTSIDE)
        for row, which in zip(self.outside, self.large.tolist(), strict=True):
            row[self.members(which)] = 0.0

    def members(self, which: int) -> Ints:
        """The tokens of one class."""
        return self.tokens[self.starts[which] : self.ends[which]]


class ClassWeights:
    """What logits [L, vocabulary] say about each class; they need not be normalised."""

    def __init__(self, classes: Classes, logits: Logits) -> None:
        self.classes = classes
        self.logits = logits
        self._singles = np.take(logits, classes.single_tokens, axis=1)

    @cached_property
    def tops(self) -> Logits:
        """The greatest logit of each class, [L, classes]."""
        tops = np.empty((len(self.logits), self.classes.count), dtype=np.float32)
        tops[:, self.classes.single] = self._singles
        rows = np.arange(len(self.logits))
        if len(self.classes.several):
            values = np.take(self.logits, self.classes.several_tokens, axis=1)
            tops[:, self.classes.several] = np.maximum.reduceat(values, self.classes.several_starts, axis=1)
        for which, best in self._best.items():
            tops[:, which] = self.logits[rows, best]
        return tops

    @property
    def total(self) -> Floats:
        """log Σ exp over the tokens of each class, [L, classes]."""
        return self._sums[0]

    @property
    def peak(self) -> Floats:
        """The probability of each class's best token within the class, [L, classes]."""
        return self._sums[2]

    @property
    def entropy(self) -> Floats:
        """The entropy within each class, nats, [L, classes]."""
        return self._sums[1]

    def best_tokens(self, which: Ints) -> Ints:
        """The best token [L] of one class at each position."""
        tokens = self.classes.tokens[self.classes.starts[which]]
        for at in np.flatnonzero(self.classes.sizes[which] > 1).tolist():
            number = int(which[at])
            if number in self._best:
                tokens[at] = self._best[number][at]
            else:
                members = self.classes.members(number)
                tokens[at] = members[self.logits[at, members].argmax()]
        return tokens

    @cached_property
    def _best(self) -> dict[int, Ints]:
        """For each large class, its best token [L] at each position."""
        best: dict[int, Ints] = {}
        for which, outside in zip(self.classes.large.tolist(), self.classes.outside, strict=True):
            best[which] = np.empty(len(self.logits), dtype=np.int64)

            def look(rows: slice, buffer: Logits, found: Ints = best[which], outside: Logits = outside) -> None:
                np.add(self.logits[rows], outside, out=buffer).argmax(axis=1, out=found[rows])

            _by_blocks(self.logits, look)
        return best

    @cached_property
    def _sums(self) -> tuple[Floats, Floats, Floats]:
        shape = (len(self.logits), self.classes.count)
        total, entropy, peak = np.empty(shape), np.zeros(shape), np.ones(shape)
        total[:, self.classes.single] = self._singles
        if len(self.classes.several):
            several = self.classes.several
            total[:, several], entropy[:, several], peak[:, several] = self._several_sums()
        best: dict[int, Ints] = {}
        for which, outside in zip(self.classes.large.tolist(), self.classes.outside, strict=True):
            best[which] = np.empty(len(self.logits), dtype=np.int64)

            def add_up(
                rows: slice, buffer: Logits, which: int = which, outside: Logits = outside, found: Ints = best[which]
            ) -> None:
                inside = np.add(self.logits[rows], outside, out=buffer)
                total[rows, which], entropy[rows, which], peak[rows, which], found[rows] = _add_up(inside, buffer)

            _by_blocks(self.logits, add_up)
        self.__dict__["_best"] = best  # found on the way
        return total, entropy, peak

    def _several_sums(self) -> tuple[Floats, Floats, Floats]:
        """`_add_up` for the classes of several tokens, side by side."""
        starts, group = self.classes.several_starts, self.classes.several_group
        values = np.take(self.logits, self.classes.several_tokens, axis=1)
        top = np.maximum.reduceat(values, starts, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            below = values - np.take(np.where(np.isneginf(top), np.float32(0), top), group, axis=1)
            chance = np.exp(below)
            total = np.add.reduceat(chance, starts, axis=1).astype(np.float64)
            mean = np.add.reduceat(chance * np.maximum(below, _OUTSIDE), starts, axis=1)
            logarithm = np.log(total)
            entropy = np.where(total > 0, logarithm - mean / total, 0.0)
        sums = np.where(np.isneginf(top), -np.inf, top + logarithm)
        return sums, entropy, 1 / np.maximum(total, 1)


def _add_up(values: Logits, below: Logits) -> tuple[Floats, Floats, Floats, Ints]:
    """Of each row: log of the sum of exponentials, entropy, probability and place of the greatest.

    `below` is overwritten.
    """
    place = values.argmax(axis=1)
    top = values[np.arange(len(values)), place]
    with np.errstate(invalid="ignore"):  # a class without a finite logit: its sum is -inf, or NaN and refused
        np.subtract(values, np.where(np.isneginf(top), np.float32(0), top)[:, None], out=below)
        chance = np.exp(below)
        total = chance.sum(axis=1, dtype=np.float32).astype(np.float64)
        np.maximum(below, _OUTSIDE, out=below)  # -inf where the chance is 0
        mean = np.einsum("lv,lv->l", chance, below)
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.log(total)
        entropy = np.where(total > 0, logarithm - mean / total, 0.0)
    return np.where(np.isneginf(top), -np.inf, top + logarithm), entropy, 1 / np.maximum(total, 1), place


def _by_blocks(logits: Logits, work: Callable[[slice, Logits], None]) -> None:
    """`work` on blocks of rows with a buffer of their size, on as many threads as torch uses.

    One block of one row at a large vocabulary, all rows at once at a small one; numpy lets go of the
    interpreter in long rows, so that threads run side by side.
    """
    rows = max(1, _BLOCK // logits.shape[1])
    blocks = [slice(first, min(first + rows, len(logits))) for first in range(0, len(logits), rows)]

    def share(first: int) -> None:
        buffer = np.empty((rows, logits.shape[1]), dtype=np.float32)
        for block in blocks[first::threads]:
            work(block, buffer[: block.stop - block.start])

    threads = min(torch.get_num_threads(), len(blocks)) if logits.size > 1 << 22 else 1
    if threads == 1:
        share(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(share, range(threads)))
