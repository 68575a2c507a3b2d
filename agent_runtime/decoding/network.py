"""The DiffusionGemma network, for inference: one set of weights, two passes.

The *encoder* pass is causal and writes keys and values into a cache; the *decoder* pass reads that cache
and looks at a whole canvas in both directions. Architecture and weight names are those of transformers'
`DiffusionGemmaForBlockDiffusion`; the tests compare the two, number by number.

Why not that class itself: importing it takes 4.6 s on top of torch's 1.7 s (two cores), more than all
that a first tool call may take, and its pass over a canvas copies the whole prefix in every layer. Here the
canvas's keys and values are written behind the prefix into the same buffer, and simply not counted.

Matrix products run in the dtype of the weights; the residual stream, norms and softmax in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from agent_runtime.decoding.architecture import AttentionShape, NetworkConfig
from agent_runtime.decoding.cache import Cache

# Longer prefills go through in pieces of this many tokens: bounds the memory of scores and activations.
CHUNK = 512


@dataclass(frozen=True)
class Layer:
    """The weights of one layer; encoder and decoder share all but `scalar`."""

    shape: AttentionShape
    qkv: Tensor  # [(heads + kv_heads [+ kv_heads]) * head_dim, hidden]; without a v part, V is K before its norm
    qk_norm: Tensor  # [heads + kv_heads, head_dim] float32
    out: Tensor  # [hidden, heads * head_dim]
    gate_up: Tensor  # [2 * intermediate, hidden]
    down: Tensor  # [hidden, intermediate]
    router: Tensor  # [experts, hidden]
    router_scale: Tensor  # [hidden] float32, hidden ** -0.5 included
    expert_scale: Tensor  # [experts] float32
    expert_gate_up: Tensor  # [experts, 2 * expert, hidden]
    expert_down: Tensor  # [experts, hidden, expert]
    norms: dict[str, Tensor]  # name -> [hidden] float32
    scalar: Tensor  # [1] float32
    expert_half: bool  # False when the norm behind the experts is zero: then they add nothing, exactly


class Network:
    """The two passes over a set of weights. All methods are to be called under `torch.inference_mode`."""

    def __init__(
        self,
        config: NetworkConfig,
        *,
        embedding: Tensor,
        encoder_embedding: Tensor,
        encoder: list[Layer],
        decoder: list[Layer],
        norm: Tensor,
        encoder_norm: Tensor,
        head: Tensor,
        conditioning: dict[str, Tensor] | None,
    ) -> None:
        """`embedding` and `head` are [vocab, hidden]; `conditioning` holds `pre_norm`, `gate_up`, `down`.

        `conditioning` is None for weights that make no use of what the previous step expected.
        """
        self.config = config
        self.embedding, self.encoder_embedding, self.head = embedding, encoder_embedding, head
        self.norm, self.encoder_norm = norm, encoder_norm
        self.encoder, self.decoder = encoder, decoder
        self.conditioning = conditioning
        self.dtype, self.device = embedding.dtype, embedding.device
        # The reference rounds the scale to the dtype of the weights, so that it is part of the model.
        self.embed_scale = float(torch.tensor(config.hidden_size**0.5, dtype=self.dtype))
        self._rope: dict[AttentionShape, tuple[Tensor, Tensor]] = {}

    def new_cache(self) -> Cache:
        """An empty cache for this network."""
        return Cache(self.config, self.dtype, self.device)

    def encode(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Append `tokens` [n] to `cache`; returns the last token's hidden state [hidden] (float32, normed).

        The cache's length moves once, at the end: an interrupted call leaves it as it was.
        """
        start, end = cache.length, cache.length + len(tokens)
        cache.reserve(end)
        hidden = torch.empty(0)
        for first in range(start, end, CHUNK):
            last = min(first + CHUNK, end)
            hidden = self._embed(tokens[None, first - start : last - start], self.encoder_embedding)
            masks = {kind: self._causal_mask(first, last, kind) for kind in {s.sliding for s in self.config.layers}}
            for index, layer in enumerate(self.encoder):
                hidden = self._layer(layer, index, hidden, cache, first, mask=masks[layer.shape.sliding])
        cache.length = end
        return F.rms_norm(hidden[0, -1], hidden.shape[-1:], self.encoder_norm, self.config.eps)

    def denoise(self, canvas: Tensor, cache: Cache, expected: Tensor | None = None, *, beside: bool = False) -> Tensor:
        """Logits [B, C, vocab] float32 of canvases [B, C] (int64), each behind the tokens in `cache`.

        `expected` is what the previous step expected to stand there, `expected_embedding` of its
        probabilities, [B, C, hidden]; None in the first step. One canvas uses the cache's scratch; several,
        or any with `beside`, copy the prefix instead and may run side by side in threads.
        """
        beside = beside or len(canvas) > 1
        if not beside:
            cache.reserve(cache.length + canvas.shape[1])
        hidden = self._canvas_input(canvas, expected)
        for index, layer in enumerate(self.decoder):
            hidden = self._layer(layer, index, hidden, cache, cache.length, beside=beside)
        return self._logits(hidden)

    def expected_embedding(self, probabilities: Tensor) -> Tensor:
        """`probabilities` [..., vocab] to what `denoise` takes as `expected`, [..., hidden] float32."""
        return (probabilities.to(self.dtype) @ self.embedding[: probabilities.shape[-1]]).float()

    def _embed(self, tokens: Tensor, table: Tensor) -> Tensor:
        """[B, n] int64 to [B, n, hidden] float32."""
        return F.embedding(tokens, table).float() * self.embed_scale

    def _canvas_input(self, canvas: Tensor, expected: Tensor | None) -> Tensor:
        """Embeddings plus the self-conditioning signal, normed: [B, C, hidden] float32."""
        hidden = self._embed(canvas, self.embedding)
        weights = self.conditioning
        if expected is not None and weights is not None:
            signal = expected * self.embed_scale
            normed = F.rms_norm(signal, hidden.shape[-1:], weights["pre_norm"], self.config.eps)
            hidden = hidden + _gated(normed.to(self.dtype), weights["gate_up"], weights["down"])
        return F.rms_norm(hidden, hidden.shape[-1:], None, self.config.eps)

    def _logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] to soft-capped logits [..., vocab] float32."""
        normed = F.rms_norm(hidden, hidden.shape[-1:], self.norm, self.config.eps).to(self.dtype)
        logits = F.linear(normed, self.head).float()
        return logits.div_(self.config.soft_cap).tanh_().mul_(self.config.soft_cap)

    def _layer(
        self,
        layer: Layer,
        index: int,
        hidden: Tensor,
        cache: Cache,
        start: int,
        *,
        mask: Tensor | None = None,
        beside: bool = False,
    ) -> Tensor:
        """One layer over `hidden` [B, n, hidden], whose first tokens stand at position `start`."""
        eps, norms, size = self.config.eps, layer.norms, hidden.shape[-1:]
        normed = F.rms_norm(hidden, size, norms["input"], eps).to(self.dtype)
        attended = self._attention(layer, index, normed, cache, start, mask, beside)
        hidden = hidden + F.rms_norm(attended, size, norms["post_attention"], eps)
        return self._feed_forward(layer, hidden)

    def _project(self, layer: Layer, normed: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, heads, n, d], keys and values [B, kv_heads, n, d], normed and rotated, for a product."""
        shape = layer.shape
        batch, count, _ = normed.shape
        parts = F.linear(normed, layer.qkv).view(batch, count, -1, shape.head_dim).float()
        parts = F.rms_norm(parts, (shape.head_dim,), None, self.config.eps)
        keyed = shape.heads + shape.kv_heads
        rotary = parts[:, :, :keyed] * layer.qk_norm
        cos, sin = self._rotation(shape, start + count)
        cos, sin = cos[start : start + count, None], sin[start : start + count, None]
        rotary = torch.addcmul(rotary * cos, rotary.roll(shape.head_dim // 2, -1), sin).to(self.dtype).transpose(1, 2)
        values = parts[:, :, keyed:] if parts.shape[2] > keyed else parts[:, :, shape.heads :]
        return rotary[:, : shape.heads], rotary[:, shape.heads :], values.to(self.dtype).transpose(1, 2)

    def _attention(
        self, layer: Layer, index: int, normed: Tensor, cache: Cache, start: int, mask: Tensor | None, beside: bool
    ) -> Tensor:
        """Attend from `normed` [B, n, hidden] to the cache and to itself; [B, n, hidden] float32."""
        batch, end = normed.shape[0], start + normed.shape[1]
        query, key, value = self._project(layer, normed, start)
        first = max(0, start - self.config.window + 1) if layer.shape.sliding else 0
        keys, values = cache.keys[index], cache.values[index]
        if not beside:  # behind the prefix, in the same buffer: nothing is copied
            keys[:, start:end], values[:, start:end] = key[0], value[0]
            key, value = keys[None, :, first:end], values[None, :, first:end]
        elif start > first:
            key = torch.cat((keys[:, first:start].expand(batch, -1, -1, -1), key), 2)
            value = torch.cat((values[:, first:start].expand(batch, -1, -1, -1), value), 2)
        grouped = layer.shape.heads != layer.shape.kv_heads
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0, enable_gqa=grouped)
        return F.linear(attended.transpose(1, 2).flatten(2), layer.out).float()

    def _feed_forward(self, layer: Layer, hidden: Tensor) -> Tensor:
        """The dense and the expert half side by side, each between its own norms: [B, n, hidden] float32."""
        eps, norms, size = self.config.eps, layer.norms, hidden.shape[-1:]
        dense_in = F.rms_norm(hidden, size, norms["pre_feedforward"], eps).to(self.dtype)
        both = F.rms_norm(_gated(dense_in, layer.gate_up, layer.down), size, norms["post_feedforward_1"], eps)
        if layer.expert_half:
            expert_in = F.rms_norm(hidden, size, norms["pre_feedforward_2"], eps).to(self.dtype)
            both += F.rms_norm(self._experts(layer, hidden, expert_in), size, norms["post_feedforward_2"], eps)
        return (hidden + F.rms_norm(both, size, norms["post_feedforward"], eps)) * layer.scalar

    def _experts(self, layer: Layer, hidden: Tensor, expert_in: Tensor) -> Tensor:
        """The mixture of experts: routed by `hidden` (before its norm), applied to `expert_in`; float32."""
        if self.config.experts == 1:  # the router's softmax over one expert is 1
            return _gated(expert_in, layer.expert_gate_up[0], layer.expert_down[0]) * layer.expert_scale
        routed = F.rms_norm(hidden, hidden.shape[-1:], layer.router_scale, self.config.eps).to(self.dtype)
        weights, chosen = F.linear(routed, layer.router).float().softmax(-1).topk(self.config.top_k)
        weights = weights / weights.sum(-1, keepdim=True) * layer.expert_scale[chosen]
        # Rows in the order of their expert, so that one grouped product serves all experts; no host sync.
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        counts = (chosen[:, None] == torch.arange(self.config.experts, device=self.device)).sum(0)
        ends = counts.cumsum(0).to(torch.int32)
        rows = order // self.config.top_k
        up = F.grouped_mm(expert_in.flatten(0, -2)[rows], layer.expert_gate_up.mT, offs=ends)
        down = F.grouped_mm(_geglu(up), layer.expert_down.mT, offs=ends).float()
        mixed = torch.zeros_like(hidden).flatten(0, -2)
        return mixed.index_add_(0, rows, down * weights.flatten()[order, None]).view_as(hidden)

    def _causal_mask(self, start: int, end: int, sliding: bool) -> Tensor | None:
        """Additive mask for queries at [start, end): [n, keys] in the weights' dtype, or None for one query."""
        first = max(0, start - self.config.window + 1) if sliding else 0
        if end - start == 1:
            return None
        query = torch.arange(start, end, device=self.device)[:, None]
        key = torch.arange(first, end, device=self.device)[None]
        hidden = key > query
        if sliding:
            hidden |= key <= query - self.config.window
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, float("-inf"))

    def _rotation(self, shape: AttentionShape, tokens: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines [capacity, head_dim] float32 for at least `tokens` positions.

        The sine's first half is negated, so that rotating is `x * cos + roll(x, d / 2) * sin`. Only the first
        `rotated` share of the frequencies turns; the others are zero ("proportional" in the config).
        """
        if shape not in self._rope or len(self._rope[shape][0]) < tokens:
            turning = int(shape.rotated * shape.head_dim // 2)
            exponents = torch.arange(0, 2 * turning, 2, dtype=torch.float32) / shape.head_dim
            frequencies = torch.zeros(shape.head_dim // 2)
            frequencies[:turning] = shape.theta**-exponents
            positions = torch.arange(max(1024, 1 << (tokens - 1).bit_length()), dtype=torch.float32)
            angles = positions[:, None] * frequencies
            cos, sin = angles.cos(), angles.sin()
            self._rope[shape] = (
                torch.cat((cos, cos), -1).to(self.device),
                torch.cat((-sin, sin), -1).to(self.device),
            )
        return self._rope[shape]


def _geglu(gate_up: Tensor) -> Tensor:
    """GELU(first half) * second half."""
    gate, up = gate_up.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


def _gated(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """A gated feed-forward block: [n, hidden] in the weights' dtype to [n, hidden] float32."""
    return F.linear(_geglu(F.linear(x, gate_up)), down).float()
