"""Insertions into one expression: operands, clauses, indices, calls and copies of other expressions."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from agent_runtime.decoding.edit_file import POSTFIXABLE, Site, Statement
from agent_runtime.decoding.edit_scope import Scope
from agent_runtime.decoding.edit_source import Replacement
from agent_runtime.decoding.edit_values import EFFECTS, Value, value_of

#: Calls that are put around a value of unknown type; of iterables only in the place of an iterable.
_WRAPPERS: dict[Value | None, tuple[str, ...]] = {
    "number": ("abs", "int", "str"),
    "container": ("len", "list", "sorted", "set", "tuple", "sum", "max", "min"),
    "truth": (),
    None: ("len", "list", "sorted", "set", "abs", "int", "str"),
}
_ITERABLE_WRAPPERS = ("range", "enumerate", "reversed", "sorted", "list", "set")
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


def insertions(site: Site, statement: Statement) -> Iterator[Replacement]:
    """All edits that write something around, behind or in the place of the expression."""
    scope = statement.scope
    if _is_condition(site, statement):
        yield from _clauses(site, statement)
    if _is_value(site):
        yield from _arithmetic(site, statement)
        yield from _negation(site)
        yield from _indices_and_attributes(site, statement)
        yield from _wraps(site, statement)
        yield from _copies(site, scope)


def _is_value(site: Site) -> bool:
    """Whether the expression stands where any value could: not a callee, slice or part of a string."""
    if isinstance(site.node, ast.Slice | ast.Starred | ast.Yield | ast.YieldFrom | ast.JoinedStr | ast.FormattedValue):
        return False
    return not site.is_called and not isinstance(site.parent, ast.arguments | ast.JoinedStr)


def _is_condition(site: Site, statement: Statement) -> bool:
    if isinstance(site.node, ast.BoolOp):
        return False
    if site.field in ("test", "ifs", "guard") or isinstance(site.parent, ast.BoolOp):
        return True
    if isinstance(site.parent, ast.UnaryOp) and isinstance(site.parent.op, ast.Not):
        return False
    return isinstance(statement.owner, ast.Return | ast.Assign) and isinstance(site.node, ast.Compare)


def _is_literal_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str)


def _arithmetic(site: Site, statement: Statement) -> Iterator[Replacement]:
    """`x` becomes `x + 1`, `x - name` and so on for what may be a number; containers are added to."""
    node, value = site.node, value_of(site.node, statement.scope.values)
    if site.is_loose or _is_literal_text(node) or value == "truth" or site.field in ("iter", "test", "ifs"):
        return
    if isinstance(site.parent, ast.Expr | ast.BoolOp | ast.comprehension) or isinstance(node, ast.Dict | ast.Set):
        return
    free = site.is_free or isinstance(site.parent, ast.Compare)
    constant = isinstance(node, ast.Constant)
    terms: list[str] = [] if constant or value == "container" else [" + 1", " - 1"]
    if free and value == "container":
        terms = [f" + {name}" for name in statement.variables("container", None)[:_INSERTED_NAMES] if name != site.text]
        terms += [f" + [{name}]" for name in statement.variables()[:_INSERTED_NAMES]]
    elif free:
        others = statement.variables("number") if value == "number" else statement.variables("number", None)
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
    simple = isinstance(node, POSTFIXABLE | ast.Compare | ast.BoolOp)
    if not simple or not (site.is_free or isinstance(site.parent, ast.BoolOp)):
        return
    if site.field in ("test", "ifs") or isinstance(site.parent, ast.BoolOp | ast.Return | ast.Assign):
        text = f"not ({site.text})" if isinstance(node, ast.BoolOp) else f"not {site.text}"
        yield site.start, site.end, text, "insert-not"
    if isinstance(node, POSTFIXABLE) and site.field not in ("test", "ifs", "iter"):
        yield site.start, site.start, "-", "insert-not"


def _indices_and_attributes(site: Site, statement: Statement) -> Iterator[Replacement]:
    value = value_of(site.node, statement.scope.values)
    if not isinstance(site.node, POSTFIXABLE) or value in ("number", "truth") or isinstance(site.parent, ast.Expr):
        return
    if _is_changed_receiver(site):
        return
    indices = [name for name in statement.variables("number") if name != site.text][:_INSERTED_NAMES]
    keys = [name for name in statement.variables(None) if name != site.text][: _INSERTED_NAMES // 2]
    indexed = isinstance(site.parent, ast.Subscript) and site.field == "value"
    for text in (*(() if indexed else _SLICES), *(f"[{name}]" for name in (*indices, *keys))):
        yield site.end, site.end, text, "insert-slice"
    if not indexed and (value == "container" or site.is_free):
        for name in indices:
            yield site.end, site.end, f"[{name}:]", "insert-slice"
            yield site.end, site.end, f"[:{name}]", "insert-slice"
    if value is None:
        for attribute in statement.scope.attributes[:_INSERTED_ATTRIBUTES]:
            yield site.end, site.end, f".{attribute}", "insert-attribute"
    if isinstance(site.node, ast.Name) and "self" in statement.scope.parameters and site.text != "self":
        yield site.start, site.start, "self.", "insert-attribute"


def _is_changed_receiver(site: Site) -> bool:
    """Whether the expression is the object of a call made for its effect, as `x` in `x.append(y)`."""
    return isinstance(site.parent, ast.Attribute) and site.parent.attr in EFFECTS


def _wraps(site: Site, statement: Statement) -> Iterator[Replacement]:
    """`x` becomes `len(x)`, `x.copy()`, `f(x)` for the function itself, or `[x]`."""
    node, text = site.node, site.text
    if isinstance(node, ast.Constant | ast.Lambda) or isinstance(site.parent, ast.Expr):
        return
    value = value_of(node, statement.scope.values)
    wrappers = [*_WRAPPERS[value], *_own_functions(statement.scope)]
    if site.field == "iter":
        wrappers = [*(_ITERABLE_WRAPPERS if value != "number" else ("range",))]
        if isinstance(node, POSTFIXABLE):
            yield site.start, site.end, f"range(len({text}))", "insert-call"
    elif site.field == "func" or value == "truth":
        return
    if site.is_free or isinstance(node, POSTFIXABLE | ast.BinOp):
        for wrapper in wrappers:
            yield site.start, site.end, f"{wrapper}({text})", "insert-call"
    if isinstance(site.parent, ast.Assign | ast.Return) and value != "container":
        for name in (*statement.variables("number", None)[: _INSERTED_NAMES // 2], "0"):
            if name != text:
                yield site.start, site.end, f"max({text}, {name})", "insert-call"
                yield site.start, site.end, f"min({text}, {name})", "insert-call"
    if isinstance(node, ast.Subscript) and not isinstance(
        node.slice, ast.Slice | ast.Constant | ast.UnaryOp | ast.Tuple
    ):
        container, _, key = text[:-1].rpartition("[")
        if text.endswith("]") and key.isidentifier():
            yield site.start, site.end, f"{container}.get({key})", "insert-call"
            yield site.start, site.end, f"{container}.get({key}, 0)", "insert-call"
    if isinstance(node, POSTFIXABLE) and value != "number" and not isinstance(site.parent, ast.Attribute):
        used = (f".{method}()" for method in statement.scope.methods[:_INSERTED_NAMES] if method not in EFFECTS)
        usual = _VIEWS if site.field in ("iter", "comparators") else ()
        usual += _OF_STRINGS if statement.scope.strings else ()
        for postfix in dict.fromkeys((".copy()", *usual, *used)):
            yield site.end, site.end, postfix, "insert-call"
    if site.is_free and site.field not in ("iter", "test", "ifs", "slice"):
        yield site.start, site.end, f"[{text}]", "insert-brackets"
        yield site.start, site.end, f"({text},)", "insert-brackets"


def _own_functions(scope: Scope) -> list[str]:
    """Functions that this one calls, builtins aside, and itself."""
    own = [name for name in scope.callees if not hasattr(builtins, name)][:_INSERTED_FUNCTIONS]
    if scope.function is not None and scope.function.name not in own:
        own.append(scope.function.name)
    return own


def _clauses(site: Site, statement: Statement) -> Iterator[Replacement]:
    """`cond` becomes `cond and other`, `other or cond` and so on; the order matters for guards."""
    text = f"({site.text})" if isinstance(site.node, ast.IfExp | ast.Lambda | ast.NamedExpr) else site.text
    parts = [part for part in statement.scope.conditions if part not in site.text]
    for part in parts[:_INSERTED_CONDITIONS]:
        for word in ("and", "or"):
            yield site.start, site.end, f"{text} {word} {part}", "insert-clause"
            yield site.start, site.end, f"{part} {word} {text}", "insert-clause"
    if isinstance(site.node, POSTFIXABLE) and value_of(site.node, statement.scope.values) != "truth":
        for comparison in ("is None", "is not None", "> 0", "== 0"):
            yield site.end, site.end, f" {comparison}", "insert-clause"
    for name in statement.variables("container", "truth", None)[:_INSERTED_NAMES]:
        if name != site.text:
            yield site.start, site.end, f"{text} and {name}", "insert-clause"
            yield site.start, site.end, f"{name} and {text}", "insert-clause"
            yield site.start, site.end, f"{text} or not {name}", "insert-clause"
            yield site.start, site.end, f"not {name} or {text}", "insert-clause"


def _copies(site: Site, scope: Scope) -> Iterator[Replacement]:
    """Another expression of the same function in the place of this one."""
    if site.is_loose or isinstance(site.parent, ast.Expr | ast.Attribute) or site.field == "test":
        return
    others: list[str] = []
    if isinstance(site.node, POSTFIXABLE) and not isinstance(site.node, ast.Name):
        others += scope.variables[:_INSERTED_NAMES]
    if isinstance(site.parent, ast.Return | ast.Assign | ast.AugAssign):
        others += [*_EMPTY, *scope.returned]
    copied = [other for other in scope.expressions if other not in site.text and site.text not in scope.callees]
    for other in dict.fromkeys((*others, *copied[:_COPIED_EXPRESSIONS])):
        if site.is_free or other.endswith((")", "]")) or other.isidentifier():
            yield site.start, site.end, other, "copy"
