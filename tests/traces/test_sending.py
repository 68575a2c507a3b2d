"""What a collector gets, and what a broken one costs: nothing but a sentence."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

# Imported here, for a run as short as the scripted one is over before the sending thread has imported it.
import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401

from agent_runtime.traces import RunTrace, conventions
from agent_runtime.traces.reading import read_trace

RUN_AND_EXIT = """
import sys, time
from pathlib import Path
from agent_runtime.traces import RunTrace
steps = []
with RunTrace.start(Path(sys.argv[1]), run_id="r", agent_name="a", model="m", tell=print) as trace:
    for number in range(20):
        started = time.perf_counter()
        with trace.step(number), trace.chat():
            trace.record("prefill", 1, 2)
        steps.append(time.perf_counter() - started)
        time.sleep(0.02)
    print(sorted(steps)[-4], flush=True)
    print(time.time(), flush=True)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def receive(port: int) -> subprocess.Popen[str]:
    """oteltap, an OTLP receiver by others: prints each span that it receives as a line of JSON."""
    command = [sys.executable, "-u", "-m", "oteltap", "--port", str(port)]
    receiver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return receiver
        time.sleep(0.05)
    raise TimeoutError("the receiver does not listen")


def run_and_exit(folder: Path, endpoint: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds from the end of the last step to the exit of a process that records a run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    if endpoint:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_AND_EXIT, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    exited = time.time()
    assert done.returncode == 0, done.stderr
    return exited - float(done.stdout.splitlines()[1]), done


def test_a_receiver_by_others_gets_every_span_with_its_parent_and_attributes(tmp_path, monkeypatch, record_run):
    port = free_port()
    receiver = receive(port)
    try:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        trace = record_run(tmp_path, 30)
        assert trace.warnings == []
        expected = {span.span_id: span for span in read_trace(tmp_path).spans}
        received = {}
        timer = threading.Timer(20, receiver.kill)
        timer.start()
        for line in receiver.stdout:
            if line.startswith("{"):
                span = json.loads(line)
                assert span["spanId"] not in received
                received[span["spanId"]] = span
            if len(received) == len(expected):
                break
        timer.cancel()
    finally:
        receiver.kill()
        receiver.communicate()
    assert received.keys() == expected.keys()
    for span_id, span in received.items():
        assert span["traceId"] == trace.trace_id
        assert (span["parentSpanId"] or None) == expected[span_id].parent_id
        assert span["name"] == expected[span_id].name
        attributes = {item["key"]: item["value"] for item in span["attributes"]}
        assert attributes.keys() == expected[span_id].attributes.keys()
    by_operation = [
        {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]} for span in received.values()
    ]
    chats = [found for found in by_operation if found.get(conventions.OPERATION_NAME) == conventions.CHAT]
    tools = [found for found in by_operation if found.get(conventions.OPERATION_NAME) == conventions.EXECUTE_TOOL]
    assert len(chats) == len(tools) == 30
    assert {chat[conventions.USAGE_OUTPUT_TOKENS] for chat in chats} == {"12"}
    assert {tool[conventions.TOOL_NAME] for tool in tools} == {"search", "run_tests"}


def refusing() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_a_collector_that_refuses_connections_delays_neither_steps_nor_exit(tmp_path):
    check_it_delays_nothing(tmp_path, refusing(), "refused")


def test_a_collector_that_never_answers_delays_neither_steps_nor_exit(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        check_it_delays_nothing(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", "did not answer")


def test_a_collector_that_says_no_is_told(tmp_path):
    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(403)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            check_it_delays_nothing(tmp_path, f"http://127.0.0.1:{server.server_port}", "403")
        finally:
            server.shutdown()
            thread.join()


def test_a_wrong_setting_is_told_and_the_files_are_written(tmp_path):
    check_it_delays_nothing(tmp_path, "ftp://nowhere", "ftp")


def check_it_delays_nothing(tmp_path: Path, endpoint: str, reason: str) -> None:
    without, _ = run_and_exit(tmp_path / "without", "")
    # The better of two: the machine may be busy with something else.
    (seconds, done), (again, _) = (run_and_exit(tmp_path / name, endpoint) for name in ("with", "again"))
    # At most one sentence about it, and none of the SDK's stack traces.
    assert done.stderr == ""
    slow_step, _, told = done.stdout.splitlines()
    assert "did not reach the collector" in told
    assert reason in told
    # The third slowest of twenty: two may meet the scheduler.
    assert float(slow_step) < 0.1
    assert min(seconds, again) - without <= 1
    assert len(read_trace(tmp_path / "with").spans) == 61


def test_nothing_is_sent_when_the_traces_exporter_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing())
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with RunTrace.start(tmp_path, run_id="r", agent_name="a", model="m") as trace:
        pass
    assert trace.warnings == []


def test_nothing_goes_on_trying_after_the_end(tmp_path, monkeypatch, record_run):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing())
    record_run(tmp_path)
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("trace-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
