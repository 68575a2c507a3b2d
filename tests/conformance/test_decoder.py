"""What every decoder promises, checked on all of them: from random weights as from a trained checkpoint."""

from __future__ import annotations

import time

import jsonschema
import pytest

from agent_runtime.decoding import ToolCall, compile_calls
from agent_runtime.decoding.decoder import Decoder, now_ns
from agent_runtime.errors import CanvasTooSmall, DecodingError

TOOLS = {
    "look": {
        "type": "object",
        "properties": {
            "path": {"enum": ["a.py", "b/c.py"]},
            "start": {"type": "integer", "minimum": 1, "maximum": 20},
        },
        "required": ["path", "start"],
    },
    "stop": {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]},
}
SCRIPT = [("look", {"path": "b/c.py", "start": 7}), ("stop", {"done": True}), ("look", {"path": "a.py", "start": 20})]
KINDS = ["small", "large", "uniform", "scripted"]
NETWORKS = ["small", "large"]


def build(kind: str, folders) -> Decoder:
    from agent_runtime.decoding.checkpoint import load_checkpoint
    from agent_runtime.decoding.diffusion import DiffusionDecoder
    from agent_runtime.decoding.scripted import ScriptedDecoder
    from agent_runtime.decoding.tokenizer import Tokenizer
    from agent_runtime.decoding.uniform import UniformDecoder

    if kind == "uniform":
        return UniformDecoder(Tokenizer.from_folder(folders["small"]))
    if kind == "scripted":
        return ScriptedDecoder(Tokenizer.from_folder(folders["small"]), SCRIPT * 20)
    return DiffusionDecoder(load_checkpoint(folders[kind], "cpu", "float32"), max_steps=3)


@pytest.fixture(params=KINDS)
def decoder(request, tiny_folders) -> Decoder:
    return build(request.param, tiny_folders)


@pytest.fixture(params=NETWORKS)
def network_decoder(request, tiny_folders) -> Decoder:
    return build(request.param, tiny_folders)


@pytest.fixture
def grammar(decoder):
    return compile_calls(TOOLS, decoder.tokenizer)


def prompt(decoder, text: str = "def add(a, b):\n    return a - b\n") -> list[int]:
    return [decoder.tokenizer.special("<bos>"), *decoder.tokenizer.encode(text)]


def test_every_call_is_valid(decoder, grammar) -> None:
    decoder.prefill(prompt(decoder))
    for seed in range(12):
        decoded = decoder.decode(grammar, seed=seed)
        assert grammar.contains(decoded.tokens)
        assert decoded.value == grammar.parse(decoded.tokens)
        assert isinstance(decoded.value, ToolCall)
        jsonschema.validate(dict(decoded.value.arguments), TOOLS[decoded.value.name])


def test_a_call_has_no_end_token_and_no_padding(decoder, grammar) -> None:
    decoder.prefill(prompt(decoder))
    tokens = decoder.decode(grammar, seed=0).tokens
    specials = decoder.tokenizer.specials
    assert not {specials["<eos>"], specials["<pad>"]} & set(tokens)
    assert tokens[0] == specials["<|tool_call>"]
    assert tokens[-1] == specials["<tool_call|>"]


def test_the_position_grows_by_exactly_the_new_tokens(decoder, grammar) -> None:
    assert decoder.position == 0
    tokens = prompt(decoder)
    timed = decoder.prefill(tokens)
    assert decoder.position == len(tokens) == timed.attributes["tokens"]
    decoded = decoder.decode(grammar, seed=0)
    assert decoder.position == len(tokens)
    timed = decoder.commit()
    assert decoder.position == len(tokens) + len(decoded.tokens)
    assert timed.attributes["tokens"] == len(decoded.tokens)
    decoder.prefill([])
    assert decoder.position == len(tokens) + len(decoded.tokens)


def test_a_call_is_committed_once(decoder, grammar) -> None:
    with pytest.raises(DecodingError, match="decode one first"):
        decoder.commit()
    decoder.prefill(prompt(decoder))
    decoder.decode(grammar, seed=0)
    decoder.commit()
    with pytest.raises(DecodingError, match="decode one first"):
        decoder.commit()


def test_tokens_prefilled_after_a_call_drop_it(decoder, grammar) -> None:
    decoder.prefill(prompt(decoder))
    decoder.decode(grammar, seed=0)
    decoder.prefill(prompt(decoder))
    with pytest.raises(DecodingError):
        decoder.commit()


def test_restoring_gives_the_same_continuation_to_the_bit(decoder, grammar) -> None:
    decoder.prefill(prompt(decoder))
    snapshot = decoder.fork()
    first = decoder.decode(grammar, seed=3)
    decoder.commit()
    decoder.prefill(prompt(decoder, "print(index, total)"))
    for _ in range(2):
        decoder.restore(snapshot)
        assert decoder.position == snapshot.position
        again = decoder.decode(grammar, seed=3)
        assert (again.tokens, again.logprob, again.entropy) == (first.tokens, first.logprob, first.entropy)


def test_a_later_snapshot_survives_what_is_written_after_an_earlier_one(decoder, grammar) -> None:
    decoder.prefill(prompt(decoder))
    early = decoder.fork()
    decoder.prefill(prompt(decoder, "for index in range(10):\n" * 3))
    late = decoder.fork()
    first = decoder.decode(grammar, seed=5)
    decoder.restore(early)
    decoder.prefill(prompt(decoder, "total" * 60))
    decoder.decode(grammar, seed=6)
    decoder.commit()
    decoder.restore(late)
    again = decoder.decode(grammar, seed=5)
    assert (decoder.position, again.tokens, again.logprob) == (late.position, first.tokens, first.logprob)


def test_a_snapshot_belongs_to_its_decoder(decoder, request, tiny_folders) -> None:
    other = build(request.node.callspec.params["decoder"], tiny_folders)
    with pytest.raises(DecodingError, match="another decoder"):
        decoder.restore(other.fork())


def test_a_call_that_is_not_committed_is_no_part_of_a_snapshot(decoder, grammar) -> None:
    decoder.prefill(prompt(decoder))
    decoder.decode(grammar, seed=0)
    decoder.restore(decoder.fork())
    with pytest.raises(DecodingError):
        decoder.commit()


def test_equal_seeds_give_equal_calls(request, tiny_folders) -> None:
    for kind in KINDS:
        calls = []
        for _ in range(2):
            decoder = build(kind, tiny_folders)
            decoder.prefill(prompt(decoder))
            calls.append(decoder.decode(compile_calls(TOOLS, decoder.tokenizer), seed=11).tokens)
        assert calls[0] == calls[1], kind


def test_phases_lie_within_the_call_and_follow_each_other(decoder, grammar) -> None:
    decoder.prefill(prompt(decoder))
    before = now_ns()
    decoded = decoder.decode(grammar, seed=0)
    after = now_ns()
    times = [before, *(ns for phase in decoded.phases for ns in (phase.start_ns, phase.end_ns)), after]
    assert times == sorted(times)
    assert len(decoded.phases) >= 1
    assert abs(before - time.time_ns()) < 60e9


@pytest.mark.parametrize("decoder", [*NETWORKS, "uniform"], indirect=True)
def test_a_minimum_that_fits_no_canvas_is_refused(decoder) -> None:
    long = {"type": "object", "properties": {"text": {"const": "x" * 300}}, "required": ["text"]}
    decoder.prefill(prompt(decoder))
    with pytest.raises(CanvasTooSmall):
        decoder.decode(compile_calls({"say": long}, decoder.tokenizer), seed=0)
    assert decoder.position == len(prompt(decoder))


def test_what_the_grammar_alone_decides_takes_no_pass(network_decoder) -> None:
    pinned = {"type": "integer", "minimum": 7, "maximum": 7}
    from agent_runtime.decoding import compile_schema

    network_decoder.prefill(prompt(network_decoder))
    decoded = network_decoder.decode(compile_schema(pinned, network_decoder.tokenizer), seed=0)
    assert decoded.value == 7
    assert (decoded.forward_passes, decoded.stopped) in {(0, "forced"), (1, "certain")}


def test_a_canvas_is_as_long_as_the_shortest_call_needs(network_decoder) -> None:
    network_decoder.prefill(prompt(network_decoder))
    for length in (5, 60, 130):
        text = {"type": "object", "properties": {"text": {"const": "x" * length}}, "required": ["text"]}
        decoded = network_decoder.decode(compile_calls({"say": text}, network_decoder.tokenizer), seed=0)
        assert decoded.value.arguments["text"] == "x" * length
        assert len(decoded.tokens) <= decoded.canvas_length <= 2 * max(32, len(decoded.tokens))


def test_a_deadline_that_has_passed_still_gives_a_valid_call(network_decoder) -> None:
    grammar = compile_calls(TOOLS, network_decoder.tokenizer)
    network_decoder.prefill(prompt(network_decoder))
    decoded = network_decoder.decode(grammar, seed=0, deadline=time.monotonic() - 1)
    assert decoded.steps == 1
    assert grammar.contains(decoded.tokens)


def test_an_interrupt_while_decoding_leaves_the_cache_as_it_was(network_decoder, monkeypatch) -> None:
    grammar = compile_calls(TOOLS, network_decoder.tokenizer)
    network_decoder.prefill(prompt(network_decoder))
    expected = network_decoder.decode(grammar, seed=2)
    with monkeypatch.context() as patched:
        patched.setattr(type(grammar), "viterbi", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            network_decoder.decode(grammar, seed=2)
    with pytest.raises(DecodingError):
        network_decoder.commit()
    assert network_decoder.decode(grammar, seed=2).tokens == expected.tokens


def test_canvas_logits_leave_the_cache_as_it_was(decoder, grammar) -> None:
    import torch

    decoder.prefill(prompt(decoder))
    expected = decoder.decode(grammar, seed=4)
    canvases = torch.randint(300, (3, 16), generator=torch.Generator().manual_seed(0))
    logits = decoder.canvas_logits(canvases)
    assert logits.shape == (3, 16, decoder.tokenizer.vocab_size)
    assert logits.dtype == torch.float32
    decoder.commit()
    assert decoder.position == len(prompt(decoder)) + len(expected.tokens)
