"""Measure what the checkpoint is for: where the right edit stands among all edits of a buggy function.

Functions come from packages that are not trained on; each gets one injected bug, as in training, and the
edits are those of the runtime. Reported beside what a random order would give.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from agent_runtime.decoding.edit_evidence import Scorer
from agent_runtime.decoding.edits import enumerate_edits
from agent_runtime.decoding.lexer import join, lex
from agent_runtime.decoding.ranking import rank_edits
from agent_runtime.training import bugs
from agent_runtime.training.corpus import Function


@dataclass(frozen=True)
class Case:
    """One bug: the broken source, its repair, the line of the bug, the injecting operator."""

    broken: str
    fixed: str
    line: int
    operator: str


@dataclass(frozen=True)
class Report:
    """Ranks over all cases whose repair is among the edits."""

    cases: int
    reachable: int
    edits_median: float
    rank_median: float
    percentile_median: float
    """Share of all edits that come before the right one; 0.5 in a random order."""
    in_first_1: float
    in_first_10: float
    in_first_50: float
    random_in_first_10: float
    random_in_first_50: float
    line_first: float
    """Share of cases whose first edit is on the bug's line."""
    line_in_first_5: float
    """Share of cases whose bug's line is among the five lines of the best edits."""


def cases(functions: Sequence[Function], count: int, seed: int) -> list[Case]:
    """``count`` bugs on different functions, small algorithms before others as in training."""
    rng = random.Random(seed)
    ordered = sorted(functions, key=lambda item: rng.random() ** (1 / item.weight), reverse=True)
    found: list[Case] = []
    for function in ordered:
        lexemes = lex(function.source)
        drawn = bugs.draw_bug(lexemes, rng)
        if drawn is None:
            continue
        operator, bug = drawn
        broken = join(bugs.apply(lexemes, bug)) + "\n"
        fixed = function.source + "\n"
        try:
            compile(broken, "<broken>", "exec", dont_inherit=True)
            compile(fixed, "<fixed>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        lines = zip(broken.split("\n"), fixed.split("\n"), strict=False)
        line = next((number for number, (a, b) in enumerate(lines, 1) if a != b), 0)
        if line:
            found.append(Case(broken, fixed, line, operator))
        if len(found) == count:
            break
    return found


def squeeze(source: str) -> str:
    """A source without white space, to compare edits that differ in layout alone."""
    return "".join(source.split())


def evaluate(scorer: Scorer, items: Sequence[Case]) -> Report:
    """Rank the edits of every case."""
    ranks: list[int] = []
    totals: list[int] = []
    first = top = 0
    for item in items:
        try:
            edits = enumerate_edits(item.broken)
            wanted = squeeze(item.fixed)
            right = {index for index, edit in enumerate(edits) if squeeze(edit.apply(item.broken)) == wanted}
        except SyntaxError:
            continue
        if not right:
            continue
        ranked = rank_edits(scorer, item.broken, edits)
        texts = {edits[index] for index in right}
        ranks.append(next(place for place, entry in enumerate(ranked) if entry.edit in texts))
        totals.append(len(edits))
        lines = list(dict.fromkeys(entry.edit.line for entry in ranked))
        first += lines[0] == item.line
        top += item.line in lines[:5]
    count = len(ranks)
    return Report(
        cases=len(items),
        reachable=count,
        edits_median=statistics.median(totals),
        rank_median=statistics.median(ranks) + 1,
        percentile_median=round(statistics.median(rank / total for rank, total in zip(ranks, totals, strict=True)), 4),
        in_first_1=round(sum(rank < 1 for rank in ranks) / count, 3),
        in_first_10=round(sum(rank < 10 for rank in ranks) / count, 3),
        in_first_50=round(sum(rank < 50 for rank in ranks) / count, 3),
        random_in_first_10=round(statistics.mean(min(1.0, 10 / total) for total in totals), 3),
        random_in_first_50=round(statistics.mean(min(1.0, 50 / total) for total in totals), 3),
        line_first=round(first / count, 3),
        line_in_first_5=round(top / count, 3),
    )


def as_row(report: Report) -> dict[str, float]:
    """The report as a row of the log."""
    return dict(asdict(report))
