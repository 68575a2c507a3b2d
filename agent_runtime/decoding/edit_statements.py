"""Edits of whole lines: statements deleted, inserted, swapped, or moved by one level of indentation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent_runtime.decoding.edit_file import Statement, is_docstring, leaves_loop
from agent_runtime.decoding.edit_scope import FunctionNode
from agent_runtime.decoding.edit_source import Replacement, SourceText

#: These kinds write whole statements at the indentation of an existing one, so they parse by construction.
WHOLE_LINE_KINDS = frozenset({"delete-line", "indent-line", "swap-lines", "insert-line"})
#: Longer compound statements are not what one wrong line is about.
_LONGEST_DELETED_BLOCK = 4
_INSERTED_NAMES = 4
_RETURNED_NAMES = 8
_COPIED_STATEMENTS = 8

_SIMPLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return
_LEAVING = ast.Return | ast.Raise | ast.Break | ast.Continue
_INDENTED = ast.If | ast.For | ast.While | ast.With


def statement_edits(source: SourceText, statement: Statement) -> Iterator[Replacement]:
    """All edits of the lines that the statement stands on, and of the gap after it."""
    owner = statement.owner
    if not isinstance(owner, ast.stmt) or isinstance(owner, FunctionNode | ast.ClassDef):
        return
    lines = _own_lines(source, owner)
    if lines is None or statement.scope.declares:
        return
    start, end = lines
    yield from _deletions(source, statement, start, end)
    if source.text.startswith("elif", statement.start):
        return
    yield from _indentations(source, statement, start, end)
    yield from _swaps(source, statement, start, end)
    yield from _insertions(source, statement, end)


def _own_lines(source: SourceText, node: ast.stmt) -> tuple[int, int] | None:
    """The offsets of the lines of `node`, last line end excluded; None when it shares them with others."""
    start, end = source.span(node)
    first = source.starts[node.lineno - 1]
    last = source.starts[node.end_lineno or node.lineno]
    rest = source.text[end:last].rstrip("\r\n")
    if source.text[first:start].strip() or not (rest.strip() == "" or rest.lstrip().startswith("#")):
        return None
    return first, end + len(rest)


def _after_line_end(source: SourceText, offset: int) -> int:
    for newline in ("\r\n", "\n", "\r"):
        if source.text.startswith(newline, offset):
            return offset + len(newline)
    return offset


def _deletions(source: SourceText, statement: Statement, start: int, end: int) -> Iterator[Replacement]:
    owner = statement.owner
    is_elif = source.text.startswith("elif", statement.start)
    if source.text.count("\n", start, end) >= _LONGEST_DELETED_BLOCK:
        return
    if len(statement.block) > 1 or is_elif:
        yield start, _after_line_end(source, end), "", "delete-line"
    elif not isinstance(owner, ast.Pass):
        yield statement.start, end, "pass", "delete-line"


def _shifted(source: SourceText, start: int, end: int, old: str, new: str) -> str | None:
    """The lines with indentation `old` replaced by `new`; None when a line does not start with `old`."""
    shifted = []
    for line in SourceText(source.text[start:end]).lines:
        if line.strip() and not line.startswith(old):
            return None
        shifted.append(new + line[len(old) :] if line.strip() else line)
    return "".join(shifted)


def _indentations(source: SourceText, statement: Statement, start: int, end: int) -> Iterator[Replacement]:
    owner, block, index = statement.owner, statement.block, statement.index
    if '"""' in source.text[start:end] or "'''" in source.text[start:end]:
        return
    indentation = source.text[start : statement.start]
    parent = statement.parent
    is_last = index == len(block) - 1 and index > 0
    if is_last and isinstance(parent, _INDENTED) and block[-1].end_lineno == parent.end_lineno:
        freed = isinstance(parent, ast.For | ast.While) and block is parent.body and leaves_loop([block[index]])
        outer = source.indentation(parent.lineno)
        text = _shifted(source, start, end, indentation, outer)
        if text is not None and not freed and indentation.startswith(outer):
            yield start, end, text, "indent-line"
    if index == 0:
        return
    before: ast.AST = block[index - 1]
    while isinstance(before, ast.If) and before.orelse:  # the last branch is what the line would join
        before = before.orelse[-1] if isinstance(before.orelse[-1], ast.If) else before.orelse[0]
    inner = before.body[-1] if isinstance(before, ast.For | ast.While | ast.With | ast.If) else before
    if isinstance(before, ast.For | ast.While) and before.orelse:
        inner = before.orelse[-1]
    if not isinstance(inner, ast.stmt) or inner is block[index - 1] or _own_lines(source, inner) is None:
        return
    deeper = source.indentation(inner.lineno)
    text = _shifted(source, start, end, indentation, deeper)
    if text is not None and deeper.startswith(indentation) and isinstance(owner, ast.stmt):
        yield start, end, text, "indent-line"


def _swaps(source: SourceText, statement: Statement, start: int, end: int) -> Iterator[Replacement]:
    if statement.index + 1 >= len(statement.block):
        return
    following = statement.block[statement.index + 1]
    lines = _own_lines(source, following)
    if lines is None or not isinstance(statement.owner, _SIMPLE) or not isinstance(following, _SIMPLE):
        return
    text = source.text
    yield start, lines[1], text[lines[0] : lines[1]] + text[end : lines[0]] + text[start:end], "swap-lines"


def _insertions(source: SourceText, statement: Statement, end: int) -> Iterator[Replacement]:
    scope, newline = statement.scope, source.newline
    indentation = source.indentation(statement.owner.lineno)  # type: ignore[union-attr]  # match_case is excluded
    texts: list[str] = []
    if scope.function is not None:
        texts += [source.of(node) for node in _simple_statements(scope.function)][:_COPIED_STATEMENTS]
        texts += [f"{name} {sign}= 1" for name in statement.variables("number")[:_INSERTED_NAMES] for sign in "+-"]
        if statement.index == len(statement.block) - 1:
            values = dict.fromkeys((*scope.variables[:_INSERTED_NAMES], *scope.returned, "True", "False", "None"))
            texts += [f"return {value}" for value in values if "\n" not in value and "\r" not in value]
        if statement.loop is not None:
            texts += ["break", "continue"]
        if isinstance(scope.function, ast.AsyncFunctionDef):
            texts = [text for text in texts if not text.startswith("return")]
    if not isinstance(statement.owner, _LEAVING):
        for text in dict.fromkeys(texts):
            yield end, end, newline + indentation + text, "insert-line"
    is_first = statement.index == 0 or (statement.index == 1 and is_docstring(statement.block[0]))
    if is_first and statement.scope.function is statement.parent:
        first = source.starts[statement.owner.lineno - 1]  # type: ignore[union-attr]
        guards = () if isinstance(scope.function, ast.AsyncFunctionDef) else _guards(statement)
        for text in dict.fromkeys((*texts, *guards)):
            yield first, first, indentation + text + newline, "insert-line"


def _guards(statement: Statement) -> Iterator[str]:
    """One-line early returns: the base cases that a function may lack."""
    scope = statement.scope
    values = [value for value in scope.returned if len(value) <= 12][:3]
    for name in scope.parameters[:_INSERTED_NAMES]:
        for value in dict.fromkeys((*values, name, "[]", "0", "None")):
            yield f"if not {name}: return {value}"


def _simple_statements(function: FunctionNode) -> Iterator[ast.stmt]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) or node.lineno != node.end_lineno:
            continue
        if not any(isinstance(part, ast.Yield | ast.YieldFrom | ast.Await) for part in ast.walk(node)):
            yield node
