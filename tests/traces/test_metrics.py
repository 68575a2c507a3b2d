"""Metrics of a run: exponential histograms with the spans behind them, sent when asked for."""

import http.server
import threading

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.resources import Resource

from agent_runtime.traces import conventions
from agent_runtime.traces.metrics import OPERATION_DURATION, PHASE_DURATION, USAGE, collect
from agent_runtime.traces.reading import read_trace


def points(data):
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


def test_durations_and_tokens_by_operation_and_phase(run_dir):
    trace = read_trace(run_dir)
    found = points(collect(trace, Resource({})))
    counts = {point.attributes[conventions.OPERATION_NAME]: point.count for point in found[OPERATION_DURATION]}
    assert counts[conventions.CHAT] == 3
    assert counts[conventions.INVOKE_AGENT] == 1
    assert sum(point.count for point in found[OPERATION_DURATION]) == 7
    tokens = {point.attributes["gen_ai.token.type"]: (point.count, point.sum) for point in found[USAGE]}
    assert tokens == {"input": (3, 300), "output": (3, 36)}
    phases = {point.attributes["agent_runtime.phase"]: point for point in found[PHASE_DURATION]}
    assert (phases["prefill"].count, phases["prefill"].max) == (3, 0.005)
    ids = {int(span.span_id, 16) for span in trace.spans if span.name == "prefill"}
    assert {exemplar.span_id for exemplar in phases["prefill"].exemplars} <= ids
    assert phases["prefill"].exemplars


@pytest.fixture
def collector():
    """Keeps what is posted to it, by path."""
    posted = {}

    class Keep(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            posted.setdefault(self.path, []).append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keep) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()
        thread.join()


def test_they_are_sent_when_asked_for(tmp_path, monkeypatch, record_run, collector):
    where, posted = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", where)
    record_run(tmp_path / "without")
    assert posted.keys() == {"/v1/traces"}
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    trace = record_run(tmp_path / "with")
    assert trace.warnings == []
    request = ExportMetricsServiceRequest.FromString(posted["/v1/metrics"][0])
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    assert {metric.name for metric in metrics} == {OPERATION_DURATION, USAGE, PHASE_DURATION}
    assert all(metric.WhichOneof("data") == "exponential_histogram" for metric in metrics)


def test_a_collector_that_is_down_is_told(tmp_path, monkeypatch, record_run):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:9/v1/metrics")
    trace = record_run(tmp_path)
    (told,) = trace.warnings
    assert told.startswith("The run's metrics did not reach the collector: ")
