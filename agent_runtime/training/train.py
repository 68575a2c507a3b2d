"""Train the small checkpoint on prepared shards; resumable, and polite on a shared machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from agent_runtime.training.call_batches import call_batches
from agent_runtime.training.calls import Scribe
from agent_runtime.training.model import Shape, save_weights
from agent_runtime.training.objectives import Noise
from agent_runtime.training.shards import Source, train_name, valid_name
from agent_runtime.training.stream import Batch, Cursor, edit_batches
from agent_runtime.training.trainer import Settings, Trainer

#: Batches of the validation shard that are looked at, always the same.
CHECKS = 16


def noise_of(tokenizer: Tokenizer) -> Noise:
    """The noise for a tokenizer: uniform over all tokens but the special ones."""
    hole = tokenizer.token_to_id("<hole>")
    assert hole is not None
    return Noise(hole=hole, first=hole + 1, vocab=tokenizer.get_vocab_size())


def schedule(passed: float, seconds: float, decay: float) -> float:
    """Constant, then linear to zero over the last ``decay`` of the time: the end may move while it runs."""
    return max(0.0, min(1.0, (seconds - passed) / (decay * seconds)))


def train(shards: Path, out: Path, tokenizer: Tokenizer, source: Source, settings: Settings, seconds: float) -> None:
    """Train until ``seconds`` have passed, in ``out``: ``state.pt``, ``model.safetensors``, ``log.jsonl``.

    Time that earlier, interrupted calls spent counts.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / "pid").write_text(str(os.getpid()))
    noise = noise_of(tokenizer)
    scribe = Scribe(tokenizer)
    trainer = Trainer(Shape(vocab=noise.vocab), settings, scribe.special("<bos>"))
    if (out / "state.pt").exists():
        trainer.load(out / "state.pt")
    paths = [shards / train_name(number) for number in range(settings.shards)]
    checks = _first(edit_batches([shards / valid_name()], noise, settings.rows, 7, Cursor()), CHECKS)
    batches = edit_batches(paths, noise, settings.rows, settings.seed, trainer.cursor)
    calls = call_batches(source, scribe, noise, settings.call_rows, settings.seed + trainer.step)
    started = saved = time.time() - trainer.seconds
    with (out / "log.jsonl").open("a") as log:

        def write(row: dict[str, float]) -> None:
            log.write(json.dumps({"step": trainer.step, "seconds": round(trainer.seconds, 1), **row}) + "\n")
            log.flush()

        while True:
            trainer.seconds = time.time() - started
            if trainer.seconds >= seconds:
                break
            scale = schedule(trainer.seconds, seconds, settings.decay)
            if settings.call_every and trainer.step % settings.call_every == settings.call_every - 1:
                row = trainer.update_calls(next(calls), scale)
            else:
                row = trainer.update(next(batches), scale)
            if trainer.step % settings.log_every in (0, settings.log_every - 1):
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
