"""How long a canvas is, and which of its slots the grammar decides alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
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


def pinned_slots(grammar: Grammar, length: int) -> Tensor:
    """[length] int64: the only possible token of a slot, or -1 from the first slot on that has a choice.

    Every tokenization of a literal is a member, so little is pinned behind the first choice;
    `Grammar.pinned` finds that too, at the price of a pass over 64 tokens (10 ms for the built-in tools).
    """
    automaton = grammar.automaton
    pinned = torch.full((length,), -1)
    state = 0
    for slot in range(length):
        first, last = np.searchsorted(automaton.source, (state, state + 1))
        if last - first != 1:
            break
        tokens = np.flatnonzero(automaton.class_of == automaton.label[first])
        if len(tokens) != 1:
            break
        pinned[slot] = int(tokens[0])
        state = int(automaton.target[first])
    return pinned
