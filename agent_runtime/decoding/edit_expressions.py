"""Edits of one expression: operands, arguments, slices, clauses and calls are added, dropped or moved."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations

from agent_runtime.decoding.edit_file import POSTFIXABLE, Site, Statement
from agent_runtime.decoding.edit_insertions import insertions
from agent_runtime.decoding.edit_scope import Scope
from agent_runtime.decoding.edit_source import Replacement, SourceText

#: Builtins that a second argument never suits.
_ONE_ARGUMENT = frozenset(
    ("len", "abs", "any", "all", "set", "list", "tuple", "reversed", "chr", "ord", "bool", "repr", "id", "iter")
)
#: Keyword arguments whose absence is a bug of its own.
_USUAL_KEYWORDS = {
    "sorted": ("reverse=True", "key=len"),
    "sort": ("reverse=True", "key=len"),
    "max": ("default=0", "key=len"),
    "min": ("default=0", "key=len"),
}
_INSERTED_NAMES = 6


def expression_edits(source: SourceText, statement: Statement) -> Iterator[Replacement]:
    """All edits of the statement's expressions that are larger than one lexeme."""
    scope = statement.scope
    for site in statement.sites:
        if isinstance(getattr(site.node, "ctx", None), ast.Store | ast.Del):
            if isinstance(site.node, ast.Tuple | ast.List):
                yield from _swaps(source, site)
            continue
        yield from _removals(source, site)
        yield from _swaps(source, site)
        yield from _arguments(source, site, scope)
        yield from insertions(site, statement)
    if isinstance(statement.owner, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _parameter_swaps(source, statement.owner)


def _removals(source: SourceText, site: Site) -> Iterator[Replacement]:
    node, start, end = site.node, site.start, site.end
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.Subscript | ast.Attribute | ast.Starred | ast.Await):
        parts = [node.value]
    elif isinstance(node, ast.Call):
        parts = list(node.args)
        if isinstance(node.func, ast.Attribute):
            parts.append(node.func.value)
        if isinstance(node.func, ast.Attribute) and not node.args and not isinstance(site.parent, ast.Expr):
            yield start, end, source.of(node.func), "remove"
    elif isinstance(node, ast.List | ast.Tuple | ast.Set) and len(node.elts) == 1:
        parts = [node.elts[0]]
    elif isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    for part in parts:
        if not isinstance(part, ast.Starred):
            yield start, end, _fitting(source, part, site), "remove"
    if isinstance(node, ast.BoolOp):
        yield from _without_each(source, node.values, start, end, "remove")
    elif isinstance(node, ast.List | ast.Tuple | ast.Set) and len(node.elts) > 1:
        yield from _without_each(source, node.elts, *_ends(source, node.elts), "remove")
    elif isinstance(node, ast.Slice):
        lower, upper = (source.of(part) if part else "" for part in (node.lower, node.upper))
        for text in (f"{lower}:", f":{upper}", lower, upper):
            yield start, end, text, "remove"
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        for generator in node.generators:
            for condition in generator.ifs:
                first, last = source.span(condition)
                keyword = source.text.rfind("if", start, first)
                if keyword > 0 and source.text[keyword + 2 : first].strip() == "":
                    yield keyword, last, "", "remove"


def _fitting(source: SourceText, part: ast.expr, site: Site) -> str:
    """The text of `part` as it must be written to stay one operand in the place of `site`."""
    text = source.of(part)
    atomic = isinstance(part, ast.Constant | POSTFIXABLE | ast.List | ast.Tuple | ast.Dict | ast.Set)
    clause = isinstance(site.parent, ast.BoolOp) and not isinstance(part, ast.BoolOp | ast.IfExp | ast.Lambda)
    side = isinstance(site.parent, ast.Compare) and isinstance(part, ast.BinOp)
    return text if atomic or clause or side or site.is_free or text.startswith("(") else f"({text})"


def _ends(source: SourceText, parts: list[ast.expr]) -> tuple[int, int]:
    return source.span(parts[0])[0], source.span(parts[-1])[1]


def _without_each(source: SourceText, parts: list[ast.expr], start: int, end: int, kind: str) -> Iterator[Replacement]:
    """Drop one part after another, each with the separator at its side; (start, end) is the whole row."""
    spans = [source.span(part) for part in parts]
    text = source.text
    for index in range(len(parts)):
        if index + 1 < len(parts):
            new = text[start : spans[index][0]] + text[spans[index + 1][0] : end]
        else:
            new = text[start : spans[index - 1][1]] + text[spans[index][1] : end]
        yield start, end, new, kind


def _swaps(source: SourceText, site: Site) -> Iterator[Replacement]:
    node = site.node
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Call):
        pairs = list(combinations(node.args, 2))
    elif isinstance(node, ast.BinOp):
        pairs = [(node.left, node.right)]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        pairs = [(node.left, node.comparators[0])]
    elif isinstance(node, ast.IfExp):
        pairs = [(node.body, node.orelse)]
    elif isinstance(node, ast.List | ast.Tuple):
        pairs = list(combinations(node.elts, 2)) if len(node.elts) <= 4 else []
    elif isinstance(node, ast.BoolOp):
        pairs = list(zip(node.values, node.values[1:], strict=False))
    elif isinstance(node, ast.Subscript) and isinstance(node.value, POSTFIXABLE):
        pairs = [(node.value, node.slice)] if isinstance(node.slice, ast.Name) else []
        if isinstance(node.value, ast.Subscript):
            pairs.append((node.value.slice, node.slice))
    elif isinstance(node, ast.Slice) and node.lower and node.upper:
        pairs = [(node.lower, node.upper)]
    for left, right in pairs:
        yield _exchange(source, left, right)


def _exchange(source: SourceText, left: ast.AST, right: ast.AST) -> Replacement:
    (start, left_end), (right_start, end) = source.span(left), source.span(right)
    text = source.text
    new = text[right_start:end] + text[left_end:right_start] + text[start:left_end]
    return start, end, new, "swap"


def _parameter_swaps(source: SourceText, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Replacement]:
    for left, right in combinations(function.args.args, 2):
        yield _exchange(source, left, right)


def _arguments(source: SourceText, site: Site, scope: Scope) -> Iterator[Replacement]:
    """One argument or element more, or one argument fewer."""
    node = site.node
    if isinstance(node, ast.Call):
        parts: list[ast.expr] = list(node.args)
        yield from _keywords(source, node)
    elif isinstance(node, ast.List | ast.Tuple):
        parts = list(node.elts)
    else:
        return
    if not parts or len(parts) > 6 or any(isinstance(part, ast.Starred | ast.GeneratorExp) for part in parts):
        return
    start, end = _ends(source, parts)
    if isinstance(node, ast.Call) and len(parts) > 1:
        yield from _without_each(source, parts, start, end, "remove")
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    if called in _ONE_ARGUMENT:
        return
    if called == "range" and len(parts) <= 2:
        yield from _ranges(start, end, [source.of(part) for part in parts])
    literals = ("0", "1", "None") if isinstance(node, ast.Call) else ()
    for text in (*literals, *scope.variables[:_INSERTED_NAMES]):
        yield end, end, f", {text}", "insert-argument"
        yield start, start, f"{text}, ", "insert-argument"


def _keywords(source: SourceText, call: ast.Call) -> Iterator[Replacement]:
    """A keyword argument fewer, or one that is usual for this call."""
    parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    spans = [source.span(part) for part in parts]
    if spans == sorted(spans):  # `f(key=1, *more)` is allowed
        for place in range(max(1, len(call.args)), len(parts)):
            yield spans[place - 1][1], spans[place][1], "", "remove"
    called = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    present = {keyword.arg for keyword in call.keywords}
    end = source.span(call)[1] - 1
    separator = ", " if parts else ""
    for text in _USUAL_KEYWORDS.get(called, ()):
        closed = source.text[end] == ")" and not source.text[:end].rstrip().endswith(",")
        if text.partition("=")[0] not in present and closed and not _is_alone(call):
            yield end, end, separator + text, "insert-argument"


def _is_alone(call: ast.Call) -> bool:
    """Whether the only argument is a generator without parentheses of its own: nothing may stand beside it."""
    return any(isinstance(part, ast.GeneratorExp | ast.Starred) for part in call.args)


def _ranges(start: int, end: int, parts: list[str]) -> Iterator[Replacement]:
    """Both bounds of a range off by one at once; one alone is an insertion like any other."""
    if len(parts) == 1:
        texts = [f"1, {parts[0]} + 1", f"{parts[0]} - 1, -1, -1"]
    else:
        texts = [f"{parts[0]} + 1, {parts[1]} + 1", f"{parts[0]} - 1, {parts[1]} - 1"]
    for text in texts:
        yield start, end, text, "insert-arithmetic"
