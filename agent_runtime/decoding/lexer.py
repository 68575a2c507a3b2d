"""Split Python source into lexemes, the units in which edits are scored and bugs are injected.

A lexeme is one name, number, string, operator or line start. The single space in front of a lexeme belongs
to it (`lead`), and a newline with the indentation behind it is a lexeme of its own, so the text is the plain
concatenation of the lexemes. The small checkpoint's tokenizer cuts at the same boundaries, hence a lexeme is
always a whole number of tokens there.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["name", "keyword", "number", "string", "operator", "newline"]

OPERATORS = r"\*\*=|//=|>>=|<<=|\.\.\.|==|!=|<=|>=|->|:=|\+=|-=|\*=|/=|%=|&=|\|=|\^=|@=|\*\*|//|>>|<<"

_STRING = (
    r"(?i:[rbfu]{0,2})(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\""
    r"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
)
_LEXEME = re.compile(
    rf"(?P<newline>[ \t]*(?:\#[^\r\n]*)?(?:\r\n|\r|\n))"
    rf"|(?P<space>[ \t\f\ufeff]+|\\(?:\r\n|\r|\n))"
    rf"|(?P<comment>\#[^\r\n]*)"
    rf"|(?P<string>{_STRING})"
    rf"|(?P<number>(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*\.?[\d_]*(?:[eE][+-]?\d+)?[jJ]?|\.\d+(?:[eE][+-]?\d+)?))"
    rf"|(?P<name>[^\W\d]\w*)"
    rf"|(?P<operator>{OPERATORS}|[^\w\s])",
    re.DOTALL,
)
_INDENT = re.compile(r"[ \t\f]*")
_NEWLINE = re.compile(r"\r\n|\r|\n")


class LexError(ValueError):
    """The text is not made of Python lexemes."""


@dataclass(frozen=True, slots=True)
class Lexeme:
    """One lexeme: its text, the space before it, and (for line starts) nothing but whitespace."""

    kind: Kind
    text: str
    lead: str = ""

    @property
    def whole(self) -> str:
        """The lexeme as it stands in the source."""
        return self.lead + self.text


def lex(source: str) -> list[Lexeme]:
    """The lexemes of `source`, without comments and blank lines, with runs of spaces made one.

    Raises `LexError`. The first line's indentation is left out, like that of a whole file.
    """
    return [lexeme for _, line in lex_lines(source.strip("\n")) for lexeme in line][1:]


def lex_lines(source: str) -> list[tuple[int, list[Lexeme]]]:
    """The lexemes of each line that has any, with the line's number in `source` from 0.

    Each begins with its `newline` lexeme, the first line too. What spans lines, such as a long string,
    belongs to the line that it starts in. Raises `LexError`.
    """
    indent = _INDENT.match(source)
    assert indent is not None
    lines = [(0, [_line_start(indent.group())])]
    at, number, lead = indent.end(), 0, ""
    while at < len(source):
        match = _LEXEME.match(source, at)
        if match is None:
            raise LexError(f"no lexeme at offset {at}")
        at, kind, word = match.end(), match.lastgroup, match.group()
        if kind == "newline":
            number += 1
            indent = _INDENT.match(source, at)
            assert indent is not None
            lines.append((number, [_line_start(indent.group())]))
            at, lead = indent.end(), ""
        elif kind == "space":
            number += len(_NEWLINE.findall(word))
            lead = " "
        elif kind != "comment":
            if kind == "name" and keyword.iskeyword(word):
                kind = "keyword"
            elif kind == "string":
                number += len(_NEWLINE.findall(word))
            lines[-1][1].append(Lexeme(kind, word, lead))  # type: ignore[arg-type]  # the group names are the kinds
            lead = ""
    return [line for line in lines if len(line[1]) > 1]


def _line_start(indentation: str) -> Lexeme:
    return Lexeme("newline", "\n" + indentation.expandtabs(8))


def join(lexemes: Iterable[Lexeme]) -> str:
    """The source text of `lexemes`."""
    return "".join(item.whole for item in lexemes)
