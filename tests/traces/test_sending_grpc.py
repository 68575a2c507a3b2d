"""Spans over gRPC, received by opentelemetry-proto's own service."""

import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from agent_runtime.traces import RunTrace
from agent_runtime.traces.reading import read_trace


class Receiver(service.TraceServiceServicer):
    def __init__(self):
        self.spans = []

    def Export(self, request, context):  # noqa: N802
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                self.spans += scope_spans.spans
        return ExportTraceServiceResponse()


@pytest.fixture
def receiver():
    received, server = Receiver(), grpc.server(ThreadPoolExecutor(2))
    service.add_TraceServiceServicer_to_server(received, server)
    received.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield received
    server.stop(None).wait()


def test_every_span_arrives_with_its_parent(receiver, tmp_path, monkeypatch, record_run):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    trace = record_run(tmp_path, 30)
    assert trace.warnings == []
    expected = {span.span_id: span for span in read_trace(tmp_path).spans}
    assert len(receiver.spans) == len(expected)
    for span in receiver.spans:
        assert (span.parent_span_id.hex() or None) == expected[span.span_id.hex()].parent_id
        assert {item.key for item in span.attributes} == expected[span.span_id.hex()].attributes.keys()


def test_odd_values_do_not_lose_a_batch(receiver, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    odd = {"number": np.int64(3), "name": "\udcff", "list": [1, "a"], "path": tmp_path, "nothing": None}
    with RunTrace.start(tmp_path, run_id="r", agent_name="a", model="m", attributes=odd) as trace:
        trace.record("prefill", 1, 2, odd)
        with trace.step(1) as step:
            step.set_attributes(odd)
            step.add_event("event", odd)
    assert trace.warnings == []
    assert len(receiver.spans) == 3


def test_a_dead_collector_does_not_delay_the_end(tmp_path, monkeypatch, record_run):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    started = time.perf_counter()
    trace = record_run(tmp_path, 3)
    assert time.perf_counter() - started < 2
    (told,) = trace.warnings
    assert "did not reach the collector" in told
