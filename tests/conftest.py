"""Fixtures for all tests: tiny random checkpoints, made from their configuration alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import settings

# Speed is a matter for benchmarks: on a busy machine a property test may take its time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Tests run side by side and their networks are tiny: a second thread only waits for the first.
os.environ.setdefault("OMP_NUM_THREADS", "1")

CODE = "def add(a, b):\n    return a + b\n\n\nfor index in range(10):\n    print(index, total)\n" * 3
SPECIALS = (
    "<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>",
    "<|tool_response>", "<tool_response|>", '<|"|>', "<|think|>",
)  # fmt: skip
TEXT = {
    "vocab_size": 384,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "moe_intermediate_size": 16,
    "tie_word_embeddings": True,
    "final_logit_softcapping": 30.0,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "max_position_embeddings": 8192,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    },
}
# "small": like the checkpoint that ships. "large": google/diffusiongemma-26B-A4B-it in miniature, five sliding
# layers to a full one, another head shape and K = V in the full one, experts, a window shorter than a canvas.
SHAPES = {
    "small": {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "global_head_dim": 8,
        "sliding_window": 1024,
        "num_experts": 1,
        "top_k_experts": 1,
    },
    "large": {
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "sliding_window": 24,
        "num_experts": 8,
        "top_k_experts": 3,
        "use_bidirectional_attention": "vision",
    },
}
VISION = {
    "model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "position_embedding_size": 16,
}  # fmt: skip


def save_tokenizer(folder: Path, specials: tuple[str, ...] = SPECIALS) -> None:
    """A byte-level vocabulary with Gemma 4's special tokens, trained on a few lines."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CODE], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


def save_checkpoint(folder: Path, kind: str, *, tied: bool = True, dtype: str = "float32") -> Path:
    """A random checkpoint of the shape `kind`, its two sets of `layer_scalar` all distinct."""
    import torch
    from safetensors.torch import save_file

    from agent_runtime.decoding.architecture import NetworkConfig
    from agent_runtime.decoding.weights import Weights, read_network

    generator = torch.Generator().manual_seed(len(kind))
    drawn: dict[str, torch.Tensor] = {}

    class Draws(Weights):
        """Answers every read with random numbers, and remembers them."""

        def __init__(self) -> None:
            self.device, self.dtype, self.parameters = torch.device("cpu"), torch.float32, 0

        def __contains__(self, name: str) -> bool:
            return True

        def tensor(self, name: str, *shape: int) -> torch.Tensor:
            tensor = torch.randn(shape, generator=generator)
            if name.endswith("layer_scalar"):
                tensor = torch.tensor([0.5 + 0.01 * len(drawn)])
            elif len(shape) == 1:
                tensor = 1 + 0.2 * tensor
            else:
                tensor = tensor * (0.3 if "embed" in name else 0.15)
            drawn[name] = tensor.to(getattr(torch, dtype))
            return drawn[name]

    config = {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma",
        "text_config": {"model_type": "diffusion_gemma_text", **TEXT, **SHAPES[kind]},
        "vision_config": VISION,
        "tie_word_embeddings": tied,
        "canvas_length": 64,
        "dtype": dtype,
    }
    read_network(NetworkConfig.from_dict(config), Draws())
    folder.mkdir(parents=True, exist_ok=True)
    save_file(drawn, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"max_denoising_steps": 6}))
    save_tokenizer(folder, (*SPECIALS, "<hole>") if kind == "small" else SPECIALS)
    return folder


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of random checkpoints by kind: `small` and `large`."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {kind: save_checkpoint(root / kind, kind) for kind in SHAPES}


@pytest.fixture
def make_checkpoint(tmp_path: Path):
    """A function that saves a checkpoint of its own for a test that damages it."""

    def make(kind: str = "small", **options):
        return save_checkpoint(tmp_path / kind, kind, **options)

    return make
