"""Every nanosecond of a run to exactly one span: what the run was waiting for at that moment.

At each moment the walk starts at the root and goes into the active child, until no child is active. Where several
are active at once (a commit while the tool runs), it takes the one that ends last, for that is the one the run
waits for. Where the walk ends in no phase while a phase is going on elsewhere, the run waits for that one: the next
step, for example, begins by waiting for the commit of the last. What phases did meanwhile otherwise is overlapped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from .conventions import EXECUTE_TOOL, OPERATION_NAME, OVERHEAD, PHASES, PROCESS, STEP
from .otlp_json import RecordedSpan
from .reading import RecordedTrace

_PHASES = frozenset(PHASES) - {OVERHEAD}


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of the run's wall time and the span that it belongs to."""

    start_ns: int
    end_ns: int
    span: RecordedSpan
    place: RecordedSpan
    """Where the run was: `span`, or the span that waited for it."""


@dataclass(slots=True)
class _Piece:
    """The part of a span that lies in the span above it; a span that outlives its parent has several."""

    start_ns: int
    end_ns: int
    span: RecordedSpan
    inside: "list[_Piece]"


def attribute(trace: RecordedTrace) -> list[Slice]:
    """The slices in order, without gaps: they cover the root span and nothing else."""
    root = _Piece(trace.root.start_ns, trace.root.end_ns, trace.root, [])
    pieces: dict[str, list[_Piece]] = {trace.root.span_id: [root]}
    for span in trace.from_the_root():
        if span is not trace.root:
            pieces[span.span_id] = _place(span, trace, pieces)
    return _merged(_covered(_walk(root), _top_phases(root, trace), trace))


def _top_phases(root: _Piece, trace: RecordedTrace) -> list[_Piece]:
    """The pieces that are phases and lie in none."""
    found = []
    waiting = [root]
    while waiting:
        piece = waiting.pop()
        if phase_of(piece.span, trace) != OVERHEAD:
            found.append(piece)
        else:
            waiting.extend(piece.inside)
    return found


def _covered(slices: Iterator[Slice], phases: list[_Piece], trace: RecordedTrace) -> Iterator[Slice]:
    """The slices, with those of no phase given to the phases that go on meanwhile."""
    waiting = sorted(phases, key=lambda piece: piece.start_ns, reverse=True)
    active: list[_Piece] = []
    for whole in slices:
        if phase_of(whole.span, trace) != OVERHEAD:
            yield whole
            continue
        while waiting and waiting[-1].start_ns < whole.end_ns:
            active.append(waiting.pop())
        active = [piece for piece in active if piece.end_ns > whole.start_ns]
        inside = [_cut(piece, max(piece.start_ns, whole.start_ns), min(piece.end_ns, whole.end_ns)) for piece in active]
        for part in _walk(_Piece(whole.start_ns, whole.end_ns, whole.span, inside)):
            yield replace(part, place=whole.span)


def _place(span: RecordedSpan, trace: RecordedTrace, pieces: dict[str, list[_Piece]]) -> list[_Piece]:
    """Puts `span` into the pieces of its parent, and what reaches past them into those of the ancestors above.

    So a commit that runs on while the tool does, after the chat span that holds it has ended, is the step's.
    """
    left = [(span.start_ns, span.end_ns)]
    placed: list[_Piece] = []
    for ancestor in ancestors(span, trace):
        for piece in pieces[ancestor.span_id]:
            remaining: list[tuple[int, int]] = []
            for start, end in left:
                low, high = max(start, piece.start_ns), min(end, piece.end_ns)
                if low >= high:
                    remaining.append((start, end))
                    continue
                inner = _Piece(low, high, span, [])
                piece.inside.append(inner)
                placed.append(inner)
                remaining += [(a, b) for a, b in ((start, low), (high, end)) if a < b]
            left = remaining
        if not left:
            break
    return placed


def ancestors(span: RecordedSpan, trace: RecordedTrace) -> Iterator[RecordedSpan]:
    """From the parent up to the root."""
    while span is not trace.root and span.parent_id is not None:
        span = trace.by_id[span.parent_id]
        yield span


def phase_of(span: RecordedSpan, trace: RecordedTrace) -> str:
    """The phase whose name `span` or the nearest span above it has, else `overhead`.

    What goes on in a tool call under a name of its own is `process`; so is the whole of a call that has no phases
    inside, for a tool on the host has no queue and no transport.
    """
    if is_whole_call(span, trace):
        return PROCESS
    for inner, above in pairwise([span, *ancestors(span, trace)]):
        if inner.name in _PHASES:
            return inner.name
        if above.attributes.get(OPERATION_NAME) == EXECUTE_TOOL:
            return PROCESS
    return OVERHEAD


def is_whole_call(span: RecordedSpan, trace: RecordedTrace) -> bool:
    """Whether `span` is a tool call of which nothing is known but its length."""
    if span.attributes.get(OPERATION_NAME) != EXECUTE_TOOL:
        return False
    return not any(inner.name in _PHASES for inner in trace.children[span.span_id])


def step_of(span: RecordedSpan, trace: RecordedTrace) -> RecordedSpan | None:
    """The step that `span` is or lies in."""
    if span.name == STEP:
        return span
    return next((above for above in ancestors(span, trace) if above.name == STEP), None)


def _walk(piece: _Piece) -> Iterator[Slice]:
    """The slices of one piece, by the moments at which any piece inside begins or ends."""
    if not piece.inside:
        if piece.start_ns < piece.end_ns:
            yield Slice(piece.start_ns, piece.end_ns, piece.span, piece.span)
        return
    position = piece.start_ns
    waiting = sorted(piece.inside, key=lambda inner: (inner.start_ns, -inner.end_ns), reverse=True)
    active: list[_Piece] = []
    while position < piece.end_ns:
        while waiting and waiting[-1].start_ns <= position:
            active.append(waiting.pop())
        active = [inner for inner in active if inner.end_ns > position]
        upto = min(waiting[-1].start_ns if waiting else piece.end_ns, piece.end_ns)
        if not active:
            yield Slice(position, upto, piece.span, piece.span)
        else:
            last = max(active, key=lambda inner: inner.end_ns)
            upto = min(upto, last.end_ns)
            yield from _walk(_cut(last, position, upto))
        position = upto


def _cut(piece: _Piece, start_ns: int, end_ns: int) -> _Piece:
    if (piece.start_ns, piece.end_ns) == (start_ns, end_ns):
        return piece
    inside = [
        _cut(inner, max(inner.start_ns, start_ns), min(inner.end_ns, end_ns))
        for inner in piece.inside
        if inner.start_ns < end_ns and inner.end_ns > start_ns
    ]
    return _Piece(start_ns, end_ns, piece.span, inside)


def _merged(slices: Iterator[Slice]) -> list[Slice]:
    merged: list[Slice] = []
    for piece in slices:
        if merged and merged[-1].span is piece.span and merged[-1].place is piece.place:
            merged[-1] = replace(piece, start_ns=merged[-1].start_ns)
        else:
            merged.append(piece)
    return merged
