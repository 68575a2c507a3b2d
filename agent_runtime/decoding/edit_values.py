"""A guess at what sort of value an expression has: a number, a container (strings included) or a truth.

Only used to leave out insertions that cannot be meant, such as a slice of a sum or the length of a counter:
without it a function of 20 lines has twice as many edits. Contradictory evidence, as a bug may cause it,
counts as none.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Literal

Value = Literal["number", "container", "truth"]
Values = Mapping[str, Value]

_NUMBERS = """len sum abs int ord float round pow hash id index count find"""
_CONTAINERS = """
    list tuple set dict sorted str range reversed enumerate zip map filter bytes chr repr input open iter
    split join strip lower upper replace keys values items copy union intersection difference readlines
"""
_TRUTHS = """any all isinstance bool callable hasattr startswith endswith isdigit isalpha issubset"""
_CALLS: dict[str, Value] = {
    **dict.fromkeys(_NUMBERS.split(), "number"),
    **dict.fromkeys(_CONTAINERS.split(), "container"),
    **dict.fromkeys(_TRUTHS.split(), "truth"),
}
_TAKES_CONTAINER = frozenset(
    {"len", "sum", "sorted", "enumerate", "reversed", "any", "all", "zip", "list", "tuple", "set", "iter"}
)
_EFFECTS = """
    append extend insert add update remove discard clear sort reverse appendleft write writelines close
    heappush heapify print
"""
#: Methods that are called for what they do: their value is None.
EFFECTS = frozenset(_EFFECTS.split())


def value_of(node: ast.expr, names: Values) -> Value | None:
    """The sort of value of `node`, given that of names; None when it is not known."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            return "truth"
        if isinstance(node.value, int | float):
            return "number"
        return "container" if isinstance(node.value, str | bytes) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return _CALLS.get(called)
    if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return "truth"
    if isinstance(node, ast.UnaryOp):
        return "number"
    if isinstance(node, ast.BinOp):
        left, right = value_of(node.left, names), value_of(node.right, names)
        if isinstance(node.op, ast.Add):
            return left or right
        if isinstance(node.op, ast.Mult | ast.Mod):
            return "container" if "container" in (left, right) else left or right
        return "number" if "container" not in (left, right) else left
    if isinstance(node, ast.Subscript):
        return "container" if isinstance(node.slice, ast.Slice) else None
    containers = ast.List | ast.Tuple | ast.Dict | ast.Set | ast.JoinedStr
    comprehensions = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    return "container" if isinstance(node, containers | comprehensions) else None


def values_of_names(nodes: Sequence[ast.AST]) -> dict[str, Value]:
    """The sort of value that the use of each name speaks for; names with mixed evidence are left out."""
    return _evidence(nodes, _evidence(nodes, {}))  # twice: what is compared with a number is a number too


def _evidence(nodes: Sequence[ast.AST], names: Values) -> dict[str, Value]:
    evidence: dict[str, set[Value]] = {}

    def note(node: ast.AST | None, value: Value | None) -> None:
        if isinstance(node, ast.Name) and value is not None:
            evidence.setdefault(node.id, set()).add(value)

    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                note(target, value_of(node.value, names))
        elif isinstance(node, ast.AugAssign):
            note(node.target, value_of(node.value, names))
        elif isinstance(node, ast.For | ast.comprehension):
            note(node.iter, "container")
            called = node.iter.func if isinstance(node.iter, ast.Call) else None
            if isinstance(called, ast.Name) and called.id == "range":
                note(node.target, "number")
            elif isinstance(called, ast.Name) and called.id == "enumerate" and isinstance(node.target, ast.Tuple):
                note(node.target.elts[0], "number")
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in _TAKES_CONTAINER and node.args:
                note(node.args[0], "container")
            elif isinstance(node.func, ast.Name) and node.func.id in ("range", "abs"):
                for argument in node.args:
                    note(argument, "number")
            elif isinstance(node.func, ast.Attribute):
                note(node.func.value, "container")
        elif isinstance(node, ast.Subscript):
            note(node.value, "container")
            if isinstance(node.slice, ast.Slice):
                for bound in (node.slice.lower, node.slice.upper, node.slice.step):
                    note(bound, "number")
        elif isinstance(node, ast.Compare):
            if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
                note(node.comparators[0], "container")
            else:
                for side, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
                    note(side, "number" if value_of(other, names) == "number" else None)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.FloorDiv | ast.Pow | ast.Div):
            note(node.left, "number")
            note(node.right, "number")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            note(node.left, value_of(node.right, names))
            note(node.right, value_of(node.left, names))
    return {name: next(iter(values)) for name, values in evidence.items() if len(values) == 1}
