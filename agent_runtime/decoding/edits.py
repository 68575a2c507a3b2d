"""All small edits of a Python file: what a model that cannot write a patch may choose from.

Most bugs that live in one statement are one lexeme, one operand or one line away from their fix
(mutation testing's operators; ManySStuBs4J, Karampatsis & Sutton 2020; PySStuBs, Kamienski et al. 2021).
`enumerate_edits` lists those neighbours; `agent_runtime.decoding.ranking` says which to try first.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from agent_runtime.decoding.edit_expressions import expression_edits
from agent_runtime.decoding.edit_file import File, Owner, Statement
from agent_runtime.decoding.edit_lexemes import lexeme_edits
from agent_runtime.decoding.edit_source import Replacement, SourceText
from agent_runtime.decoding.edit_statements import WHOLE_LINE_KINDS, statement_edits

#: Every kind, cheapest first: single lexemes, then removals and swaps, insertions, copies, whole lines.
KINDS = (
    "operator",
    "constant",
    "name",
    "attribute",
    "keyword",
    "remove",
    "swap",
    "insert-arithmetic",
    "insert-not",
    "insert-slice",
    "insert-attribute",
    "insert-call",
    "insert-brackets",
    "insert-argument",
    "insert-clause",
    "copy",
    "delete-line",
    "indent-line",
    "swap-lines",
    "insert-line",
)
_COST = {kind: cost for cost, kind in enumerate(KINDS)}
#: Characters of the longest statement whose expressions are edited, and whose lexemes are. Edits grow with the
#: length and so does parsing each: a sum of 2,000 characters took 20 s, and tables of data have no such bugs.
LONGEST_LINE = 500
LONGEST_TABLE = 2000
BYTE_ORDER_MARK = "\ufeff"
_INSIGNIFICANT = re.compile(r"[\s()]+")


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement of `old` by `new` in a source text.

    Lines count from 1, columns are characters from 0. A column may lie on the line's end, so that whole
    lines with their newline can be replaced.
    """

    line: int
    end_line: int
    """The last line that is replaced; equal to `line` for all but multi-line expressions and blocks."""
    column: int
    """Where `old` starts in line `line`."""
    end_column: int
    """Where `old` ends in line `end_line`."""
    old: str
    new: str
    new_line: str
    """What lines `line` to `end_line` become, line ends included; empty when they are deleted."""
    kind: str

    def patch_arguments(self, path: str) -> dict[str, str | int]:
        """Arguments of the `patch` tool: replace lines `start` to `end`, both included, by `text`."""
        return {"path": path, "start": self.line, "end": self.end_line, "text": self.new_line}

    def apply(self, source: str) -> str:
        """The edited source; `source` must be the text that the edit was made for."""
        mark = BYTE_ORDER_MARK if source.startswith(BYTE_ORDER_MARK) else ""
        lines = _source_text(source.removeprefix(mark))
        before, after = lines.text[: lines.starts[self.line - 1]], lines.text[lines.starts[self.end_line] :]
        return mark + before + self.new_line + after


@lru_cache(maxsize=8)
def _source_text(source: str) -> SourceText:
    """The lines of a source; a thousand edits of one file ask for the same ones."""
    return SourceText(source)


def enumerate_edits(
    source: str,
    *,
    lines: Collection[int] | None = None,
    exclude: Collection[str] = (),
    limit: int | None = None,
) -> list[Edit]:
    """The edits of `source` that keep it parsable, distinct as resulting texts, cheapest kinds first.

    `lines` restricts them to statements that touch one of these lines; `exclude` holds whole edited
    sources that are not wanted again; `limit` keeps the first so many. Comments, imports, docstrings,
    annotations and the insides of f-strings are left alone; a byte order mark is no part of line 1. Raises
    `SyntaxError` for a source that does not parse.
    """
    source = source.removeprefix(BYTE_ORDER_MARK)
    exclude = {text.removeprefix(BYTE_ORDER_MARK) for text in exclude}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the user's strings would warn once per candidate
        file = File(source)
        found: list[tuple[int, Edit]] = []
        seen: set[tuple[int, int, str] | None] = {None}
        for statement in file.statements:
            if lines is not None and not any(line in lines for line in _lines_of(file.source, statement)):
                continue
            for start, end, new, kind in _candidates(file, statement):
                key = _minimal(source, start, end, new)
                if key in seen or not _is_proper(file, statement, start, end, new, kind):
                    continue
                seen.add(key)
                found.append((_COST[kind], _edit(file.source, start, end, new, kind)))
    found.sort(key=lambda pair: pair[0])
    edits = (edit for _, edit in found)
    if exclude:
        edits = (edit for edit in edits if edit.apply(source) not in exclude)
    return list(islice(edits, limit))


def _minimal(text: str, start: int, end: int, new: str) -> tuple[int, int, str] | None:
    """The shortest replacement with the same result, as far right as it goes; None when nothing changes.

    Two replacements give the same text exactly when these are equal: no need to keep a thousand texts.
    """
    while start < end and new and text[start] == new[0]:
        start, new = start + 1, new[1:]
    while start < end and new and text[end - 1] == new[-1]:
        end, new = end - 1, new[:-1]
    if start == end and not new:
        return None
    while start == end and end < len(text) and text[end] == new[0]:
        start, end, new = start + 1, end + 1, new[1:] + new[0]
    while not new and end < len(text) and text[start] == text[end]:
        start, end = start + 1, end + 1
    return start, end, new


def _candidates(file: File, statement: Statement) -> Iterator[Replacement]:
    length = statement.end - statement.start
    if length <= LONGEST_TABLE:
        yield from lexeme_edits(file.source, statement)
    if length <= LONGEST_LINE:
        yield from expression_edits(file.source, statement)
    yield from statement_edits(file.source, statement)


def _is_proper(file: File, statement: Statement, start: int, end: int, new: str, kind: str) -> bool:
    """Whether the edited statement parses and means something else; only it is parsed: 20 µs, not 300."""
    source = file.source.text
    if kind in WHOLE_LINE_KINDS:
        return True  # made of whole statements at a valid indentation
    old_header = source[statement.start : statement.end]
    new_header = source[statement.start : start] + new + source[end : statement.end]
    try:
        tree = _parse_header(statement.owner, new_header)
    except (SyntaxError, ValueError):
        return False
    # Only layout and parentheses can differ without a difference in meaning; comparing trees costs 100 µs.
    if _INSIGNIFICANT.sub("", new) == _INSIGNIFICANT.sub("", source[start:end]):
        return ast.dump(tree) != ast.dump(_parse_header(statement.owner, old_header))
    return True


def _parse_header(owner: Owner, header: str) -> ast.AST:
    """Parse one logical line on its own, with a body and a surrounding where it needs them."""
    header = header.rstrip()
    if isinstance(owner, ast.match_case):
        header = f"match _:\n {header}\n  pass"
    elif isinstance(owner, ast.ExceptHandler):
        header = f"try:\n pass\n{header}\n pass"
    elif isinstance(owner, ast.Match):
        header = f"{header}\n case _:\n  pass"
    elif hasattr(owner, "body"):
        header = f"{header.removeprefix('el') if isinstance(owner, ast.If) else header}\n pass"
    return compile(header, "<edit>", "exec", ast.PyCF_ONLY_AST)


def _edit(source: SourceText, start: int, end: int, new: str, kind: str) -> Edit:
    """The edit that replaces the characters from `start` to `end`; widened to whole lines for `new_line`."""
    line = bisect_right(source.starts, start, hi=len(source.lines))
    # a span that ends where a line ends belongs to that line, not to the next
    end_line = max(line, bisect_left(source.starts, end, hi=len(source.lines)))
    head = source.text[source.starts[line - 1] : start]
    tail = source.text[end : source.starts[end_line]]
    return Edit(
        line=line,
        end_line=end_line,
        column=start - source.starts[line - 1],
        end_column=end - source.starts[end_line - 1],
        old=source.text[start:end],
        new=new,
        new_line=head + new + tail,
        kind=kind,
    )


def _lines_of(source: SourceText, statement: Statement) -> range:
    first = bisect_right(source.starts, statement.start, hi=len(source.lines))
    return range(first, bisect_left(source.starts, statement.end, hi=len(source.lines)) + 1)
