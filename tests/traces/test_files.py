"""The files in the run's folder: Jaeger's model kept, nothing lost to a SIGKILL, damage told in one sentence."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from http import HTTPStatus
from pathlib import Path

import numpy as np
import pytest

from agent_runtime.errors import TraceError
from agent_runtime.traces import RunTrace, report
from agent_runtime.traces.failure import fail
from agent_runtime.traces.jaeger import rebuild
from agent_runtime.traces.reading import read_trace

HEX = set("0123456789abcdef")
TAG_TYPES = {"string": str, "bool": bool, "int64": int, "float64": float}


def check_tags(tags):
    assert len({tag["key"] for tag in tags}) == len(tags)
    for tag in tags:
        assert tag.keys() == {"key", "type", "value"}
        assert type(tag["value"]) is TAG_TYPES[tag["type"]]


def check_jaeger(upload):
    """Jaeger's own model of a trace, as its query API serves it; every rule that its page relies on."""
    assert upload.keys() == {"data"}
    (trace,) = upload["data"]
    assert trace.keys() == {"traceID", "spans", "processes", "warnings"}
    assert len(trace["traceID"]) == 32
    assert set(trace["traceID"]) <= HEX
    for process in trace["processes"].values():
        assert process.keys() == {"serviceName", "tags"}
        assert process["serviceName"]
        check_tags(process["tags"])
    spans = {span["spanID"]: span for span in trace["spans"]}
    assert len(spans) == len(trace["spans"])
    roots = 0
    for span_id, span in spans.items():
        assert span.keys() == {
            "traceID", "spanID", "operationName", "references", "startTime", "duration", "tags", "logs",
            "processID", "warnings",
        }  # fmt: skip
        assert len(span_id) == 16
        assert set(span_id) <= HEX
        assert span["traceID"] == trace["traceID"]
        assert span["processID"] in trace["processes"]
        assert type(span["startTime"]) is type(span["duration"]) is int
        # Microseconds: between 2020 and 2100.
        assert 1_577_836_800_000_000 < span["startTime"] < 4_102_444_800_000_000
        assert span["duration"] >= 0
        assert span["operationName"]
        for log in span["logs"]:
            assert log.keys() == {"timestamp", "fields"}
            assert type(log["timestamp"]) is int
            check_tags(log["fields"])
        check_tags(span["tags"])
        for reference in span["references"]:
            assert reference.keys() == {"refType", "traceID", "spanID"}
            assert reference["refType"] == "CHILD_OF"
            assert reference["traceID"] == trace["traceID"]
            assert reference["spanID"] in spans
        roots += not span["references"]
    assert roots == 1


def refuse_constants(name):
    raise ValueError(f"{name} is not JSON")


def load_jaeger(folder):
    return json.loads((folder / "trace.jaeger.json").read_text(), parse_constant=refuse_constants)


def test_the_jaeger_file_keeps_jaegers_model(run_dir):
    upload = load_jaeger(run_dir)
    check_jaeger(upload)
    spans = upload["data"][0]["spans"]
    assert len(spans) == 1 + 1 + 3 * 11
    chat = next(span for span in spans if span["operationName"] == "chat small")
    tags = {tag["key"]: (tag["type"], tag["value"]) for tag in chat["tags"]}
    assert tags["gen_ai.usage.input_tokens"] == ("int64", 100)
    assert tags["gen_ai.response.finish_reasons"] == ("string", '["tool_call"]')


def test_odd_values_stay_json(tmp_path):
    odd = {
        "nan": math.nan, "infinite": -math.inf, "surrogate": "\udcff", "line": "a\u2028b\n", "list": [1.5, 2.0],
        "big": 2**62, "empty": "", "none": None, "mixed": ("a", "ü"), "numpy": np.int64(7), "path": Path("x"),
        "numpy_float": np.float64(0.5), "enum": HTTPStatus.OK, "nothing_in_it": [],
    }  # fmt: skip
    with RunTrace.start(tmp_path, run_id="r", agent_name="ü", model="m", attributes=odd) as trace:
        with trace.step(1) as step:
            step.set_attributes(odd)
            fail(step, "odd", "\udcff")
        trace.record("prefill", 1_700_000_000_000_000_000, 1_700_000_000_000_000_000, odd)
    check_jaeger(load_jaeger(tmp_path))
    assert trace.warnings == []
    prefill = next(span for span in read_trace(tmp_path).spans if span.name == "prefill")
    assert math.isnan(prefill.attributes["agent_runtime.nan"])
    assert prefill.attributes["agent_runtime.infinite"] == -math.inf
    assert prefill.attributes["agent_runtime.list"] == [1.5, 2.0]
    assert prefill.attributes["agent_runtime.surrogate"] == "?"
    assert prefill.attributes["agent_runtime.numpy"] == 7
    assert prefill.attributes["agent_runtime.numpy_float"] == 0.5
    assert prefill.attributes["agent_runtime.enum"] == 200
    assert "agent_runtime.none" not in prefill.attributes


def test_events_of_a_span_are_kept(tmp_path):
    with RunTrace.start(tmp_path, run_id="r", agent_name="a", model="m") as trace, trace.step(1) as step:
        step.add_event("retry", {"attempt": 2})
        step.record_exception(ValueError("bad"))
    upload = load_jaeger(tmp_path)
    check_jaeger(upload)
    (span,) = [span for span in upload["data"][0]["spans"] if span["operationName"] == "step"]
    events = [{field["key"]: field["value"] for field in log["fields"]} for log in span["logs"]]
    assert events[0] == {"event": "retry", "attempt": 2}
    assert events[1] == {"event": "exception", "exception.type": "ValueError", "exception.message": "bad"}


def test_a_phase_that_ends_before_it_starts_has_no_length(tmp_path):
    with RunTrace.start(tmp_path, run_id="r", agent_name="a", model="m") as trace:
        trace.record("process", 1_700_000_000_000_000_000, 1_600_000_000_000_000_000)
    check_jaeger(load_jaeger(tmp_path))


def test_no_file_is_left_open_or_over(run_dir):
    assert sorted(path.name for path in run_dir.iterdir()) == ["trace.jaeger.json", "trace.otlp.jsonl"]


ENDLESS_RUN = """
import sys, time
from pathlib import Path
from agent_runtime.traces import RunTrace, now_ns
with RunTrace.start(Path(sys.argv[1]), run_id="r", agent_name="a", model="m") as trace:
    for number in range(1, 10**6):
        with trace.step(number):
            with trace.chat():
                start = now_ns()
                time.sleep(0.002)
                trace.record("denoise", start, now_ns())
            print(number, flush=True)
            with trace.execute_tool("run_tests", str(number)):
                time.sleep(60 if number == 30 else 0.002)
"""


def test_a_killed_run_leaves_what_was_done_and_what_was_going_on(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ENDLESS_RUN, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) == 30:
            break
    time.sleep(0.3)  # The thread that writes gathers spans for 50 ms.
    process.send_signal(signal.SIGKILL)
    process.communicate()
    trace = read_trace(tmp_path)
    assert trace.interrupted
    going_on = {span.name for span in trace.spans if span.attributes.get("agent_runtime.interrupted")}
    assert going_on == {"invoke_agent a", "step", "execute_tool run_tests"}
    assert sum(span.name == "denoise" for span in trace.spans) == 30
    rebuild(tmp_path)
    check_jaeger(load_jaeger(tmp_path))
    found = report([tmp_path])
    assert found.runs[0].interrupted
    assert sum(row.total_ms for row in found.phases) == pytest.approx(found.wall_ms)


@pytest.mark.parametrize("delay", [0.0, 0.013, 0.05])
def test_a_run_killed_at_any_moment_can_be_read(tmp_path, delay):
    process = subprocess.Popen([sys.executable, "-c", ENDLESS_RUN, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(0.2 + delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    rebuild(tmp_path)
    check_jaeger(load_jaeger(tmp_path))
    report([tmp_path])


def test_a_line_cut_off_at_the_end_is_left_out(run_dir):
    path = run_dir / "trace.otlp.jsonl"
    whole = read_trace(run_dir)
    os.truncate(path, path.stat().st_size - 7)
    cut = read_trace(run_dir)
    assert 0 < len(cut.spans) < len(whole.spans)
    rebuild(run_dir)
    check_jaeger(load_jaeger(run_dir))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "trace.otlp.jsonl").write_text(""), "is empty"),
        (lambda folder: (folder / "trace.otlp.jsonl").unlink(), "holds no trace"),
        (lambda folder: (folder / "trace.otlp.jsonl").write_text("{nonsense\n{}\n"), "line 1 is not JSON"),
        (lambda folder: (folder / "trace.otlp.jsonl").write_text('{"a": 1}\n'), "line 1 is not an OTLP trace"),
        (lambda folder: (folder / "trace.otlp.jsonl").write_text("[]\n"), "line 1 is not an OTLP trace"),
        (lambda folder: (folder / "trace.otlp.jsonl").write_bytes(b"\xff\xfe\n"), "line 1 is not"),
    ],
)
def test_damage_is_told_in_one_sentence(run_dir, damage, sentence):
    damage(run_dir)
    with pytest.raises(TraceError, match=sentence) as told:
        read_trace(run_dir)
    assert "\n" not in str(told.value)
    assert told.value.exit_code == 2


def test_spans_in_a_circle_are_told(run_dir):
    path = run_dir / "trace.otlp.jsonl"
    trace = read_trace(run_dir)
    step, chat = (next(span for span in trace.spans if span.name == name) for name in ("step", "chat small"))
    text = path.read_text().replace(f'"parentSpanId":"{trace.root.span_id}"', f'"parentSpanId":"{chat.span_id}"')
    assert step.parent_id == trace.root.span_id
    path.write_text(text)
    with pytest.raises(TraceError, match="damaged"):
        read_trace(run_dir)


def test_a_folder_that_is_none_is_told(tmp_path):
    with pytest.raises(TraceError, match="not a run's folder"):
        read_trace(tmp_path / "missing")
