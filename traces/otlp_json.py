"""OTLP JSON lines: one ExportTraceServiceRequest a line, as opentelemetry-proto's JSON mapping writes it.

64-bit integers are strings, ids are hexadecimal, enums are numbers. Encoding takes SDK spans; decoding gives
`RecordedSpan`s back.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .conventions import STEP_NUMBER

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

# In C, and everything outside ASCII escaped.
_text = json.encoder.encode_basestring_ascii
STATUS_ERROR = 2
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@dataclass(slots=True)
class RecordedSpan:
    """A span as it was read back; times in nanoseconds since the epoch."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    kind: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    """Time in nanoseconds since the epoch, name, attributes."""

    @property
    def title(self) -> str:
        """The name, and which step it is if it is one."""
        number = self.attributes.get(STEP_NUMBER)
        return self.name if number is None else f"{self.name} {number}"

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class Encoder:
    """Turns spans of one resource and one scope into lines.

    Written as text piece by piece: 10 µs a span, where dictionaries through `json.dumps` took 15, and this work
    competes with the run for the interpreter.
    """

    def __init__(self, resource: "Resource", scope: "InstrumentationScope") -> None:
        scope_text = f'{{"name":{_text(scope.name)},"version":{_text(scope.version or "")}}}'
        resource_text = f'{{"attributes":{_key_values(resource.attributes)}}}'
        self._before = f'{{"resourceSpans":[{{"resource":{resource_text},"scopeSpans":[{{"scope":{scope_text},'
        self._after = f'],"schemaUrl":{_text(scope.schema_url or "")}}}]}}]}}\n'

    def line(self, spans: Iterable["ReadableSpan"]) -> bytes:
        """One request with these spans; a span that is still open ends where it starts."""
        return (self._before + '"spans":[' + ",".join(map(_span, spans)) + self._after).encode("ascii")


def _span(span: "ReadableSpan") -> str:
    context = span.get_span_context()
    assert context is not None
    parent = f'"parentSpanId":"{span.parent.span_id:016x}",' if span.parent is not None else ""
    status = "" if span.status.is_ok else f',"status":{_status(span.status.description or "")}'
    events = f',"events":[{",".join(map(_event, span.events))}]' if span.events else ""
    return (
        f'{{"traceId":"{context.trace_id:032x}","spanId":"{context.span_id:016x}",{parent}'
        # OTLP's kinds count from 1 (internal); 0 is unspecified.
        f'"name":{_text(span.name)},"kind":{span.kind.value + 1},'
        f'"startTimeUnixNano":"{span.start_time}","endTimeUnixNano":"{span.end_time or span.start_time}",'
        f'"attributes":{_key_values(span.attributes or {})}{events}{status}}}'
    )


def _status(message: str) -> str:
    return f'{{"code":{STATUS_ERROR},"message":{_text(message)}}}'


def _event(event: "Event") -> str:
    attributes = _key_values(event.attributes or {})
    return f'{{"timeUnixNano":"{event.timestamp}","name":{_text(event.name)},"attributes":{attributes}}}'


def _key_values(attributes: Mapping[str, Any]) -> str:
    # A copy, for a span that is still open may get another attribute meanwhile. Values are plain (attributes.py),
    # but for those of the resource.
    pairs = [f'{{"key":{_text(key)},"value":{_value(value)}}}' for key, value in dict(attributes).items()]
    return f"[{','.join(pairs)}]"


def _value(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return f'{{"stringValue":{_text(value)}}}'
    if kind is int:
        return f'{{"intValue":"{value}"}}'
    if kind is float:
        text = repr(value) if math.isfinite(value) else f'"{_NOT_FINITE[str(value)]}"'
        return f'{{"doubleValue":{text}}}'
    if kind is bool:
        return f'{{"boolValue":{"true" if value else "false"}}}'
    if kind is tuple:
        return f'{{"arrayValue":{{"values":[{",".join(map(_value, value))}]}}}}'
    return f'{{"stringValue":{_text(str(value))}}}'


def decode_line(line: str | bytes) -> Iterator[tuple[RecordedSpan, dict[str, Any]]]:
    """The spans of one line, each with its resource's attributes.

    Raises ValueError, KeyError or TypeError for anything that is not such a line.
    """
    for resource_spans in json.loads(line)["resourceSpans"]:
        resource = _attributes(resource_spans.get("resource", {}).get("attributes", []))
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                yield _recorded(span), resource


def _recorded(span: dict[str, Any]) -> RecordedSpan:
    status = span.get("status", {})
    return RecordedSpan(
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_id=span.get("parentSpanId") or None,
        name=span["name"],
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        kind=span.get("kind", 1),
        attributes=_attributes(span.get("attributes", [])),
        error=(status.get("message", "") or "error") if status.get("code") == STATUS_ERROR else None,
        events=[
            (int(event["timeUnixNano"]), event["name"], _attributes(event.get("attributes", [])))
            for event in span.get("events", [])
        ],
    )


def _attributes(key_values: list[dict[str, Any]]) -> dict[str, Any]:
    return {item["key"]: _plain(item["value"]) for item in key_values}


def _plain(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return int(inner)
    if kind == "doubleValue":
        return float(inner)
    if kind == "arrayValue":
        return [_plain(item) for item in inner.get("values", [])]
    return inner
