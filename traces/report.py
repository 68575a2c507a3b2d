"""Where the time went: each phase's count, tail and share, over one run or several.

`total` is wall time, each moment counted once, so the totals of the phases are the wall time of the runs. The
percentiles are of whole durations, whatever else went on meanwhile; `overlapped` is what of them was not
waited for.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .attribution import Slice, attribute, is_whole_call, phase_of, step_of
from .conventions import (
    CONSTRAINT,
    CONSTRAINT_MS,
    DENOISE,
    EXECUTE_TOOL,
    OPERATION_NAME,
    OVERHEAD,
    PHASES,
    STEP,
    STEP_NUMBER,
    TOOL_NAME,
)
from .otlp_json import RecordedSpan
from .percentiles import percentile
from .reading import FINISHED_FILE, RecordedTrace, read_trace

NO_TOOL = "no tool"


@dataclass(frozen=True)
class Distribution:
    """Milliseconds."""

    n: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, durations_ns: Sequence[float]) -> "Distribution":
        if not durations_ns:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        p50, p95, p99, most = (percentile(durations_ns, share) / 1e6 for share in (0.5, 0.95, 0.99, 1.0))
        return cls(len(durations_ns), p50, p95, p99, most)


@dataclass(frozen=True)
class PhaseRow(Distribution):
    phase: str
    total_ms: float
    """Wall time that was this phase's; the rows add up to the runs' wall time."""
    overlapped_ms: float
    """Time of this phase during which the run waited for something else."""
    share: float
    """`total_ms` of the runs' wall time, 0 to 1."""


@dataclass(frozen=True)
class KindRow(Distribution):
    """Steps that called one tool."""

    kind: str
    total_ms: float
    phases_ms: dict[str, float]


@dataclass(frozen=True)
class SlowestStep:
    run_dir: str
    trace_id: str
    step: int
    kind: str
    ms: float
    phase: str
    """The phase that took the most of it."""
    phase_ms: float


@dataclass(frozen=True)
class RunRow:
    run_dir: str
    trace_id: str
    wall_ms: float
    steps: int
    interrupted: bool


@dataclass(frozen=True)
class Report:
    wall_ms: float
    runs: list[RunRow]
    phases: list[PhaseRow]
    kinds: list[KindRow]
    slowest: SlowestStep | None

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; each row begins with what it is about."""
        data = asdict(self)
        data["phases"] = [{"phase": row["phase"], **row} for row in data["phases"]]
        data["kinds"] = [{"kind": row["kind"], **row} for row in data["kinds"]]
        return data

    def to_text(self) -> str:
        """Tables for a terminal."""
        from .report_text import report_text

        return report_text(self)


@dataclass
class Samples:
    """Raw nanoseconds of one or several runs, before they become rows."""

    durations: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By phase: one value a span; for `overhead` one a step."""
    totals: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By phase: attributed wall time."""
    steps: list["StepSample"] = field(default_factory=list)


@dataclass
class StepSample:
    trace: RecordedTrace
    span: RecordedSpan
    kind: str
    totals: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def report(run_dirs: Iterable[Path]) -> Report:
    """Reads the folders and adds them up; raises TraceError for one that is no run's folder or holds no trace."""
    traces = [read_trace(Path(run_dir)) for run_dir in run_dirs]
    samples = Samples()
    for trace in traces:
        add_samples(samples, trace)
    wall_ns = sum(trace.root.duration_ns for trace in traces)
    return Report(
        wall_ms=wall_ns / 1e6,
        runs=[_run_row(trace) for trace in traces],
        phases=[_phase_row(phase, samples, wall_ns) for phase in PHASES if phase in samples.durations],
        kinds=_kind_rows(samples.steps),
        slowest=_slowest(samples.steps),
    )


def latency_summary(run_dir: Path) -> dict[str, dict[str, float]]:
    """Per phase n, p50_ms, p95_ms, p99_ms, total_ms and share of wall time, for `result.json`.

    Nothing for a run that was not recorded (OTEL_SDK_DISABLED). Raises TraceError like `report`.
    """
    if not (run_dir / FINISHED_FILE).exists():
        return {}
    return {
        row.phase: {
            "n": row.n,
            "p50_ms": round(row.p50_ms, 3),
            "p95_ms": round(row.p95_ms, 3),
            "p99_ms": round(row.p99_ms, 3),
            "total_ms": round(row.total_ms, 3),
            "share": round(row.share, 4),
        }
        for row in report([run_dir]).phases
    }


def add_samples(samples: Samples, trace: RecordedTrace) -> None:
    """Adds one run to `samples`."""
    step_spans = [span for span in trace.spans if span.name == STEP]
    steps = {span.span_id: StepSample(trace, span, _kind(span, trace)) for span in step_spans}
    for span in trace.spans:
        if span.name == phase_of(span, trace) or is_whole_call(span, trace):
            for phase, share in _split(span, trace):
                samples.durations[phase].append(_own_ns(span, trace) * share)
    for piece in attribute(trace):
        step = step_of(piece.place, trace)
        for phase, share in _split(_phase_span(piece, trace), trace):
            nanoseconds = (piece.end_ns - piece.start_ns) * share
            samples.totals[phase] += nanoseconds
            if step is not None:
                steps[step.span_id].totals[phase] += nanoseconds
    samples.durations[OVERHEAD] += []  # the row is there for a run without steps too
    for sample in steps.values():
        samples.durations[OVERHEAD].append(sample.totals[OVERHEAD])
    samples.steps += steps.values()


def _own_ns(span: RecordedSpan, trace: RecordedTrace) -> int:
    """The length of a phase's span without the other phases inside it: constraint work is no denoising."""
    phase = phase_of(span, trace)
    other = 0
    waiting = list(trace.children[span.span_id])
    while waiting:
        inner = waiting.pop()
        if phase_of(inner, trace) == phase:
            waiting += trace.children[inner.span_id]
        else:
            other += max(min(inner.end_ns, span.end_ns) - max(inner.start_ns, span.start_ns), 0)
    return max(span.duration_ns - other, 0)


def _phase_span(piece: Slice, trace: RecordedTrace) -> RecordedSpan:
    """The span that makes `piece` its phase: the constraint's share is told on the denoise span itself."""
    span, phase = piece.span, phase_of(piece.span, trace)
    while span.name != phase and span is not trace.root and span.parent_id is not None:
        above = trace.by_id[span.parent_id]
        if phase_of(above, trace) != phase:
            break
        span = above
    return span


def _split(span: RecordedSpan, trace: RecordedTrace) -> list[tuple[str, float]]:
    """The phases of a span and their shares: a denoise span tells how much of it was constraint work."""
    phase = phase_of(span, trace)
    constraint_ms = span.attributes.get(CONSTRAINT_MS)
    if phase != DENOISE or constraint_ms is None or span.duration_ns == 0:
        return [(phase, 1.0)]
    share = min(max(float(constraint_ms) * 1e6 / span.duration_ns, 0.0), 1.0)
    return [(DENOISE, 1.0 - share), (CONSTRAINT, share)]


def _kind(step: RecordedSpan, trace: RecordedTrace) -> str:
    for span in trace.children[step.span_id]:
        if span.attributes.get(OPERATION_NAME) == EXECUTE_TOOL:
            return str(span.attributes.get(TOOL_NAME, NO_TOOL))
    return NO_TOOL


def _run_row(trace: RecordedTrace) -> RunRow:
    root, steps = trace.root, sum(span.name == STEP for span in trace.spans)
    return RunRow(str(trace.folder), root.trace_id, root.duration_ns / 1e6, steps, trace.interrupted)


def _phase_row(phase: str, samples: Samples, wall_ns: float) -> PhaseRow:
    durations, total = samples.durations[phase], samples.totals[phase]
    overlapped = 0.0 if phase == OVERHEAD else max(sum(durations) - total, 0.0)
    return PhaseRow(
        **asdict(Distribution.of(durations)),
        phase=phase,
        total_ms=total / 1e6,
        overlapped_ms=overlapped / 1e6,
        share=total / wall_ns if wall_ns else 0.0,
    )


def _kind_rows(steps: list[StepSample]) -> list[KindRow]:
    by_kind: dict[str, list[StepSample]] = defaultdict(list)
    for step in steps:
        by_kind[step.kind].append(step)
    rows = []
    for kind, members in by_kind.items():
        phases = {phase: sum(step.totals.get(phase, 0.0) for step in members) / 1e6 for phase in PHASES}
        rows.append(
            KindRow(
                **asdict(Distribution.of([step.span.duration_ns for step in members])),
                kind=kind,
                total_ms=sum(step.span.duration_ns for step in members) / 1e6,
                phases_ms={phase: ms for phase, ms in phases.items() if ms},
            )
        )
    return sorted(rows, key=lambda row: -row.total_ms)


def _slowest(steps: list[StepSample]) -> SlowestStep | None:
    if not steps:
        return None
    step = max(steps, key=lambda step: step.span.duration_ns)
    phase = max(step.totals, key=lambda phase: step.totals[phase], default=OVERHEAD)
    return SlowestStep(
        run_dir=str(step.trace.folder),
        trace_id=step.span.trace_id,
        step=int(step.span.attributes.get(STEP_NUMBER, 0)),
        kind=step.kind,
        ms=step.span.duration_ns / 1e6,
        phase=phase,
        phase_ms=step.totals.get(phase, 0.0) / 1e6,
    )
