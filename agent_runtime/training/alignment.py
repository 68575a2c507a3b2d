"""Align a buggy function with its repair, token by token.

A ``Cell`` pairs a token of the buggy text with the token that stands there after the repair. ``NONE`` on
the left is a token that the repair inserts; ``NONE`` on the right is one that it deletes. Replaced
lexemes pair position by position from their first token; what is left over is inserted or deleted.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.lexer import Lexeme
from agent_runtime.training.bugs import Bug

NONE = -1
#: Cell flags: first token of a buggy lexeme; token of a line start; token that the repair changes.
STARTS, NEWLINE, CHANGED = 1, 2, 4
#: Holes in each gap of the focus line, hence the most tokens that a repair can insert in one place.
GAP = 3

Cells = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Region:
    """Neighbouring lexemes before and after the repair; most regions are one unchanged lexeme."""

    old: tuple[Lexeme, ...]
    new: tuple[Lexeme, ...]


def regions(lexemes: Sequence[Lexeme], bug: Bug) -> list[Region]:
    """The whole function as regions; ``bug`` edits the clean lexemes, so its ``new`` is our ``old``."""
    out: list[Region] = []
    at = 0
    for edit in sorted(bug, key=lambda item: item.start):
        out += [Region((item,), (item,)) for item in lexemes[at : edit.start]]
        out += _split(edit.new, tuple(lexemes[edit.start : edit.stop]))
        at = edit.stop
    return out + [Region((item,), (item,)) for item in lexemes[at:]]


def _split(old: tuple[Lexeme, ...], new: tuple[Lexeme, ...]) -> list[Region]:
    if len(old) == len(new):
        return [Region((a,), (b,)) for a, b in zip(old, new, strict=True)]
    matcher = difflib.SequenceMatcher(None, [item.text for item in old], [item.text for item in new], False)
    out: list[Region] = []
    for _, a, b, c, d in matcher.get_opcodes():
        pairs = min(b - a, d - c)
        out += [Region((old[a + i],), (new[c + i],)) for i in range(pairs)]
        out += [Region((item,), ()) for item in old[a + pairs : b]]
        out += [Region((), (item,)) for item in new[c + pairs : d]]
    return out


def cells(parts: Sequence[Region], encode: Callable[[str], Sequence[int]]) -> Cells:
    """``[n, 3]`` rows of (token before, token after, flags). Of a longer insertion, the first ``GAP`` tokens."""
    rows: list[tuple[int, int, int]] = []
    inserted = 0
    for part in parts:
        old = [token for item in part.old for token in encode(item.whole)]
        new = [token for item in part.new for token in encode(item.whole)]
        flags = NEWLINE if part.old and part.old[0].kind == "newline" else 0
        if old:
            inserted = 0
        for at in range(max(len(old), len(new))):
            left = old[at] if at < len(old) else NONE
            right = new[at] if at < len(new) else NONE
            inserted += left == NONE
            if inserted > GAP:
                break
            mark = flags | (STARTS if at == 0 and old else 0) | (CHANGED if left != right else 0)
            rows.append((left, right, mark))
    return np.array(rows, dtype=np.int16)
