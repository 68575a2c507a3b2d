"""A source text with offsets for the positions that Python's parser reports."""

from __future__ import annotations

import ast
import re
from functools import cached_property

#: Start and end offset of what is replaced, what replaces it, and the kind of the edit.
Replacement = tuple[int, int, str, str]

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


class SourceText:
    """A source text with its physical lines, and offsets into it for the positions that `ast` reports.

    Lines end as Python ends them (``\\n``, ``\\r\\n``, ``\\r``), unlike `str.splitlines`. `ast` counts
    columns in UTF-8 bytes; offsets here count characters.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: list[str] = [line for line in _LINE.findall(text) if line]
        self.starts: list[int] = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self._ascii = text.isascii()

    @cached_property
    def newline(self) -> str:
        """The line end that the text uses, from its first line."""
        first = self.lines[0] if self.lines else ""
        return first[len(first.rstrip("\r\n")) :] or "\n"

    def offset(self, line: int, utf8_column: int) -> int:
        """The character offset of a position as `ast` reports it; `line` counts from 1."""
        if self._ascii:
            return self.starts[line - 1] + utf8_column
        head = self.lines[line - 1].encode()[:utf8_column] if utf8_column else b""
        return self.starts[line - 1] + len(head.decode(errors="replace"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Start and end offset of a node that has a position."""
        start = self.offset(getattr(node, "lineno"), getattr(node, "col_offset"))  # noqa: B009  # any positioned node
        end = self.offset(getattr(node, "end_lineno"), getattr(node, "end_col_offset"))  # noqa: B009
        return start, end

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def indentation(self, line: int) -> str:
        """The white space that line `line` (from 1) starts with."""
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(" \t\f"))]
