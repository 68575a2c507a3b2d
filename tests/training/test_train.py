import itertools
import random

import pytest
import torch

from agent_runtime.decoding.lexer import lex
from agent_runtime.training import bugs, shards
from agent_runtime.training.call_batches import call_batches
from agent_runtime.training.calls import Scribe
from agent_runtime.training.corpus import Function
from agent_runtime.training.decontaminate import Decontaminator
from agent_runtime.training.model import Shape
from agent_runtime.training.muon import orthogonalize
from agent_runtime.training.stream import edit_batches
from agent_runtime.training.train import noise_of, schedule
from agent_runtime.training.trainer import Settings, Trainer

SHAPE = Shape(vocab=600, hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, mlp=48)
SETTINGS = Settings(rows=2, head=128, call_rows=2, warmup=5, compiled=False)


@pytest.fixture
def functions(sources):
    return [Function("made", source[4 : source.index("(")], source, 1.0) for source in sources]


@pytest.fixture
def source(functions):
    return shards.Source(functions, 0.3, Decontaminator([]))


@pytest.fixture
def batches(source, encode, tokenizer, tmp_path):
    made = shards.samples(source, list("abcdefgh"), encode, 1, 60)
    shards.write_shard(tmp_path / "shard.npz", made)

    def stream(cursor):
        return edit_batches([tmp_path / "shard.npz"], noise_of(tokenizer), SETTINGS.rows, 0, cursor)

    return stream


def test_the_loss_falls(batches):
    trainer = Trainer(SHAPE, SETTINGS, 2)
    stream = batches(trainer.cursor)
    rows = [trainer.update(next(stream), 1.0) for _ in range(25)]
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    assert set(trainer.validate([next(stream)])) > {"loss", "copy", "bug_acc"}


def test_the_loss_of_calls_falls(source, tokenizer):
    trainer = Trainer(SHAPE, SETTINGS, 2)
    stream = call_batches(source, Scribe(tokenizer), noise_of(tokenizer), 2, 0)
    rows = [trainer.update_calls(next(stream), 1.0) for _ in range(15)]
    assert rows[-1]["call"] < 0.93 * rows[0]["call"]
    assert rows[-1]["causal"] < 0.9 * rows[0]["causal"]


def test_an_interrupted_training_ends_with_the_same_weights(batches, tmp_path):
    whole = Trainer(SHAPE, SETTINGS, 2)
    stream = batches(whole.cursor)
    for _ in range(6):
        whole.update(next(stream), 1.0)
    first = Trainer(SHAPE, SETTINGS, 2)
    stream = batches(first.cursor)
    for _ in range(3):
        first.update(next(stream), 1.0)
    first.save(tmp_path / "state.pt")
    second = Trainer(SHAPE, SETTINGS, 2)
    second.load(tmp_path / "state.pt")
    stream = batches(second.cursor)
    for _ in range(3):
        second.update(next(stream), 1.0)
    for ours, theirs in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_shards_are_the_same_for_the_same_seed(source, functions, encode, tmp_path):
    one, two = (shards.samples(source, ["p", "q"], encode, 5, 10) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    shards.write_shard(tmp_path / "s.npz", one)
    assert all((a == b).all() for a, b in zip(one, shards.read_shard(tmp_path / "s.npz"), strict=True))


def test_renaming_keeps_a_function_consistent():
    source = "def f(alpha, beta):\n    return alpha.beta + f(beta, alpha)"
    renamed = shards.rename(lex(source), [f"new{letter}" for letter in "abcdefgh"], random.Random(0))
    words = [item.text for item in renamed]
    assert words[words.index(".") + 1] == "beta"
    assert [words[3], words[5]] == [words[-2], words[-4]]


def test_bugs_of_one_function_stay_apart(sources):
    rng = random.Random(0)
    for text in sources[:50]:
        lexemes = lex(text)
        kinds, edits = shards.break_function(lexemes, 3, rng)
        assert len(kinds) <= 3
        ordered = sorted(edits, key=lambda edit: edit.start)
        assert all(a.stop < b.start or a.stop <= b.start for a, b in itertools.pairwise(ordered))
        assert bugs.apply(lexemes, edits)


def test_muon_makes_updates_orthogonal():
    stack = torch.randn(3, 16, 48, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalize(stack).float())
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_the_rate_is_constant_and_then_falls_to_zero():
    assert [schedule(passed, 100, 0.5) for passed in (0, 50, 75, 100)] == [1.0, 1.0, 0.5, 0.0]


def test_packages_are_pinned():
    from agent_runtime.training.__main__ import PACKAGES

    assert all("==" in line for line in PACKAGES.read_text().split())
