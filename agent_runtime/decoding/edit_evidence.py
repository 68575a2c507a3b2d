"""What the network says about edits: one pass over the edit canvases of a file answers for all of them.

The gain of an edit is what the network holds for it against what stands there: the sum, over the canvas
positions that it changes, of log p(new token) - log p(present token), with `<hole>` for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from agent_runtime.decoding.edit_canvas import Change, Row, align, changes, dedent, plain_rows, row, units
from agent_runtime.decoding.edits import Edit
from agent_runtime.decoding.lexer import LexError, lex_lines
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.errors import DecodingError

#: Canvases are brought to a multiple of this length, by holes at the end: fewer, larger batches.
PADDING = 32
#: Lines that get a canvas of their own; about 5 s of two cores with the small checkpoint. A file with more is
#: looked at once without gaps, and only its most surprising lines are asked about in full.
MOST_CANVASES = 96


class Scorer(Protocol):
    """What ranking asks of a decoder."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary; it must have a `<hole>`."""

    def canvas_logits(self, tokens: Tensor, context: Literal["bos"] = "bos") -> Tensor:
        """[B, C] int64 canvases to [B, C, vocab] logits, each canvas alone behind `<bos>`."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the network says about one edit, before priors."""

    gain: float
    """Nats: sum of log p(new) - log p(present) over the changed positions."""
    changed: int
    """How many canvas positions the edit changes."""
    homeless: int
    """Tokens of the edit that the canvas has no place for, and that the network was not asked about."""
    seen: bool = True
    """False when no canvas shows the edit: then the rest says nothing."""


def weigh(scorer: Scorer, source: str, edits: Sequence[Edit], likely_lines: Collection[int] = ()) -> list[Evidence]:
    """The network's opinion on each edit; of more than `MOST_CANVASES` lines, `likely_lines` go first.

    Raises `SyntaxError` when `source` does not parse, `DecodingError` for an output that is not finite.
    """
    canvases = Canvases(scorer.tokenizer, source)
    lines = list(dict.fromkeys(line for edit in edits if (line := canvases.focus(edit)) is not None))
    if len(lines) > MOST_CANVASES:
        surprise = canvases.surprise(scorer)
        lines.sort(key=lambda line: (line not in likely_lines, -surprise.get(line, 0.0)))
    shown = set(lines[:MOST_CANVASES])
    questions = [canvases.question(edit, shown) for edit in edits]
    gains = _gains(*canvases.look(scorer, questions), questions)
    return [
        Evidence(gain, len(question.changes), question.homeless, question.row is not None)
        for gain, question in zip(gains, questions, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Question:
    """What an edit changes on the canvas number `row`; None when no canvas shows its lines."""

    row: int | None
    changes: list[Change]
    homeless: int


_UNSEEN = Question(None, [], 0)


class Canvases:
    """The edit canvases of one source: one for each line that is asked about."""

    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        self.rows: list[Row] = []
        self._hole = tokenizer.specials.get("<hole>")
        self._filling = self._hole if self._hole is not None else tokenizer.special("<pad>")
        self._encode = lru_cache(maxsize=None)(tokenizer.encode)
        self._units = units(source)
        self._homes = {line.number: (unit, at) for unit in self._units for at, line in enumerate(unit.lines)}
        self._of_line: dict[int, int | None] = {}

    def focus(self, edit: Edit) -> int | None:
        """The line whose canvas shows `edit`; None for lines that hold only comments."""
        return next((line for line in range(edit.line, edit.end_line + 1) if line in self._homes), None)

    def question(self, edit: Edit, shown: Collection[int]) -> Question:
        """What the network is to be asked about `edit`, if the canvas of its line is among those `shown`."""
        line = self.focus(edit)
        number = self._row(line) if line in shown and line is not None else None
        if line is None or number is None:
            return _UNSEEN
        unit, at = self._homes[line]
        old = [item for after in unit.lines[at:] if after.number <= edit.end_line for item in after.lexemes]
        try:
            new = [item for _, after in lex_lines(edit.new_line) for item in dedent(after, unit.indentation)]
        except LexError:
            return _UNSEEN
        return Question(number, *changes(self.rows[number], *align(old, new), self._encode, self._hole))

    def _row(self, line: int) -> int | None:
        """The number of the canvas with this line in focus; None when it is too long for a canvas."""
        if line not in self._of_line:
            built = row(*self._homes[line], self._encode, self._hole)
            self._of_line[line] = None if built is None else len(self.rows)
            self.rows.extend([] if built is None else [built])
        return self._of_line[line]

    def look(self, scorer: Scorer, questions: Sequence[Question]) -> tuple[dict[tuple[int, int], int], Tensor]:
        """Log-probabilities [n, vocab] at all that is asked about, and in which row each (canvas, position) is."""
        asked: dict[int, set[int]] = {}
        for question in questions:
            if question.row is not None and question.changes:
                asked.setdefault(question.row, set()).update(change.position for change in question.changes)
        places: dict[tuple[int, int], int] = {}
        parts: list[Tensor] = []
        for number, logits in self._pass(scorer, {number: self.rows[number].tokens for number in asked}):
            positions = sorted(asked[number])
            places.update({(number, position): len(places) + at for at, position in enumerate(positions)})
            parts.append(logits[positions].float().log_softmax(-1))
        table = torch.cat(parts).cpu() if parts else torch.zeros(0, 0)
        if not torch.isfinite(table.sum()):
            raise DecodingError("the network's output is not finite: check the checkpoint, or use dtype float32")
        return places, table

    def surprise(self, scorer: Scorer) -> dict[int, float]:
        """For each line of the file how much more probable the network finds another token, at its worst place."""
        rows = [shown for unit in self._units for shown in plain_rows(unit, self._encode)]
        out: dict[int, float] = {}
        for number, logits in self._pass(scorer, {at: shown.tokens for at, shown in enumerate(rows)}):
            tokens = torch.tensor(rows[number].tokens, device=logits.device)
            behind = logits.amax(-1)[: len(tokens)] - logits[: len(tokens)].gather(-1, tokens[:, None])[:, 0]
            out.update({line: float(behind[place].max()) for line, place in rows[number].lines.items()})
        return out

    def _pass(self, scorer: Scorer, rows: dict[int, list[int]]) -> Iterable[tuple[int, Tensor]]:
        """Each canvas's number and logits [length, vocab]; canvases of about one length go in one batch."""
        lengths: dict[int, list[int]] = {}
        for number, tokens in rows.items():
            lengths.setdefault(-(-len(tokens) // PADDING) * PADDING, []).append(number)
        for length, numbers in lengths.items():
            batch = torch.full((len(numbers), length), self._filling)
            for at, number in enumerate(numbers):
                batch[at, : len(rows[number])] = torch.tensor(rows[number])
            yield from zip(numbers, scorer.canvas_logits(batch), strict=True)


def _gains(places: dict[tuple[int, int], int], table: Tensor, questions: Sequence[Question]) -> list[float]:
    """For each question the sum of log p(new) - log p(old) over its changes; one gather for all of them."""
    asked = [
        (at, places[question.row, change.position], change.new, change.old)
        for at, question in enumerate(questions)
        if question.row is not None
        for change in question.changes
    ]
    sums = torch.zeros(len(questions))
    if asked:
        owners, rows, new, old = torch.tensor(asked).T
        sums.index_add_(0, owners, table[rows, new] - table[rows, old])
    gains: list[float] = sums.tolist()
    return gains
