"""The run's trace as Jaeger JSON: what Jaeger's upload page opens without a backend.

The form is that of Jaeger's query API: microseconds, tags with types, parents as CHILD_OF references, and a
table of processes that the spans point into.
"""

import json
import math
from pathlib import Path
from typing import Any

from agent_runtime.errors import TraceError

from .reading import JAEGER_FILE, RecordedTrace, read_trace

_KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_PROCESS = "p1"


def rebuild(folder: Path) -> Path:
    """Writes `trace.jaeger.json` from what the run recorded, also after the run was killed; gives its path.

    Raises TraceError when the folder holds no readable trace or cannot be written to.
    """
    return write(read_trace(folder))


def write(trace: RecordedTrace) -> Path:
    """Writes `trace.jaeger.json` into the trace's folder; raises TraceError when it cannot be written."""
    text = json.dumps(to_jaeger(trace), ensure_ascii=True, separators=(",", ":"))
    path = trace.folder / JAEGER_FILE
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(text, encoding="ascii")
        partial.replace(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror}.") from error
    return path


def to_jaeger(trace: RecordedTrace) -> dict[str, Any]:
    """The whole upload: one trace."""
    trace_id = trace.root.trace_id
    resource = dict(trace.resource)
    service = str(resource.pop("service.name", "agent_runtime"))
    spans = []
    for span in trace.spans:
        tags = [_tag(key, value) for key, value in span.attributes.items()]
        tags.append(_tag("span.kind", _KINDS.get(span.kind, "internal")))
        if span.error is not None:
            tags.append(_tag("error", True))
            tags.append(_tag("otel.status_code", "ERROR"))
            tags.append(_tag("otel.status_description", span.error))
        references = []
        if span is not trace.root:
            references.append({"refType": "CHILD_OF", "traceID": trace_id, "spanID": span.parent_id})
        start_us = span.start_ns // 1000
        spans.append(
            {
                "traceID": trace_id,
                "spanID": span.span_id,
                "operationName": span.name,
                "references": references,
                "startTime": start_us,
                # Ends are rounded like starts, so that a child never reaches past its parent.
                "duration": max(span.end_ns // 1000 - start_us, 0),
                "tags": tags,
                "logs": [_log(*event) for event in span.events],
                "processID": _PROCESS,
                "warnings": None,
            }
        )
    process = {"serviceName": service, "tags": [_tag(key, value) for key, value in resource.items()]}
    trace_data = {"traceID": trace_id, "spans": spans, "processes": {_PROCESS: process}, "warnings": None}
    return {"data": [trace_data]}


def _log(time_ns: int, name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    fields = [_tag("event", name), *(_tag(key, value) for key, value in attributes.items())]
    return {"timestamp": time_ns // 1000, "fields": fields}


def _tag(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "type": "bool", "value": value}
    if isinstance(value, int):
        return {"key": key, "type": "int64", "value": value}
    if isinstance(value, float):
        # JSON has no NaN or infinity: Jaeger's page would refuse the whole file.
        finite = math.isfinite(value)
        return {"key": key, "type": "float64", "value": value} if finite else _tag(key, str(value))
    if isinstance(value, list):
        return {"key": key, "type": "string", "value": json.dumps(value)}
    return {"key": key, "type": "string", "value": str(value)}
