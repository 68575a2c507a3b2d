"""Turn aligned samples into noisy edit canvases and their targets.

The canvas is one whole function behind ``<bos>``. Its noise is a mixture: the injected bugs of the
sample; spans of one to three lexemes replaced by ``<hole>``; single tokens replaced by uniform random
ones; and, on one focus line, three ``<hole>``s in every gap between lexemes. The target at every
position is the token of the repaired function, ``<hole>`` where nothing belongs. One pass so scores
keeping, replacing, deleting and inserting at every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_runtime.training.alignment import CHANGED, GAP, NEWLINE, NONE, STARTS, Cells

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
#: What a position is, for weights and for the log.
COPY, EMPTY, MASK, RANDOM, BUG = range(5)
#: Loss weights by what a position is. Copies and empty gaps are 20 times as many as the rest; their
#: weight keeps them a useful half of the loss.
WEIGHTS = np.array([0.12, 0.12, 0.7, 0.7, 1.0], dtype=np.float32)
MAX_CANVAS = 256


@dataclass(frozen=True)
class Canvas:
    """One noisy canvas: ``tokens``, ``targets`` and what each position is, all ``[length]``."""

    tokens: Ints
    targets: Ints
    what: Ints


@dataclass(frozen=True)
class Noise:
    """Token ids that the noise needs, and the range of the uniform noise."""

    hole: int
    first: int
    vocab: int


def edit_canvas(cells: Cells, noise: Noise, rng: np.random.Generator) -> Canvas | None:
    """A canvas of one sample; ``None`` when its gaps make it longer than ``MAX_CANVAS``."""
    old, new, flags = (cells[:, column].astype(np.int64) for column in range(3))
    changed = (flags & CHANGED) != 0
    starts = (flags & STARTS) != 0
    line = np.cumsum(starts & ((flags & NEWLINE) != 0))
    # A token inserted in front of a line start still belongs to the line before.
    tokens = np.where(old == NONE, noise.hole, old)
    targets = np.where(new == NONE, noise.hole, new)
    what = np.where(changed, BUG, COPY)
    if not changed.any() or rng.random() < 0.5:
        _mask(tokens, what, starts, noise, rng, bool(changed.any()))
    focus = focus_lines(line, changed, old == NONE, rng)
    at, count = gaps(line, starts, old == NONE, focus)
    where = np.repeat(at, count)
    room = MAX_CANVAS - len(tokens) - len(where)
    if room < 0:
        return None
    # Whoever ranks edits may bring canvases to one length with holes at the end.
    tail = min(room, int(rng.integers(1, 32))) if rng.random() < 0.4 else 0
    where = np.concatenate([where, np.full(tail, len(tokens))])
    return Canvas(
        np.insert(tokens, where, noise.hole),
        np.insert(targets, where, noise.hole),
        np.insert(what, where, EMPTY),
    )


def _mask(
    tokens: Ints, what: Ints, starts: npt.NDArray[np.bool_], noise: Noise, rng: np.random.Generator, buggy: bool
) -> None:
    """Replace spans of lexemes by holes and single tokens by random ones, in place, bugs spared."""
    length = len(tokens)
    first = np.flatnonzero(starts)
    rate = rng.uniform(0.0, 0.15) if buggy else rng.uniform(0.1, 0.4)
    spans = round(rate * len(first) / 2)
    for index in rng.integers(0, len(first), spans):
        last = index + rng.integers(1, 4)
        stop = first[last] if last < len(first) else length
        span = slice(first[index], stop)
        free = what[span] == COPY
        tokens[span][free] = noise.hole
        what[span][free] = MASK
    if rng.random() < 0.5:
        hit = (rng.random(length) < rng.uniform(0.0, 0.06 if buggy else 0.15)) & (what == COPY)
        tokens[hit] = rng.integers(noise.first, noise.vocab, int(hit.sum()))
        what[hit] = RANDOM


def focus_lines(
    line: Ints, changed: npt.NDArray[np.bool_], inserted: npt.NDArray[np.bool_], rng: np.random.Generator
) -> list[int]:
    """The lines that get gaps: every line that an insertion needs, else the bug's, a random one, or none."""
    needed = sorted(set(line[inserted].tolist()))
    if needed:
        return needed
    roll = rng.random()
    if roll < 0.04:
        return []
    if changed.any() and roll < 0.6:
        return [int(rng.choice(line[changed]))]
    return [int(rng.integers(0, int(line[-1]) + 1))]


def gaps(
    line: Ints, starts: npt.NDArray[np.bool_], inserted: npt.NDArray[np.bool_], focus: Sequence[int]
) -> tuple[Ints, Ints]:
    """Where holes go and how many: in front of each lexeme of a focus line and behind its last.

    Insertion cells that already stand in a gap count toward its three holes.
    """
    at: list[int] = []
    count: list[int] = []
    length = len(line)
    for number in focus:
        inside = np.flatnonzero(line == number)
        first = inside[0] + (1 if number > 0 else 0)
        places = [*(inside[starts[inside] & (inside >= first)].tolist()), int(inside[-1]) + 1]
        if number > 0 and places and places[0] == inside[0]:
            places = places[1:]
        for place in places:
            present = 0
            while place - present - 1 >= 0 and inserted[place - present - 1]:
                present += 1
            if place <= length:
                at.append(place)
                count.append(GAP - present)
    return np.array(at, dtype=np.int64), np.array(count, dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """Canvases of one padded length: ``tokens``, ``targets``, ``what`` ``[batch, length]``; what < 0 pads."""

    tokens: Ints
    targets: Ints
    what: Ints


def collate(canvases: Sequence[Canvas], length: int, rows: int, pad: int) -> Batch:
    """Pad canvases to ``[rows, length]``; missing rows are all padding."""
    tokens = np.full((rows, length), pad, dtype=np.int64)
    targets = np.full((rows, length), pad, dtype=np.int64)
    what = np.full((rows, length), -1, dtype=np.int64)
    for row, canvas in enumerate(canvases):
        size = len(canvas.tokens)
        tokens[row, :size], targets[row, :size], what[row, :size] = canvas.tokens, canvas.targets, canvas.what
    return Batch(tokens, targets, what)


def choose_positions(what: Ints, count: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """``count`` flat positions to compute the head on, and their loss weights (0 fills up).

    All noisy positions come first; copies are sampled and weighed up, which halves the cost of a head
    over 4,096 tokens and leaves the expected loss as it is.
    """
    flat = what.reshape(-1)
    noisy = np.flatnonzero(flat >= MASK)
    plain = np.flatnonzero((flat >= 0) & (flat < MASK))
    if len(noisy) > count:
        noisy = rng.choice(noisy, count, replace=False)
    room = min(count - len(noisy), len(plain))
    sampled = rng.choice(plain, room, replace=False) if room else plain[:0]
    scale = len(plain) / room if room else 1.0
    chosen = np.concatenate([noisy, sampled])
    weights = WEIGHTS[flat[chosen]] * np.where(flat[chosen] < MASK, scale, 1.0).astype(np.float32)
    fill = count - len(chosen)
    return (
        np.concatenate([chosen, np.zeros(fill, dtype=np.int64)]),
        np.concatenate([weights, np.zeros(fill, dtype=np.float32)]),
    )
