"""The entropy-bound sampler: which canvas positions to believe after a step, and what noise to put elsewhere.

Positions are accepted from the most certain on, as long as their entropies stay under a bound: the sum
bounds what the accepted positions could still tell about each other, so they may be set independently
(Ben-Hamu et al., 2025, "Accelerated sampling from masked diffusion models via entropy bounded unmasking").
Here the entropies are those of the *constrained* distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from agent_runtime.errors import CheckpointError


@dataclass(frozen=True)
class SamplerConfig:
    """Denoising settings; the defaults are those of transformers' `DiffusionGemmaGenerationConfig`."""

    max_steps: int = 48
    entropy_bound: float = 0.1
    """Nats that the accepted positions may carry together."""
    t_max: float = 0.8
    """Temperature of the logits in the first step."""
    t_min: float = 0.4
    """Temperature that the schedule would reach after the last step."""
    confidence: float = 0.005
    """Mean entropy (nats) under which a canvas that no longer changes is final."""

    @classmethod
    def from_dict(cls, generation: Mapping[str, Any]) -> SamplerConfig:
        """Take what `generation_config.json` sets; `CheckpointError` for values that make no sense."""
        given = {
            "max_steps": generation.get("max_denoising_steps"),
            "entropy_bound": _entropy_bound(generation),
            "t_max": generation.get("t_max"),
            "t_min": generation.get("t_min"),
            "confidence": generation.get("confidence_threshold"),
        }
        for name, value in given.items():
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise CheckpointError(f"generation_config.json sets {name} to {value!r}: give a positive number")
        return replace(cls(), **{name: value for name, value in given.items() if value is not None})

    def temperature(self, step: int) -> float:
        """Temperature of step 0, 1, …: falls linearly from `t_max`."""
        return self.t_min + (self.t_max - self.t_min) * (1 - step / self.max_steps)


def _entropy_bound(generation: Mapping[str, Any]) -> Any:
    sampler = generation.get("sampler_config") or {}
    if not isinstance(sampler, Mapping):
        raise CheckpointError(f"generation_config.json sets sampler_config to {sampler!r}: give an object")
    return sampler.get("entropy_bound")


def accept(entropies: Tensor, free: Tensor, bound: float, at_least: int = 1) -> Tensor:
    """Which positions to believe: [L] bool from constrained entropies [L] (nats) and the mask of free slots.

    The most certain free positions are taken while the entropies of those before them sum to at most
    `bound`, at least `at_least` of them; positions that are not free are always believed.
    """
    order = entropies.masked_fill(~free, float("inf")).argsort(stable=True)
    ranked = entropies[order].where(free[order], 0.0)
    before = ranked.cumsum(0) - ranked
    ranks = torch.arange(len(entropies), device=entropies.device)
    taken = torch.empty_like(free)
    taken[order] = (before <= bound) | (ranks < at_least)
    return taken | ~free


def noise(length: int, vocab_size: int, generator: torch.Generator) -> Tensor:
    """Uniform random tokens [length] int64: the model's fully noised canvas."""
    return torch.randint(vocab_size, (length,), generator=generator)
