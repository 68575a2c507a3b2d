"""One training step of each objective, validation, and all the state that resuming needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from agent_runtime.training.call_batches import CallBatch
from agent_runtime.training.model import Network, Shape
from agent_runtime.training.muon import Muon
from agent_runtime.training.objectives import choose_positions
from agent_runtime.training.stream import Batch, Cursor

#: Names of the kinds of positions in ``objectives``, for the log.
KINDS = ("copy", "empty", "mask", "random", "bug")
#: Weight of the causal loss beside that of the canvases.
CAUSAL = 0.5


@dataclass(frozen=True)
class Settings:
    """How to train. ``rows * 256`` tokens a step; ``head`` of them carry loss."""

    rows: int = 16
    head: int = 1280
    shards: int = 24
    call_rows: int = 5
    #: Every so many steps one of tool calls; 0 for none.
    call_every: int = 6
    lr: float = 2.5e-3
    matrix_lr: float = 5e-3
    weight_decay: float = 0.05
    warmup: int = 100
    decay: float = 0.6
    ema: float = 0.99
    seed: int = 0
    save_every: float = 240.0
    validate_every: int = 300
    log_every: int = 30
    compiled: bool = True


class Trainer:
    """The network, its optimizers and a running average of its weights."""

    def __init__(self, shape: Shape, settings: Settings, bos: int) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.network = Network(shape)
        self.average = Network(shape)
        self.average.load_state_dict(self.network.state_dict())
        self.average.requires_grad_(False)
        matrices = [p for n, p in self.network.named_parameters() if p.ndim == 2 and n != "embed"]
        rest = [p for n, p in self.network.named_parameters() if p.ndim != 2 or n == "embed"]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, settings.matrix_lr, weight_decay=settings.weight_decay),
            torch.optim.AdamW(rest, settings.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
        ]
        self.step = 0
        self.seconds = 0.0
        self.cursor = Cursor()
        self.bos = torch.full((1, 1), bos)
        compiled = torch.compile(self._losses, dynamic=False) if settings.compiled else self._losses
        self._loss: Callable[..., tuple[Tensor, Tensor]] = compiled

    def _losses(
        self, network: Network, tokens: Tensor, positions: Tensor, segment: Tensor, chosen: Tensor, wanted: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Cross entropy and correctness at ``chosen`` flat positions, both ``[head]``."""
        with torch.autocast("cpu", torch.bfloat16):
            _, past = network.encode(self.bos)
            apart = segment[:, :, None] != segment[:, None, :]
            mask = torch.zeros(apart.shape, dtype=torch.bfloat16).masked_fill(apart, float("-inf"))
            mask = F.pad(mask, (1, 0))[:, None, None]
            hidden = network.decode(tokens, past, positions, mask)
            logits = network.logits(hidden.reshape(-1, hidden.shape[-1])[chosen])
        return F.cross_entropy(logits, wanted, reduction="none"), logits.argmax(-1) == wanted

    def losses(self, network: Network, batch: Batch, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Losses, correctness, weights and kinds of the chosen positions of a batch, each ``[head]``.

        Validation is not compiled: a second graph takes longer to compile than all validations to run.
        """
        chosen, weights = choose_positions(batch.what, self.settings.head, rng)
        tensors = [torch.from_numpy(item) for item in (batch.tokens, batch.positions, batch.segment, chosen)]
        wanted = torch.from_numpy(batch.targets.reshape(-1)[chosen])
        step: Callable[..., tuple[Tensor, Tensor]] = self._loss if network is self.network else self._losses
        loss, right = step(network, *tensors, wanted)
        return loss, right, torch.from_numpy(weights), torch.from_numpy(batch.what.reshape(-1)[chosen])

    def update(self, batch: Batch, scale: float) -> dict[str, float]:
        """One step on edit canvases, at ``scale`` times the learning rate."""
        loss, right, weights, what = self.losses(self.network, batch, self._random())
        total = (loss * weights).sum() / weights.sum()
        return {
            "loss": float(total.detach()),
            "norm": self._optimize(total, scale),
            **by_kind(loss.detach(), right, weights, what),
        }

    def update_calls(self, batch: CallBatch, scale: float) -> dict[str, float]:
        """One step on tool-call canvases and on the transcripts that they stand behind."""
        context, weights = torch.from_numpy(batch.context), torch.from_numpy(batch.weights).reshape(-1)
        targets = torch.from_numpy(batch.targets).reshape(-1)
        rng = self._random()
        real = np.flatnonzero(batch.context[:, 1:] != 0)
        chosen = torch.from_numpy(rng.choice(real, min(512, len(real)), replace=False))
        with torch.autocast("cpu", torch.bfloat16):
            states, past = self.network.encode(context)
            mask = torch.zeros(batch.mask().shape, dtype=torch.bfloat16)
            mask = mask.masked_fill(torch.from_numpy(batch.mask()), float("-inf"))[:, None, None]
            hidden = self.network.decode(torch.from_numpy(batch.tokens), past, torch.from_numpy(batch.positions), mask)
            used = weights > 0
            logits = self.network.logits(hidden.reshape(-1, hidden.shape[-1])[used])
            ahead = self.network.logits(states[:, :-1].reshape(-1, states.shape[-1])[chosen])
        loss = F.cross_entropy(logits, targets[used], reduction="none")
        causal = F.cross_entropy(ahead, context[:, 1:].reshape(-1)[chosen])
        total = (loss * weights[used]).sum() / weights[used].sum()
        noisy = weights[used] == 1.0
        right = (logits.argmax(-1) == targets[used])[noisy].float().mean()
        norm = self._optimize(total + CAUSAL * causal, scale)
        found = {"call": total.detach(), "call_acc": right, "causal": causal.detach()}
        return {name: round(float(value), 4) for name, value in found.items()} | {"norm": norm}

    def _random(self) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, 1, self.step])

    def _optimize(self, total: Tensor, scale: float) -> float:
        total.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        warm = min(1.0, (self.step + 1) / self.settings.warmup)
        for optimizer, peak in zip(self.optimizers, (self.settings.matrix_lr, self.settings.lr), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * warm * scale
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        keep = min(self.settings.ema, self.step / (self.step + 10))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - keep)
        return round(float(norm), 3)

    def validate(self, batches: list[Batch]) -> dict[str, float]:
        """Mean losses and accuracies of the averaged weights."""
        rows: list[tuple[Tensor, ...]] = []
        with torch.no_grad():
            for number, batch in enumerate(batches):
                rows.append(self.losses(self.average, batch, np.random.default_rng(number)))
        loss, right, weights, what = (torch.cat(column) for column in zip(*rows, strict=True))
        return {"loss": float((loss * weights).sum() / weights.sum()), **by_kind(loss, right, weights, what)}

    def save(self, path: Path) -> None:
        """Everything that resuming needs, written whole or not at all."""
        state = {
            "network": self.network.state_dict(), "average": self.average.state_dict(), "step": self.step,
            "optimizers": [item.state_dict() for item in self.optimizers], "cursor": asdict(self.cursor),
            "seconds": self.seconds,
        }  # fmt: skip
        scratch = path.with_suffix(".partial")
        torch.save(state, scratch)
        scratch.replace(path)

    def load(self, path: Path) -> None:
        """Continue from what ``save`` wrote."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state.get("seconds", 0.0)
        self.cursor.shard, self.cursor.batch = state["cursor"]["shard"], state["cursor"]["batch"]


def by_kind(loss: Tensor, right: Tensor, weights: Tensor, what: Tensor) -> dict[str, float]:
    """Mean loss and accuracy for each kind of position."""
    out: dict[str, float] = {}
    for kind, name in enumerate(KINDS):
        here = (what == kind) & (weights > 0)
        if here.any():
            out[name] = round(float(loss[here].mean()), 4)
            out[name + "_acc"] = round(float(right[here].float().mean()), 4)
    return out
