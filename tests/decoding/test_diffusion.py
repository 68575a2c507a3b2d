"""What the diffusion decoder adds to the loop: its cache, its canvases side by side, its settings."""

from __future__ import annotations

import pytest
import torch

from agent_runtime.decoding import compile_calls, load_decoder
from agent_runtime.decoding.diffusion import DiffusionDecoder

TOOLS = {"stop": {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]}}


@pytest.fixture(params=["small", "large"])
def decoder(request, tiny_folders) -> DiffusionDecoder:
    return load_decoder(tiny_folders[request.param], device="cpu", dtype="float32")


@pytest.fixture
def canvases() -> torch.Tensor:
    return torch.randint(300, (9, 16), generator=torch.Generator().manual_seed(3))


def alone(decoder, canvases, prefix) -> torch.Tensor:
    network = decoder.checkpoint.network
    with torch.inference_mode():
        cache = network.new_cache()
        network.encode(torch.tensor(prefix), cache)
        logits = torch.cat([network.denoise(row[None], cache) for row in canvases])
    return logits[..., : decoder.tokenizer.vocab_size]


def test_canvases_stand_behind_the_start_token(decoder, canvases, monkeypatch) -> None:
    monkeypatch.setattr("agent_runtime.decoding.diffusion.BATCH_TOKENS", 32)
    decoder.prefill(list(range(20, 60)))
    expected = alone(decoder, canvases, [decoder.tokenizer.special("<bos>")])
    torch.testing.assert_close(decoder.canvas_logits(canvases), expected, atol=1e-4, rtol=1e-4)


def test_canvases_stand_behind_the_transcript(decoder, canvases, monkeypatch) -> None:
    monkeypatch.setattr("agent_runtime.decoding.diffusion.BATCH_TOKENS", 32)
    prompt = list(range(20, 60))
    decoder.prefill(prompt)
    expected = alone(decoder, canvases, prompt)
    torch.testing.assert_close(decoder.canvas_logits(canvases, "transcript"), expected, atol=1e-4, rtol=1e-4)


def test_a_commit_equals_a_prefill_of_the_same_tokens(decoder, canvases) -> None:
    decoder.prefill(list(range(20, 50)))
    start = decoder.fork()
    decoded = decoder.decode(compile_calls(TOOLS, decoder.tokenizer), seed=0)
    decoder.commit()
    committed = decoder.canvas_logits(canvases, "transcript")
    decoder.restore(start)
    decoder.prefill(decoded.tokens)
    assert torch.equal(decoder.canvas_logits(canvases, "transcript"), committed)


def test_the_number_of_threads_is_left_as_it_was(decoder, canvases) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        decoder.prefill([5, 6, 7])
        decoder.decode(compile_calls(TOOLS, decoder.tokenizer), seed=0)
        decoder.canvas_logits(canvases)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_steps_are_bounded_by_the_checkpoint_and_by_the_caller(tiny_folders) -> None:
    text = {"say": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}
    for bound, steps in ((None, 6), (2, 2)):
        decoder = load_decoder(tiny_folders["small"], device="cpu", dtype="float32", max_steps=bound)
        decoder.prefill(list(range(20, 50)))
        decoded = decoder.decode(compile_calls(text, decoder.tokenizer), seed=0)
        assert decoded.steps <= steps
        if decoded.stopped == "max_steps":
            assert decoded.steps == steps


def test_the_cache_grows_beyond_its_first_capacity(decoder, canvases) -> None:
    tokens = [int(token) for token in torch.randint(300, (700,), generator=torch.Generator().manual_seed(1))]
    for first in range(0, len(tokens), 90):
        decoder.prefill(tokens[first : first + 90])
    assert decoder.position == 700
    expected = alone(decoder, canvases[:2], tokens)
    torch.testing.assert_close(decoder.canvas_logits(canvases[:2], "transcript"), expected, atol=1e-3, rtol=1e-3)
