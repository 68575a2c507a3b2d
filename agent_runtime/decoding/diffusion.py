"""The diffusion decoder: a KV cache, and a denoising loop over canvases that stand behind it.

Only new tokens are prefilled, the prefix is never copied, and a call is handed out before it is committed.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from agent_runtime.decoding.checkpoint import Checkpoint
from agent_runtime.decoding.decoder import Decoded, Snapshot, Timed, now_ns
from agent_runtime.decoding.denoise import Denoiser
from agent_runtime.decoding.network import Cache, Network
from agent_runtime.errors import DecodingError

if TYPE_CHECKING:
    from agent_runtime.decoding.grammar import Grammar, Marginals
    from agent_runtime.decoding.tokenizer import Tokenizer

# Tokens of one batched pass in `canvas_logits`: more is no faster on two cores and takes more memory.
BATCH_TOKENS = 1024


@dataclass
class CanvasBehind:
    """The network looking at a canvas that stands behind the tokens of `cache`."""

    network: Network
    cache: Cache

    def logits(self, canvas: Tensor, expected: Tensor | None) -> Tensor:
        """One decoder pass: [L] int64 to [L, vocab] float32."""
        return self.network.denoise(canvas[None].to(self.network.device), self.cache, expected)[0]

    def expect(self, marginals: Marginals) -> Tensor | None:
        """Expected embeddings [1, L, hidden] under the constrained distribution, for self-conditioning."""
        if self.network.conditioning is None:
            return None
        probabilities = marginals.token_logp().exp_().to(self.network.device)
        return self.network.expected_embedding(probabilities)[None]


@dataclass(eq=False)
class _Saved:
    """What a snapshot needs beyond its length: nothing, until its entries are about to be overwritten."""

    length: int
    entries: tuple[list[Tensor], list[Tensor]] | None = None


class DiffusionDecoder:
    """The `Decoder` contract over a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, *, temperature: float = 0.0, max_steps: int | None = None) -> None:
        """`temperature` 0 emits the most probable call, more an exact draw from the constrained distribution.

        `max_steps` bounds the denoising steps of one call; None takes the checkpoint's own setting.
        """
        self.checkpoint = checkpoint
        settings = replace(checkpoint.sampler, max_steps=max_steps or checkpoint.sampler.max_steps)
        self._network = checkpoint.network
        self._cache = self._network.new_cache()
        self._denoise = Denoiser(CanvasBehind(self._network, self._cache), checkpoint.tokenizer, settings, temperature)
        self._bos: Cache | None = None
        self._pending: tuple[int, ...] | None = None
        self._snapshots: weakref.WeakSet[_Saved] = weakref.WeakSet()

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's vocabulary."""
        return self.checkpoint.tokenizer

    @property
    def declares_tools(self) -> bool:
        """As the checkpoint says."""
        return self.checkpoint.declares_tools

    @property
    def position(self) -> int:
        """Tokens in the KV cache."""
        return self._cache.length

    def prefill(self, tokens: Sequence[int]) -> Timed:
        """Append `tokens` to the KV cache, in causal passes of up to 512 tokens.

        A decoded call that was not committed is dropped: what follows stands in its place.
        """
        self._pending = None
        return self._append("prefill", tokens)

    def decode(self, grammar: Grammar, *, seed: int, deadline: float | None = None) -> Decoded:
        """Denoise a canvas behind the cache into a member of `grammar`; see `Decoder.decode`."""
        self._pending = None
        self._protect()
        decoded = self._denoise(grammar, seed, deadline)
        self._pending = decoded.tokens
        return decoded

    def commit(self) -> Timed:
        """Append the tokens of the last `decode`, once."""
        if self._pending is None:
            raise DecodingError("there is no call to commit: decode one first, and commit it once")
        timed = self._append("commit", self._pending)
        self._pending = None
        return timed

    def fork(self) -> Snapshot:
        """O(1): entries are copied only when something else is about to be written over them."""
        saved = _Saved(self._cache.length)
        self._snapshots.add(saved)
        return Snapshot(saved.length, saved)

    def restore(self, snapshot: Snapshot) -> None:
        """O(1) while the snapshot's entries still stand in the cache, else one copy of them."""
        saved = snapshot.state
        if saved not in self._snapshots:
            raise DecodingError("this snapshot was made by another decoder: restore it there")
        self._pending = None
        if saved.entries is None:
            self._cache.length = saved.length
        else:
            self._protect(0)
            self._cache.load(saved.length, saved.entries)

    def canvas_logits(self, tokens: Tensor, context: Literal["bos", "transcript"] = "bos") -> Tensor:
        """One bidirectional pass over many canvases: [B, C] int64 to logits [B, C, vocab] float32.

        Each canvas stands alone behind `<bos>`, or behind the transcript so far. Runs in parts of about
        1,000 tokens.
        """
        cache = self._cache
        self._protect()
        with torch.inference_mode():
            if context == "bos":
                if self._bos is None:
                    self._bos = self._network.new_cache()
                    bos = torch.tensor([self.tokenizer.special("<bos>")], device=self.checkpoint.device)
                    self._network.encode(bos, self._bos)
                cache = self._bos
            rows = max(1, BATCH_TOKENS // tokens.shape[1])
            parts = [
                self._network.denoise(part, cache) for part in torch.split(tokens.to(self.checkpoint.device), rows)
            ]
            return torch.cat(parts)[..., : self.tokenizer.vocab_size]

    def _append(self, name: str, tokens: Sequence[int]) -> Timed:
        """Encode `tokens` into the cache."""
        start = now_ns()
        self._protect()
        if tokens:
            with torch.inference_mode():
                self._network.encode(torch.tensor(tokens, device=self.checkpoint.device), self._cache)
        return Timed(name, start, now_ns(), {"tokens": len(tokens), "position": self.position})

    def _protect(self, start: int | None = None) -> None:
        """Copy what snapshots need of the entries from `start` on (default: the cache's end), which may be lost."""
        start = self._cache.length if start is None else start
        for saved in list(self._snapshots):
            if saved.entries is None and saved.length > start:
                saved.entries = self._cache.copy(saved.length)
