"""OTLP JSON lines: one ExportTraceServiceRequest a line, as opentelemetry-proto's JSON mapping writes it.

64-bit integers are strings, ids are hexadecimal, enums are numbers. Encoding takes SDK spans; decoding gives
`RecordedSpan`s back.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

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

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class Encoder:
    """Turns spans of one resource and one scope into lines."""

    def __init__(self, resource: "Resource", scope: "InstrumentationScope") -> None:
        resource_text = json.dumps({"attributes": _key_values(resource.attributes)})
        scope_text = json.dumps({"name": scope.name, "version": scope.version or ""})
        # The same for every line, so it is written as text once: it would be half of the work of a short
        # line.
        self._before = f'{{"resourceSpans":[{{"resource":{resource_text},"scopeSpans":[{{"scope":{scope_text},"spans":['
        self._after = f'],"schemaUrl":{json.dumps(scope.schema_url or "")}}}]}}]}}\n'

    def line(self, spans: Iterable["ReadableSpan"]) -> bytes:
        texts = (json.dumps(_span(span), ensure_ascii=False, separators=(",", ":")) for span in spans)
        # Lone surrogates (undecodable bytes of a tool's output) have no UTF-8 form; escaped they stay valid
        # JSON.
        return (self._before + ",".join(texts) + self._after).encode("utf-8", "backslashreplace")


def _span(span: "ReadableSpan") -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    encoded: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,  # OTLP counts from 1 (internal); 0 is unspecified
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time or span.start_time),
        "attributes": _key_values(span.attributes or {}),
    }
    if span.parent is not None:
        encoded["parentSpanId"] = f"{span.parent.span_id:016x}"
    if not span.status.is_ok:
        encoded["status"] = {"code": STATUS_ERROR, "message": span.status.description or ""}
    return encoded


def _key_values(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _NOT_FINITE[str(value)]}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


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
