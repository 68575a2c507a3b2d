import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agent_runtime.training.model import Network, Shape, from_transformers, load_weights, save_weights

SHIPPED = Path(__file__).parents[2] / "agent_runtime" / "checkpoints" / "small"
TINY = Shape(vocab=600, hidden=32, layers=3, heads=2, kv_heads=1, head_dim=16, mlp=48)


def tiny() -> Network:
    torch.manual_seed(0)
    network = Network(TINY)
    for weight in network.parameters():
        weight.data = (weight.data + torch.randn_like(weight) * 0.05).bfloat16().float()
    return network


def shipped_shape() -> Shape:
    text = json.loads((SHIPPED / "config.json").read_text())["text_config"]
    return Shape(
        vocab=text["vocab_size"], hidden=text["hidden_size"], layers=text["num_hidden_layers"],
        heads=text["num_attention_heads"], kv_heads=text["num_key_value_heads"], head_dim=text["head_dim"],
        mlp=text["intermediate_size"], window=text["sliding_window"],
    )  # fmt: skip


@pytest.mark.parametrize("which", ["tiny", "shipped"])
def test_logits_equal_those_of_the_transformers_class(which, tmp_path):
    from transformers import DiffusionGemmaForBlockDiffusion, DynamicCache

    folder = SHIPPED
    if which == "tiny":
        folder = tmp_path
        (folder / "config.json").write_text(json.dumps(TINY.config()))
        save_weights(tiny(), folder / "model.safetensors")
    network = load_weights(TINY if which == "tiny" else shipped_shape(), folder / "model.safetensors")
    theirs, report = DiffusionGemmaForBlockDiffusion.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report.values())
    generator = torch.Generator().manual_seed(1)
    context = torch.randint(0, 600, (2, 9), generator=generator)
    canvas = torch.randint(0, 600, (2, 16), generator=generator)
    positions = torch.arange(9, 25)[None]
    config = theirs.config.text_config
    with torch.no_grad():
        cache = DynamicCache(config=config)
        masks = theirs.model.encoder.create_masks_for_generate(
            config=config, inputs_embeds=torch.zeros(2, 9, config.hidden_size), attention_mask=torch.ones(2, 9),
            cache=cache, position_ids=torch.arange(9)[None],
        )  # fmt: skip
        states = theirs.model.encoder(
            input_ids=context, attention_mask=masks, position_ids=torch.arange(9)[None], cache=cache
        ).last_hidden_state
        encoded = 30 * torch.tanh(theirs.lm_head(states) / 30)
        decoded = theirs(decoder_input_ids=canvas, cache=cache, decoder_position_ids=positions.expand(2, -1)).logits
        hidden, past = network.encode(context)
        torch.testing.assert_close(network.logits(hidden), encoded, atol=1e-4, rtol=1e-4)
        ours = network.logits(network.decode(canvas, past, positions, None))
        torch.testing.assert_close(ours, decoded, atol=1e-4, rtol=1e-4)


def test_a_mask_equals_absence():
    network = tiny()
    canvas = torch.randint(0, 600, (1, 12), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        _, past = network.encode(torch.full((1, 1), 2))
        alone = network.decode(canvas[:, :7], past, torch.arange(1, 8)[None], None)
        mask = torch.zeros(1, 1, 1, 12, 13)
        mask[..., 8:] = -math.inf
        masked = network.decode(canvas, past, torch.arange(1, 13)[None], mask)
    torch.testing.assert_close(masked[:, :7], alone, atol=1e-5, rtol=1e-5)


def test_weights_come_back_and_both_sets_of_scalars_are_saved(tmp_path):
    network = tiny()
    save_weights(network, tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    scalars = [name for name in tensors if name.endswith("layer_scalar")]
    assert len(scalars) == 2 * TINY.layers
    again = from_transformers(TINY, tensors)
    for ours, theirs in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_shipped_folder_is_small_and_whole(tokenizer, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "data.json"):
        assert (SHIPPED / name).is_file()
    assert (SHIPPED / "model.safetensors").stat().st_size <= 16 * 2**20
