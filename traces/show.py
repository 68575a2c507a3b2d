"""A run as a waterfall in the terminal, with what the run waited for marked."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent_runtime.errors import TraceError

from .attribution import ancestors, attribute
from .conventions import STEP, STEP_NUMBER
from .otlp_json import RecordedSpan
from .reading import RecordedTrace
from .report_text import ms

# Waited for; inside, but something within it was waited for; not waited for.
_WAITED, _WITHIN, _HIDDEN = "█", "─", "░"
_NAME_WIDTH = 34
_LEGEND = f"{_WAITED} waited for (critical path)   {_WITHIN} something inside was   {_HIDDEN} hidden behind another"


@dataclass
class _Row:
    """One line: a span, or several alike that follow each other."""

    depth: int
    spans: list[RecordedSpan]


def show(trace: RecordedTrace, *, width: int = 110, step: int | None = None) -> str:
    """The waterfall of the run, or of one step, in `width` columns.

    Raises TraceError when there is no such step.
    """
    top = trace.root if step is None else _step(trace, step)
    bars = _Bars(trace, top, max(width - _NAME_WIDTH - 12, 20))
    scale = f"0{ms(top.duration_ns / 1e6).rjust(bars.columns - 4)} ms"
    title = f"{_label(_Row(0, [top]))}, trace {trace.root.trace_id}"
    lines = [title, _LEGEND, "", f"{'':{_NAME_WIDTH}}{'ms':>10}  {scale}"]
    for row in _rows(trace, top, 0):
        took = ms(sum(span.duration_ns for span in row.spans) / 1e6)
        lines.append(f"{_label(row):{_NAME_WIDTH}}{took:>10}  {bars.of(row.spans)}".rstrip())
    failed = [span for span in trace.spans if span.error is not None and _inside(span, top)]
    lines += [""] * bool(failed)
    lines += [f"! {span.name}: {span.error}" for span in failed]
    return "\n".join(lines) + "\n"


def _step(trace: RecordedTrace, number: int) -> RecordedSpan:
    for span in trace.spans:
        if span.name == STEP and span.attributes.get(STEP_NUMBER) == number:
            return span
    raise TraceError(f"{trace.folder} has no step {number}.")


def _inside(span: RecordedSpan, top: RecordedSpan) -> bool:
    return span.start_ns < top.end_ns and span.end_ns > top.start_ns


def _rows(trace: RecordedTrace, span: RecordedSpan, depth: int) -> Iterator[_Row]:
    """The span and all below it; leaves of one name in a row become one line."""
    yield _Row(depth, [span])
    waiting: _Row | None = None
    for child in trace.children[span.span_id]:
        leaf = not trace.children[child.span_id]
        if waiting is not None and leaf and waiting.spans[0].name == child.name:
            waiting.spans.append(child)
            continue
        if waiting is not None:
            yield waiting
            waiting = None
        if leaf:
            waiting = _Row(depth + 1, [child])
        else:
            yield from _rows(trace, child, depth + 1)
    if waiting is not None:
        yield waiting


def _label(row: _Row) -> str:
    name = row.spans[0].title
    if len(row.spans) > 1:
        name += f" ×{len(row.spans)}"
    if any(span.error is not None for span in row.spans):
        name = f"! {name}"
    label = "  " * row.depth + name
    return label if len(label) < _NAME_WIDTH else label[: _NAME_WIDTH - 2] + "…"


class _Bars:
    """Draws spans into columns of equal time."""

    def __init__(self, trace: RecordedTrace, top: RecordedSpan, columns: int) -> None:
        self.columns = columns
        self._top = top
        self._slices: dict[str, list[tuple[int, int]]] = {}
        self._within: dict[str, list[tuple[int, int]]] = {}
        for piece in attribute(trace):
            stretch = (piece.start_ns, piece.end_ns)
            self._slices.setdefault(piece.span.span_id, []).append(stretch)
            for span in (*ancestors(piece.span, trace), piece.place, *ancestors(piece.place, trace)):
                if span is not piece.span:
                    self._within.setdefault(span.span_id, []).append(stretch)

    def of(self, spans: list[RecordedSpan]) -> str:
        cells = [" "] * self.columns
        for span in spans:
            self._draw(cells, [(span.start_ns, span.end_ns)], _HIDDEN)
            self._draw(cells, self._within.get(span.span_id, []), _WITHIN)
            self._draw(cells, self._slices.get(span.span_id, []), _WAITED)
        return "".join(cells)

    def _draw(self, cells: list[str], stretches: list[tuple[int, int]], mark: str) -> None:
        begin, length = self._top.start_ns, max(self._top.duration_ns, 1)
        for start, end in stretches:
            low = (start - begin) * self.columns / length
            high = (end - begin) * self.columns / length
            if high < 0 or low > self.columns:
                continue
            # What is shorter than a column still gets one, unless the longer parts of its span have it.
            first, last = round(max(low, 0)), round(min(high, self.columns))
            if first == last:
                first = min(int(max(low, 0)), self.columns - 1)
                if cells[first] in (" ", _HIDDEN):
                    cells[first] = mark
                continue
            cells[first:last] = mark * (last - first)
