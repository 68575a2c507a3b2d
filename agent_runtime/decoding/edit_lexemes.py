"""Edits of one lexeme: another operator, constant, name, attribute or keyword in its place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from agent_runtime.decoding.edit_file import Site, Statement, leaves_loop
from agent_runtime.decoding.edit_scope import Scope
from agent_runtime.decoding.edit_source import Replacement, SourceText

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
_ORDERINGS = ("==", "!=", "<", "<=", ">", ">=")
_ARITHMETIC = ("+", "-", "*", "//", "%", "/", "**")
_BITWISE = ("&", "|", "^", "<<", ">>")
_FAMILIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_ORDERINGS, (*_ORDERINGS, "in", "not in")),
    "is": ("is not", "==", "!="),
    "is not": ("is", "!=", "=="),
    "in": ("not in", "=="),
    "not in": ("in", "!="),
    **dict.fromkeys(_ARITHMETIC, _ARITHMETIC),
    **dict.fromkeys(_BITWISE, (*_BITWISE, "+", "-", "*")),
    "@": ("*",),
    "and": ("or",),
    "or": ("and",),
}
#: Also tried for the operators named: set operations are written with arithmetic's and the bits' symbols.
_EXTRA: dict[str, tuple[str, ...]] = {"+": ("|", "&"), "-": ("|", "&", "^"), "*": ("<<",), "//": (">>",)}

_SIBLINGS: Sequence[frozenset[str]] = [
    frozenset(group.split())
    for group in (
        "any all sum max min",
        "min max sorted",
        "list tuple set sorted reversed iter",
        "int float str bool round",
        "enumerate zip range reversed",
        "len sum max range",
        "map filter",
        "str repr",
        "ord chr",
        "abs int",
        "KeyError IndexError ValueError TypeError AttributeError",
        "isinstance issubclass hasattr getattr",
        "append extend add insert update appendleft",
        "pop popleft remove discard clear",
        "items keys values",
        "get pop setdefault",
        "lower upper title capitalize",
        "strip lstrip rstrip",
        "find rfind index rindex count",
        "startswith endswith",
        "split rsplit partition rpartition splitlines",
        "isdigit isalpha isalnum isnumeric isdecimal isspace",
        "isupper islower istitle",
        "ljust rjust center zfill",
        "union intersection difference symmetric_difference",
        "issubset issuperset isdisjoint",
        "read readline readlines",
        "write writelines",
        "encode decode",
        "sort reverse",
        "match search fullmatch findall",
        "heappush heappop heapify",
        "floor ceil trunc",
        "sin cos tan",
        "log log2 log10",
    )
]
_INTEGERS = ("0", "1", "-1", "2")


def siblings(name: str) -> list[str]:
    """Builtins and methods that are commonly taken for `name`, in a fixed order."""
    return sorted({other for group in _SIBLINGS if name in group for other in group} - {name})


def lexeme_edits(source: SourceText, statement: Statement) -> Iterator[Replacement]:
    """All replacements of one lexeme in the statement's own line."""
    for site in statement.sites:
        node = site.node
        if isinstance(node, ast.Name):
            yield from _names(site, statement.scope)
        elif isinstance(node, ast.Attribute):
            yield from _attributes(site, statement.scope)
        elif isinstance(node, ast.Constant):
            yield from _constants(site, statement.scope)
        elif isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp):
            yield from _operators(source, node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub | ast.Invert):
            for symbol in "+-~":
                yield site.start, site.start + 1, symbol, "operator"
    if isinstance(statement.owner, ast.AugAssign):
        yield from _augmented(source, statement.owner)
    elif isinstance(statement.owner, ast.Assign) and len(statement.owner.targets) == 1:
        yield from _plain_assignment(source, statement.owner)
    yield from _keywords(source, statement)


def _names(site: Site, scope: Scope) -> Iterator[Replacement]:
    assert isinstance(site.node, ast.Name)
    name = site.node.id
    if not isinstance(site.node.ctx, ast.Load):
        others = scope.variables
    elif site.is_called:
        others = [*siblings(name), *scope.callees, *scope.functions]
    else:
        others = [*scope.variables, *scope.constants, *siblings(name)]
        if name in scope.functions:
            others = [*others, *scope.functions]
        for literal in ("None", "True", "False", "0", "1"):
            yield site.start, site.end, literal, "constant"
    for other in others:
        yield site.start, site.end, other, "name"


def _attributes(site: Site, scope: Scope) -> Iterator[Replacement]:
    assert isinstance(site.node, ast.Attribute)
    start = site.end - len(site.node.attr)
    own = [*siblings(site.node.attr), *scope.methods] if site.is_called else scope.attributes
    if site.node.attr in scope.variables and isinstance(site.node.value, ast.Name):
        yield site.start, site.end, site.node.attr, "remove"
    for other in own:
        yield start, site.end, other, "attribute"


def _constants(site: Site, scope: Scope) -> Iterator[Replacement]:
    assert isinstance(site.node, ast.Constant)
    value = site.node.value
    others: list[str] = []
    if isinstance(value, bool):
        others = [str(not value), "None"]
    elif isinstance(value, int):
        # `-1` is a unary minus over a constant; under one, a sign would be written twice
        negated = isinstance(site.parent, ast.UnaryOp)
        others = [str(number) for number in (value + 1, value - 1) if number >= 0 or not negated]
        others += [text for text in (*_INTEGERS, *scope.numbers) if not (negated and text.startswith("-"))]
        if site.field not in ("slice", "lower", "upper", "step"):
            others += [*scope.variables, "None", "True", "False"]
        else:
            others += scope.variables
        if isinstance(site.parent, ast.Assign):
            others += ['float("inf")', 'float("-inf")']
    elif isinstance(value, float):
        others = [*scope.numbers, "0.0", "1.0", "0", "1", *scope.variables]
    elif isinstance(value, str):
        others = [*scope.strings, "''", "' '", "None", *scope.variables]
    elif value is None:
        others = ["True", "False", "0", "1", "''", "[]", "{}", *scope.variables]
    if isinstance(value, str) and isinstance(site.parent, ast.JoinedStr):
        return
    for other in others:
        kind = "name" if other.isidentifier() and other not in ("None", "True", "False") else "constant"
        yield site.start, site.end, other, kind


def _between(source: SourceText, left: ast.expr, right: ast.expr, symbol: str) -> tuple[int, int] | None:
    """Where `symbol` stands between two operands; None when a comment there makes the search unsafe."""
    start, end = source.span(left)[1], source.span(right)[0]
    gap = source.text[start:end]
    pattern = r"\s+".join(map(re.escape, symbol.split()))
    match = None if "#" in gap else re.search(pattern, gap)
    return None if match is None else (start + match.start(), start + match.end())


def _operators(source: SourceText, node: ast.Compare | ast.BinOp | ast.BoolOp) -> Iterator[Replacement]:
    operators: list[ast.AST]
    if isinstance(node, ast.Compare):
        operands, operators = [node.left, *node.comparators], list(node.ops)
    elif isinstance(node, ast.BinOp):
        operands, operators = [node.left, node.right], [node.op]
    else:
        operands, operators = node.values, [node.op] * (len(node.values) - 1)
    for operator, left, right in zip(operators, operands, operands[1:], strict=False):
        symbol = _SYMBOLS[type(operator)]
        place = _between(source, left, right, symbol)
        if place is None:
            continue
        for other in (*_FAMILIES[symbol], *_EXTRA.get(symbol, ())):
            yield *place, other, "operator"
        nothing = isinstance(right, ast.Constant) and (right.value is None or isinstance(right.value, bool))
        if nothing and symbol in ("==", "!="):
            yield *place, {"==": "is", "!=": "is not"}[symbol], "operator"


def _augmented(source: SourceText, node: ast.AugAssign) -> Iterator[Replacement]:
    symbol = _SYMBOLS[type(node.op)]
    place = _between(source, node.target, node.value, symbol + "=")
    if place is not None:
        for other in (*_FAMILIES[symbol], *_EXTRA.get(symbol, ()), ""):
            yield *place, other + "=", "operator"


def _plain_assignment(source: SourceText, node: ast.Assign) -> Iterator[Replacement]:
    if not isinstance(node.targets[0], ast.Tuple | ast.List | ast.Starred):
        place = _between(source, node.targets[0], node.value, "=")
        if place is not None:
            for symbol in ("+=", "-=", "*=", "//=", "|="):
                yield *place, symbol, "operator"


def _keywords(source: SourceText, statement: Statement) -> Iterator[Replacement]:
    owner, start = statement.owner, statement.start
    function = statement.scope.function
    if isinstance(owner, ast.Break | ast.Continue | ast.Pass):
        end = statement.end
        others = ["pass"]
        if statement.loop is not None:
            others += ["break", "continue"]
        if function is not None:
            others += ["return", *(f"return {value}" for value in ("None", "True", "False"))]
        for other in others:
            yield start, end, other, "keyword"
    elif isinstance(owner, ast.Return) and owner.value is None:
        yield start, statement.end, "yield", "keyword"
    elif isinstance(owner, ast.Return) and owner.value is not None and isinstance(function, ast.FunctionDef):
        yield start, start + len("return"), "yield", "keyword"
        if _may_yield_from(owner.value):
            yield start, start + len("return"), "yield from", "keyword"
    elif isinstance(owner, ast.Expr) and isinstance(owner.value, ast.Yield | ast.YieldFrom):
        if not isinstance(function, ast.FunctionDef):
            return
        if owner.value.value is None:
            yield start, statement.end, "return", "keyword"
            return
        head = source.text[start : source.span(owner.value.value)[0]]
        end = start + len(head.rstrip(" ("))
        for other in ("return", "yield", "yield from"):
            yield start, end, other, "keyword"
    elif isinstance(owner, ast.If) and source.text.startswith("if", start):
        if not owner.orelse:
            yield start, start + 2, "while", "keyword"
        if statement.index and _takes_elif(statement.block[statement.index - 1]):
            yield start, start + 2, "elif", "keyword"
    elif isinstance(owner, ast.If):
        yield start, start + len("elif"), "if", "keyword"
    elif isinstance(owner, ast.While) and (statement.loop is not None or not leaves_loop(owner.body)):
        yield start, start + len("while"), "if", "keyword"


def _takes_elif(before: ast.stmt) -> bool:
    """Whether an `elif` may follow `before`: an `if` chain without a final `else`."""
    while isinstance(before, ast.If) and len(before.orelse) == 1 and isinstance(before.orelse[0], ast.If):
        before = before.orelse[0]
    return isinstance(before, ast.If) and not before.orelse


def _may_yield_from(value: ast.expr) -> bool:
    return isinstance(value, ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.List | ast.GeneratorExp)
