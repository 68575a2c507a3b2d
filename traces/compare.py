"""Two runs side by side: which phase got slower, and whether that is more than chance.

Spans of one phase that follow each other in the same order in both runs (two replays of one recording) are compared
pair by pair, so that a slow test run among quick searches is compared with itself; otherwise medians are compared.
The interval is a bootstrap of the median difference.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from .conventions import PHASES
from .percentiles import percentile
from .reading import read_trace
from .report import Samples, add_samples
from .report_text import ms, table

# At 95 %, ten phases would raise a false alarm in one comparison of three.
_CONFIDENCE = 0.999
_RESAMPLES = 4000
# The median of four can be moved by chance at will; below this nothing is judged.
_LEAST = 5
STEP_ROW = "step"

Verdict = Literal["slower", "faster", "same", "too few"]


@dataclass(frozen=True)
class PhaseComparison:
    """Milliseconds."""

    phase: str
    n_a: int
    n_b: int
    p50_a_ms: float
    p50_b_ms: float
    difference_ms: float
    """Median of the pairs' differences, or difference of the medians; above 0 when B is slower."""
    low_ms: float
    high_ms: float
    """The 99.9 % interval of the difference."""
    paired: bool
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    run_a: str
    run_b: str
    threshold: float
    least_ms: float
    phases: list[PhaseComparison]

    @property
    def regressions(self) -> list[str]:
        """The phases that got slower."""
        return [row.phase for row in self.phases if row.verdict == "slower"]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return asdict(self) | {"regressions": self.regressions}

    def to_text(self) -> str:
        """A table and a sentence for a terminal."""
        head = ["phase", "n A", "n B", "p50 A ms", "p50 B ms", "B - A ms", "99.9 % interval", ""]
        rows = []
        for row in self.phases:
            figures = (row.p50_a_ms, row.p50_b_ms, row.difference_ms)
            interval = "" if row.verdict == "too few" else f"{ms(row.low_ms)} … {ms(row.high_ms)}"
            rows.append([row.phase, str(row.n_a), str(row.n_b), *map(ms, figures), interval, row.verdict])
        what = f"by more than {self.threshold:.0%} and {ms(self.least_ms)} ms"
        found = ", ".join(self.regressions)
        sentence = f"Slower in B {what}: {found}." if found else f"Nothing is slower in B {what}."
        return "\n".join([f"A {self.run_a}", f"B {self.run_b}", "", *table(head, rows), "", sentence]) + "\n"


def compare(run_a: Path, run_b: Path, *, threshold: float = 0.1, least_ms: float = 1.0) -> Comparison:
    """Compares B with A, phase by phase, and whole steps.

    A phase is slower (or faster) when its interval lies wholly beyond `threshold` (a share of A's median) and
    `least_ms`. Raises TraceError like `report`.
    """
    a, b = _durations(run_a), _durations(run_b)
    rows = [
        _row(phase, a.get(phase, []), b.get(phase, []), threshold, least_ms)
        for phase in (*PHASES, STEP_ROW)
        if a.get(phase) or b.get(phase)
    ]
    return Comparison(str(run_a), str(run_b), threshold, least_ms, rows)


def _durations(run: Path) -> dict[str, list[float]]:
    samples = Samples()
    add_samples(samples, read_trace(run))
    return dict(samples.durations) | {STEP_ROW: [float(step.span.duration_ns) for step in samples.steps]}


def _row(phase: str, a: list[float], b: list[float], threshold: float, least_ms: float) -> PhaseComparison:
    paired = len(a) == len(b)
    p50_a, p50_b = (percentile(values, 0.5) if values else 0.0 for values in (a, b))
    low = high = difference = p50_b - p50_a
    verdict: Verdict = "too few"
    if min(len(a), len(b)) >= _LEAST:
        difference, low, high = _interval(a, b, paired=paired)
        beyond = max(threshold * p50_a, least_ms * 1e6)
        verdict = "slower" if low > beyond else "faster" if high < -beyond else "same"
    return PhaseComparison(
        phase,
        n_a=len(a),
        n_b=len(b),
        p50_a_ms=p50_a / 1e6,
        p50_b_ms=p50_b / 1e6,
        difference_ms=difference / 1e6,
        low_ms=low / 1e6,
        high_ms=high / 1e6,
        paired=paired,
        verdict=verdict,
    )


def _interval(a: list[float], b: list[float], *, paired: bool) -> tuple[float, float, float]:
    """The difference B - A with the ends of its interval; the same for the same durations, whenever computed."""
    import numpy as np

    generator = np.random.default_rng(0)
    first, second = np.asarray(a), np.asarray(b)
    if paired:
        pairs = second - first
        difference = np.median(pairs)
        drawn = np.median(generator.choice(pairs, (_RESAMPLES, len(pairs))), axis=1)
    else:
        difference = np.median(second) - np.median(first)
        drawn = np.median(generator.choice(second, (_RESAMPLES, len(second))), axis=1)
        drawn = drawn - np.median(generator.choice(first, (_RESAMPLES, len(first))), axis=1)
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(difference), float(low), float(high)
