"""Spans as the run records them: names, attributes, parents, failures."""

import threading
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pytest_genai_semconv import (
    assert_chat_span,
    assert_execute_tool_span,
    assert_invoke_agent_span,
    spec,
)

from agent_runtime.errors import TraceError
from agent_runtime.traces import RunTrace, conventions, latency_summary, now_ns
from agent_runtime.traces.clock import shift_into
from agent_runtime.traces.reading import read_trace


class Phase(NamedTuple):
    name: str
    start_ns: int
    end_ns: int


pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def start(folder: Path) -> RunTrace:
    return RunTrace.start(folder, run_id="r", agent_name="a", model="m")


def parents(folder: Path) -> dict[str, str]:
    trace = read_trace(folder)
    return {span.name: trace.by_id[span.parent_id].name for span in trace.spans if span.parent_id in trace.by_id}


def test_the_tree_of_a_run(run_dir):
    assert parents(run_dir) == {
        "setup": "invoke_agent fixer",
        "step": "invoke_agent fixer",
        "chat small": "step",
        "prefill": "chat small",
        "denoise": "chat small",
        "execute_tool search": "step",
        "execute_tool run_tests": "step",
        # Of the last step, which searched.
        "queue": "execute_tool search",
        "transport": "execute_tool search",
        "process": "execute_tool search",
        "ripgrep": "process",
        "commit": "step",
    }


def test_an_independent_checker_finds_nothing(tmp_path, record_run, monkeypatch):
    # The conventions let a provider name itself where none of the listed ones applies; the checker knows the list only.
    monkeypatch.setitem(
        spec.ENUM_ATTRIBUTES,
        conventions.PROVIDER_NAME,
        spec.PROVIDER_NAMES | {conventions.IN_PROCESS_PROVIDER},
    )
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "_TRACER_PROVIDER", provider)
    record_run(tmp_path)
    checks = {
        conventions.INVOKE_AGENT: lambda span: assert_invoke_agent_span(span, agent_name="fixer"),
        conventions.CHAT: lambda span: assert_chat_span(span, request_model="small"),
        conventions.EXECUTE_TOOL: assert_execute_tool_span,
    }
    checked = [span for span in exporter.get_finished_spans() if conventions.OPERATION_NAME in span.attributes]
    assert len(checked) == 1 + 3 + 3
    for span in checked:
        checks[span.attributes[conventions.OPERATION_NAME]](span)


def test_a_provider_that_the_user_set_gets_every_span_and_stays_the_global_one(tmp_path, record_run, monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "_TRACER_PROVIDER", provider)
    with provider.get_tracer("user").start_as_current_span("request") as request:
        record_run(tmp_path)
    assert otel.get_tracer_provider() is provider
    ours = read_trace(tmp_path)
    received = {f"{span.get_span_context().span_id:016x}" for span in exporter.get_finished_spans()}
    assert received > {span.span_id for span in ours.spans}
    assert ours.root.parent_id == f"{request.get_span_context().span_id:016x}"


async def test_parallel_tasks_and_threads_keep_their_parent(tmp_path):
    async def call(trace: RunTrace, name: str) -> None:
        with trace.execute_tool(name, name):
            await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(lambda: trace.record(f"inside {name}", now_ns(), now_ns()))

    with start(tmp_path) as trace, trace.step(1):
        async with anyio.create_task_group() as tasks:
            for name in ("one", "two", "three"):
                tasks.start_soon(call, trace, name)
    found = parents(tmp_path)
    for name in ("one", "two", "three"):
        assert found[f"execute_tool {name}"] == "step"
        assert found[f"inside {name}"] == f"execute_tool {name}"


def test_attributes_without_a_namespace_get_ours(tmp_path):
    with start(tmp_path) as trace:
        trace.record("denoise", 0, 2_000_000, {"constraint_ms": 1.5, "other.name": 1, "nothing": None})
    (span,) = [span for span in read_trace(tmp_path).spans if span.name == "denoise"]
    assert span.attributes == {conventions.CONSTRAINT_MS: 1.5, "other.name": 1}


@pytest.mark.parametrize("skew", [0, 10**9, -(10**9)])
def test_a_call_with_its_way_there_and_back_whatever_the_sandboxs_clock(tmp_path, skew):
    sent = 1_700_000_000_000_000_000
    phases = [
        Phase("queue", sent + 100 + skew, sent + 150 + skew),
        Phase("process", sent + 150 + skew, sent + 900 + skew),
    ]
    with start(tmp_path) as trace, trace.execute_tool("search", "1"):
        trace.record_call(phases, sent, sent + 1000)
    spans = [span for span in read_trace(tmp_path).spans if span.name in conventions.PHASES]
    lengths = {(span.name, span.attributes.get("agent_runtime.way")): span.duration_ns for span in spans}
    assert lengths[("queue", None)] == 50
    assert lengths[("process", None)] == 750
    assert lengths[("transport", "there")] + lengths[("transport", "back")] == 200
    assert all(sent <= span.start_ns <= span.end_ns <= sent + 1000 for span in spans)
    shifted = {span.name for span in spans if "agent_runtime.clock_shift_ns" in span.attributes}
    assert shifted == (set() if skew == 0 else {"queue", "process"})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 10**6)), min_size=1),
    st.integers(0, 10**6),
)
def test_a_shift_is_the_least_that_fits(stretches, length):
    spans = [(start, start + long) for start, long in stretches]
    shift = shift_into(spans, 0, length)
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    if last - first <= length:
        assert first + shift >= 0
        assert last + shift <= length
        assert shift == 0 or first + shift == 0 or last + shift == length
    else:
        assert abs((first + last + 2 * shift) - length) <= 1


def test_a_bare_thread_gets_the_root_unless_told_a_parent(tmp_path):
    with start(tmp_path) as trace, trace.step(1) as step:

        def work() -> None:
            trace.record("alone", 1, 2)
            with trace.span("led", parent=step):
                trace.record("inside", 1, 2)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    found = parents(tmp_path)
    assert (found["alone"], found["led"], found["inside"]) == ("invoke_agent a", "step", "led")


async def test_cancelled_spans_end_and_say_so(tmp_path):
    with start(tmp_path) as trace, anyio.move_on_after(0.01), trace.execute_tool("run_tests", "1"):
        await anyio.sleep(10)
    (span,) = [span for span in read_trace(tmp_path).spans if span.name == "execute_tool run_tests"]
    assert span.attributes["error.type"] in ("CancelledError", "Cancelled")
    assert span.duration_ns < 5e9


def test_an_error_marks_every_span_that_it_leaves(tmp_path):
    with pytest.raises(ValueError, match="no"), start(tmp_path) as trace, trace.step(1):  # noqa: PT012
        with trace.span("fine"):
            pass
        raise ValueError("no\nsecond line")
    spans = {span.name: span for span in read_trace(tmp_path).spans}
    assert spans["fine"].error is None
    for name in ("step", "invoke_agent a"):
        assert spans[name].error == "no"
        assert spans[name].attributes["error.type"] == "ValueError"


@pytest.mark.parametrize(("asked", "recorded"), [("", False), ("false", False), ("true", True), ("SPAN_ONLY", True)])
def test_content_only_when_asked(tmp_path, monkeypatch, asked, recorded):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", asked)
    with start(tmp_path) as trace:
        attributes = trace.content(conventions.TOOL_CALL_ARGUMENTS, '{"text": "secret"}')
        with trace.execute_tool("search", "1", attributes):
            pass
    assert (b"secret" in (tmp_path / "trace.otlp.jsonl").read_bytes()) is recorded


def test_a_disabled_sdk_records_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with start(tmp_path) as trace, trace.step(1) as step, trace.chat() as chat:
        step.set_attribute("a", 1)
        chat.set_attributes({"b": 2})
        assert trace.record("prefill", 1, 2) is None
    assert list(tmp_path.iterdir()) == []
    assert latency_summary(tmp_path) == {}


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="cannot be written"):
        start(tmp_path / "file" / "run")


def test_service_name_and_resource_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-agents")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=ci")
    with start(tmp_path):
        pass
    resource = read_trace(tmp_path).resource
    assert resource["service.name"] == "my-agents"
    assert resource["deployment.environment.name"] == "ci"
