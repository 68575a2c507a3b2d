"""Which slots the entropy-bound sampler believes, and how canvas lengths are chosen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.decoding.canvas import BUCKETS, bucket, next_bucket
from agent_runtime.decoding.sampler import SamplerConfig, accept, noise
from agent_runtime.errors import CanvasTooSmall, CheckpointError

entropies = st.lists(st.floats(0, 8, width=32), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(entropies, st.floats(0.01, 5), st.integers(1, 10), st.randoms())
def test_the_most_certain_slots_are_believed_up_to_the_bound(values, bound, at_least, random) -> None:
    entropy = torch.tensor(values)
    free = torch.tensor([random.random() < 0.7 for _ in values])
    believed = accept(entropy, free, bound, at_least)
    assert believed[~free].all()
    taken, left = entropy[believed & free], entropy[~believed]
    assert len(taken) >= min(at_least, int(free.sum()))
    if len(taken) and len(left):
        assert taken.max() <= left.min()
    if len(taken) > at_least:
        assert taken.sum() - taken.max() <= bound + 1e-4


def test_certain_slots_are_all_believed_at_once() -> None:
    assert accept(torch.zeros(64), torch.ones(64, dtype=torch.bool), 0.1).all()


def test_without_certainty_one_slot_is_believed() -> None:
    entropy = torch.tensor([3.0, 2.0, 4.0])
    assert accept(entropy, torch.ones(3, dtype=torch.bool), 0.1).tolist() == [False, True, False]


def test_the_temperature_falls_linearly() -> None:
    config = SamplerConfig(max_steps=4, t_max=0.8, t_min=0.4)
    assert [round(config.temperature(step), 6) for step in range(4)] == [0.8, 0.7, 0.6, 0.5]


@pytest.mark.parametrize("settings", [{"max_denoising_steps": 0}, {"t_min": "cold"}, {"sampler_config": 3}])
def test_settings_that_make_no_sense_are_refused(settings) -> None:
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        SamplerConfig.from_dict(settings)


def test_null_settings_mean_the_defaults() -> None:
    assert SamplerConfig.from_dict({"t_max": None, "sampler_config": None}) == SamplerConfig()


def test_noise_is_seeded_and_covers_the_vocabulary() -> None:
    one, other = (noise(4096, 50, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one, other)
    assert set(one.tolist()) == set(range(50))


@pytest.mark.parametrize(
    ("shortest", "likely", "expected"),
    [(5, 10, 32), (5, 31, 32), (5, 32, 64), (32, 32, 64), (64, 60, 64), (100, 200, 256), (9, 4000, 256)],
)
def test_a_canvas_holds_a_typical_member_and_its_end(shortest, likely, expected) -> None:
    assert bucket(SimpleNamespace(min_length=shortest, likely_length=likely)) == expected


def test_a_call_that_fits_no_canvas_is_refused() -> None:
    with pytest.raises(CanvasTooSmall, match="257"):
        bucket(SimpleNamespace(min_length=257, likely_length=300))


def test_canvases_grow_up_to_the_longest() -> None:
    assert [next_bucket(size) for size in BUCKETS] == [64, 128, 256, None]
