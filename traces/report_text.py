"""The report as tables for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Distribution, Report


def report_text(report: "Report") -> str:
    """All of a report in at most 110 columns, except where a folder's name is longer."""
    steps = sum(run.steps for run in report.runs)
    lines = [f"{len(report.runs)} run(s), {steps} steps, {ms(report.wall_ms)} ms"]
    lines += [f"  {run.run_dir} ended before it was done" for run in report.runs if run.interrupted]
    head = ["phase", "n", "p50 ms", "p95 ms", "p99 ms", "max ms", "total ms", "share", "overlapped ms"]
    rows = [
        [row.phase, *_figures(row, row.total_ms), f"{row.share:.1%}", ms(row.overlapped_ms or None)]
        for row in report.phases
    ]
    total = sum(row.total_ms for row in report.phases)
    share = sum(row.share for row in report.phases)
    rows.append(["all", "", "", "", "", "", ms(total), f"{share:.1%}", ""])
    lines += ["", *table(head, rows)]
    if report.kinds:
        head = ["step", "n", "p50 ms", "p95 ms", "p99 ms", "max ms", "total ms", "mostly"]
        rows = [
            [
                row.kind,
                *_figures(row, row.total_ms),
                max(row.phases_ms, key=row.phases_ms.__getitem__, default=""),
            ]
            for row in report.kinds
        ]
        lines += ["", *table(head, rows)]
    if report.slowest is not None:
        slowest = report.slowest
        where = f"{slowest.step} ({slowest.kind}) of {slowest.run_dir}, trace {slowest.trace_id}"
        took = f"{ms(slowest.ms)} ms, of which {slowest.phase} {ms(slowest.phase_ms)} ms"
        lines += ["", f"slowest step: {where}: {took}"]
    return "\n".join(lines) + "\n"


def _figures(row: "Distribution", total_ms: float) -> list[str]:
    return [str(row.n), *map(ms, (row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms, total_ms))]


def ms(value: float | None) -> str:
    """Milliseconds with three or four digits that mean something; nothing for None."""
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns: the first to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()

    return [line(head), *map(line, rows)]
