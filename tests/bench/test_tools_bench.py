"""The bench of tool calls: its form, and that each ratio is of the pair beside it."""

from __future__ import annotations

import json
import shutil

import pytest

from agent_runtime.bench.rows import figures, row
from agent_runtime.bench.tools import OURS_PER_ROUND, bench_tools


def test_percentiles_are_times_that_were_measured():
    found = figures([0.001 * number for number in range(1, 101)])
    assert found == {"n": 100, "p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0}
    assert figures([0.5])["p99_ms"] == 500.0


def test_the_ratio_says_how_many_times_longer_theirs_takes():
    assert row("noop", "other", [0.001], [0.1])["ratio_p50"] == pytest.approx(100)


def test_both_measures_stand_beside_every_alternative():
    report = json.loads(json.dumps(bench_tools(2)))
    assert report["bench"] == "tools"
    against = ["docker-exec-package"] + ["docker-exec-cli"] * bool(shutil.which("docker"))
    assert sorted((one["measure"], one["against"]) for one in report["rows"]) == sorted(
        (measure, other) for measure in ("noop", "shell_true") for other in against
    )
    for one in report["rows"]:
        assert one["ours"]["n"] == 2 * OURS_PER_ROUND
        assert one["theirs"]["n"] == 2
        assert one["ratio_p50"] == pytest.approx(one["theirs"]["p50_ms"] / one["ours"]["p50_ms"], rel=0.02)
        assert one["ratio_p50"] > 5
