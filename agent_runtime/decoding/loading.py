"""A decoder by name: what `--model` on the command line and `Agent.model` mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime.decoding.diffusion import DiffusionDecoder
    from agent_runtime.decoding.uniform import UniformDecoder


def load_decoder(
    name_or_path: str | Path = "small",
    *,
    device: str = "auto",
    dtype: str = "auto",
    temperature: float = 0.0,
    max_steps: int | None = None,
) -> DiffusionDecoder | UniformDecoder:
    """The decoder called `name_or_path`; imports torch, so call it when one is needed.

    `small` is the checkpoint that ships with the package, `uniform` random numbers over its vocabulary;
    else a checkpoint folder, or the name of a model in the local cache. Raises `CheckpointError`.
    """
    from agent_runtime.decoding.checkpoint import SMALL, load_checkpoint
    from agent_runtime.decoding.diffusion import DiffusionDecoder
    from agent_runtime.decoding.tokenizer import Tokenizer
    from agent_runtime.decoding.uniform import UniformDecoder

    if str(name_or_path) == "uniform":
        return UniformDecoder(Tokenizer.from_folder(SMALL))
    checkpoint = load_checkpoint(name_or_path, device, dtype)
    return DiffusionDecoder(checkpoint, temperature=temperature, max_steps=max_steps)
