"""``python -m agent_runtime.training all --out DIR`` makes the small checkpoint from nothing but packages.

Each step reads what the one before left in DIR, so each can be repeated alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from agent_runtime.training import corpus, decontaminate, shards
from agent_runtime.training.tokenizer import load_tokenizer, save_tokenizer, tokenizer_texts, train_tokenizer

PACKAGES = Path(__file__).with_name("packages.txt")


def make_corpus(options: argparse.Namespace) -> None:
    """Download the packages' wheels, collect their functions."""
    wheels = options.wheels or options.out / "wheels"
    if options.wheels is None:
        wheels.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", str(wheels), "--requirement", str(PACKAGES)], check=True)
    packages = corpus.build(wheels, options.out / "corpus", decontaminator(options))
    print(sum(package.functions for package in packages), "functions")  # noqa: T201


def make_tokenizer(options: argparse.Namespace) -> None:
    """Train the tokenizer on the corpus and on the wording of the tools."""
    texts = tokenizer_texts(corpus.load(options.out / "corpus" / "functions.jsonl"), options.seed)
    save_tokenizer(train_tokenizer(texts), options.out / "tokenizer")


def make_shards(options: argparse.Namespace) -> None:
    """Prepare training and validation samples."""
    encode = shards.lexeme_encoder(load_tokenizer(options.out / "tokenizer"))
    shards.prepare(corpus.load(options.out / "corpus" / "functions.jsonl"), options.out / "shards", encode,
                   decontaminator(options), options.shards, options.seed)  # fmt: skip


def run_training(options: argparse.Namespace) -> None:
    """Train for a number of minutes; an interrupted run goes on where it was."""
    import torch

    from agent_runtime.training.train import train
    from agent_runtime.training.trainer import Settings

    torch.set_num_threads(options.threads)
    seen, _ = shards.split(corpus.load(options.out / "corpus" / "functions.jsonl"))
    source = shards.Source(seen, shards.SYNTHETIC, decontaminator(options))
    settings = Settings(seed=options.seed, shards=options.shards, compiled=not options.eager)
    tokenizer = load_tokenizer(options.out / "tokenizer")
    train(options.out / "shards", options.out / "run", tokenizer, source, settings, options.minutes * 60)


def export_folder(options: argparse.Namespace) -> None:
    """Assemble the checkpoint's folder."""
    from agent_runtime.training.export import export

    folder = options.folder or options.out / "checkpoint"
    export(
        options.out / "run" / "model.safetensors",
        options.out / "tokenizer",
        options.out / "corpus" / "data.json",
        folder,
    )


def measure(options: argparse.Namespace) -> None:
    """Rank the edits of held-out bugs."""
    from agent_runtime.decoding.loading import load_decoder
    from agent_runtime.training.evaluate import as_row, cases, evaluate

    held = [item for item in corpus.load(options.out / "corpus" / "functions.jsonl") if item.package in corpus.HELD_OUT]
    algorithms = [item for item in held if item.weight >= corpus.ALGORITHM]
    decoder = load_decoder(options.folder or options.out / "checkpoint")
    print(json.dumps(as_row(evaluate(decoder, cases(algorithms, options.cases, options.seed)))))  # noqa: T201


def decontaminator(options: argparse.Namespace) -> decontaminate.Decontaminator:
    """The shipped fingerprints and those of the folders that were given."""
    shipped = decontaminate.unpack(decontaminate.FINGERPRINTS.read_text())
    return decontaminate.Decontaminator([*shipped, *decontaminate.from_folders(options.eval_dir)])


STEPS: dict[str, Callable[[argparse.Namespace], None]] = {
    "corpus": make_corpus,
    "tokenizer": make_tokenizer,
    "shards": make_shards,
    "train": run_training,
    "export": export_folder,
    "evaluate": measure,
}


def main() -> None:
    """Run one step, or all."""
    parser = argparse.ArgumentParser(prog="python -m agent_runtime.training", description=__doc__)
    parser.add_argument("step", choices=[*STEPS, "all"])
    parser.add_argument("--out", type=Path, required=True, help="where everything is kept")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels to use instead of downloading")
    parser.add_argument("--eval-dir", type=Path, action="append", default=[], help="programs to keep out of the data")
    parser.add_argument("--shards", type=int, default=24, help="shards of 8,192 samples")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--threads", type=int, default=1, help="one is faster than two beside other work")
    parser.add_argument("--eager", action="store_true", help="do not compile the training step")
    parser.add_argument("--cases", type=int, default=200, help="held-out bugs to measure on")
    parser.add_argument("--folder", type=Path, help="the checkpoint's folder, to write or to measure")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for step in STEPS if options.step == "all" else [options.step]:
        STEPS[step](options)


if __name__ == "__main__":
    main()
