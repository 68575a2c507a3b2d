"""A function as bug injection sees it: its lexemes, its names, its brackets, and edits of them."""

from __future__ import annotations

import builtins
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agent_runtime.decoding.lexer import Lexeme

BUILTINS = frozenset(dir(builtins))
OPENERS, CLOSERS = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace ``lexemes[start:stop]`` by ``new``."""

    start: int
    stop: int
    new: tuple[Lexeme, ...] = ()


Bug = tuple[Edit, ...]
Sites = Iterator[Bug]


class Code:
    """A function's lexemes with what the operators ask about them."""

    def __init__(self, lexemes: Sequence[Lexeme], rng: random.Random) -> None:
        self.lexemes = list(lexemes)
        self.rng = rng
        self.body = next((i for i, item in enumerate(lexemes) if item.kind == "newline"), 0)
        self.closer = _brackets(lexemes)
        self.names = sorted(
            {
                item.text
                for i, item in enumerate(lexemes)
                if item.kind == "name" and self.text(i - 1) != "." and item.text not in BUILTINS
            }
        )
        self.attributes = sorted(
            {item.text for i, item in enumerate(lexemes) if item.kind == "name" and self.text(i - 1) == "."}
        )

    def text(self, at: int) -> str:
        """The text of a lexeme, empty outside the function."""
        return self.lexemes[at].text if 0 <= at < len(self.lexemes) else ""

    def kind(self, at: int) -> str:
        """The kind of a lexeme; both ends of the function are line starts."""
        return self.lexemes[at].kind if 0 <= at < len(self.lexemes) else "newline"

    def inside(self) -> range:
        """The places of the body, the header left alone."""
        return range(self.body + 1, len(self.lexemes))

    def simple(self, at: int) -> bool:
        """Whether the lexeme is a whole operand: a name or number that nothing is attached to."""
        if self.kind(at) not in ("name", "number"):
            return False
        return self.text(at - 1) != "." and self.text(at + 1) not in ("(", "[", ".")

    def ends(self, at: int) -> bool:
        """Whether the expression ends before this lexeme."""
        return self.kind(at) == "newline" or self.text(at) in (")", "]", "}", ",", ":")

    def binary(self, at: int) -> bool:
        """Whether the operator at this place stands between two operands."""
        before = self.kind(at - 1) in ("name", "number", "string") or self.text(at - 1) in (")", "]", "}")
        return before and self.kind(at + 1) != "newline" and not self.ends(at + 1)

    def swap(self, at: int, text: str) -> Bug:
        """The lexeme replaced by another of the same lead."""
        return (Edit(at, at + 1, (replace(self.lexemes[at], text=text),)),)

    def operand_end(self, at: int) -> int:
        """Where the operand that starts here stops (brackets, attributes and calls included)."""
        while at < len(self.lexemes):
            if self.text(at) and self.text(at) in OPENERS:
                at = self.closer.get(at, len(self.lexemes)) + 1
            elif self.kind(at) in ("name", "number", "string") or self.text(at) in (".", "-", "not"):
                at += 1
            else:
                break
            if self.text(at) not in (".", "(", "[") and self.text(at - 1) not in (".", "-", "not"):
                break
        return at


def _brackets(lexemes: Sequence[Lexeme]) -> dict[int, int]:
    stack: list[int] = []
    pairs: dict[int, int] = {}
    for at, item in enumerate(lexemes):
        if item.kind == "operator" and item.text in OPENERS:
            stack.append(at)
        elif item.kind == "operator" and item.text in CLOSERS and stack:
            pairs[stack.pop()] = at
    return pairs
