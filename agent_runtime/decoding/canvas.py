"""How long a canvas is."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
