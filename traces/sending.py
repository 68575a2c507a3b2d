"""Spans to a collector over OTLP, by a thread of its own that nothing ever waits for longer than a moment.

Where to, with which headers, certificates and time-outs: the standard OTEL_EXPORTER_OTLP_* variables. The
SDK's own batch processor is not used: with a dead collector it held up the exit by 7.5 s, and its flush
ignores its time-out.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from .quiet import Quiet
from .settings import setting

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter

_QUEUE_SPANS = 20_000
_BATCH_SPANS = 512
_DELAY_SECONDS = 1.0
# Exit may come this much later because of the collector: enough for one round trip to a slow one.
CLOSE_SECONDS = 0.5


class OtlpSender(SpanProcessor):
    """Sends spans in batches; what goes wrong is told once, in one sentence, when it closes."""

    def __init__(self, where: str, tell: Callable[[str], None]) -> None:
        self._where = where
        self._tell = tell
        self._queue: deque[ReadableSpan] = deque()
        self._stop = threading.Event()
        self._done = threading.Event()
        self._lost = 0
        self._in_flight = 0
        self._reason = ""
        self._quiet = Quiet()
        self._exporter: SpanExporter | None = None
        # A daemon: a collector that accepts and never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="trace-otlp", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: "Context | None" = None) -> None:
        """Spans are sent when they end."""

    def on_end(self, span: ReadableSpan) -> None:
        if len(self._queue) < _QUEUE_SPANS:
            self._queue.append(span)
        else:
            self._lost += 1
            self._reason = self._reason or "the collector is too slow"

    def stop(self) -> None:
        """Asks the thread to send what is left; returns at once."""
        self._stop.set()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Waits up to `seconds` for what is left, then gives up and says so."""
        self.stop()
        if not self._done.wait(seconds):
            self._lost += len(self._queue) + self._in_flight
            self._reason = (
                self._reason or self._quiet.last or f"it did not answer within {seconds:g} s of the run's end"
            )
            if self._exporter is not None:
                stop_in_background(self._exporter.shutdown)
        if self._lost:
            self._tell(f"{self._lost} spans did not reach the collector at {self._where}: {self._reason}.")

    def _run(self) -> None:
        with self._quiet:
            try:
                exporter = self._exporter = _exporter()
                delay = _delay_seconds()
                while not self._stop.wait(delay):
                    self._send_all(exporter)
                self._send_all(exporter)
                # Before the exporter is closed: nothing waits for its connection pool.
                self._done.set()
                exporter.shutdown()
            except Exception as error:
                # A wrong variable or a missing package: the run goes on, its files have everything.
                self._lost += len(self._queue)
                self._queue.clear()
                self._reason = f"{type(error).__name__}: {error}"
            finally:
                self._done.set()

    def _send_all(self, exporter: "SpanExporter") -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH_SPANS))]
            self._in_flight = len(batch)
            if exporter.export(batch) is not SpanExportResult.SUCCESS:
                self._lost += len(batch)
                self._reason = self._reason or self._quiet.last or "it took none of them"
            self._in_flight = 0


def stop_in_background(shutdown: Callable[[], None]) -> None:
    """Ends an exporter's retries, which would go on for ten seconds, without waiting for that."""

    def stop() -> None:
        with Quiet():
            shutdown()

    threading.Thread(target=stop, name="trace-stop", daemon=True).start()


def _delay_seconds() -> float:
    text = os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "")
    return max(int(text), 10) / 1000 if text.isdigit() else _DELAY_SECONDS


def _exporter() -> "SpanExporter":
    if setting("TRACES", "PROTOCOL", os.environ) == "grpc":
        # Not among the package's own dependencies: grpcio is 15 MB, and every collector speaks HTTP.
        module = import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
        exporter: SpanExporter = module.OTLPSpanExporter()
        return exporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
