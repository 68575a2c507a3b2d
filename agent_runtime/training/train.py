"""Train the small checkpoint on prepared shards; resumable, and polite on a shared machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from agent_runtime.training.model import Network, Shape, save_weights
from agent_runtime.training.muon import Muon
from agent_runtime.training.objectives import MAX_CANVAS, Noise, choose_positions
from agent_runtime.training.stream import Batch, Cursor, edit_batches

NAMES = ("copy", "empty", "mask", "random", "bug")


@dataclass(frozen=True)
class Settings:
    """How to train. ``rows * 256`` tokens a step; ``head`` of them carry loss."""

    rows: int = 16
    shards: int = 60
    head: int = 1536
    lr: float = 2e-3
    weight_decay: float = 0.05
    warmup: int = 200
    ema: float = 0.998
    seed: int = 0
    save_every: float = 240.0
    validate_every: int = 500
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
            Muon(matrices, settings.lr, weight_decay=settings.weight_decay),
            torch.optim.AdamW(rest, settings.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
        ]
        self.step = 0
        self.cursor = Cursor()
        self.bos = torch.full((1, 1), bos)
        self._loss = torch.compile(self._losses, dynamic=False) if settings.compiled else self._losses

    def _losses(self, network: Network, tokens: Tensor, positions: Tensor, segment: Tensor, chosen: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
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
        """Losses, correctness, weights and kinds of the chosen positions of a batch, each ``[head]``."""
        chosen, weights = choose_positions(batch.what, self.settings.head, rng)
        tensors = [torch.from_numpy(item) for item in (batch.tokens, batch.positions, batch.segment, chosen)]
        wanted = torch.from_numpy(batch.targets.reshape(-1)[chosen])
        loss, right = self._loss(network, *tensors, wanted)
        return loss, right, torch.from_numpy(weights), torch.from_numpy(batch.what.reshape(-1)[chosen])

    def update(self, batch: Batch, scale: float) -> dict[str, float]:
        """One optimizer step at ``scale`` times the learning rate."""
        rng = np.random.default_rng([self.settings.seed, 1, self.step])
        loss, right, weights, what = self.losses(self.network, batch, rng)
        total = (loss * weights).sum() / weights.sum()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        warm = min(1.0, (self.step + 1) / self.settings.warmup)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings.lr * warm * scale
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        keep = min(self.settings.ema, self.step / (self.step + 10))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - keep)
        return {"loss": float(total.detach()), "norm": float(norm), **by_kind(loss.detach(), right, weights, what)}

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
        self.step, self.cursor = state["step"], Cursor(**state["cursor"])


def by_kind(loss: Tensor, right: Tensor, weights: Tensor, what: Tensor) -> dict[str, float]:
    """Mean loss and accuracy for each kind of position."""
    out: dict[str, float] = {}
    for kind, name in enumerate(NAMES):
        here = (what == kind) & (weights > 0)
        if here.any():
            out[name] = round(float(loss[here].mean()), 4)
            out[name + "_acc"] = round(float(right[here].float().mean()), 4)
    return out


def schedule(started: float, now: float, seconds: float, decay: float = 0.25) -> float:
    """Constant, then linear to zero over the last ``decay`` of the time: the end may be moved while it runs."""
    left = (started + seconds - now) / (decay * seconds)
    return max(0.0, min(1.0, left))


def train(data: Path, out: Path, noise: Noise, bos: int, settings: Settings, seconds: float) -> None:
    """Train until ``seconds`` have passed, in ``out``: ``state.pt``, ``model.safetensors``, ``log.jsonl``."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "pid").write_text(str(os.getpid()))
    trainer = Trainer(Shape(vocab=noise.vocab), settings, bos)
    if (out / "state.pt").exists():
        trainer.load(out / "state.pt")
    shards = [data / f"train-{number:04d}.npz" for number in range(settings.shards)]
    checks = _first(edit_batches([data / "valid.npz"], noise, settings.rows, 7, Cursor()), 16)
    batches = edit_batches(shards, noise, settings.rows, settings.seed, trainer.cursor)
    started = saved = time.time()
    with (out / "log.jsonl").open("a") as log:

        def write(row: dict[str, float]) -> None:
            log.write(json.dumps({"step": trainer.step, "seconds": round(time.time() - started, 1), **row}) + "\n")
            log.flush()

        while time.time() - started < seconds:
            row = trainer.update(next(batches), schedule(started, time.time(), seconds))
            if trainer.step % 20 == 0:
                write(row)
            if trainer.step % settings.validate_every == 0:
                write({f"valid_{name}": value for name, value in trainer.validate(checks).items()})
            if time.time() - saved > settings.save_every:
                trainer.save(out / "state.pt")
                save_weights(trainer.average, out / "model.safetensors")
                saved = time.time()
        write({f"valid_{name}": value for name, value in trainer.validate(checks).items()})
    trainer.save(out / "state.pt")
    save_weights(trainer.average, out / "model.safetensors")


def _first(batches: Iterator[Batch], count: int) -> list[Batch]:
    return [next(batches) for _ in range(count)]
