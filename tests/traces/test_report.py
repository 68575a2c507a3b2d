"""The report: the parts are the whole, percentiles are exact, overlaps are counted once."""

import json
import random
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime.errors import TraceError
from agent_runtime.traces import conventions, latency_summary, report
from agent_runtime.traces.attribution import attribute, phase_of
from agent_runtime.traces.otlp_json import RecordedSpan
from agent_runtime.traces.percentiles import percentile
from agent_runtime.traces.reading import RecordedTrace
from agent_runtime.traces.report import Samples, add_samples

# The machine may be busy with something else: that is no failure.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = ["step", "chat m", "execute_tool t", "other", *conventions.PHASES[:-1]]


def make_trace(spans, tmp_path):
    """A trace of `spans`: (name, parent's index or None, start, end, attributes); the first is the root."""
    made = [
        RecordedSpan("t", str(index), None if parent is None else str(parent), name, start, end, 1, attributes)
        for index, (name, parent, start, end, attributes) in enumerate(spans)
    ]
    root = made[0]
    return RecordedTrace(tmp_path, {}, root, sorted(made, key=lambda span: (span.start_ns, -span.end_ns)))


@st.composite
def span_trees(draw):
    """Any tree: children may begin before their parents and end after them, or lie outside altogether."""
    spans = [("invoke_agent a", None, 1000, 1000 + draw(st.integers(0, 1000)), {})]
    for index in range(1, draw(st.integers(1, 25))):
        start = draw(st.integers(900, 2100))
        name = draw(st.sampled_from(NAMES))
        attributes = {}
        if name == conventions.DENOISE and draw(st.booleans()):
            attributes[conventions.CONSTRAINT_MS] = draw(st.floats(0, 0.001))
        if name.startswith("execute_tool"):
            attributes[conventions.OPERATION_NAME] = conventions.EXECUTE_TOOL
        parent = draw(st.integers(0, index - 1))
        spans.append((name, parent, start, start + draw(st.integers(0, 600)), attributes))
    return spans


@UNHURRIED
@given(span_trees())
def test_every_nanosecond_belongs_to_one_span(tmp_path_factory, spans):
    trace = make_trace(spans, None)
    slices = attribute(trace)
    position = trace.root.start_ns
    for piece in slices:
        assert piece.start_ns == position
        assert piece.start_ns < piece.end_ns
        assert piece.span is trace.root or piece.span.start_ns <= piece.start_ns < piece.end_ns <= piece.span.end_ns
        position = piece.end_ns
    assert position == trace.root.end_ns


@UNHURRIED
@given(span_trees())
def test_the_phases_add_up_to_the_wall_time(spans):
    trace = make_trace(spans, None)
    samples = Samples()
    add_samples(samples, trace)
    assert sum(samples.totals.values()) == pytest.approx(trace.root.duration_ns)
    assert all(total >= 0 for total in samples.totals.values())


def totals(spans):
    samples = Samples()
    add_samples(samples, make_trace(spans, None))
    return {phase: total for phase, total in samples.totals.items() if total}


def test_a_commit_hidden_behind_the_tool_costs_nothing():
    spans = [
        ("invoke_agent a", None, 0, 100, {}),
        ("step", 0, 0, 100, {}),
        ("chat m", 1, 0, 40, {}),
        ("denoise", 2, 0, 40, {}),
        ("commit", 2, 40, 60, {}),
        ("execute_tool t", 1, 40, 100, {}),
        ("process", 5, 40, 100, {}),
    ]
    assert totals(spans) == {"denoise": 40, "process": 60}


def test_a_commit_that_outlives_the_tool_is_what_the_run_waits_for():
    spans = [
        ("invoke_agent a", None, 0, 100, {}),
        ("step", 0, 0, 100, {}),
        ("chat m", 1, 0, 40, {}),
        ("commit", 2, 40, 100, {}),
        ("execute_tool t", 1, 40, 70, {}),
        ("process", 4, 40, 70, {}),
    ]
    assert totals(spans) == {"overhead": 40, "commit": 60}


def test_a_step_that_begins_with_waiting_for_the_last_commit_waits_for_the_commit():
    spans = [
        ("invoke_agent a", None, 0, 200, {}),
        ("step", 0, 0, 100, {}),
        ("denoise", 1, 0, 90, {}),
        ("commit", 1, 90, 130, {}),
        ("step", 0, 100, 200, {}),
        ("chat m", 4, 140, 200, {}),
        ("denoise", 5, 145, 200, {}),
    ]
    assert totals(spans) == {"denoise": 145, "commit": 40, "overhead": 15}
    samples = Samples()
    add_samples(samples, make_trace(spans, None))
    first, second = (dict(step.totals) for step in samples.steps)
    assert first == {"denoise": 90, "commit": 10, "overhead": 0}
    assert second == {"denoise": 55, "commit": 30, "overhead": 15}


@UNHURRIED
@given(span_trees())
def test_nothing_is_overhead_while_a_phase_goes_on(spans):
    trace = make_trace(spans, None)
    phases = [span for span in trace.spans if phase_of(span, trace) != conventions.OVERHEAD and span.duration_ns]
    for piece in attribute(trace):
        if phase_of(piece.span, trace) == conventions.OVERHEAD:
            assert not any(span.start_ns < piece.end_ns and span.end_ns > piece.start_ns for span in phases)


def test_constraint_time_is_told_by_the_denoise_span_or_by_spans_inside_it():
    told = [
        ("invoke_agent a", None, 0, 10_000_000, {}),
        ("denoise", 0, 0, 10_000_000, {conventions.CONSTRAINT_MS: 2.5}),
    ]
    inside = [
        ("invoke_agent a", None, 0, 10_000_000, {}),
        ("denoise", 0, 0, 10_000_000, {}),
        ("forward", 1, 0, 7_500_000, {}),
        ("constraint", 1, 7_500_000, 10_000_000, {}),
    ]
    assert totals(told) == totals(inside) == {"denoise": 7_500_000, "constraint": 2_500_000}
    for spans in (told, inside):
        samples = Samples()
        add_samples(samples, make_trace(spans, None))
        assert dict(samples.durations) == {"denoise": [7_500_000], "constraint": [2_500_000], "overhead": []}


def test_a_tool_on_the_host_is_all_process():
    attributes = {conventions.OPERATION_NAME: conventions.EXECUTE_TOOL}
    assert totals([("invoke_agent a", None, 0, 10, {}), ("execute_tool t", 0, 2, 10, attributes)]) == {
        "overhead": 2,
        "process": 8,
    }


@UNHURRIED
@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_are_numpys(values, share):
    assert percentile(values, share) == pytest.approx(float(np.percentile(values, share * 100)))


def test_a_report_of_a_run(run_dir):
    found = report([run_dir])
    assert sum(row.total_ms for row in found.phases) == pytest.approx(found.wall_ms)
    assert sum(row.share for row in found.phases) == pytest.approx(1)
    rows = {row.phase: row for row in found.phases}
    assert list(rows) == [phase for phase in conventions.PHASES if phase in rows]
    assert (rows["prefill"].n, rows["prefill"].p50_ms, rows["prefill"].max_ms) == (3, 5.0, 5.0)
    assert (rows["denoise"].n, rows["denoise"].p99_ms) == (6, 3.0)
    assert (rows["constraint"].n, rows["constraint"].p99_ms) == (6, 1.0)
    assert {row.kind: row.n for row in found.kinds} == {"search": 2, "run_tests": 1}
    assert found.slowest.step in (1, 2, 3)
    assert found.slowest.trace_id == found.runs[0].trace_id
    assert found.runs[0].steps == 3
    assert json.loads(json.dumps(found.to_json()))["phases"][0]["phase"] == "setup"
    text = found.to_text()
    for phase in rows:
        assert f"\n{phase} " in text
    assert "100.0%" in text
    assert "slowest step" in text


def test_several_runs_add_up(tmp_path, record_run):
    for name in ("one", "two"):
        record_run(tmp_path / name, 5)
    both = report([tmp_path / "one", tmp_path / "two"])
    assert {row.phase: row.n for row in both.phases}["prefill"] == 10
    assert both.wall_ms == pytest.approx(sum(run.wall_ms for run in both.runs))
    assert sum(row.total_ms for row in both.phases) == pytest.approx(both.wall_ms)


def test_the_summary_for_the_result_is_small_and_plain(run_dir):
    summary = latency_summary(run_dir)
    assert summary["prefill"]["n"] == 3
    assert summary["prefill"].keys() == {"n", "p50_ms", "p95_ms", "p99_ms", "total_ms", "share"}
    assert len(json.dumps(summary)) < 2000


def test_no_runs_folder_is_told(tmp_path):
    with pytest.raises(TraceError, match="not a run's folder"):
        report([tmp_path / "missing"])


def test_ten_thousand_spans_are_reported_within_seconds(tmp_path):
    generator = random.Random(1)
    spans = [("invoke_agent a", None, 0, 10**9, {})]
    for step in range(1000):
        start = step * 10**6
        spans.append(("step", 0, start, start + 10**6, {}))
        parent = len(spans) - 1
        for _ in range(9):
            low = start + generator.randrange(900_000)
            spans.append((generator.choice(NAMES[4:]), parent, low, low + 100_000, {}))
    started = time.perf_counter()
    assert sum(totals(spans).values()) == pytest.approx(10**9)
    assert time.perf_counter() - started < 5
