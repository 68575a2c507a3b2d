"""Split Python source into lexemes, the units in which bugs are injected and edits are scored.

A lexeme is one name, number, string, operator or line start. The single space in front of a lexeme
belongs to it (``lead``), and a newline with the indentation behind it is a lexeme of its own, so the
text is the plain concatenation of the lexemes. The tokenizer's pre-tokenization cuts at the same
boundaries, hence a lexeme is always a whole number of tokens.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["name", "keyword", "number", "string", "operator", "newline"]

OPERATORS = (
    r"\*\*=|//=|>>=|<<=|\.\.\.|==|!=|<=|>=|->|:=|\+=|-=|\*=|/=|%=|&=|\|=|\^=|@=|\*\*|//|>>|<<"
)

_STRING = (
    r"(?i:[rbfu]{0,2})(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\""
    r"|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
)
_LEXEME = re.compile(
    rf"(?P<newline>[ \t]*(?:\#[^\n]*)?\n)"
    rf"|(?P<space>[ \t\f]+|\\\n)"
    rf"|(?P<comment>\#[^\n]*)"
    rf"|(?P<string>{_STRING})"
    rf"|(?P<number>(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*\.?[\d_]*(?:[eE][+-]?\d+)?[jJ]?|\.\d+(?:[eE][+-]?\d+)?))"
    rf"|(?P<name>[^\W\d]\w*)"
    rf"|(?P<operator>{OPERATORS}|[^\w\s])",
    re.DOTALL,
)


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
    """The lexemes of ``source``, without comments and blank lines, with runs of spaces made one."""
    out: list[Lexeme] = []
    at, lead = 0, ""
    text = source.strip("\n")
    while at < len(text):
        match = _LEXEME.match(text, at)
        if match is None:
            raise LexError(f"no lexeme at offset {at}")
        at, kind, word = match.end(), match.lastgroup, match.group()
        if kind == "newline":
            indent = re.compile(r"[ \t]*").match(text, at)
            assert indent is not None
            out.append(Lexeme("newline", "\n" + indent.group().expandtabs(8)))
            at, lead = indent.end(), ""
        elif kind == "space":
            lead = " "
        elif kind != "comment":
            if kind == "name" and keyword.iskeyword(word):
                kind = "keyword"
            out.append(Lexeme(kind, word, lead))  # type: ignore[arg-type]  # the group names are the kinds
            lead = ""
    return _without_blank_lines(out)


def _without_blank_lines(lexemes: list[Lexeme]) -> list[Lexeme]:
    kept = [
        item
        for item, after in zip(lexemes, [*lexemes[1:], None], strict=True)
        if item.kind != "newline" or (after is not None and after.kind != "newline")
    ]
    return kept[1:] if kept and kept[0].kind == "newline" else kept


def join(lexemes: list[Lexeme]) -> str:
    """The source text of ``lexemes``."""
    return "".join(item.whole for item in lexemes)
