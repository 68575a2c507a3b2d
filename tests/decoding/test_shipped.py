"""The checkpoint that ships with the package: small, complete, and quick to a call."""

from __future__ import annotations

import time

import pytest

from agent_runtime.decoding import compile_calls, default_tokenizer, load_decoder
from agent_runtime.decoding.checkpoint import SMALL, load_checkpoint

TOOLS = {
    "inspect": {"type": "object", "properties": {"path": {"enum": ["gcd.py", "test_gcd.py"]}}, "required": ["path"]},
    "run_tests": {"type": "object", "properties": {}},
}


def test_it_takes_at_most_twenty_megabytes() -> None:
    assert sum(path.stat().st_size for path in SMALL.iterdir()) <= 20 * 1024 * 1024


def test_it_loads_by_name_within_two_seconds() -> None:
    load_checkpoint("small", "cpu")  # torch and the tokenizer library are imported by now
    fastest = min(_seconds(lambda: load_checkpoint("small", "cpu")) for _ in range(3))
    assert fastest < 2.0


def test_it_knows_holes_and_the_default_tokenizer_is_its_own() -> None:
    decoder = load_decoder("small", device="cpu")
    assert decoder.tokenizer.fingerprint == default_tokenizer().fingerprint
    assert "<hole>" in decoder.tokenizer.specials


@pytest.mark.parametrize("name", ["small", "uniform"])
def test_it_makes_calls(name) -> None:
    decoder = load_decoder(name, device="cpu")
    grammar = compile_calls(TOOLS, decoder.tokenizer)
    decoder.prefill([decoder.tokenizer.special("<bos>"), *decoder.tokenizer.encode("fix gcd.py")])
    for _ in range(3):
        decoded = decoder.decode(grammar, seed=1)
        assert decoded.value.name in TOOLS
        decoder.commit()


def _seconds(function) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
