"""Draw functions, rename them, break them, and store the aligned cells in shards.

A shard is one ``.npz``: ``cells [n, 3] int16`` (see ``alignment``) of many samples in a row and
``ends [samples] int32``. Everything is a function of (seed, shard number), so shards can be made in any
order, by any number of processes, before or during training.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from agent_runtime.decoding.lexer import Lexeme, LexError, lex
from agent_runtime.training import bugs
from agent_runtime.training.alignment import Cells, cells, regions
from agent_runtime.training.corpus import HELD_OUT, Function
from agent_runtime.training.decontaminate import Decontaminator
from agent_runtime.training.synthetic import write_function

MAX_TOKENS = 224
SHARD_SAMPLES = 8192
VALIDATION_SAMPLES = 2500
#: Shares of samples with no bug, one, two, three and four. More bugs in a function mean more changed
#: tokens per pass; at run time there is one, which only shifts all scores alike.
BUG_COUNTS = (0.2, 0.35, 0.25, 0.12, 0.08)
#: Power of the functions' weights: at 1.6 three quarters of the samples have loops or recursion.
SHARPNESS = 1.6
RENAMED = 0.35
#: Share of functions that are written at random (see ``synthetic``).
SYNTHETIC = 0.3

Encode = Callable[[str], Sequence[int]]


def lexeme_encoder(tokenizer: Tokenizer) -> Encode:
    """Token ids of one lexeme, remembered: lexemes repeat, and no token spans two of them."""

    @lru_cache(maxsize=200_000)
    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    return encode


def rename(lexemes: Sequence[Lexeme], pool: Sequence[str], rng: random.Random) -> list[Lexeme]:
    """Give the function's own names new ones from ``pool``, the same new one everywhere.

    Memorized names are no help then: which name belongs where must be read off the function.
    """
    own = {
        item.text
        for before, item in zip([None, *lexemes], lexemes, strict=False)
        if item.kind == "name"
        and item.text not in bugs.BUILTINS
        and item.text not in ("self", "cls")
        and (before is None or before.text != ".")
    }
    taken = {item.text for item in lexemes}
    fresh = {}
    for name in sorted(own):
        if rng.random() < 0.75:
            new = rng.choice(pool)
            if new not in taken:
                taken.add(new)
                fresh[name] = new
    return [
        Lexeme(item.kind, fresh.get(item.text, item.text), item.lead)
        if item.kind == "name" and (before is None or before.text != ".")
        else item
        for before, item in zip([None, *lexemes], lexemes, strict=False)
    ]


def break_function(lexemes: Sequence[Lexeme], count: int, rng: random.Random) -> tuple[list[str], bugs.Bug]:
    """Up to ``count`` bugs whose edits stay two lexemes apart, and the names of their operators."""
    edits: list[bugs.Edit] = []
    kinds: list[str] = []
    for _ in range(count):
        drawn = bugs.draw_bug(lexemes, rng)
        if drawn is None:
            break
        kind, bug = drawn
        if all(new.stop + 1 < old.start or old.stop + 1 < new.start for new in bug for old in edits):
            edits += bug
            kinds.append(kind)
    return kinds, tuple(edits)


class Source:
    """Draws functions: most from the corpus by weight, a share of ``synthetic`` ones."""

    def __init__(self, functions: Sequence[Function], synthetic: float, decontaminator: Decontaminator) -> None:
        self.functions = functions
        self.synthetic = synthetic
        self.decontaminator = decontaminator
        self.totals = np.cumsum([item.weight**SHARPNESS for item in functions]).tolist()

    def draw(self, rng: random.Random) -> list[Lexeme]:
        """The lexemes of one function."""
        while rng.random() < self.synthetic:
            source = write_function(rng)
            lexemes = lex(source)
            if not self.decontaminator.contaminated(lexemes[1].text, lexemes):
                return lexemes
        return lex(rng.choices(self.functions, cum_weights=self.totals)[0].source)


def samples(source: Source, names: Sequence[str], encode: Encode, seed: int, count: int) -> list[Cells]:
    """``count`` aligned samples."""
    rng = random.Random(seed)
    out: list[Cells] = []
    while len(out) < count:
        lexemes = source.draw(rng)
        if rng.random() < RENAMED:
            lexemes = rename(lexemes, names, rng)
        number = rng.choices(range(len(BUG_COUNTS)), BUG_COUNTS)[0]
        _, bug = break_function(lexemes, number, rng)
        aligned = cells(regions(lexemes, bug), encode)
        if len(aligned) <= MAX_TOKENS:
            out.append(aligned)
    return out


def train_name(number: int) -> str:
    """The file of a training shard."""
    return f"train-{number:04d}.npz"


def valid_name() -> str:
    """The file of the validation shard."""
    return "valid.npz"


def split(functions: Sequence[Function]) -> tuple[list[Function], list[Function]]:
    """Functions to train on, and those of held-out packages."""
    held = [item for item in functions if item.package in HELD_OUT]
    return [item for item in functions if item.package not in HELD_OUT], held


def prepare(
    functions: Sequence[Function], out: Path, encode: Encode, guard: Decontaminator, shards: int, seed: int
) -> None:
    """Write the validation shard and the training shards that are not there yet."""
    out.mkdir(parents=True, exist_ok=True)
    seen, held = split(functions)
    names = name_pool(seen)
    if not (out / valid_name()).exists():
        write_shard(out / valid_name(), samples(Source(held, 0.0, guard), names, encode, 999, VALIDATION_SAMPLES))
    source = Source(seen, SYNTHETIC, guard)
    for number in range(shards):
        path = out / train_name(number)
        if not path.exists():
            write_shard(path, samples(source, names, encode, 1000 * (seed + 1) + number, SHARD_SAMPLES))


def name_pool(functions: Sequence[Function]) -> list[str]:
    """Names for renaming: those of the corpus, by how often functions use them, and single letters."""
    counts: dict[str, int] = {}
    for function in functions[:: max(1, len(functions) // 20_000)]:
        try:
            words = {item.text for item in lex(function.source) if item.kind == "name"}
        except LexError:
            continue
        for word in words:
            if len(word) < 16 and word not in bugs.BUILTINS:
                counts[word] = counts.get(word, 0) + 1
    frequent = sorted((word for word, number in counts.items() if number > 5), key=lambda word: (-counts[word], word))
    return frequent[:3000] + list("abcdefghijklmnpqrstuvwxyz") * 12


def write_shard(path: Path, aligned: Sequence[Cells]) -> None:
    """Write one shard; a reader sees all of it or nothing."""
    ends = np.cumsum([len(item) for item in aligned]).astype(np.int32)
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    np.savez(scratch, cells=np.concatenate(aligned), ends=ends)
    scratch.replace(path)


def read_shard(path: Path) -> list[Cells]:
    """The samples of one shard."""
    with np.load(path) as data:
        rows, ends = data["cells"], data["ends"]
    return [rows[start:stop] for start, stop in zip([0, *ends[:-1]], ends, strict=True)]
