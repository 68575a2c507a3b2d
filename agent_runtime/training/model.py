"""A lean network that computes what ``DiffusionGemmaForBlockDiffusion`` computes, for training.

Same weights, same function (``tests/training`` compares the logits), about half the time a step: no
cache objects, no expert dispatch, one explicit ``q @ k.T -> softmax -> @ v``, and a head that runs only
on the positions that carry loss. Two parts of the class are switched off by weights that are zero, so
that they cost nothing here and change nothing there: the expert branch (its output norm is zero; the
class demands at least one expert) and self-conditioning (its output projection is zero).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

#: Keys, values of one layer, ``[batch, kv heads, length, head dim]``.
KeyValue = tuple[Tensor, Tensor]
#: Every size of the vision tower: it is there because the class demands one, and is never used.
VISION_SIDE = 16
_DECODER, _ENCODER = "model.decoder.", "model.encoder.language_model."


@dataclass(frozen=True)
class Shape:
    """The sizes of the network; the defaults are those of the checkpoint that ships."""

    vocab: int = 4096
    hidden: int = 192
    layers: int = 4
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 64
    mlp: int = 384
    window: int = 1024
    cap: float = 30.0
    eps: float = 1e-6

    @property
    def sliding(self) -> tuple[bool, ...]:
        """Five sliding layers to one full one, the last one full, as in the large checkpoint."""
        return tuple((layer + 1) % 6 != 0 and layer + 1 != self.layers for layer in range(self.layers))

    def config(self) -> dict[str, Any]:
        """The ``config.json`` of transformers for this shape."""
        text = {
            "model_type": "diffusion_gemma_text", "vocab_size": self.vocab, "hidden_size": self.hidden,
            "intermediate_size": self.mlp, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim, "global_head_dim": self.head_dim,
            "num_global_key_value_heads": self.kv_heads, "sliding_window": self.window,
            "layer_types": ["sliding_attention" if flag else "full_attention" for flag in self.sliding],
            "max_position_embeddings": 8192, "final_logit_softcapping": self.cap,
            "rms_norm_eps": self.eps, "num_experts": 1, "top_k_experts": 1, "moe_intermediate_size": 16,
            "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "tie_word_embeddings": True,
        }  # fmt: skip
        vision = {
            "model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 16,
            "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16,
            "position_embedding_size": 16,
        }  # fmt: skip
        return {
            "architectures": ["DiffusionGemmaForBlockDiffusion"], "model_type": "diffusion_gemma",
            "text_config": text, "vision_config": vision, "canvas_length": 256,
            "boi_token_id": None, "eoi_token_id": None, "image_token_id": None,
            "tie_word_embeddings": True, "dtype": "bfloat16",
        }  # fmt: skip


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Root mean square norm in f32, returned in the type of ``x``."""
    return F.rms_norm(x.float(), x.shape[-1:], weight, eps).to(x.dtype)


class Layer(nn.Module):
    """One transformer layer; encoder and decoder share it."""

    def __init__(self, shape: Shape, sliding: bool) -> None:
        super().__init__()
        self.shape, self.sliding = shape, sliding
        wide, narrow, hidden = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.hidden
        self.q = nn.Linear(hidden, wide, bias=False)
        self.k = nn.Linear(hidden, narrow, bias=False)
        self.v = nn.Linear(hidden, narrow, bias=False) if sliding else None
        self.o = nn.Linear(wide, hidden, bias=False)
        self.gate = nn.Linear(hidden, shape.mlp, bias=False)
        self.up = nn.Linear(hidden, shape.mlp, bias=False)
        self.down = nn.Linear(shape.mlp, hidden, bias=False)
        # The class scales attention by 1, not by 1/sqrt(d): start where the usual scale would put it.
        start = shape.head_dim**-0.25
        self.q_norm = nn.Parameter(torch.full((shape.head_dim,), start))
        self.k_norm = nn.Parameter(torch.full((shape.head_dim,), start))
        self.norms = nn.ParameterDict(
            {name: nn.Parameter(torch.ones(hidden)) for name in ("before", "mixed", "mlp", "mlp_1", "out")}
        )

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """``x [batch, length, hidden]``; ``mask`` adds to the scores; ``past`` is read in front."""
        shape, norms = self.shape, self.norms
        batch, length, _ = x.shape
        y = rms_norm(x, norms["before"], shape.eps)
        q = rotate(rms_norm(self.q(y).view(batch, length, shape.heads, -1), self.q_norm, shape.eps), rope)
        keys = self.k(y).view(batch, length, shape.kv_heads, -1)
        values = keys if self.v is None else self.v(y).view(batch, length, shape.kv_heads, -1)
        keys = rotate(rms_norm(keys, self.k_norm, shape.eps), rope).transpose(1, 2)
        values = rms_norm(values, None, shape.eps).transpose(1, 2)
        own = (keys, values)
        if past is not None:
            keys = torch.cat([past[0].expand(batch, -1, -1, -1), keys], 2)
            values = torch.cat([past[1].expand(batch, -1, -1, -1), values], 2)
        repeat = shape.heads // shape.kv_heads
        q = q.view(batch, length, shape.kv_heads, repeat, -1).permute(0, 2, 3, 1, 4)
        scores = q.reshape(batch, shape.kv_heads, repeat * length, -1) @ keys.transpose(2, 3)
        if mask is not None:
            split = scores.view(batch, shape.kv_heads, repeat, length, -1) + mask
            scores = split.view(batch, shape.kv_heads, repeat * length, -1)
        mixed = scores.softmax(-1, dtype=torch.float32).to(values.dtype) @ values
        mixed = mixed.view(batch, shape.kv_heads, repeat, length, -1).permute(0, 3, 1, 2, 4)
        x = x + rms_norm(self.o(mixed.reshape(batch, length, -1)), norms["mixed"], shape.eps)
        y = rms_norm(x, norms["mlp"], shape.eps)
        y = self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y))
        y = rms_norm(rms_norm(y, norms["mlp_1"], shape.eps), norms["out"], shape.eps)
        return x + y, own


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions on ``x [batch, length, heads, dim]`` by ``cos, sin [batch, length, 1, dim]``."""
    left, right = x.chunk(2, -1)
    return x * rope[0] + torch.cat((-right, left), -1) * rope[1]


class Network(nn.Module):
    """The text network: ``encode`` (causal) and ``decode`` (bidirectional over a canvas)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Parameter(torch.randn(shape.vocab, shape.hidden) * 0.02)
        self.layers = nn.ModuleList(Layer(shape, flag) for flag in shape.sliding)
        self.norm = nn.Parameter(torch.ones(shape.hidden))
        half = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
        rotated = torch.arange(shape.head_dim // 2) < shape.head_dim // 8
        self.slow: Tensor
        self.fast: Tensor
        self.register_buffer("fast", 1e4**-half, persistent=False)
        self.register_buffer("slow", torch.where(rotated, 1e6**-half, 0.0), persistent=False)
        for layer in self.layers:
            for module in layer.modules():
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=0.5 / math.sqrt(module.in_features))

    def _run(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, past: list[KeyValue] | None
    ) -> tuple[Tensor, list[KeyValue]]:
        ropes = []
        for frequencies in (self.slow, self.fast):
            angles = (positions[..., None].float() * frequencies).repeat(1, 1, 2)[:, :, None]
            ropes.append((angles.cos().to(x.dtype), angles.sin().to(x.dtype)))
        states = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            x, state = layer(x, ropes[layer.sliding], mask, past[number] if past else None)
            states.append(state)
        return rms_norm(x, self.norm, self.shape.eps), states

    def encode(self, ids: Tensor) -> tuple[Tensor, list[KeyValue]]:
        """Hidden states ``[batch, length, hidden]`` and keys and values of a context ``ids [batch, length]``.

        Contexts here are never longer than the sliding window, so every layer sees all of them.
        """
        length = ids.shape[1]
        x = F.embedding(ids, self.embed) * self.shape.hidden**0.5
        mask = torch.full((length, length), float("-inf"), device=ids.device).triu(1).to(_compute(x))
        return self._run(x.to(_compute(x)), torch.arange(length, device=ids.device)[None], mask, None)

    def decode(self, ids: Tensor, past: list[KeyValue], positions: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states of canvases ``ids [batch, length]``; ``mask [.., length, past + length]`` adds."""
        x = F.embedding(ids, self.embed) * self.shape.hidden**0.5
        x = rms_norm(x, None, self.shape.eps)
        return self._run(x.to(_compute(x)), positions, mask, past)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Soft-capped logits in f32."""
        return torch.tanh(F.linear(hidden, self.embed).float() / self.shape.cap) * self.shape.cap


def _compute(x: Tensor) -> torch.dtype:
    return torch.bfloat16 if torch.is_autocast_enabled("cpu") and x.device.type == "cpu" else x.dtype


_NAMES = {
    "self_attn.q_proj.weight": "q.weight", "self_attn.k_proj.weight": "k.weight",
    "self_attn.v_proj.weight": "v.weight", "self_attn.o_proj.weight": "o.weight",
    "self_attn.q_norm.weight": "q_norm", "self_attn.k_norm.weight": "k_norm",
    "mlp.gate_proj.weight": "gate.weight", "mlp.up_proj.weight": "up.weight",
    "mlp.down_proj.weight": "down.weight", "input_layernorm.weight": "norms.before",
    "post_attention_layernorm.weight": "norms.mixed", "pre_feedforward_layernorm.weight": "norms.mlp",
    "post_feedforward_layernorm_1.weight": "norms.mlp_1", "post_feedforward_layernorm.weight": "norms.out",
}  # fmt: skip


def to_transformers(network: Network) -> dict[str, Tensor]:
    """The state dict of the transformers class, bf16: shared weights once, both sets of scalars."""
    shape = network.shape
    own = dict(network.state_dict())
    out = {_DECODER + "embed_tokens.weight": own["embed"], _DECODER + "norm.weight": own["norm"]}
    conditioning = _DECODER + "self_conditioning."
    out[conditioning + "pre_norm.weight"] = torch.ones(shape.hidden)
    out[conditioning + "gate_proj.weight"] = torch.zeros(shape.mlp, shape.hidden)
    out[conditioning + "up_proj.weight"] = torch.zeros(shape.mlp, shape.hidden)
    out[conditioning + "down_proj.weight"] = torch.zeros(shape.hidden, shape.mlp)
    for number in range(shape.layers):
        base = f"{_DECODER}layers.{number}."
        for theirs, ours in _NAMES.items():
            if f"layers.{number}.{ours}" in own:
                out[base + theirs] = own[f"layers.{number}.{ours}"]
        out[base + "router.proj.weight"] = torch.zeros(1, shape.hidden)
        out[base + "router.scale"] = torch.ones(shape.hidden)
        out[base + "router.per_expert_scale"] = torch.ones(1)
        out[base + "experts.gate_up_proj"] = torch.zeros(1, 32, shape.hidden)
        out[base + "experts.down_proj"] = torch.zeros(1, shape.hidden, 16)
        out[base + "pre_feedforward_layernorm_2.weight"] = torch.ones(shape.hidden)
        out[base + "post_feedforward_layernorm_2.weight"] = torch.zeros(shape.hidden)
        out[base + "layer_scalar"] = torch.ones(1)
        out[f"{_ENCODER}layers.{number}.layer_scalar"] = torch.ones(1)
    out |= _vision(shape)
    return {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in out.items()}


def _vision(shape: Shape) -> dict[str, Tensor]:
    """Zeros for the one-layer vision tower that the class demands; without them loading warns."""
    tower, layer = "model.encoder.vision_tower.", "model.encoder.vision_tower.encoder.layers.0."
    side = VISION_SIDE
    out = {layer + f"mlp.{name}_proj.linear.weight": torch.zeros(side, side) for name in ("gate", "up", "down")}
    out |= {layer + f"self_attn.{name}_proj.linear.weight": torch.zeros(side, side) for name in "qkvo"}
    out |= {layer + f"self_attn.{name}_norm.weight": torch.ones(side) for name in "qk"}
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        out[layer + f"{name}_layernorm.weight"] = torch.ones(side)
    out[tower + "patch_embedder.input_proj.weight"] = torch.zeros(side, 3 * side * side)
    out[tower + "patch_embedder.position_embedding_table"] = torch.zeros(2, side, side)
    out["model.encoder.embed_vision.embedding_projection.weight"] = torch.zeros(shape.hidden, side)
    return out


def from_transformers(shape: Shape, tensors: dict[str, Tensor]) -> Network:
    """The lean network with the weights of a checkpoint that ``to_transformers`` wrote."""
    own = {"embed": tensors[_DECODER + "embed_tokens.weight"], "norm": tensors[_DECODER + "norm.weight"]}
    for number in range(shape.layers):
        for theirs, ours in _NAMES.items():
            key = f"{_DECODER}layers.{number}.{theirs}"
            if key in tensors:
                own[f"layers.{number}.{ours}"] = tensors[key]
    network = Network(shape)
    network.load_state_dict({name: tensor.float() for name, tensor in own.items()})
    return network


def save_weights(network: Network, path: Path) -> None:
    """Write ``model.safetensors`` whole, or not at all."""
    scratch = path.with_suffix(".partial")
    save_file(to_transformers(network), scratch, metadata={"format": "pt"})
    scratch.chmod(0o644)
    scratch.replace(path)


def load_weights(shape: Shape, path: Path) -> Network:
    """Read ``model.safetensors`` into the lean network."""
    return from_transformers(shape, load_file(path))
