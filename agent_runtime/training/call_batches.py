"""Noisy tool-call canvases behind encoded transcripts, many canvases to one transcript.

A row is one transcript, encoded causally (with the causal loss on all of it), and the canvases of several of
its steps side by side: each sees the transcript up to where its call begins, and itself. The noise is
uniform, or holes, at a random rate; in half of the canvases the literals of the call stay clean, as the
grammar pins them at run time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_runtime.training.calls import Scribe, Transcript, canvas, transcript
from agent_runtime.training.objectives import Floats, Ints, Noise
from agent_runtime.training.shards import Source

#: Positions of a row: transcript and canvases.
CONTEXT, CANVAS = 512, 256
#: Loss weights on a canvas: noisy tokens of the call, clean ones, padding behind the call. With 0.05 for padding
#: a call that filled its canvas with a senseless string beat a short one, whose many ends were each unsure.
NOISY, CLEAN, TAIL = 1.0, 0.2, 0.3
#: Share of canvases that are all noise, as every canvas is at its first step.
FRESH = 0.4
#: Share of canvases whose noise is holes instead of random tokens: a decoder may start from either.
HOLES = 0.5


@dataclass(frozen=True)
class CallBatch:
    """``context [rows, CONTEXT]``; canvas arrays ``[rows, CANVAS]``; ``start`` is where each canvas's call
    begins, -1 on padding; ``segment`` tells canvases apart."""

    context: Ints
    tokens: Ints
    targets: Ints
    weights: Floats
    positions: Ints
    start: Ints
    segment: Ints

    def mask(self) -> npt.NDArray[np.bool_]:
        """``[rows, CANVAS, CONTEXT + CANVAS]``: what each canvas position may not look at."""
        later = np.arange(CONTEXT)[None, None] >= np.maximum(self.start, 1)[:, :, None]
        apart = self.segment[:, :, None] != self.segment[:, None, :]
        return np.concatenate([later, apart], 2)


def call_batches(source: Source, scribe: Scribe, noise: Noise, rows: int, seed: int) -> Iterator[CallBatch]:
    """Batches for ever. They are cheap enough to make while training."""
    python, rng = random.Random(seed), np.random.default_rng(seed)
    while True:
        chosen: list[Transcript] = []
        while len(chosen) < rows:
            item = transcript(scribe, source.draw(python), python)
            if item is not None and len(item.ids) <= CONTEXT:
                chosen.append(item)
        yield batch(chosen, scribe, noise, rng)


def batch(transcripts: list[Transcript], scribe: Scribe, noise: Noise, rng: np.random.Generator) -> CallBatch:
    """Lay the transcripts' steps out, in random order, as long as canvases fit."""
    rows = len(transcripts)
    eos, pad = scribe.special("<eos>"), scribe.special("<pad>")
    whole = (rows, CANVAS)
    out = CallBatch(
        np.full((rows, CONTEXT), pad), np.full(whole, pad), np.full(whole, pad), np.zeros(whole, dtype=np.float32),
        np.zeros(whole, dtype=np.int64), np.full(whole, -1), np.full(whole, -1),
    )  # fmt: skip
    for row, item in enumerate(transcripts):
        out.context[row, : len(item.ids)] = item.ids
        at = 0
        for number in rng.permutation(len(item.steps)):
            begin, call = item.steps[number]
            clean = canvas(call, eos, pad, rng)
            if clean is None or at + len(clean) > CANVAS:
                continue
            span = slice(at, at + len(clean))
            noisy = rng.random(len(clean)) < (1.0 if rng.random() < FRESH else rng.uniform(0.05, 1.0))
            if rng.random() < 0.5:
                noisy[:3] = False
                noisy &= (clean >= noise.first) | (clean == eos) | (clean == pad)
            random_tokens = rng.integers(noise.first, noise.vocab, len(clean))
            filling = np.full(len(clean), noise.hole) if rng.random() < HOLES else random_tokens
            out.tokens[row, span] = np.where(noisy, filling, clean)
            out.targets[row, span] = clean
            out.weights[row, span] = np.where(noisy, NOISY, CLEAN)
            out.weights[row, at + len(call) + 1 : at + len(clean)] = TAIL
            out.positions[row, span] = begin + np.arange(len(clean))
            out.start[row, span], out.segment[row, span] = begin, number
            at += len(clean)
    return out
