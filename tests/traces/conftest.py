"""A scripted run: the spans of a real one, with made-up lengths and nothing behind them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_runtime.traces import RunTrace, conventions, now_ns

MS = 1_000_000


def scripted_run(run_dir: Path, steps: int = 3, *, tool_ms: float = 8.0) -> RunTrace:
    """Records a run as the loop does; no clock is waited for, so lengths are exact inside each step."""
    with RunTrace.start(run_dir, run_id="run-1", agent_name="fixer", model="small") as trace:
        start = now_ns()
        trace.record(conventions.SETUP, start, start + 20 * MS)
        for number in range(1, steps + 1):
            with trace.step(number):
                start = now_ns()
                with trace.chat() as chat:
                    trace.record(conventions.PREFILL, start, start + 5 * MS)
                    for _ in range(2):
                        trace.record(conventions.DENOISE, start, start + 4 * MS, {conventions.CONSTRAINT_MS: 1.0})
                    chat.set_attributes(
                        conventions.usage(input_tokens=100, output_tokens=12, finish_reason="tool_call")
                    )
                tool = "search" if number % 2 else "run_tests"
                with trace.execute_tool(tool, f"call-{number}"):
                    trace.record(conventions.QUEUE, start, start + MS // 10)
                    trace.record(conventions.TRANSPORT, start, start + MS // 2)
                    process = trace.record(conventions.PROCESS, start, start + int(tool_ms * MS))
                    trace.record("ripgrep", start + MS, start + int(tool_ms * MS) - MS, parent=process)
                trace.record(conventions.COMMIT, start, start + 3 * MS)
        trace.root.set_attribute(conventions.RUN_STATUS, "solved")
    return trace


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The folder of a scripted run of three steps."""
    scripted_run(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def record_run() -> Callable[..., RunTrace]:
    """Records a scripted run in a folder of the test's choice."""
    return scripted_run


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of whoever runs the tests must not send their spans anywhere."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
