"""The lean network computes what transformers' class computes."""

from __future__ import annotations

import json

import pytest
import torch

from agent_runtime.decoding.checkpoint import SMALL, load_checkpoint

LENGTH, CANVAS = 60, 32


@pytest.fixture(params=["small", "large", "untied", "shipped"])
def folder(request, make_checkpoint):
    if request.param == "shipped":
        return SMALL
    return make_checkpoint("large" if request.param == "untied" else request.param, tied=request.param != "untied")


@pytest.fixture
def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randint(320, (LENGTH,), generator=generator),
        torch.randint(320, (2, CANVAS), generator=generator),
    )


def reference(folder):
    """transformers' own class with the same weights."""
    from safetensors.torch import load_file
    from transformers.models.diffusion_gemma.configuration_diffusion_gemma import DiffusionGemmaConfig
    from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaForBlockDiffusion

    model = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**json.loads((folder / "config.json").read_text())))
    missing, unexpected = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not unexpected
    if model.config.tie_word_embeddings:
        model.tie_weights()
    else:
        assert all("vision" in name for name in missing)
    return model.eval()


@pytest.mark.timeout(60)
def test_both_passes_equal_those_of_transformers(folder, tokens) -> None:
    from transformers.cache_utils import DynamicCache

    prompt, canvas = tokens
    theirs, ours = reference(folder), load_checkpoint(folder, "cpu", "float32").network
    with torch.inference_mode():
        cache = DynamicCache(config=theirs.config.text_config)
        positions = torch.arange(LENGTH)[None]
        masks = theirs.model.encoder.create_masks_for_generate(
            config=theirs.config, inputs_embeds=torch.empty(1, LENGTH, 0), attention_mask=None, cache=cache,
            position_ids=positions,
        )  # fmt: skip
        encoded = theirs.model.encoder(
            input_ids=prompt[None], attention_mask=masks, cache=cache, position_ids=positions
        ).last_hidden_state[0, -1]
        first = theirs(decoder_input_ids=canvas[:1], cache=cache).logits
        second = theirs(decoder_input_ids=canvas[1:], cache=cache, self_conditioning_logits=first).logits

        own = ours.new_cache()
        torch.testing.assert_close(ours.encode(prompt, own), encoded, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.denoise(canvas[:1], own), first, atol=1e-4, rtol=1e-4)
        expected = ours.expected_embedding(first.softmax(-1))
        torch.testing.assert_close(ours.denoise(canvas[1:], own, expected), second, atol=1e-4, rtol=1e-4)
        listens = ours.conditioning is not None
        assert torch.allclose(ours.denoise(canvas[1:], own), second, atol=1e-2) is not listens


@pytest.mark.parametrize("kind", ["small", "large"])
def test_prefill_in_random_pieces_equals_one_prefill_beyond_the_window(kind, tiny_folders, tokens, monkeypatch) -> None:
    monkeypatch.setattr("agent_runtime.decoding.network.CHUNK", 17)
    network = load_checkpoint(tiny_folders[kind], "cpu", "float32").network
    prompt, canvas = tokens
    generator = torch.Generator().manual_seed(2)
    with torch.inference_mode():
        whole, pieces = network.new_cache(), network.new_cache()
        network.encode(prompt, whole)
        while pieces.length < LENGTH:
            count = int(torch.randint(1, 25, (), generator=generator))
            network.encode(prompt[pieces.length : pieces.length + count], pieces)
        torch.testing.assert_close(
            network.denoise(canvas[:1], pieces), network.denoise(canvas[:1], whole), atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("kind", ["small", "large"])
def test_a_batch_of_canvases_equals_its_canvases_alone(kind, tiny_folders, tokens) -> None:
    network = load_checkpoint(tiny_folders[kind], "cpu", "float32").network
    prompt, canvas = tokens
    with torch.inference_mode():
        cache = network.new_cache()
        network.encode(prompt, cache)
        alone = torch.cat([network.denoise(row[None], cache) for row in canvas])
        torch.testing.assert_close(network.denoise(canvas, cache), alone, atol=1e-4, rtol=1e-4)


def test_an_interrupted_prefill_leaves_the_cache_as_it_was(tiny_folders, tokens, monkeypatch) -> None:
    network = load_checkpoint(tiny_folders["large"], "cpu", "float32").network
    prompt, canvas = tokens
    with torch.inference_mode():
        cache = network.new_cache()
        network.encode(prompt[:20], cache)
        before = network.denoise(canvas[:1], cache)
        calls = iter(range(100))

        def fail_midway(*arguments, layer=network._feed_forward):
            if next(calls) == 3:
                raise KeyboardInterrupt
            return layer(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(network, "_feed_forward", fail_midway)
            with pytest.raises(KeyboardInterrupt):
                network.encode(prompt[20:], cache)
        assert cache.length == 20
        assert torch.equal(network.denoise(canvas[:1], cache), before)


@pytest.mark.parametrize("kind", ["small", "large"])
def test_bfloat16_gives_nearly_the_same_logits(kind, tiny_folders, tokens) -> None:
    prompt, canvas = tokens
    logits = []
    for dtype in ("float32", "bfloat16"):
        network = load_checkpoint(tiny_folders[kind], "cpu", dtype).network
        with torch.inference_mode():
            cache = network.new_cache()
            network.encode(prompt, cache)
            logits.append(network.denoise(canvas, cache).flatten())
            assert cache.keys[0].dtype == getattr(torch, dtype)
    assert torch.corrcoef(torch.stack(logits))[0, 1] > 0.99
