"""Where a run's spans go: the files of its folder always, a collector when one is configured, and the
processors of the process's own TracerProvider when there is one.

A run neither replaces the user's TracerProvider nor is sampled away by it. When the user has set one up,
spans are handed to its processors too and are not sent by us: sending is then the user's own set-up, and
doing both would deliver every span twice.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from agent_runtime.errors import TraceError

from .conventions import SCHEMA_URL, SCOPE
from .jaeger import write
from .otlp_json import Encoder
from .reading import RecordedTrace, read_trace
from .recording import FileRecorder
from .sending import CLOSE_SECONDS, OtlpSender
from .settings import endpoint, metrics_wanted
from .spans import LiveSpan

if TYPE_CHECKING:
    from .metrics import MetricsSender

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class Pipeline:
    """The spans of one run, their root first, and the processors that get them."""

    def __init__(
        self, run_dir: Path, root_name: str, root_attributes: dict[str, Any], tell: Callable[[str], None]
    ) -> None:
        """Opens the root span, a child of the caller's own current span where there is one.

        Raises TraceError when the files cannot be made.
        """
        self._run_dir = run_dir
        self._tell = tell
        self._ids = RandomIdGenerator()
        self._resource = _resource()
        self._scope = InstrumentationScope(SCOPE, schema_url=SCHEMA_URL)
        self._sender: OtlpSender | None = None
        self._recorder = FileRecorder(run_dir, Encoder(self._resource, self._scope), tell)
        self._processors: list[SpanProcessor] = [self._recorder]
        users = _users_processor()
        if users is not None:
            self._processors.append(users)
        elif (where := endpoint()) is not None:
            self._sender = OtlpSender(where, tell)
            self._processors.append(self._sender)
        above = trace.get_current_span().get_span_context()
        self._trace_id = above.trace_id if above.is_valid else self._ids.generate_trace_id()
        self.root = self._start(root_name, above if above.is_valid else None, root_attributes)

    def span(self, name: str, parent: trace.Span | None, attributes: dict[str, Any]) -> LiveSpan:
        """A span to be used in a `with` block, below `parent` or the current one."""
        return self._start(name, (parent or self._current()).get_span_context(), attributes)

    def record(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        parent: trace.Span | ReadableSpan | None,
        attributes: dict[str, Any],
    ) -> ReadableSpan:
        """A span that is over already."""
        span = ReadableSpan(
            name,
            self._context(),
            (parent or self._current()).get_span_context(),
            self._resource,
            attributes,
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=self._scope,
        )
        self._ended(span)
        return span

    def close(self) -> None:
        """Writes the files, sends what is left, and waits for neither longer than it is worth."""
        if self._sender is not None:
            self._sender.stop()
        self._recorder.close()
        metrics: MetricsSender | None = None
        try:
            trace = read_trace(self._run_dir)
            write(trace)
            if metrics_wanted():
                metrics = _metrics_sender(trace, self._resource)
        except TraceError as error:
            self._tell(str(error))
        deadline = time.monotonic() + CLOSE_SECONDS
        if self._sender is not None:
            self._sender.close()
        if metrics is not None and (why := metrics.close(max(deadline - time.monotonic(), 0.0))) is not None:
            self._tell(f"The run's metrics did not reach the collector: {why}.")

    def _start(self, name: str, parent: trace.SpanContext | None, attributes: dict[str, Any]) -> LiveSpan:
        span = LiveSpan(name, self._context(), parent, self._resource, self._scope, attributes, self._ended)
        for processor in self._processors:
            processor.on_start(span)  # type: ignore[arg-type]  # its own Span cannot be made outside the SDK
        return span

    def _ended(self, span: ReadableSpan) -> None:
        for processor in self._processors:
            processor.on_end(span)

    def _context(self) -> trace.SpanContext:
        return trace.SpanContext(self._trace_id, self._ids.generate_span_id(), False, _SAMPLED)

    def _current(self) -> trace.Span:
        """The current span if it is of this run, else the root: a bare thread has no current span."""
        current = trace.get_current_span()
        ours = isinstance(current, LiveSpan) and current.get_span_context().trace_id == self._trace_id
        return current if ours else self.root


def _metrics_sender(trace: RecordedTrace, resource: Resource) -> "MetricsSender":
    from .metrics import MetricsSender  # the SDK's metrics take 60 ms to import

    return MetricsSender(trace, resource)


def _resource() -> Resource:
    """Who sends: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over our name of the service."""
    configured = Resource.create({})
    if str(configured.attributes.get("service.name", "")).startswith("unknown_service"):
        return configured.merge(Resource({"service.name": SCOPE}))
    return configured


def _users_processor() -> SpanProcessor | None:
    """The processors of the TracerProvider that the user set for the process, if it is one of the SDK's."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        return None
    # The SDK has no public way to hand a finished span to a provider.
    return getattr(provider, "_active_span_processor", None)
