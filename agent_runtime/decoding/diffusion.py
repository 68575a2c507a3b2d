"""The diffusion decoder: a KV cache, and a denoising loop over canvases that stand behind it.

Only new tokens are prefilled, the prefix is never copied, and a call is handed out before it is committed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from agent_runtime.decoding.cache import Cache
from agent_runtime.decoding.checkpoint import Checkpoint
from agent_runtime.decoding.decoder import Decoded, Snapshot, Timed, now_ns
from agent_runtime.decoding.denoise import Denoiser
from agent_runtime.decoding.network import Network
from agent_runtime.errors import DecodingError

if TYPE_CHECKING:
    from agent_runtime.decoding.grammar import Grammar, Marginals
    from agent_runtime.decoding.tokenizer import Tokenizer

# Tokens of one batched pass in `canvas_logits`: more is no faster on two cores and takes more memory.
BATCH_TOKENS = 1024
# Steps of one call, when the checkpoint allows that many. Its own bound (48) is meant for 256 tokens of prose;
# a structured call settles within 2 to 4, and what has not settled in 12 gets no better.
MAX_STEPS = 12
# Networks under this size run on one CPU thread. Two threads meet at a barrier after every product of 0.1 ms;
# beside another busy process (the tests in the sandbox, say) a pass over 64 tokens took 900 ms instead of 43.
SMALL_PARAMETERS = 50_000_000


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

        `max_steps` bounds the denoising steps of one call; None takes the checkpoint's bound, or 12.
        """
        self.checkpoint = checkpoint
        settings = replace(checkpoint.sampler, max_steps=max_steps or min(MAX_STEPS, checkpoint.sampler.max_steps))
        self._network = checkpoint.network
        self._cache = self._network.new_cache()
        model = CanvasBehind(self._network, self._cache)
        self._denoise = Denoiser(model, checkpoint.tokenizer, settings, temperature, checkpoint.ends)
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
        with self._threads():
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

    @torch.inference_mode()
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

        Each canvas stands alone behind `<bos>`, or behind the transcript so far.
        """
        cache = self._cache if context == "transcript" else self._bos_cache()
        rows = max(1, BATCH_TOKENS // tokens.shape[1])
        tokens = tokens.to(self.checkpoint.device)
        logits = torch.empty((*tokens.shape, self.tokenizer.vocab_size), device=tokens.device)

        @torch.inference_mode()
        def look(first: int) -> None:
            part = self._network.denoise(tokens[first : first + rows], cache, beside=True)
            logits[first : first + rows] = part[..., : self.tokenizer.vocab_size]

        # Parts side by side on single threads need no barriers, unlike threads within each product.
        workers = 1 if tokens.device.type == "cuda" else os.cpu_count() or 1
        with self._threads(), ThreadPoolExecutor(workers) as pool:
            list(pool.map(look, range(0, len(tokens), rows)))
        return logits

    def _bos_cache(self) -> Cache:
        """A cache that holds only `<bos>`."""
        if self._bos is None:
            cache = self._network.new_cache()
            with torch.inference_mode(), self._threads():
                bos = torch.tensor([self.tokenizer.special("<bos>")], device=self.checkpoint.device)
                self._network.encode(bos, cache)
            self._bos = cache
        return self._bos

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """One CPU thread a product for a small network, see `SMALL_PARAMETERS`; as set for a large one."""
        before = torch.get_num_threads()
        torch.set_num_threads(1 if self.checkpoint.parameters < SMALL_PARAMETERS else before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _append(self, name: str, tokens: Sequence[int]) -> Timed:
        """Encode `tokens` into the cache."""
        start = now_ns()
        self._protect()
        if tokens:
            with torch.inference_mode(), self._threads():
                self._network.encode(torch.tensor(tokens, device=self.checkpoint.device), self._cache)
        return Timed(name, start, now_ns(), {"tokens": len(tokens), "position": self.position})

    @torch.inference_mode()
    def _protect(self, start: int | None = None) -> None:
        """Copy what snapshots need of the entries from `start` on (default: the cache's end), which may be lost."""
        start = self._cache.length if start is None else start
        for saved in list(self._snapshots):
            if saved.entries is None and saved.length > start:
                saved.entries = self._cache.copy(saved.length)
