"""Edits of one expression: operands, arguments, slices, clauses and calls are added, dropped or moved."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from itertools import combinations

from agent_runtime.decoding.edit_scope import Replacement, Scope, Site, SourceText, Statement
from agent_runtime.decoding.edit_values import EFFECTS, Value, value_of

#: Calls that are put around a value of unknown type; of iterables only in the place of an iterable.
_WRAPPERS: dict[Value | None, tuple[str, ...]] = {
    "number": ("abs", "int", "str"),
    "container": ("len", "list", "sorted", "set", "tuple", "sum", "max", "min"),
    "truth": (),
    None: ("len", "list", "sorted", "set", "abs", "int", "str"),
}
_ITERABLE_WRAPPERS = ("range", "enumerate", "reversed", "sorted", "list", "set")
#: Builtins that a second argument never suits.
_ONE_ARGUMENT = frozenset(
    {
        "len",
        "abs",
        "any",
        "all",
        "set",
        "list",
        "tuple",
        "reversed",
        "chr",
        "ord",
        "bool",
        "repr",
        "id",
        "iter",
    }
)
_VIEWS: tuple[str, ...] = (".items()", ".keys()", ".values()")
_OF_STRINGS = (".strip()", ".lower()")
_SLICES = ("[1:]", "[:-1]", "[::-1]", "[0]", "[-1]", "[:]")
_EMPTY = ("[]", "{}", "''", "0")
#: Names offered to an insertion; more make the list long, and the nearest ones come first.
_INSERTED_NAMES = 6
_INSERTED_ATTRIBUTES = 4
_INSERTED_FUNCTIONS = 4
#: Conditions and sub-expressions offered to one place.
_INSERTED_CONDITIONS = 4
_COPIED_EXPRESSIONS = 10

_POSTFIXABLE = ast.Name | ast.Attribute | ast.Subscript | ast.Call
_TIGHT = ast.UnaryOp | ast.Attribute | ast.Subscript | ast.Call | ast.Starred | ast.Await


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
        if _is_condition(site, statement):
            yield from _clauses(site, scope)
        if not _is_value(site):
            continue
        yield from _arithmetic(site, scope)
        yield from _negation(site)
        yield from _slices_and_attributes(site, scope)
        yield from _wraps(site, scope)
        yield from _copies(site, scope)
    if isinstance(statement.owner, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _parameter_swaps(source, statement.owner)


def _is_callee(site: Site) -> bool:
    return isinstance(site.parent, ast.Call) and site.field == "func"


def _is_value(site: Site) -> bool:
    """Whether the expression stands where any value could: not a callee, target, slice or string part."""
    if isinstance(site.node, ast.Slice | ast.Starred | ast.Yield | ast.YieldFrom | ast.JoinedStr | ast.FormattedValue):
        return False
    return not _is_callee(site) and not isinstance(site.parent, ast.arguments | ast.JoinedStr)


def _is_free(site: Site) -> bool:
    """Whether brackets, commas or keywords delimit the expression: no operator around it binds tighter."""
    return (
        site.bracketed
        or not isinstance(site.parent, ast.BinOp | ast.Compare | ast.BoolOp | _TIGHT)
        or (
            (isinstance(site.parent, ast.Call) and site.field == "args")
            or (isinstance(site.parent, ast.Subscript) and site.field == "slice")
        )
    )


def _is_condition(site: Site, statement: Statement) -> bool:
    if isinstance(site.node, ast.BoolOp):
        return False
    if site.field in ("test", "ifs", "guard") or isinstance(site.parent, ast.BoolOp):
        return True
    if isinstance(site.parent, ast.UnaryOp) and isinstance(site.parent.op, ast.Not):
        return False
    return isinstance(statement.owner, ast.Return | ast.Assign) and isinstance(site.node, ast.Compare)


def _loose(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp | ast.Compare | ast.IfExp | ast.Lambda | ast.NamedExpr) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _is_literal_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str)


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
        if not (isinstance(site.parent, ast.Expr) and not node.args):
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
    atomic = isinstance(part, ast.Constant | _POSTFIXABLE | ast.List | ast.Tuple | ast.Dict | ast.Set)
    clause = isinstance(site.parent, ast.BoolOp) and not isinstance(part, ast.BoolOp | ast.IfExp | ast.Lambda)
    side = isinstance(site.parent, ast.Compare) and isinstance(part, ast.BinOp)
    return text if atomic or clause or side or _is_free(site) or text.startswith("(") else f"({text})"


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
    elif isinstance(node, ast.Subscript) and isinstance(node.value, _POSTFIXABLE):
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
        plain = not node.keywords and not any(isinstance(part, ast.Starred | ast.GeneratorExp) for part in parts)
    elif isinstance(node, ast.List | ast.Tuple):
        parts, plain = list(node.elts), True
    else:
        return
    if not plain or not parts or len(parts) > 6:
        return
    start, end = _ends(source, parts)
    if isinstance(node, ast.Call) and len(parts) > 1:
        yield from _without_each(source, parts, start, end, "remove")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ONE_ARGUMENT:
        return
    literals = ("0", "1", "None") if isinstance(node, ast.Call) else ()
    for text in (*literals, *scope.variables[:_INSERTED_NAMES]):
        yield end, end, f", {text}", "insert-argument"
        yield start, start, f"{text}, ", "insert-argument"


def _arithmetic(site: Site, scope: Scope) -> Iterator[Replacement]:
    """`x` becomes `x + 1`, `x - name` and so on for what may be a number; containers are added to."""
    node, value = site.node, value_of(site.node, scope.values)
    if _loose(node) or _is_literal_text(node) or value == "truth" or site.field in ("iter", "test", "ifs"):
        return
    if isinstance(site.parent, ast.Expr | ast.BoolOp | ast.comprehension) or isinstance(node, ast.Dict | ast.Set):
        return
    free = _is_free(site) or isinstance(site.parent, ast.Compare)
    constant = isinstance(node, ast.Constant)
    terms: list[str] = [] if constant or value == "container" else [" + 1", " - 1"]
    if free and value == "container":
        terms = [f" + {name}" for name in scope.names_of("container", None)[:_INSERTED_NAMES] if name != site.text]
        terms += [f" + [{name}]" for name in scope.variables[:_INSERTED_NAMES]]
    elif free:
        others = scope.names_of("number") if value == "number" else scope.names_of("number", None)
        names = [name for name in others if name != site.text][:_INSERTED_NAMES]
        terms += [f" {sign} {name}" for name in names for sign in "+-*"]
        terms += [" * 2", " // 2"] if value == "number" and not constant else []
        for name in names:
            yield site.start, site.start, f"{name} - ", "insert-arithmetic"
            if constant:
                yield site.start, site.start, f"{name} + ", "insert-arithmetic"
    sums = isinstance(site.parent, ast.BinOp) and isinstance(site.parent.op, ast.Add | ast.Sub)
    for term in terms:
        if free or sums:
            yield site.end, site.end, term, "insert-arithmetic"
        else:
            yield site.start, site.end, f"({site.text}{term})", "insert-arithmetic"


def _negation(site: Site) -> Iterator[Replacement]:
    node = site.node
    simple = isinstance(node, _POSTFIXABLE | ast.Compare | ast.BoolOp)
    if not simple or not (_is_free(site) or isinstance(site.parent, ast.BoolOp)):
        return
    if site.field in ("test", "ifs") or isinstance(site.parent, ast.BoolOp | ast.Return | ast.Assign):
        text = f"not ({site.text})" if isinstance(node, ast.BoolOp) else f"not {site.text}"
        yield site.start, site.end, text, "insert-not"
    if isinstance(node, _POSTFIXABLE) and site.field not in ("test", "ifs", "iter"):
        yield site.start, site.start, "-", "insert-not"


def _slices_and_attributes(site: Site, scope: Scope) -> Iterator[Replacement]:
    value = value_of(site.node, scope.values)
    if not isinstance(site.node, _POSTFIXABLE) or value in ("number", "truth") or isinstance(site.parent, ast.Expr):
        return
    indices = [name for name in scope.names_of("number") if name != site.text][:_INSERTED_NAMES]
    keys = [name for name in scope.names_of(None) if name != site.text][: _INSERTED_NAMES // 2]
    indexed = isinstance(site.parent, ast.Subscript) and site.field == "value"
    for text in (*(() if indexed else _SLICES), *(f"[{name}]" for name in (*indices, *keys))):
        yield site.end, site.end, text, "insert-slice"
    if not indexed and (value == "container" or _is_free(site)):
        for name in indices:
            yield site.end, site.end, f"[{name}:]", "insert-slice"
            yield site.end, site.end, f"[:{name}]", "insert-slice"
    if value is None:
        for attribute in scope.attributes[:_INSERTED_ATTRIBUTES]:
            yield site.end, site.end, f".{attribute}", "insert-attribute"


def _is_changed_receiver(site: Site) -> bool:
    """Whether the expression is the object of a call made for its effect, as `x` in `x.append(y)`."""
    return isinstance(site.parent, ast.Attribute) and site.parent.attr in EFFECTS


def _wraps(site: Site, scope: Scope) -> Iterator[Replacement]:
    """`x` becomes `len(x)`, `x.copy()`, `f(x)` for the function itself, or `[x]`."""
    node, text = site.node, site.text
    if isinstance(node, ast.Constant | ast.Lambda) or isinstance(site.parent, ast.Expr):
        return
    value = value_of(node, scope.values)
    wrappers = [*_WRAPPERS[value], *_own_functions(scope)]
    if site.field == "iter":
        wrappers = [*(_ITERABLE_WRAPPERS if value != "number" else ("range",))]
        if isinstance(node, _POSTFIXABLE):
            yield site.start, site.end, f"range(len({text}))", "insert-call"
    elif site.field == "func" or value == "truth":
        return
    if _is_free(site) or isinstance(node, _POSTFIXABLE | ast.BinOp):
        for wrapper in wrappers:
            yield site.start, site.end, f"{wrapper}({text})", "insert-call"
    if isinstance(node, _POSTFIXABLE) and value != "number" and not isinstance(site.parent, ast.Attribute):
        used = (f".{method}()" for method in scope.methods[:_INSERTED_NAMES] if method not in EFFECTS)
        usual = _VIEWS if site.field in ("iter", "comparators") else ()
        usual += _OF_STRINGS if scope.strings else ()
        for postfix in dict.fromkeys((".copy()", *usual, *used)):
            yield site.end, site.end, postfix, "insert-call"
    if _is_free(site) and site.field not in ("iter", "test", "ifs", "slice"):
        yield site.start, site.end, f"[{text}]", "insert-brackets"
        yield site.start, site.end, f"({text},)", "insert-brackets"


def _own_functions(scope: Scope) -> list[str]:
    """Functions that this one calls, builtins aside, and itself."""
    own = [name for name in scope.callees if not hasattr(builtins, name)][:_INSERTED_FUNCTIONS]
    if scope.function is not None and scope.function.name not in own:
        own.append(scope.function.name)
    return own


def _clauses(site: Site, scope: Scope) -> Iterator[Replacement]:
    """`cond` becomes `cond and other`, `other or cond` and so on; the order matters for guards."""
    text = f"({site.text})" if isinstance(site.node, ast.IfExp | ast.Lambda | ast.NamedExpr) else site.text
    parts = [part for part in scope.conditions if part not in site.text]
    for part in parts[:_INSERTED_CONDITIONS]:
        for word in ("and", "or"):
            yield site.start, site.end, f"{text} {word} {part}", "insert-clause"
            yield site.start, site.end, f"{part} {word} {text}", "insert-clause"
    for name in scope.names_of("container", "truth", None)[:_INSERTED_NAMES]:
        if name != site.text:
            yield site.start, site.end, f"{text} and {name}", "insert-clause"
            yield site.start, site.end, f"{name} and {text}", "insert-clause"
            yield site.start, site.end, f"{text} or not {name}", "insert-clause"
            yield site.start, site.end, f"not {name} or {text}", "insert-clause"


def _copies(site: Site, scope: Scope) -> Iterator[Replacement]:
    """Another expression of the same function in the place of this one."""
    if _loose(site.node) or isinstance(site.parent, ast.Expr | ast.Attribute) or site.field == "test":
        return
    others = [other for other in scope.expressions if other not in site.text and site.text not in scope.callees]
    if isinstance(site.node, _POSTFIXABLE) and not isinstance(site.node, ast.Name):
        others += scope.variables
    if isinstance(site.parent, ast.Return | ast.Assign | ast.AugAssign):
        others += [*_EMPTY, *scope.returned]
    nearest = [other for other in dict.fromkeys(others) if other != site.text]
    for other in nearest[:_COPIED_EXPRESSIONS]:
        if _is_free(site) or other.endswith((")", "]")) or other.isidentifier():
            yield site.start, site.end, other, "copy"
