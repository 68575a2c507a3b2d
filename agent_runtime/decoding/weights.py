"""Weights from safetensors files into a `Network`: names, shapes, ties; every surprise is a `CheckpointError`.

Names are those that transformers' `DiffusionGemmaForBlockDiffusion` saves. Encoder and decoder share all
layer weights but `layer_scalar`, unless the configuration unties them. Image weights are left unread.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from agent_runtime.decoding.architecture import NetworkConfig
from agent_runtime.decoding.network import Layer, Network
from agent_runtime.errors import CheckpointError

DECODER = "model.decoder"
ENCODER = "model.encoder.language_model"
NORMS = {
    "input": "input_layernorm",
    "post_attention": "post_attention_layernorm",
    "pre_feedforward": "pre_feedforward_layernorm",
    "pre_feedforward_2": "pre_feedforward_layernorm_2",
    "post_feedforward_1": "post_feedforward_layernorm_1",
    "post_feedforward_2": "post_feedforward_layernorm_2",
    "post_feedforward": "post_feedforward_layernorm",
}


class Weights:
    """The tensors of a folder's safetensors file or files, checked as they are read, placed on `device`."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        """Open the files of `folder`; matrices will be of `dtype`, vectors of float32."""
        self.folder, self.device, self.dtype = folder, device, dtype
        self.parameters = 0
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            try:
                places: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
                shards = {name: self._open(name) for name in set(places.values())}
            except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
                raise CheckpointError(f"{index} is corrupt ({error!r}): copy the file again") from error
            self._files = {weight: shards[name] for weight, name in places.items()}
        else:
            whole = self._open("model.safetensors")
            self._files = dict.fromkeys(whole.keys(), whole)

    def _open(self, name: str) -> Any:
        path = self.folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: copy the complete checkpoint")
        try:
            return safetensors.safe_open(str(path), framework="pt", device=str(self.device))
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is corrupt ({error}): copy the file again") from error

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor `name`, as stored; `CheckpointError` when missing, misshapen, corrupt or not finite."""
        if name not in self._files:
            raise CheckpointError(f"{self.folder} lacks the weight {name}: copy the complete checkpoint")
        try:
            tensor: Tensor = self._files[name].get_tensor(name)
        except safetensors.SafetensorError as error:
            raise CheckpointError(f"{self.folder} has no readable {name} ({error}): copy it again") from error
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{self.folder} has {name} of shape {list(tensor.shape)} where config.json implies {list(shape)}: "
                "take both from the same checkpoint"
            )
        # The sum is one pass without a temporary; it may also overflow, so look closer before refusing.
        if not torch.isfinite(tensor.sum(dtype=torch.float32)) and not torch.isfinite(tensor).all():
            raise CheckpointError(f"{self.folder} has values in {name} that are not finite: use another checkpoint")
        self.parameters += tensor.numel()
        return tensor

    def matrix(self, name: str, *shape: int) -> Tensor:
        """A factor of a matrix product."""
        return self.tensor(name, *shape).to(self.dtype)

    def vector(self, name: str, size: int) -> Tensor:
        """A scale: always float32."""
        return self.tensor(name, size).float()


def read_network(config: NetworkConfig, weights: Weights) -> Network:
    """All weights that inference uses."""
    hidden = config.hidden_size
    # A tied checkpoint holds one copy, under the decoder's name as transformers saves it, or the encoder's.
    shared = DECODER if f"{DECODER}.embed_tokens.weight" in weights or not config.tied else ENCODER
    decoder = [_read_layer(config, index, f"{shared}.layers.{index}", weights) for index in range(len(config.layers))]
    encoder = decoder
    if not config.tied:
        encoder = [_read_layer(config, index, f"{ENCODER}.layers.{index}", weights) for index in range(len(decoder))]
    embedding = weights.matrix(f"{shared}.embed_tokens.weight", config.vocab_size, hidden)
    norm = weights.vector(f"{shared}.norm.weight", hidden)
    return Network(
        config,
        embedding=embedding,
        encoder_embedding=embedding
        if config.tied
        else weights.matrix(f"{ENCODER}.embed_tokens.weight", config.vocab_size, hidden),
        encoder=_scaled(encoder, ENCODER, weights),
        decoder=_scaled(decoder, DECODER, weights),
        norm=norm,
        encoder_norm=norm if config.tied else weights.vector(f"{ENCODER}.norm.weight", hidden),
        head=embedding if config.tied else weights.matrix("lm_head.weight", config.vocab_size, hidden),
        conditioning=_read_conditioning(config, weights),
    )


def _read_conditioning(config: NetworkConfig, weights: Weights) -> dict[str, Tensor] | None:
    """The self-conditioning block; None when its output is always zero, as where training left it out."""
    at, hidden, inner = f"{DECODER}.self_conditioning", config.hidden_size, config.intermediate_size
    gate = weights.matrix(f"{at}.gate_proj.weight", inner, hidden)
    up = weights.matrix(f"{at}.up_proj.weight", inner, hidden)
    down = weights.matrix(f"{at}.down_proj.weight", hidden, inner)
    norm = weights.vector(f"{at}.pre_norm.weight", hidden)
    return {"pre_norm": norm, "gate_up": torch.cat((gate, up)), "down": down} if down.any() else None


def _scaled(layers: list[Layer], root: str, weights: Weights) -> list[Layer]:
    """`layers` under the `layer_scalar` values of one side: the only layer weights that are never shared."""
    return [
        replace(layer, scalar=weights.vector(f"{root}.layers.{index}.layer_scalar", 1))
        for index, layer in enumerate(layers)
    ]


def _read_layer(config: NetworkConfig, index: int, at: str, weights: Weights) -> Layer:
    """Layer `index`, whose weights' names begin with `at`; its scalar is still 1."""
    shape = config.layers[index]
    hidden, inner, expert = config.hidden_size, config.intermediate_size, config.expert_size
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    projections = [
        weights.matrix(f"{at}.self_attn.q_proj.weight", queries, hidden),
        weights.matrix(f"{at}.self_attn.k_proj.weight", keys, hidden),
    ]
    if shape.sliding:  # full layers have K = V
        projections.append(weights.matrix(f"{at}.self_attn.v_proj.weight", keys, hidden))
    query_norm = weights.vector(f"{at}.self_attn.q_norm.weight", shape.head_dim)
    key_norm = weights.vector(f"{at}.self_attn.k_norm.weight", shape.head_dim)
    norms = {name: weights.vector(f"{at}.{stored}.weight", hidden) for name, stored in NORMS.items()}
    return Layer(
        shape=shape,
        qkv=torch.cat(projections),
        qk_norm=torch.cat((query_norm.expand(shape.heads, -1), key_norm.expand(shape.kv_heads, -1))),
        out=weights.matrix(f"{at}.self_attn.o_proj.weight", hidden, queries),
        gate_up=torch.cat(
            (
                weights.matrix(f"{at}.mlp.gate_proj.weight", inner, hidden),
                weights.matrix(f"{at}.mlp.up_proj.weight", inner, hidden),
            )
        ),
        down=weights.matrix(f"{at}.mlp.down_proj.weight", hidden, inner),
        router=weights.matrix(f"{at}.router.proj.weight", config.experts, hidden),
        router_scale=weights.vector(f"{at}.router.scale", hidden) * hidden**-0.5,
        expert_scale=weights.vector(f"{at}.router.per_expert_scale", config.experts),
        expert_gate_up=weights.matrix(f"{at}.experts.gate_up_proj", config.experts, 2 * expert, hidden),
        expert_down=weights.matrix(f"{at}.experts.down_proj", config.experts, hidden, expert),
        norms=norms,
        scalar=torch.ones(1, device=weights.device),
        expert_half=bool(norms["post_feedforward_2"].any()),
    )
