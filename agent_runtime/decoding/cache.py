"""The KV cache of one transcript: append-only, with room for a canvas behind it."""

from __future__ import annotations

import torch
from torch import Tensor

from agent_runtime.decoding.architecture import NetworkConfig


class Cache:
    """Keys and values of the first `length` tokens, in buffers that grow by doubling.

    Layer i holds `[kv_heads, capacity, head_dim]`. What lies behind `length` is scratch: a canvas lives there
    during a pass. Sliding layers keep all tokens too, although they see only a window: returning to an
    earlier length is then free, at 0.2 MB a token for the 26B model (a ring would save nine tenths of it).
    """

    def __init__(self, config: NetworkConfig, dtype: torch.dtype, device: torch.device) -> None:
        self.length = 0
        self._shapes = config.layers
        self._dtype, self._device = dtype, device
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.capacity = 0

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` in all; existing entries are kept."""
        if tokens <= self.capacity:
            return
        self.capacity = max(256, 1 << (tokens - 1).bit_length())
        for buffers in (self.keys, self.values):
            old = list(buffers)
            buffers.clear()
            for index, shape in enumerate(self._shapes):
                size = (shape.kv_heads, self.capacity, shape.head_dim)
                buffer = torch.zeros(size, dtype=self._dtype, device=self._device)
                if old:
                    buffer[:, : self.length] = old[index][:, : self.length]
                buffers.append(buffer)

    def copy(self, length: int) -> tuple[list[Tensor], list[Tensor]]:
        """A copy of the first `length` entries."""
        return (
            [buffer[:, :length].clone() for buffer in self.keys],
            [buffer[:, :length].clone() for buffer in self.values],
        )

    def load(self, length: int, entries: tuple[list[Tensor], list[Tensor]]) -> None:
        """Take back what `copy` gave at `length`."""
        self.length = 0
        self.reserve(length)
        for buffers, saved in zip((self.keys, self.values), entries, strict=True):
            for buffer, part in zip(buffers, saved, strict=True):
                buffer[:, :length] = part
        self.length = length
