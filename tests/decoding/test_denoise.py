"""The denoising loop, around models whose opinion is known."""

from __future__ import annotations

import time

import pytest
import torch

from agent_runtime.chat import render_call, to_ids
from agent_runtime.decoding import compile_calls, compile_schema, load_decoder
from agent_runtime.decoding.canvas import pinned_slots
from agent_runtime.decoding.denoise import Denoiser
from agent_runtime.decoding.sampler import SamplerConfig
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.errors import CheckpointError, DecodingError

TOOLS = {
    "search": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "stop": {"type": "object", "properties": {}},
}
CALL = ("search", {"query": "return a + b"})


class Opinion:
    """Prefers one call, by `strength` nats at every position, and notes the canvases that it is shown."""

    def __init__(self, tokenizer: Tokenizer, strength: float, call=CALL) -> None:
        self.tokens = [*to_ids(render_call(*call), tokenizer), tokenizer.special("<eos>")]
        self.pad, self.size = tokenizer.special("<pad>"), tokenizer.vocab_size
        self.strength = strength
        self.canvases: list[torch.Tensor] = []
        self.expected: list[torch.Tensor | None] = []

    def logits(self, canvas, expected):
        self.canvases.append(canvas)
        self.expected.append(expected)
        wanted = torch.full_like(canvas, self.pad)
        wanted[: len(self.tokens)] = torch.tensor(self.tokens[: len(canvas)])
        return torch.nn.functional.one_hot(wanted, self.size).float() * self.strength

    def expect(self, marginals):
        return marginals.token_logp().exp()


@pytest.fixture(params=["small", "large"], ids=["hole noise", "uniform noise"])
def tokenizer(request, tiny_folders) -> Tokenizer:
    return Tokenizer.from_folder(tiny_folders[request.param])


@pytest.fixture
def grammar(tokenizer):
    return compile_calls(TOOLS, tokenizer)


def denoise(model, tokenizer, grammar, *, temperature=0.0, seed=0, deadline=None, **settings):
    denoiser = Denoiser(model, tokenizer, SamplerConfig(**settings), temperature)
    return denoiser(grammar, seed, deadline)


def test_a_certain_model_is_asked_once(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 30.0)
    decoded = denoise(model, tokenizer, grammar)
    assert (decoded.value.name, dict(decoded.value.arguments)) == CALL
    assert (decoded.forward_passes, decoded.stopped) == (1, "certain")
    assert decoded.entropy < 1e-3
    assert decoded.logprob == pytest.approx(0.0, abs=1e-2)
    assert 0 < decoded.forced_share < 1


def test_a_model_that_does_not_change_its_mind_is_asked_twice(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 12.0)
    decoded = denoise(model, tokenizer, grammar, entropy_bound=1e-9, confidence=0.05)
    assert (decoded.forward_passes, decoded.stopped) == (2, "stable")
    assert dict(decoded.value.arguments) == CALL[1]


def test_an_undecided_model_is_asked_until_the_steps_are_used_up(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 1.0)
    decoded = denoise(model, tokenizer, grammar, max_steps=5)
    assert (decoded.steps, decoded.stopped) == (5, "max_steps")
    assert grammar.contains(decoded.tokens)


def test_every_token_that_ends_an_answer_counts_as_the_end(tokenizer, grammar) -> None:
    class EndsByResponse(Opinion):
        def logits(self, canvas, expected):
            logits = super().logits(canvas, expected)
            eos, response = (tokenizer.special(name) for name in ("<eos>", "<|tool_response>"))
            logits[:, [eos, response]] = logits[:, [response, eos]]
            return logits

    ends = [tokenizer.special(name) for name in ("<eos>", "<turn|>", "<|tool_response>")]
    model = EndsByResponse(tokenizer, 30.0)
    decoded = Denoiser(model, tokenizer, SamplerConfig(), ends=ends)(grammar, 0, None)
    assert dict(decoded.value.arguments) == CALL[1]
    assert decoded.stopped == "certain"


def test_slots_that_the_grammar_pins_are_never_noise(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 1.0)
    denoise(model, tokenizer, grammar, max_steps=4)
    assert len(model.canvases) == 4
    for canvas in model.canvases:
        pinned = pinned_slots(grammar, len(canvas))
        assert (pinned >= 0).any()
        assert torch.equal(canvas[pinned >= 0], pinned[pinned >= 0])


def test_pinned_slots_are_those_of_the_grammar(tokenizer, grammar) -> None:
    for each in (grammar, compile_calls({"stop": TOOLS["stop"]}, tokenizer), compile_schema({"const": 7}, tokenizer)):
        for length in (20, 64):
            ours, all_of_them = pinned_slots(each, length), each.pinned(length)
            assert (ours[ours >= 0] == all_of_them[ours >= 0]).all()
            assert (ours >= 0).any()


def test_noise_is_holes_where_the_vocabulary_has_them(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 1.0)
    denoise(model, tokenizer, grammar, max_steps=1)
    free = model.canvases[0][pinned_slots(grammar, len(model.canvases[0])) < 0]
    hole = tokenizer.specials.get("<hole>")
    assert (free == hole).all() if hole is not None else len(set(free.tolist())) > 5


def test_slots_are_believed_step_by_step(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 2.0)
    denoise(model, tokenizer, grammar, max_steps=4)
    wanted = torch.tensor(model.tokens)
    right = [int((canvas[: len(wanted)] == wanted).sum()) for canvas in model.canvases]
    assert right[0] < right[-1]


def test_what_was_expected_is_told_in_the_next_step(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 1.0)
    denoise(model, tokenizer, grammar, max_steps=3)
    assert model.expected[0] is None
    for expected in model.expected[1:]:
        torch.testing.assert_close(expected.sum(-1), torch.ones(len(expected)), atol=1e-3, rtol=1e-3)


def test_the_best_call_under_the_last_logits_is_emitted(tokenizer, grammar) -> None:
    class Random(Opinion):
        def logits(self, canvas, expected):
            generator = torch.Generator().manual_seed(len(self.canvases))
            self.canvases.append(canvas)
            self.last = torch.randn(len(canvas), self.size, generator=generator)
            return self.last

    model = Random(tokenizer, 0.0)
    decoded = denoise(model, tokenizer, grammar, max_steps=2)
    best = grammar.viterbi(model.last)
    assert list(decoded.tokens) == best[: len(decoded.tokens)].tolist()


def test_a_temperature_draws_different_valid_calls(tokenizer, grammar) -> None:
    calls = {
        denoise(Opinion(tokenizer, 2.0), tokenizer, grammar, temperature=1.0, seed=seed, max_steps=2).tokens
        for seed in range(6)
    }
    assert len(calls) > 1
    assert all(grammar.contains(tokens) for tokens in calls)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_output_that_is_not_finite_is_an_error(value, tokenizer, grammar) -> None:
    class Broken(Opinion):
        def logits(self, canvas, expected):
            return super().logits(canvas, expected).fill_(value)

    with pytest.raises(DecodingError, match="not finite"):
        denoise(Broken(tokenizer, 1.0), tokenizer, grammar)


def test_a_deadline_ends_the_loop_before_a_step_that_would_miss_it(tokenizer, grammar) -> None:
    class Slow(Opinion):
        def logits(self, canvas, expected):
            time.sleep(0.05)
            return super().logits(canvas, expected)

    started = time.monotonic()
    decoded = denoise(Slow(tokenizer, 1.0), tokenizer, grammar, deadline=started + 0.3, max_steps=40)
    assert decoded.stopped == "deadline"
    assert decoded.steps < 6
    assert grammar.contains(decoded.tokens)


def test_a_long_call_finds_its_canvas(tokenizer, grammar) -> None:
    call = ("search", {"query": "the quick brown fox jumps over the lazy dog, " * 3})
    model = Opinion(tokenizer, 30.0, call)
    decoded = denoise(model, tokenizer, grammar)
    assert dict(decoded.value.arguments) == call[1]
    assert decoded.canvas_length > len(decoded.tokens)
    assert [len(canvas) for canvas in model.canvases] == sorted({len(canvas) for canvas in model.canvases})


def test_a_model_that_does_not_know_what_to_write_gets_no_longer_canvas(tokenizer, grammar) -> None:
    model = Opinion(tokenizer, 3.0, ("search", {"query": "the quick brown fox jumps over the lazy dog, " * 3}))
    decoded = denoise(model, tokenizer, grammar, max_steps=4)
    assert len(decoded.tokens) == decoded.canvas_length
    assert len({len(canvas) for canvas in model.canvases}) == 1


def test_decoders_by_name(tiny_folders) -> None:
    assert load_decoder(tiny_folders["small"], device="cpu").position == 0
    with pytest.raises(CheckpointError):
        load_decoder("nothing-of-that-name")
