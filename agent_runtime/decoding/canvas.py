"""How long a canvas is, and which of its slots the grammar decides alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from agent_runtime.errors import CanvasTooSmall

if TYPE_CHECKING:
    from agent_runtime.decoding.grammar import Grammar

# Few lengths, so that every shape is met again: oneDNN prepares a kernel per shape, CUDA graphs are per shape.
BUCKETS = (32, 64, 128, 256)


def bucket(grammar: Grammar) -> int:
    """The shortest canvas that holds a typical member and an end token; `CanvasTooSmall` when none holds any."""
    if grammar.min_length > BUCKETS[-1]:
        raise CanvasTooSmall(
            f"the shortest call takes {grammar.min_length} tokens but a canvas holds {BUCKETS[-1]}: "
            "shorten the schema's literals, or require fewer properties"
        )
    wanted = max(grammar.min_length, grammar.likely_length + 1)
    return next((size for size in BUCKETS if size >= wanted), BUCKETS[-1])


def next_bucket(length: int) -> int | None:
    """The next longer canvas, or None after the longest."""
    return next((size for size in BUCKETS if size > length), None)


@dataclass(frozen=True)
class ForcedSlots:
    """Slots that the grammar alone decides: `tokens` [L] int64, of which those where `mask` [L] is set."""

    tokens: Tensor
    mask: Tensor
    free: int
    """How many slots are left to the model."""


def forced_slots(grammar: Grammar, length: int, vocab_size: int, device: torch.device) -> ForcedSlots:
    """The slots of a canvas of `length` where only one token is possible.

    Under uniform logits a constrained entropy is zero exactly there.
    """
    uniform = torch.zeros(length, vocab_size, device=device)
    mask = grammar.marginals(uniform).entropies < 1e-6
    return ForcedSlots(grammar.viterbi(uniform), mask, free=length - int(mask.sum()))
