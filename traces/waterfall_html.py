"""Spans as bars on a track of time."""

from html import escape

from .attribution import Slice, ancestors, attribute, phase_of
from .conventions import PHASES
from .otlp_json import RecordedSpan
from .reading import RecordedTrace
from .report_text import ms

# Told apart also by people who do not see red and green alike, on white and on black.
_PALETTE = (
    "#94a3b8", "#64748b", "#eab308", "#0ea5e9", "#2563eb", "#8b5cf6", "#f97316", "#ea580c", "#14b8a6", "#9ca3af",
)  # fmt: skip
COLOURS = dict(zip(PHASES, _PALETTE, strict=True))


class Waterfall:
    """The bars of one trace: what the run waited for, in the colour of its phase; pale what was hidden behind it."""

    def __init__(self, trace: RecordedTrace) -> None:
        self._trace = trace
        self._slices: dict[str, list[Slice]] = {span.span_id: [] for span in trace.spans}
        for piece in attribute(trace):
            above = {span.span_id for start in (piece.span, piece.place) for span in (start, *ancestors(start, trace))}
            for span_id in above:
                self._slices[span_id].append(piece)

    def rows(self, span: RecordedSpan, frame: RecordedSpan, depth: int = 99) -> str:
        """The span and what lies in it to `depth`, on the time of `frame`."""
        return "".join(self._row(inner, frame, level) for inner, level in self._tree(span, 0, depth))

    def strip(self, span: RecordedSpan) -> str:
        """What the run waited for during `span`, in one line."""
        return f'<div class="track">{self._bars(span, span)}</div>'

    def _tree(self, span: RecordedSpan, level: int, depth: int) -> list[tuple[RecordedSpan, int]]:
        found = [(span, level)]
        if level < depth:
            for child in self._trace.children[span.span_id]:
                found += self._tree(child, level + 1, depth)
        return found

    def _row(self, span: RecordedSpan, frame: RecordedSpan, level: int) -> str:
        failed = f' <em class="failed">{escape(span.error)}</em>' if span.error else ""
        told = "\n".join(f"{key}: {str(value)[:200]}" for key, value in span.attributes.items())
        return (
            f'<div class="row" title="{escape(told)}">'
            f'<b style="padding-left:{level}em">{escape(span.title)}{failed}</b>'
            f'<span>{ms(span.duration_ns / 1e6)} ms</span><div class="track">{self._bars(span, frame)}</div></div>'
        )

    def _bars(self, span: RecordedSpan, frame: RecordedSpan) -> str:
        whole = _bar(span.start_ns, span.end_ns, frame, phase_of(span, self._trace), ' class="hidden"')
        waited = (
            _bar(piece.start_ns, piece.end_ns, frame, phase_of(piece.span, self._trace), "")
            for piece in self._slices[span.span_id]
        )
        return whole + "".join(waited)


def _bar(start_ns: int, end_ns: int, frame: RecordedSpan, phase: str, extra: str) -> str:
    length = max(frame.duration_ns, 1)
    left = min(max((start_ns - frame.start_ns) / length, 0.0), 1.0)
    right = min(max((end_ns - frame.start_ns) / length, left), 1.0)
    return f'<i{extra} style="left:{left:.3%};width:{right - left:.3%};background:{COLOURS[phase]}"></i>'
