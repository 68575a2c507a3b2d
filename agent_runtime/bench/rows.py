"""The form that all benches share.

{"bench": …, "rows": [{"measure", "against", "ours": {"n", "p50_ms", "p95_ms", "p99_ms"}, "theirs": {…}, "ratio_p50"}]}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict


class Figures(TypedDict):
    """How long something took, in milliseconds, over `n` times."""

    n: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


class Row(TypedDict):
    """One measure of ours beside one alternative's."""

    measure: str
    against: str
    ours: Figures
    theirs: Figures
    ratio_p50: float
    """How many times longer theirs takes, at the median."""


class Report(TypedDict):
    """What a bench found."""

    bench: str
    rows: list[Row]


def figures(seconds: Sequence[float]) -> Figures:
    """Percentiles by nearest rank: each is a time that was measured."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000, 4)

    return Figures(n=len(ordered), p50_ms=at(0.50), p95_ms=at(0.95), p99_ms=at(0.99))


def row(measure: str, against: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """One row, from the seconds that each took."""
    left, right = figures(ours), figures(theirs)
    return Row(
        measure=measure, against=against, ours=left, theirs=right, ratio_p50=round(right["p50_ms"] / left["p50_ms"], 1)
    )
