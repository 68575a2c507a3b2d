"""A run's trace, read back from its folder; also after the run was killed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from agent_runtime.errors import TraceError

from .conventions import ERROR_TYPE, INTERRUPTED
from .otlp_json import RecordedSpan, decode_line

FINISHED_FILE = "trace.otlp.jsonl"
OPEN_FILE = "trace.open.jsonl"
JAEGER_FILE = "trace.jaeger.json"


@dataclass
class RecordedTrace:
    """One run's spans in the order of their starts; every parent is among them, and there is one root."""

    folder: Path
    resource: dict[str, Any]
    root: RecordedSpan
    spans: list[RecordedSpan] = field(default_factory=list)

    @cached_property
    def by_id(self) -> dict[str, RecordedSpan]:
        return {span.span_id: span for span in self.spans}

    @cached_property
    def children(self) -> dict[str, list[RecordedSpan]]:
        """By the parent's span id, in the order of their starts."""
        children: dict[str, list[RecordedSpan]] = {span.span_id: [] for span in self.spans}
        for span in self.spans:
            if span is not self.root and span.parent_id is not None:
                children[span.parent_id].append(span)
        return children

    def from_the_root(self) -> Iterator[RecordedSpan]:
        """All spans, parents before their children."""
        waiting = [self.root]
        while waiting:
            span = waiting.pop()
            yield span
            waiting.extend(self.children[span.span_id])

    @property
    def interrupted(self) -> bool:
        """Whether the process ended before the run did."""
        return bool(self.root.attributes.get(INTERRUPTED))


def read_trace(folder: Path) -> RecordedTrace:
    """Reads a run's folder. Raises TraceError, in one sentence, when there is no trace or it is damaged.

    Spans that were open when the process died end where the last thing known happened, and say `interrupted`.
    """
    if not folder.is_dir():
        raise TraceError(f"{folder} is not a run's folder: give the one that `agent-runtime run` named.")
    path = folder / FINISHED_FILE
    if not path.is_file():
        raise TraceError(f"{folder} holds no trace ({FINISHED_FILE} is missing): give a run's folder.")
    finished = list(_lines(path))
    killed_path = folder / OPEN_FILE
    started = list(_lines(killed_path)) if killed_path.is_file() else []
    if not finished and not started:
        raise TraceError(f"{path} is empty: nothing was recorded in that run.")
    spans = {span.span_id: span for span, _ in finished}
    last_ns = max(span.end_ns for span, _ in finished + started)
    for span, _ in started:
        if span.span_id not in spans:
            span.end_ns = max(last_ns, span.start_ns)
            span.error = "the process ended before this span did"
            span.attributes |= {INTERRUPTED: True, ERROR_TYPE: "interrupted"}
            spans[span.span_id] = span
    ordered = sorted(spans.values(), key=lambda span: (span.start_ns, -span.end_ns))
    roots = [span for span in ordered if span.parent_id not in spans]
    if not roots:
        raise TraceError(f"{path} is damaged: it has no root span.")
    root = max(roots, key=lambda span: span.end_ns - span.start_ns)
    for span in roots:
        # A span whose parent was lost in the last milliseconds before a SIGKILL still belongs to this run.
        if span is not root:
            span.parent_id = root.span_id
    trace = RecordedTrace(folder, (finished or started)[0][1], root, ordered)
    if sum(1 for _ in trace.from_the_root()) != len(ordered):
        raise TraceError(f"{path} is damaged: some spans are their own parents.")
    return trace


def _lines(path: Path) -> Iterator[tuple[RecordedSpan, dict[str, Any]]]:
    """The spans of a file; a last line without its end was cut by a SIGKILL and is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from decode_line(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not line.endswith(b"\n"):
                    return
                what = "is not JSON" if isinstance(error, json.JSONDecodeError) else "is not an OTLP trace"
                raise TraceError(f"{path} is damaged: line {number} {what}.") from error
