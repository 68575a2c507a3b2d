"""Comparing two runs: no false alarm between replays, and what really got slower is named."""

import json

import numpy as np
import pytest

from agent_runtime.errors import TraceError
from agent_runtime.traces.commands import compare_command
from agent_runtime.traces.compare import _row, compare


def replay(generator, calls):
    """Durations of the same calls once more, in nanoseconds: 3 % of jitter, and now and then a hiccup."""
    jitter = generator.normal(1, 0.03, len(calls)) + generator.exponential(0.02, len(calls))
    hiccups = (generator.random(len(calls)) < 0.05) * generator.exponential(20e6, len(calls))
    return list(calls * jitter + hiccups)


def verdicts(seed, added_ns):
    """Of ten phases with 40 calls each, of which quick and slow ones take turns."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(10):
        calls = generator.choice([0.3e6, 3e6, 8e6, 40e6], 40)
        a, b = replay(generator, calls), replay(generator, calls)
        found.append(_row("process", a, [value + added_ns for value in b], 0.1, 1.0).verdict)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_two_recordings_of_one_replay_show_no_regression(seed):
    assert set(verdicts(seed, 0)) == {"same"}


@pytest.mark.parametrize("seed", range(20))
def test_five_milliseconds_more_in_each_call_are_found(seed):
    assert set(verdicts(seed, 5e6)) == {"slower"}


def test_runs_are_compared_by_phase_and_step(tmp_path, record_run):
    record_run(tmp_path / "a", 10, tool_ms=8)
    record_run(tmp_path / "b", 10, tool_ms=13)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.regressions == ["process"]
    (row,) = [row for row in found.phases if row.phase == "process"]
    assert (row.p50_a_ms, row.p50_b_ms, row.difference_ms, row.paired) == (8, 13, 5, True)
    text, code = compare_command(tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert "Slower in B by more than 10% and 1.000 ms: process." in text
    back, code = compare_command(tmp_path / "b", tmp_path / "a", json=True)
    assert code == 0
    assert {row["phase"]: row["verdict"] for row in json.loads(back)["phases"]}["process"] == "faster"
    assert compare_command(tmp_path / "a", tmp_path / "b", threshold=0.7)[1] == 0
    assert compare_command(tmp_path / "a", tmp_path / "b", least_ms=6)[1] == 0


def test_runs_of_different_length_are_compared_by_medians(tmp_path, record_run):
    record_run(tmp_path / "a", 10)
    record_run(tmp_path / "b", 7, tool_ms=20)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.regressions == ["process"]
    assert not found.phases[-1].paired


def test_too_few_spans_are_not_judged(tmp_path, record_run):
    record_run(tmp_path / "a", 2)
    record_run(tmp_path / "b", 2, tool_ms=100)
    text, code = compare_command(tmp_path / "a", tmp_path / "b")
    assert code == 0
    assert "too few" in text


def test_a_missing_run_is_told(tmp_path, run_dir):
    with pytest.raises(TraceError, match="not a run's folder"):
        compare(run_dir, tmp_path / "missing")
