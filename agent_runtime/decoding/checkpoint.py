"""Read a checkpoint folder: configuration, vocabulary and weights, or one sentence about what is wrong.

One loader for every checkpoint of the DiffusionGemma architecture: the small one that ships with the
package, folders of one's own, and models of the Hugging Face cache that are already on this machine.
Weights come from safetensors files only; nothing here unpickles, and nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from agent_runtime.decoding.architecture import NetworkConfig
from agent_runtime.decoding.network import Network
from agent_runtime.decoding.sampler import SamplerConfig
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.decoding.weights import Weights, read_network
from agent_runtime.errors import CheckpointError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SMALL = Path(__file__).parent.parent / "checkpoints" / "small"
SPECIALS = (
    "<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|tool>", "<tool|>",
    "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>',
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint; `vocab_size` of the network may exceed the tokenizer's (padding rows)."""

    name: str
    folder: Path
    network: Network
    tokenizer: Tokenizer
    config: NetworkConfig
    sampler: SamplerConfig
    declares_tools: bool
    """Whether prompts carry tool declarations: `tool_declarations` in tokenizer_config.json, else True."""
    ends: tuple[int, ...]
    """`eos_token_id` in generation_config.json: every token that ends an answer; else `<eos>` alone."""
    device: torch.device
    dtype: torch.dtype
    parameters: int


def load_checkpoint(path_or_name: str | Path, device: str = "auto", dtype: str = "auto") -> Checkpoint:
    """Load `small`, a folder, or a model name such as `google/diffusiongemma-26B-A4B-it` from the local cache.

    `device` is `auto` (CUDA when there is one), `cpu`, `cuda` or `cuda:N`; `dtype` is `auto` (bfloat16 where
    the processor multiplies it fast), `bfloat16` or `float32`. Raises `CheckpointError`.
    """
    folder = checkpoint_folder(path_or_name)
    config = NetworkConfig.from_dict(_read_json(folder / "config.json"))
    tokenizer = Tokenizer.from_folder(folder)
    missing = [name for name in SPECIALS if name not in tokenizer.specials]
    if missing:
        raise CheckpointError(f"{folder}/tokenizer.json lacks {missing[0]!r}: give a checkpoint made for tool calls")
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{folder}/tokenizer.json has {tokenizer.vocab_size} tokens but config.json only "
            f"{config.vocab_size}: take both files from the same checkpoint"
        )
    generation = folder / "generation_config.json"
    settings = _read_json(generation) if generation.is_file() else {}
    # Not in generation_config.json, where transformers refuses what it does not know.
    vocabulary = folder / "tokenizer_config.json"
    prompts = _read_json(vocabulary) if vocabulary.is_file() else {}
    place = _device(device)
    precision = _dtype(dtype, place)
    weights = Weights(folder, place, precision)
    network = read_network(config, weights)
    return Checkpoint(
        name=str(path_or_name),
        folder=folder,
        network=network,
        tokenizer=tokenizer,
        config=config,
        sampler=SamplerConfig.from_dict(settings),
        ends=_ends(settings, tokenizer),
        declares_tools=bool(prompts.get("tool_declarations", True)),
        device=place,
        dtype=precision,
        parameters=weights.parameters,
    )


def checkpoint_folder(path_or_name: str | Path) -> Path:
    """The folder that `path_or_name` stands for; `CheckpointError` when it is not on this machine."""
    if str(path_or_name) == "small":
        folder = SMALL
    else:
        folder = Path(path_or_name).expanduser()
        if not folder.exists() and isinstance(path_or_name, str) and _HUB_NAME.fullmatch(path_or_name):
            return _cached_model(path_or_name)
    if not folder.is_dir():
        raise CheckpointError(f"no checkpoint folder {folder}: give a folder that holds config.json, or 'small'")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} holds no config.json: give the folder of a complete checkpoint")
    return folder


def _cached_model(name: str) -> Path:
    """The newest snapshot of `name` in the Hugging Face cache (layout: hub/models--owner--name/snapshots/…)."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    repository = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{name.replace('/', '--')}"
    reference = repository / "refs" / "main"
    if reference.is_file():
        snapshot = repository / "snapshots" / reference.read_text().strip()
        if (snapshot / "config.json").is_file():
            return snapshot
    raise CheckpointError(
        f"{name!r} is neither a folder nor in the local model cache: "
        f"fetch it with 'hf download {name}', or give a folder or 'small'"
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; restore the file from the checkpoint") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object; restore the file from the checkpoint")
    return content


def _ends(settings: dict[str, Any], tokenizer: Tokenizer) -> tuple[int, ...]:
    given = settings.get("eos_token_id")
    ends = given if isinstance(given, list) else [tokenizer.special("<eos>") if given is None else given]
    if not all(isinstance(end, int) and 0 <= end < tokenizer.vocab_size for end in ends):
        raise CheckpointError(f"generation_config.json sets eos_token_id to {given!r}: give tokens of the vocabulary")
    return tuple(ends)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CheckpointError(f"no device is called {name!r}: use 'auto', 'cpu' or 'cuda'") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CheckpointError("this machine has no usable CUDA device: use device 'cpu'")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" or _cpu_multiplies_bfloat16() else torch.float32
    if name not in ("bfloat16", "float32"):
        raise CheckpointError(f"dtype {name!r} is not supported: use 'auto', 'bfloat16' or 'float32'")
    return torch.bfloat16 if name == "bfloat16" else torch.float32


@cache
def _cpu_multiplies_bfloat16() -> bool:
    """Whether this CPU has bfloat16 matrix units; without them oneDNN emulates, slower than float32.

    With AMX a [64, 256] x [256, 4096] product takes 0.16 ms in bfloat16 and 0.60 ms in float32 (two cores).
    """
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags
