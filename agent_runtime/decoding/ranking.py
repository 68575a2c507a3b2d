"""Which edit to try first: the network's opinion on every edit of a file, from one batched pass.

The score of an edit is what the network holds for it against what stands there: the sum, over the canvas
positions that it changes, of log p(new token) - log p(present token), with `<hole>` for nothing
(see `agent_runtime.decoding.edit_canvas`). Kinds of edits differ in how many of them there are and in how
much the network knows about them; `PRIORS` balances that.
"""

from __future__ import annotations

import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from agent_runtime.decoding.edit_canvas import Change, Row, align, changes, dedent, row, units
from agent_runtime.decoding.edits import Edit, enumerate_edits
from agent_runtime.decoding.lexer import LexError, lex_lines
from agent_runtime.decoding.tokenizer import Tokenizer


class Scorer(Protocol):
    """What ranking asks of a decoder."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary; it must have a `<hole>`."""

    def canvas_logits(self, tokens: Tensor, context: Literal["bos"] = "bos") -> Tensor:
        """[B, C] int64 canvases to [B, C, vocab] logits, each canvas alone behind `<bos>`."""


#: Canvases are brought to a multiple of this length, by holes at the end: fewer, larger batches.
PADDING = 32
#: How often a one-statement bug is fixed by each kind of edit: a belief, in the proportions that studies of
#: such bugs report (wrong names, operators, literals, arguments and calls first), not a fit to any test set.
SHARES = {
    "operator": 0.15, "constant": 0.10, "name": 0.16, "attribute": 0.06, "keyword": 0.04,
    "remove": 0.12, "swap": 0.05, "insert-arithmetic": 0.08, "insert-not": 0.02, "insert-slice": 0.03,
    "insert-attribute": 0.02, "insert-call": 0.05, "insert-brackets": 0.01, "insert-argument": 0.02,
    "insert-clause": 0.03, "copy": 0.02, "delete-line": 0.01, "indent-line": 0.01, "swap-lines": 0.01,
    "insert-line": 0.01,
}  # fmt: skip
#: Weight of the network's nats against the prior's.
TRUST = 1.0
#: Nats for a token of the edit that the network was not asked about.
HOMELESS = -1.0
#: Nats for a line that the failing test did not run: it cannot have made it fail, but coverage may be partial.
NOT_EXECUTED = -8.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """An edit and its score in nats; higher comes first, and scores of different files compare."""

    edit: Edit
    score: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the network says about one edit, before priors."""

    gain: float
    """Nats: sum of log p(new) - log p(present) over the changed positions."""
    changed: int
    """How many canvas positions the edit changes."""
    homeless: int
    """Tokens of the edit that the canvas has no place for, and that the network was not asked about."""


def rank_edits(
    scorer: Scorer,
    source: str,
    edits: Sequence[Edit],
    *,
    executed_lines: Collection[int] | None = None,
) -> list[Ranked]:
    """`edits` of `source`, best first.

    `executed_lines` are lines that ran in a failing test: edits elsewhere come later. Raises `SyntaxError`
    when `source` does not parse, `CheckpointError` when the vocabulary has no `<hole>`.
    """
    ranked = []
    for edit, before, found in zip(edits, prior(edits), weigh(scorer, source, edits), strict=True):
        score = before + TRUST * found.gain + HOMELESS * found.homeless
        lines = range(edit.line, edit.end_line + 1)
        if executed_lines is not None and not any(line in executed_lines for line in lines):
            score += NOT_EXECUTED
        ranked.append(Ranked(edit, score))
    return sorted(ranked, key=lambda item: -item.score)


def random_order(edits: Sequence[Edit], seed: int) -> list[Ranked]:
    """The baseline: the same edits in an order that knows nothing."""
    shuffled = list(edits)
    random.Random(seed).shuffle(shuffled)
    return [Ranked(edit, float(-place)) for place, edit in enumerate(shuffled)]


def weigh(scorer: Scorer, source: str, edits: Sequence[Edit]) -> list[Evidence]:
    """What the network says about each edit, from one pass over one canvas for each line that has edits."""
    canvases = Canvases(scorer.tokenizer, source)
    questions = [canvases.question(edit) for edit in edits]
    gains = _gains(canvases.score(scorer, questions), questions)
    return [
        Evidence(gain, len(question.changes), question.homeless)
        for gain, question in zip(gains, questions, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Question:
    """What an edit changes on the canvas number `row`; None when no canvas shows its lines."""

    row: int | None
    changes: list[Change]
    homeless: int


class Canvases:
    """The edit canvases of one source: one for each line that is asked about."""

    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        self.rows: list[Row] = []
        self._hole = tokenizer.special("<hole>")
        self._encode = lru_cache(maxsize=None)(tokenizer.encode)
        self._homes = {line.number: (unit, index) for unit in units(source) for index, line in enumerate(unit.lines)}
        self._of_line: dict[int, int | None] = {}

    def question(self, edit: Edit) -> Question:
        """What the network is to be asked about `edit`."""
        line = next((line for line in range(edit.line, edit.end_line + 1) if line in self._homes), None)
        number = None if line is None else self._row(line)
        if line is None or number is None:
            return Question(None, [], 1)
        unit, focus = self._homes[line]
        old = [item for after in unit.lines[focus:] if after.number <= edit.end_line for item in after.lexemes]
        try:
            new = [item for _, after in lex_lines(edit.new_line) for item in dedent(after, unit.indentation)]
        except LexError:
            return Question(None, [], 1)
        return Question(number, *changes(self.rows[number], *align(old, new), self._encode, self._hole))

    def _row(self, line: int) -> int | None:
        """The number of the canvas with this line in focus; None when it is too long for a canvas."""
        if line not in self._of_line:
            built = row(*self._homes[line], self._encode, self._hole)
            self._of_line[line] = None if built is None else len(self.rows)
            self.rows.extend([] if built is None else [built])
        return self._of_line[line]

    def score(self, scorer: Scorer, questions: Sequence[Question]) -> dict[tuple[int, int], Tensor]:
        """Log-probabilities [vocab] at every (row, position) that a question asks about."""
        asked: dict[int, set[int]] = {}
        for question in questions:
            if question.row is not None and question.changes:
                asked.setdefault(question.row, set()).update(change.position for change in question.changes)
        lengths: dict[int, list[int]] = {}
        for number in asked:
            lengths.setdefault(-(-len(self.rows[number].tokens) // PADDING) * PADDING, []).append(number)
        out: dict[tuple[int, int], Tensor] = {}
        for length, numbers in lengths.items():
            tokens = torch.full((len(numbers), length), self._hole)
            for place, number in enumerate(numbers):
                tokens[place, : len(self.rows[number].tokens)] = torch.tensor(self.rows[number].tokens)
            logits = scorer.canvas_logits(tokens)
            for place, number in enumerate(numbers):
                positions = sorted(asked[number])
                logp = logits[place, positions].log_softmax(-1)
                out.update({(number, position): logp[index] for index, position in enumerate(positions)})
        return out


def _gains(logp: dict[tuple[int, int], Tensor], questions: Sequence[Question]) -> list[float]:
    """For each question the sum of log p(new) - log p(old) over its changes; one gather for all of them."""
    keys = {key: index for index, key in enumerate(logp)}
    asked = [(at, change, question.row) for at, question in enumerate(questions) for change in question.changes]
    if not asked:
        return [0.0] * len(questions)
    table = torch.stack(list(logp.values()))
    places = torch.tensor([keys[(row, change.position)] for _, change, row in asked if row is not None])
    new = table[places, torch.tensor([change.new for _, change, _ in asked])]
    old = table[places, torch.tensor([change.old for _, change, _ in asked])]
    sums = torch.zeros(len(questions)).index_add_(
        0, torch.tensor([at for at, _, _ in asked]), (new - old).float().cpu()
    )
    return sums.tolist()


def prior(edits: Sequence[Edit]) -> list[float]:
    """The log-probability of each edit before the network is asked: its kind's share, spread over the kind."""
    numbers = Counter(edit.kind for edit in edits)
    return [math.log(SHARES[edit.kind] / numbers[edit.kind]) for edit in edits]


def evaluate_ranking(scorer: Scorer, samples: Iterable[tuple[str, str]], seed: int = 0) -> dict[str, float]:
    """How early the right edit comes on `samples` of (buggy source, fixed source), beside a random order.

    `found` is the share of samples whose fix is among the edits; the rest is over those: `median_rank` (from
    1), `median_percentile` (0 is best), `top_1`, `top_10`, `top_50` (shares), `mrr`, and `random_` of each.
    """
    total = 0
    places: list[tuple[int, int, int]] = []
    for buggy, fixed in samples:
        total += 1
        edits = enumerate_edits(buggy)
        right = [edit for edit in edits if _squeezed(edit.apply(buggy)) == _squeezed(fixed)]
        if right:
            orders = (rank_edits(scorer, buggy, edits), random_order(edits, seed + total))
            ranks = [min(at for at, item in enumerate(order, 1) if item.edit in right) for order in orders]
            places.append((ranks[0], ranks[1], len(edits)))
    metrics = {"samples": float(total), "found": len(places) / max(1, total)}
    for column, prefix in enumerate(("", "random_")) if places else ():
        ranks = [place[column] for place in places]
        metrics[prefix + "median_rank"] = float(statistics.median(ranks))
        metrics[prefix + "median_percentile"] = statistics.median(
            100 * (rank - 1) / max(1, place[2] - 1) for rank, place in zip(ranks, places, strict=True)
        )
        metrics.update({f"{prefix}top_{top}": sum(rank <= top for rank in ranks) / len(ranks) for top in (1, 10, 50)})
        metrics[prefix + "mrr"] = statistics.fmean(1 / rank for rank in ranks)
    return metrics


def _squeezed(source: str) -> str:
    """The text without white space and parentheses: what tells a fix from another edit, cheaply."""
    return re.sub(r"[\s()]+", "", source)
