"""Inject small bugs into Python functions.

A bug is one place of one operator, drawn operator first, so that rare kinds are as frequent as common ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from agent_runtime.decoding.lexer import Lexeme
from agent_runtime.training.bug_operators import OPERATORS
from agent_runtime.training.bug_sites import BUILTINS, Bug, Code, Edit

__all__ = ["BUILTINS", "OPERATORS", "Bug", "Code", "Edit", "apply", "draw_bug"]


def draw_bug(lexemes: Sequence[Lexeme], rng: random.Random) -> tuple[str, Bug] | None:
    """One bug and the name of its operator; ``None`` where no operator applies."""
    code = Code(lexemes, rng)
    operators = list(OPERATORS)
    weights = list(OPERATORS.values())
    while operators:
        chosen = rng.choices(range(len(operators)), weights)[0]
        sites = list(operators[chosen](code))
        if sites:
            return operators[chosen].__name__, rng.choice(sites)
        del operators[chosen], weights[chosen]
    return None


def apply(lexemes: Sequence[Lexeme], bug: Bug) -> list[Lexeme]:
    """The lexemes with the edits made."""
    out = list(lexemes)
    for edit in sorted(bug, key=lambda item: -item.start):
        out[edit.start : edit.stop] = edit.new
    return out
