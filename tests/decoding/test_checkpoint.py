"""The loader takes a complete checkpoint as it is, and says in one sentence what is wrong with any other."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from agent_runtime.decoding.architecture import NetworkConfig
from agent_runtime.decoding.checkpoint import checkpoint_folder, load_checkpoint
from agent_runtime.errors import CheckpointError


def edit_config(folder, **changes) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = {key: changes.pop(key) for key in list(changes) if key in config["text_config"]}
    config["text_config"].update(text)
    path.write_text(json.dumps({**config, **changes}))


def edit_weights(folder, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def refusal(folder) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder, "cpu", "float32")
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize("kind", ["small", "large"])
def test_both_sets_of_layer_scalars_come_from_the_file(kind, tiny_folders) -> None:
    checkpoint = load_checkpoint(tiny_folders[kind], "cpu", "float32")
    stored = load_file(tiny_folders[kind] / "model.safetensors")
    for root, layers in (("model.encoder.language_model", "encoder"), ("model.decoder", "decoder")):
        loaded = [layer.scalar.item() for layer in getattr(checkpoint.network, layers)]
        assert loaded == [stored[f"{root}.layers.{index}.layer_scalar"].item() for index in range(len(loaded))]
    assert len({layer.scalar.item() for layer in checkpoint.network.encoder + checkpoint.network.decoder}) == 2 * len(
        checkpoint.network.encoder
    )


def test_the_passes_share_their_weights(tiny_folders) -> None:
    network = load_checkpoint(tiny_folders["large"], "cpu", "float32").network
    assert all(one.qkv is other.qkv for one, other in zip(network.encoder, network.decoder, strict=True))


def test_a_sharded_checkpoint_equals_a_whole_one(make_checkpoint) -> None:
    folder = make_checkpoint("large")
    whole = load_checkpoint(folder, "cpu", "float32")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    places = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(names)}
    for shard in set(places.values()):
        save_file({name: weights[name] for name in names if places[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    sharded = load_checkpoint(folder, "cpu", "float32")
    assert sharded.parameters == whole.parameters
    assert torch.equal(sharded.network.decoder[3].expert_down, whole.network.decoder[3].expert_down)


def test_weights_under_the_encoders_name_are_taken_too(make_checkpoint) -> None:
    folder = make_checkpoint("large")
    before = load_checkpoint(folder, "cpu", "float32").network

    def rename(weights) -> None:
        for name in list(weights):
            if name.startswith("model.decoder.") and "scalar" not in name and "conditioning" not in name:
                weights[name.replace("model.decoder.", "model.encoder.language_model.")] = weights.pop(name)

    edit_weights(folder, rename)
    after = load_checkpoint(folder, "cpu", "float32").network
    assert torch.equal(after.embedding, before.embedding)


def test_silent_halves_are_left_out(make_checkpoint) -> None:
    folder = make_checkpoint("small")

    def silence(weights) -> None:
        weights["model.decoder.self_conditioning.down_proj.weight"].zero_()
        weights["model.decoder.layers.0.post_feedforward_layernorm_2.weight"].zero_()

    edit_weights(folder, silence)
    network = load_checkpoint(folder, "cpu", "float32").network
    assert network.conditioning is None
    assert [layer.expert_half for layer in network.decoder] == [False, True]


def test_the_real_models_configuration_is_understood(tiny_folders) -> None:
    text = {
        "vocab_size": 262_144, "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30,
        "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2, "head_dim": 256,
        "global_head_dim": 512, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
        "sliding_window": 1024, "use_bidirectional_attention": "vision",
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
        "rope_parameters": json.loads((tiny_folders["large"] / "config.json").read_text())["text_config"][
            "rope_parameters"
        ],
    }  # fmt: skip
    config = NetworkConfig.from_dict({"model_type": "diffusion_gemma", "text_config": text})
    assert [layer.sliding for layer in config.layers[:7]] == [True] * 5 + [False, True]
    assert (config.layers[0].kv_heads, config.layers[0].head_dim) == (8, 256)
    assert (config.layers[5].kv_heads, config.layers[5].head_dim) == (2, 512)
    assert (config.soft_cap, config.tied) == (30.0, True)


def test_settings_come_from_the_generation_config(make_checkpoint) -> None:
    folder = make_checkpoint()
    settings = {"max_denoising_steps": 9, "sampler_config": {"entropy_bound": 0.3}}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    checkpoint = load_checkpoint(folder, "cpu", "float32")
    assert (checkpoint.sampler.max_steps, checkpoint.sampler.entropy_bound) == (9, 0.3)
    assert checkpoint.sampler.t_max == 0.8
    assert checkpoint.declares_tools


def test_the_prompt_style_comes_from_the_tokenizer_config(make_checkpoint) -> None:
    folder = make_checkpoint()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tool_declarations": False}))
    assert not load_checkpoint(folder, "cpu", "float32").declares_tools


def test_a_missing_folder(tmp_path) -> None:
    assert "no checkpoint folder" in refusal(tmp_path / "absent")


def test_a_folder_that_is_no_checkpoint(tmp_path) -> None:
    assert "config.json" in refusal(tmp_path)


def test_a_model_that_is_not_in_the_local_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert "hf download google/diffusiongemma-26B-A4B-it" in refusal("google/diffusiongemma-26B-A4B-it")


def test_a_model_in_the_local_cache_is_found_by_name(tmp_path, monkeypatch, make_checkpoint) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc\n")
    (repository / "snapshots").mkdir()
    make_checkpoint("small").rename(repository / "snapshots" / "abc")
    assert checkpoint_folder("someone/tiny") == repository / "snapshots" / "abc"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"])
def test_a_file_of_garbage(name, make_checkpoint) -> None:
    folder = make_checkpoint()
    (folder / name).write_bytes(b"\x80\x04garbage")
    assert name in refusal(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
def test_a_file_that_is_missing(name, make_checkpoint) -> None:
    folder = make_checkpoint()
    (folder / name).unlink()
    assert name in refusal(folder)


def test_weights_cut_short(make_checkpoint) -> None:
    folder = make_checkpoint()
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    assert "corrupt" in refusal(folder)


def test_a_pickle_is_never_read(make_checkpoint) -> None:
    folder = make_checkpoint()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "model.safetensors is missing" in refusal(folder)


@pytest.mark.parametrize(
    "name",
    [
        "model.decoder.layers.1.mlp.up_proj.weight",
        "model.decoder.layers.0.layer_scalar",
        "model.encoder.language_model.layers.1.layer_scalar",
        "model.decoder.self_conditioning.pre_norm.weight",
        "model.decoder.norm.weight",
    ],
)
def test_a_missing_weight(name, make_checkpoint) -> None:
    folder = make_checkpoint()
    edit_weights(folder, lambda weights: weights.pop(name))
    assert name in refusal(folder)


def test_a_weight_of_another_shape(make_checkpoint) -> None:
    folder = make_checkpoint()
    edit_config(folder, intermediate_size=40)
    assert "implies" in refusal(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite(value, make_checkpoint) -> None:
    folder = make_checkpoint()
    edit_weights(folder, lambda weights: weights["model.decoder.layers.1.mlp.down_proj.weight"][3].fill_(value))
    assert "not finite" in refusal(folder)


def test_another_architecture(make_checkpoint) -> None:
    folder = make_checkpoint()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    assert "'llama'" in refusal(folder)


@pytest.mark.parametrize(
    "change",
    [{"hidden_activation": "relu"}, {"sliding_window": None}, {"num_hidden_layers": 7}, {"layer_types": 3}],
)
def test_a_configuration_that_is_incomplete_or_foreign(change, make_checkpoint) -> None:
    folder = make_checkpoint()
    edit_config(folder, **change)
    assert "config.json" in refusal(folder)


def test_a_vocabulary_without_tool_calls(make_checkpoint) -> None:
    folder = make_checkpoint()
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("<|tool_call>", "<|some_call>"))
    assert "<|tool_call>" in refusal(folder)


def test_a_vocabulary_that_is_larger_than_the_networks(make_checkpoint) -> None:
    folder = make_checkpoint()
    edit_config(folder, vocab_size=300)
    assert "tokens" in refusal(folder)


@pytest.mark.parametrize(("device", "dtype"), [("abacus", "float32"), ("cpu", "float8")])
def test_a_device_or_dtype_that_is_not_there(device, dtype, tiny_folders) -> None:
    with pytest.raises(CheckpointError, match="use"):
        load_checkpoint(tiny_folders["small"], device, dtype)
