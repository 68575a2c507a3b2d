"""The vocabulary of edits: the names, literals and expressions that one function offers.

The enumeration invents nothing. All that an edit writes is a name in scope, an operator, a small literal or a
piece of the same function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent_runtime.decoding.edit_source import SourceText
from agent_runtime.decoding.edit_values import EFFECTS, Value, values_of_names

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
#: Sub-expressions longer than this are whole computations of their own, not material to copy about.
LONGEST_COPIED_EXPRESSION = 24


@dataclass(slots=True)
class Scope:
    """The vocabulary of one function (or of the module level), each list in order of first appearance."""

    function: FunctionNode | None = None
    parameters: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    """Parameters and local names, those of enclosing functions included."""
    functions: list[str] = field(default_factory=list)
    """Functions and classes of the file that are visible, the function itself included."""
    constants: list[str] = field(default_factory=list)
    """Module-level names that are neither functions nor imports."""
    callees: list[str] = field(default_factory=list)
    """Plain names that the function calls."""
    attributes: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    """Texts of comparisons and of what is tested."""
    expressions: list[str] = field(default_factory=list)
    """Texts of short calls, attributes, subscripts and sums: what may be copied elsewhere."""
    returned: list[str] = field(default_factory=list)
    """Texts of the values that the function returns."""
    declares: bool = False
    """Whether there is a `global` or `nonlocal` in it or below: then its lines have an order."""
    values: dict[str, Value] = field(default_factory=dict)
    """What sort of value a name holds, where its use tells."""


def module_scope(source: SourceText, tree: ast.Module) -> Scope:
    """The vocabulary of the statements outside of functions."""
    scope = Scope(attributes=_plain_attributes(tree))
    _collect(source, tree, scope)
    scope.constants = list(scope.variables)
    return scope


def function_scope(source: SourceText, function: FunctionNode, outer: Scope) -> Scope:
    """The vocabulary of a function within `outer`."""
    scope = Scope(function=function, attributes=outer.attributes)
    _collect(source, function, scope)
    for name in outer.functions:
        _add(scope.functions, name)
    _add(scope.functions, function.name)
    if outer.function is not None:
        for name in outer.variables:
            _add(scope.variables, name)
    scope.declares = any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function))
    hidden = {*scope.variables, *_declared(function)}
    scope.constants = [name for name in outer.constants if name not in hidden]
    return scope


def children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The nodes directly below `node`, each with the field that holds it."""
    for name, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield name, item


def _add(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


def _walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function in source order, without the insides of nested functions and f-strings."""
    for _, child in children(node):
        yield child
        if not isinstance(child, FunctionNode | ast.ClassDef | ast.JoinedStr):
            yield from _walk_scope(child)


def _collect(source: SourceText, root: FunctionNode | ast.Module, scope: Scope) -> None:
    nodes = list(_walk_scope(root))
    declared = _declared(root)
    scope.values = values_of_names(nodes)
    for node in nodes:
        if isinstance(node, ast.arg):
            _add(scope.parameters, node.arg)
            _add(scope.variables, node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if node.id not in declared:
                _add(scope.variables, node.id)
        elif isinstance(node, FunctionNode | ast.ClassDef):
            _add(scope.functions, node.name)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and len(node.value) <= 12:
                _add(scope.strings, source.of(node))
            elif isinstance(node.value, int | float) and not isinstance(node.value, bool):
                _add(scope.numbers, source.of(node))
        elif isinstance(node, ast.Compare) and _is_movable(node):
            _add(scope.conditions, source.of(node))
        elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.BoolOp):
            if _is_movable(node.test):
                _add(scope.conditions, source.of(node.test))
        elif isinstance(node, ast.Return) and node.value is not None and _is_movable(node.value):
            _add(scope.returned, source.of(node.value))
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                _add(scope.callees, node.func.id)
            elif isinstance(node.func, ast.Attribute):
                _add(scope.methods, node.func.attr)
        if isinstance(node, ast.Call | ast.Attribute | ast.Subscript | ast.BinOp | ast.List):
            text = source.of(node)
            is_load = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
            has_value = not (isinstance(node, ast.Call) and _called(node) in EFFECTS)
            short = len(text) <= LONGEST_COPIED_EXPRESSION
            if is_load and has_value and short and _is_movable(node):
                _add(scope.expressions, text)


def _declared(root: ast.AST) -> set[str]:
    """Names declared global or nonlocal: they may not be read before that line, so they are offered nowhere."""
    return {name for node in _walk_scope(root) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}


def _is_movable(node: ast.expr) -> bool:
    """Whether the expression may stand anywhere: no assignment, no suspension, one line."""
    placed = ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom
    return node.lineno == node.end_lineno and not any(isinstance(part, placed) for part in ast.walk(node))


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _plain_attributes(tree: ast.Module) -> list[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in called:
            _add(names, node.attr)
    return names
