"""Functions as edit canvases: every token of the function, and empty places where tokens could be inserted.

An edit canvas is a whole function with one line in focus. In every gap between the lexemes of that line,
and behind its last, stand `GAP` `<hole>` tokens. What the network predicts at a token says whether it should
stay, be replaced or (`<hole>`) vanish; what it predicts at a hole says what should be inserted there, or
(`<hole>` again) nothing. So one pass over one canvas for each line scores every edit of the function.
The small checkpoint is trained on canvases of exactly this layout (`agent_runtime.training.objectives`).
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agent_runtime.decoding.lexer import Lexeme, lex_lines

#: Holes in each gap of the focus line, hence the most tokens that one edit can insert in one place.
GAP = 3
#: Tokens of the longest canvas: what the small checkpoint is trained on.
MAX_CANVAS = 256

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a unit: its number in the file (from 1) and its lexemes, the first a line start."""

    number: int
    lexemes: tuple[Lexeme, ...]


@dataclass(frozen=True)
class Unit:
    """What one canvas shows: a function without decorators, comments and docstring, dedented; or the lines
    outside of all functions."""

    lines: tuple[Line, ...]
    indentation: int
    """Columns that were taken off in front of every line."""

    def index_of(self, line: int) -> int | None:
        """The place in `lines` of a line of the file; None when it holds nothing of this unit."""
        return next((index for index, item in enumerate(self.lines) if item.number == line), None)


def units(source: str) -> list[Unit]:
    """The outermost functions of `source` in order, and at the end the lines around them as one unit.

    Raises `SyntaxError` when `source` does not parse.
    """
    source = source.removeprefix("\ufeff")
    tree = ast.parse(source)
    every = lex_lines(source)
    out: list[Unit] = []
    taken: set[int] = set()
    for function in _outermost_functions(tree):
        inside = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        skipped = set(_docstring_lines(function))
        lines = [(number + 1, line) for number, line in every if number + 1 in inside]
        taken.update(inside)
        if lines:
            indentation = _columns(lines[0][1][0])
            kept = [Line(number, dedent(line, indentation)) for number, line in lines if number not in skipped]
            out.append(Unit(tuple(kept), indentation))
    rest = [Line(number + 1, tuple(line)) for number, line in every if number + 1 not in taken]
    return [*out, Unit(tuple(rest), 0)] if rest else out


def _outermost_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _outermost_functions(child)


def _docstring_lines(function: ast.AST) -> Iterator[int]:
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and len(node.body) > 1:
            first = node.body[0]
            is_string = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if is_string and isinstance(first.value.value, str):  # type: ignore[attr-defined]  # seen above
                yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def _columns(start: Lexeme) -> int:
    return len(start.text) - 1


def dedent(line: Sequence[Lexeme], columns: int) -> tuple[Lexeme, ...]:
    """The line with `columns` of indentation less."""
    left = max(0, _columns(line[0]) - columns)
    return (Lexeme("newline", "\n" + " " * left), *line[1:])


@dataclass(frozen=True)
class Row:
    """The canvas of one focus line: `tokens`, and where in it the lexemes stand.

    `places` holds the positions of each lexeme's tokens, for the focus line and the lines shown below it.
    `gaps` holds the first hole in front of each lexeme of the focus line (None in front of the line start),
    and the one behind its last.
    """

    tokens: list[int]
    places: list[range]
    gaps: list[int | None]


def row(unit: Unit, focus: int, encode: Encode, hole: int | None) -> Row | None:
    """The canvas with line `focus` of the unit in focus; None when that line alone is too long for one.

    Without a `hole` in the vocabulary there are no gaps. A unit that is too long is shown in part: its first
    line and as many lines around the focus as fit.
    """
    sizes = [sum(len(encode(lexeme.whole)) for lexeme in line.lexemes) for line in unit.lines]
    gap = [] if hole is None else [hole] * GAP
    shown = _window(sizes, focus, MAX_CANVAS - len(gap) * len(unit.lines[focus].lexemes))
    if shown is None:
        return None
    tokens: list[int] = []
    places: list[range] = []
    own_gaps: list[int | None] = []
    for index in shown:
        for place, lexeme in enumerate(unit.lines[index].lexemes):
            if index == focus:
                own_gaps.append(len(tokens) if place > 0 and gap else None)
                tokens.extend(gap if place > 0 else [])
            # a canvas starts with its first word, not with a line start
            ids = () if index == shown[0] and place == 0 else encode(lexeme.whole)
            if index >= focus:
                places.append(range(len(tokens), len(tokens) + len(ids)))
            tokens.extend(ids)
        if index == focus:
            own_gaps.append(len(tokens) if gap else None)
            tokens.extend(gap)
    return Row(tokens, places, own_gaps)


def _window(sizes: Sequence[int], focus: int, budget: int) -> list[int] | None:
    """Indices of the lines to show within `budget` tokens: the first, the focus, then its neighbours."""
    chosen = {focus}
    left = budget - sizes[focus]
    if left < 0:
        return None
    if focus > 0 and sizes[0] <= left:
        chosen.add(0)
        left -= sizes[0]
    # Nearest first, both ways in turn; a line that does not fit ends its side, so none is left out between.
    sides = [iter(range(focus - 1, 0, -1)), iter(range(focus + 1, len(sizes)))]
    while sides:
        for side in list(sides):
            index = next(side, None)
            if index is None or sizes[index] > left:
                sides.remove(side)
            else:
                chosen.add(index)
                left -= sizes[index]
    return sorted(chosen)


@dataclass(frozen=True)
class PlainRow:
    """A piece of a unit without gaps: its tokens, and where each line of the file stands in them."""

    tokens: list[int]
    lines: dict[int, slice]


def plain_rows(unit: Unit, encode: Encode) -> list[PlainRow]:
    """The unit in pieces of at most `MAX_CANVAS` tokens; lines that are longer alone are left out."""
    out: list[PlainRow] = []
    for line in unit.lines:
        tokens = [token for lexeme in line.lexemes for token in encode(lexeme.whole)]
        if len(tokens) > MAX_CANVAS:
            continue
        if not out or len(out[-1].tokens) + len(tokens) > MAX_CANVAS:
            out.append(PlainRow([], {}))
        if not out[-1].tokens:  # a canvas starts with its first word, not with a line start
            tokens = tokens[len(encode(line.lexemes[0].whole)) :]
        out[-1].lines[line.number] = slice(len(out[-1].tokens), len(out[-1].tokens) + len(tokens))
        out[-1].tokens.extend(tokens)
    return out


#: A lexeme before and after the repair; None before is an insertion, None after a deletion.
Pair = tuple[Lexeme | None, Lexeme | None]


def align(old: Sequence[Lexeme], new: Sequence[Lexeme]) -> tuple[int, list[Pair]]:
    """How many lexemes stay at the start, and the pairs from there to the last difference.

    Replaced lexemes pair one by one, as where the training injects its bugs.
    """
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, _align_different(old[head : len(old) - tail], new[head : len(new) - tail])


def _align_different(old: Sequence[Lexeme], new: Sequence[Lexeme]) -> list[Pair]:
    if not old or not new or len(old) == len(new):
        pairs = min(len(old), len(new))
        rest: list[Pair] = [(lexeme, None) for lexeme in old[pairs:]]
        return [*zip(old, new, strict=False), *rest, *((None, lexeme) for lexeme in new[pairs:])]
    matcher = difflib.SequenceMatcher(None, [item.text for item in old], [item.text for item in new], False)
    out: list[Pair] = []
    for _, a, b, c, d in matcher.get_opcodes():
        pairs = min(b - a, d - c)
        out += [(old[a + index], new[c + index]) for index in range(pairs)]
        out += [(lexeme, None) for lexeme in old[a + pairs : b]]
        out += [(None, lexeme) for lexeme in new[c + pairs : d]]
    return out


@dataclass(frozen=True, slots=True)
class Change:
    """One canvas position that an edit changes: what it wants there, and what stands there."""

    position: int
    new: int
    old: int


def changes(row: Row, head: int, pairs: Sequence[Pair], encode: Encode, hole: int | None) -> tuple[list[Change], int]:
    """The canvas positions that an edit changes, and how many of its tokens find no place on the canvas.

    `head` and `pairs` are what `align` returns for the lexemes from the focus line on; those behind its last
    belong to the lines below. Tokens of a replaced lexeme pair one by one; what is left over is deleted (a
    hole is wanted) or goes into the gap behind.
    """
    out: list[Change] = []
    homeless = 0
    at, filled = head, 0
    for old, new in pairs:
        wanted = encode(new.whole) if new is not None else ()
        if old is not None:
            present = row.places[at] if at < len(row.places) else range(0)
            at, filled = at + 1, 0
            if old == new:
                continue
            for position, token in zip(present, wanted, strict=False):
                if row.tokens[position] != token:
                    out.append(Change(position, token, row.tokens[position]))
            spare = present[len(wanted) :]
            if hole is None:
                homeless += len(spare)
            else:
                out += [Change(position, hole, row.tokens[position]) for position in spare]
            wanted = wanted[len(present) :]
        gap = row.gaps[at] if at < len(row.gaps) else None
        for token in wanted:
            if gap is None or hole is None or filled >= GAP:
                homeless += 1
            else:
                out.append(Change(gap + filled, token, hole))
            filled += 1
    return out, homeless
