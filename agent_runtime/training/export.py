"""Assemble the folder that ships: configuration, weights, tokenizer, generation settings, data list."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from agent_runtime.training.model import Shape, load_weights, save_weights
from agent_runtime.training.tokenizer import load_tokenizer

#: The sampler settings of the large checkpoint, except that a call of this one ends at ``<eos>`` alone.
GENERATION = {
    "_from_model_config": False,
    "bos_token_id": 2,
    "eos_token_id": [1],
    "pad_token_id": 0,
    # Calls that are not certain after eight steps do not become so: a small model only costs more.
    "max_denoising_steps": 8,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "t_max": 0.8,
    "t_min": 0.4,
    "confidence_threshold": 0.005,
    "stability_threshold": 1,
}


def export(weights: Path, tokenizer: Path, data: Path, folder: Path) -> None:
    """Write everything but the model card, which is written by hand, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = Shape(vocab=load_tokenizer(tokenizer).get_vocab_size())
    save_weights(load_weights(shape, weights), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(shape.config(), indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    shutil.copyfile(data, folder / "data.json")
