"""The append-only token transcript of a run.

Nothing in it is ever rewritten, so the tokens of step n are a prefix of those of step n + 1 and the KV
cache of every earlier step stays valid. A tool's output enters as text, and text never becomes a special
token: content cannot forge a turn, a call or a response.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent_runtime.chat import Segment, to_ids
from agent_runtime.decoding.tokenizer import Tokenizer


class Transcript:
    """Token ids in the order in which they happened."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens so far."""
        return tuple(self._ids)

    def append(self, segments: Iterable[Segment]) -> None:
        """Add rendered segments at the end."""
        self._ids += to_ids(segments, self._tokenizer)

    def append_ids(self, ids: Sequence[int]) -> None:
        """Add tokens that a decoder emitted, exactly as it emitted them."""
        self._ids += ids

    def since(self, position: int) -> list[int]:
        """The tokens that a KV cache of `position` tokens does not hold yet."""
        if not 0 <= position <= len(self._ids):
            raise ValueError(f"position {position} is outside a transcript of {len(self._ids)} tokens")
        return self._ids[position:]
