"""What `config.json` says about a DiffusionGemma network, as far as inference needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_runtime.errors import CheckpointError

# What the architecture takes where a config.json is silent.
DEFAULT_ROPE: Mapping[str, Mapping[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


@dataclass(frozen=True)
class AttentionShape:
    """How one layer attends: `heads` query heads share `kv_heads` key heads of `head_dim` numbers."""

    sliding: bool
    heads: int
    kv_heads: int
    head_dim: int
    theta: float
    rotated: float  # share of head_dim that carries the position


@dataclass(frozen=True)
class NetworkConfig:
    """The part of `config.json` that inference needs."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    expert_size: int
    layers: tuple[AttentionShape, ...]
    window: int  # a sliding layer sees this many tokens, its own included
    experts: int
    top_k: int
    soft_cap: float
    eps: float
    tied: bool

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> NetworkConfig:
        """Read the contents of `config.json`; `CheckpointError` for another architecture or variant."""
        if config.get("model_type") != "diffusion_gemma":
            found = config.get("model_type", "none")
            raise CheckpointError(
                f"model_type is {found!r}: give a checkpoint whose config.json says 'diffusion_gemma'"
            )
        try:
            text = config["text_config"]
            for key in ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "sliding_window"):
                if not isinstance(text[key], int) or text[key] < 1:
                    raise CheckpointError(f"config.json has {key} = {text[key]!r}: give a positive number")
            for key, supported in (
                ("hidden_activation", ("gelu_pytorch_tanh",)),
                ("attention_bias", (False,)),
                ("use_bidirectional_attention", (None, "vision")),
            ):
                if text.get(key, supported[0]) not in supported:
                    raise CheckpointError(
                        f"config.json has {key} = {text[key]!r}, which this network does not implement"
                    )
            return cls(
                vocab_size=text["vocab_size"],
                hidden_size=text["hidden_size"],
                intermediate_size=text["intermediate_size"],
                expert_size=text["moe_intermediate_size"],
                layers=tuple(_attention_shape(text, index) for index in range(text["num_hidden_layers"])),
                window=text["sliding_window"],
                experts=text["num_experts"],
                top_k=text["top_k_experts"],
                soft_cap=text.get("final_logit_softcapping", 30.0),
                eps=text.get("rms_norm_eps", 1e-6),
                tied=config.get("tie_word_embeddings", True),
            )
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"config.json lacks or mangles {error}: give a complete diffusion_gemma config"
            ) from error


def _attention_shape(text: Mapping[str, Any], index: int) -> AttentionShape:
    """The shape of layer `index`; overrides come as `per_layer_config` or as the older `global_*` keys."""
    last = index == text["num_hidden_layers"] - 1  # the architecture's last layer is full, whatever is written
    kind = "full_attention" if last else text["layer_types"][index]
    sliding = kind == "sliding_attention"
    kv_heads, head_dim = text["num_key_value_heads"], text["head_dim"]
    if "per_layer_config" in text:
        override = text["per_layer_config"].get(str(index), {})
        kv_heads, head_dim = override.get("num_key_value_heads", kv_heads), override.get("head_dim", head_dim)
    elif not sliding:
        kv_heads = text.get("num_global_key_value_heads") or kv_heads
        head_dim = text.get("global_head_dim", 512)
    rope = (text.get("rope_parameters") or DEFAULT_ROPE)[kind]
    if rope["rope_type"] not in ("default", "proportional") or rope.get("factor", 1) != 1:
        raise CheckpointError(f"config.json scales positions by {dict(rope)}, which this network does not implement")
    heads = text["num_attention_heads"]
    return AttentionShape(
        sliding, heads, kv_heads, head_dim, rope["rope_theta"], rope.get("partial_rotary_factor", 1.0)
    )
