"""The waterfall in the terminal, and how to open a run in Jaeger."""

import pytest

from agent_runtime.errors import TraceError
from agent_runtime.traces import RunTrace
from agent_runtime.traces.commands import open_command, report_command, show_command


def lines_of(text, name):
    return [line for line in text.splitlines() if line.strip().startswith(name)]


def test_every_step_and_call_has_a_line(run_dir):
    text = show_command(run_dir)
    assert [line.split()[1] for line in lines_of(text, "step")] == ["1", "2", "3"]
    assert len(lines_of(text, "execute_tool search")) == 2
    assert len(lines_of(text, "denoise ×2")) == 3
    assert all(len(line) <= 110 for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_terminal(run_dir, width):
    assert all(len(line) <= max(width, 85) for line in show_command(run_dir, width=width).splitlines()[3:])


def test_what_is_hidden_and_what_is_waited_for_differ(tmp_path):
    with RunTrace.start(tmp_path, run_id="r", agent_name="a", model="m") as trace:
        start = trace.root.start_time
        trace.record("process", start, start + 10**9)
        trace.record("commit", start + 10**8, start + 5 * 10**8)
        trace.root.set_attribute("a", 1)
        trace.root._start_time = start  # the root ends with the block, so stretch it over both
        trace.root.end(start + 10**9)
    text = show_command(tmp_path)
    (process,), (commit,) = lines_of(text, "process"), lines_of(text, "commit")
    assert "░" not in process
    assert "█" in process
    assert "░" in commit
    assert "█" not in commit


def test_one_step_alone(run_dir):
    text = show_command(run_dir, step=2)
    assert [line.split()[1] for line in lines_of(text, "step")] == ["2,", "2"]
    assert len(lines_of(text, "execute_tool run_tests")) == 1
    with pytest.raises(TraceError, match="has no step 9"):
        show_command(run_dir, step=9)


def test_failures_are_told(tmp_path):
    with (
        RunTrace.start(tmp_path, run_id="r", agent_name="a", model="m") as trace,
        pytest.raises(ValueError, match="x"),
        trace.step(1),
    ):
        raise ValueError("x went wrong")
    text = show_command(tmp_path)
    assert "! step 1" in text
    assert "! step: x went wrong" in text


def test_open_starts_nothing_and_tells_the_command(run_dir):
    text = open_command(run_dir)
    assert "docker run --rm -p 16686:16686 -p 4317:4317 -p 4318:4318 jaegertracing/jaeger:latest" in text
    assert str(run_dir / "trace.jaeger.json") in text
    assert "http://localhost:16686/trace/" in text


def test_report_as_text_and_json(run_dir):
    assert report_command([run_dir]).startswith("1 run(s), 3 steps")
    assert report_command([run_dir], json=True).startswith("{")
