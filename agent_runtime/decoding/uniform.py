"""The baseline: the same denoising loop, with random numbers where a network would be.

What it solves, the tests solve and not the model; what it costs is what everything but the model costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from agent_runtime.decoding.decoder import Decoded, Snapshot, Timed, now_ns
from agent_runtime.decoding.denoise import Denoiser
from agent_runtime.decoding.sampler import SamplerConfig
from agent_runtime.errors import DecodingError

if TYPE_CHECKING:
    from agent_runtime.decoding.grammar import Grammar, Marginals
    from agent_runtime.decoding.tokenizer import Tokenizer


class RandomLogits:
    """Standard normal logits for any canvas."""

    def __init__(self, vocab_size: int) -> None:
        self.generator = torch.Generator()
        self._vocab_size = vocab_size

    def logits(self, canvas: Tensor, expected: Tensor | None) -> Tensor:
        """[..., L] int64 to [..., L, vocab] float32, whatever the canvas holds."""
        return torch.randn((*canvas.shape, self._vocab_size), generator=self.generator)

    def expect(self, marginals: Marginals) -> None:
        """Nothing: random numbers do not listen."""


class UniformDecoder:
    """The `Decoder` contract over random logits: one step a call, and no cache but its length."""

    declares_tools = False

    def __init__(self, tokenizer: Tokenizer, *, seed: int = 0) -> None:
        """`seed` is for `canvas_logits`; `decode` takes its own."""
        self.tokenizer = tokenizer
        self.position = 0
        self._canvases = RandomLogits(tokenizer.vocab_size)
        self._canvases.generator.manual_seed(seed)
        self._model = RandomLogits(tokenizer.vocab_size)
        self._denoise = Denoiser(self._model, tokenizer, SamplerConfig(max_steps=1))
        self._pending: tuple[int, ...] | None = None

    def prefill(self, tokens: Sequence[int]) -> Timed:
        """Count `tokens`."""
        self._pending = None
        return self._append("prefill", tokens)

    def decode(self, grammar: Grammar, *, seed: int, deadline: float | None = None) -> Decoded:
        """The best member of `grammar` under random logits."""
        self._model.generator.manual_seed(seed)
        decoded = self._denoise(grammar, seed, deadline)
        self._pending = decoded.tokens
        return decoded

    def commit(self) -> Timed:
        """Count the tokens of the last call, once."""
        if self._pending is None:
            raise DecodingError("there is no call to commit: decode one first, and commit it once")
        timed = self._append("commit", self._pending)
        self._pending = None
        return timed

    def fork(self) -> Snapshot:
        """Remember the position."""
        return Snapshot(self.position, self)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a position."""
        if snapshot.state is not self:
            raise DecodingError("this snapshot was made by another decoder: restore it there")
        self.position, self._pending = snapshot.position, None

    def canvas_logits(self, tokens: Tensor, context: Literal["bos", "transcript"] = "bos") -> Tensor:
        """Random logits [B, C, vocab] float32 for canvases [B, C]."""
        return self._canvases.logits(tokens, None)

    def _append(self, name: str, tokens: Sequence[int]) -> Timed:
        start = now_ns()
        self.position += len(tokens)
        return Timed(name, start, now_ns(), {"tokens": len(tokens), "position": self.position})
