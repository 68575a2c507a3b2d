"""The contract between the loop and whatever turns a transcript into the next tool call.

A decoder holds a KV cache of `position` tokens. Tokens enter it by `prefill`, a call is found by `decode`
without entering it, and `commit` puts that call in: so a call can be carried out while it is committed.
Decoders are synchronous and serve one caller at a time; the loop runs one on a worker thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from agent_runtime.decoding.grammar import Grammar
    from agent_runtime.decoding.tokenizer import Tokenizer

# `perf_counter_ns` is monotonic, spans want the wall clock: one offset for the process keeps both.
_CLOCK_OFFSET_NS = time.time_ns() - time.perf_counter_ns()


def now_ns() -> int:
    """Nanoseconds on `time.time_ns`' clock, monotonic within this process."""
    return time.perf_counter_ns() + _CLOCK_OFFSET_NS


@dataclass(frozen=True)
class Timed:
    """One measured stretch of work: nanoseconds on `now_ns`' clock, and what it was about."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def ms(self) -> float:
        """The length in milliseconds."""
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(frozen=True)
class Decoded:
    """A member of the grammar, found but not yet in the KV cache."""

    value: Any
    """What `Grammar.parse` makes of `tokens`: a `ToolCall`, a plain text, or a bare JSON value."""
    tokens: tuple[int, ...]
    """Exactly the tokens that `commit` will add; no end-of-sequence token, no padding."""
    steps: int
    """Denoising steps, over all canvas lengths that were tried."""
    forward_passes: int
    """Passes through the network; 0 when the grammar leaves nothing to decide."""
    logprob: float
    """Natural logarithm of the network's unconstrained probability of `tokens`, summed over positions."""
    entropy: float
    """Mean constrained entropy (nats) over the positions of `tokens` in the last step."""
    canvas_length: int
    """Tokens of the last canvas."""
    forced_share: float
    """Share of `tokens` that the grammar decides alone, before any pass through the network."""
    stopped: str
    """Why denoising ended: `forced`, `certain`, `stable`, `max_steps` or `deadline`."""
    phases: tuple[Timed, ...]
    """One `denoise` for every step, back to back, with `forward_ms`, `constraint_ms` and `sampler_ms`."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a decoder at `position`; only the decoder that made it can take it back."""

    position: int
    state: Any = field(repr=False)


class Decoder(Protocol):
    """What every decoder does, whatever stands behind it."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary that all token ids here belong to."""

    @property
    def declares_tools(self) -> bool:
        """Whether the prompt should declare the tools: some checkpoints are trained without declarations."""

    @property
    def position(self) -> int:
        """Tokens in the KV cache."""

    def prefill(self, tokens: Sequence[int]) -> Timed:
        """Append `tokens` to the KV cache; all of them or, when an error is raised, none."""

    def decode(self, grammar: Grammar, *, seed: int, deadline: float | None = None) -> Decoded:
        """Find a member of `grammar` that continues the KV cache; the cache stays as it is.

        `deadline` is on `time.monotonic`'s clock: once it has passed, the best member so far is returned.
        Raises `CanvasTooSmall` when no canvas holds the shortest member, `DecodingError` when the
        network's output is not finite.
        """

    def commit(self) -> Timed:
        """Append the tokens of the last `decode`; `DecodingError` when there are none (any more)."""

    def fork(self) -> Snapshot:
        """Remember this state; a call that is not committed yet is not part of it."""

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a state that `fork` of this decoder remembered, as often as wanted."""

    def canvas_logits(self, tokens: Tensor, context: Literal["bos", "transcript"] = "bos") -> Tensor:
        """One pass over many canvases, [B, C] int64 to logits [B, C, vocab] float32; the cache stays as it is."""
