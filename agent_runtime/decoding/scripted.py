"""A decoder that plays given calls: for tests, replays and benchmarks of everything but the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from agent_runtime.chat import render_call, to_ids
from agent_runtime.decoding.decoder import Decoded, Snapshot, Timed, now_ns
from agent_runtime.errors import DecodingError

if TYPE_CHECKING:
    import torch

    from agent_runtime.decoding.grammar import Grammar
    from agent_runtime.decoding.tokenizer import Tokenizer


class ScriptedDecoder:
    """The `Decoder` contract without a network: call n of the script is what the n-th `decode` finds."""

    def __init__(
        self, tokenizer: Tokenizer, calls: Iterable[tuple[str, Mapping[str, Any]]], *, declares_tools: bool = False
    ) -> None:
        """`calls` are (tool name, arguments) in the order in which they will be made."""
        self.tokenizer, self.declares_tools = tokenizer, declares_tools
        self.position = 0
        self._calls = list(calls)
        self._next = 0
        self._pending: tuple[int, ...] | None = None

    def prefill(self, tokens: Sequence[int]) -> Timed:
        """Count `tokens`."""
        self._pending = None
        return self._append("prefill", tokens)

    def decode(self, grammar: Grammar, *, seed: int, deadline: float | None = None) -> Decoded:
        """The next call; `DecodingError` when the script has ended, or when `grammar` does not allow the call."""
        begun = now_ns()
        if self._next == len(self._calls):
            raise DecodingError(f"the script has only {len(self._calls)} calls: add the next one")
        name, arguments = self._calls[self._next]
        tokens = tuple(to_ids(render_call(name, arguments), self.tokenizer))
        if not grammar.contains(tokens):
            raise DecodingError(f"call {self._next + 1} of the script, to {name!r}, is not allowed here: correct it")
        self._next += 1
        self._pending = tokens
        return Decoded(
            value=grammar.parse(tokens),
            tokens=tokens,
            steps=0,
            forward_passes=0,
            logprob=0.0,
            entropy=0.0,
            canvas_length=len(tokens),
            forced_share=1.0,
            stopped="forced",
            phases=(Timed("denoise", begun, now_ns(), {"step": 0, "canvas_length": len(tokens)}),),
        )

    def commit(self) -> Timed:
        """Count the tokens of the last call, once."""
        if self._pending is None:
            raise DecodingError("there is no call to commit: decode one first, and commit it once")
        timed = self._append("commit", self._pending)
        self._pending = None
        return timed

    def fork(self) -> Snapshot:
        """Remember the position, and where the script stands."""
        return Snapshot(self.position, (self, self._next))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a position, and to the place in the script that belongs to it."""
        owner, place = snapshot.state
        if owner is not self:
            raise DecodingError("this snapshot was made by another decoder: restore it there")
        self.position, self._next, self._pending = snapshot.position, place, None

    def canvas_logits(self, tokens: torch.Tensor, context: Literal["bos", "transcript"] = "bos") -> torch.Tensor:
        """Zeros [B, C, vocab] float32: a script has no opinion on canvases."""
        return tokens.new_zeros((*tokens.shape, self.tokenizer.vocab_size), dtype=None).float()

    def _append(self, name: str, tokens: Sequence[int]) -> Timed:
        start = now_ns()
        self.position += len(tokens)
        return Timed(name, start, now_ns(), {"tokens": len(tokens), "position": self.position})
