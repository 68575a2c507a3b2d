"""An endless, resumable stream of packed batches over shards.

Canvases of different lengths share rows of 256 positions (a mask keeps them apart), so every batch has
one shape: oneDNN and torch.compile prepare kernels once, and little of a batch is padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent_runtime.training.objectives import MAX_CANVAS, Canvas, Ints, Noise, edit_canvas
from agent_runtime.training.shards import read_shard

#: Canvases at hand when a row is filled; the longest that fits goes in. 64 leave 2 % padding.
LOOKAHEAD = 64


@dataclass(frozen=True)
class Batch:
    """Rows of packed canvases, each ``[rows, MAX_CANVAS]``; ``segment`` -1 and ``what`` -1 are padding."""

    tokens: Ints
    targets: Ints
    what: Ints
    positions: Ints
    segment: Ints


@dataclass
class Cursor:
    """Where a stream stands: the next batch of the ``shard``-th shard read so far."""

    shard: int = 0
    batch: int = 0


def pack(canvases: Iterator[Canvas], rows: int, pad: int) -> Iterator[Batch]:
    """Batches of ``rows`` rows; the last, incomplete one is dropped."""
    waiting: list[Canvas] = []
    done = False
    while True:
        shape = (rows, MAX_CANVAS)
        batch = Batch(
            np.full(shape, pad, dtype=np.int64), np.full(shape, pad, dtype=np.int64),
            np.full(shape, -1, dtype=np.int64), np.ones(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64),
        )  # fmt: skip
        for row in range(rows):
            at = number = 0
            while True:
                while len(waiting) < LOOKAHEAD and not done:
                    item = next(canvases, None)
                    done = item is None
                    if item is not None:
                        waiting.append(item)
                fitting = [item for item in waiting if len(item.tokens) <= MAX_CANVAS - at]
                if not fitting:
                    break
                # The first of a row is the oldest, so that none waits for ever.
                chosen = waiting[0] if at == 0 else max(fitting, key=lambda item: len(item.tokens))
                waiting = [item for item in waiting if item is not chosen]
                span = slice(at, at + len(chosen.tokens))
                batch.tokens[row, span], batch.targets[row, span] = chosen.tokens, chosen.targets
                batch.what[row, span], batch.segment[row, span] = chosen.what, number
                batch.positions[row, span] = np.arange(1, len(chosen.tokens) + 1)
                at, number = at + len(chosen.tokens), number + 1
            if at == 0:
                return
        yield batch


def edit_batches(shards: Sequence[Path], noise: Noise, rows: int, seed: int, cursor: Cursor) -> Iterator[Batch]:
    """Batches for ever, from ``cursor`` on, which moves along; each pass over a shard has its own noise."""
    while True:
        path = shards[cursor.shard % len(shards)]
        rng = np.random.default_rng([seed, cursor.shard])
        aligned = read_shard(path)
        order = rng.permutation(len(aligned))
        made = (edit_canvas(aligned[index], noise, rng) for index in order)
        for number, batch in enumerate(pack((item for item in made if item is not None), rows, 0)):
            if number >= cursor.batch:
                cursor.batch = number + 1
                yield batch
        cursor.shard, cursor.batch = cursor.shard + 1, 0
