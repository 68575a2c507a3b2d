"""Where edits can go: the statements and expressions of one Python file, with what surrounds them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from agent_runtime.decoding.edit_scope import FunctionNode, Scope, children, function_scope, module_scope
from agent_runtime.decoding.edit_source import SourceText
from agent_runtime.decoding.edit_values import Value

#: What owns one logical line of its own: a simple statement, or the header of a compound one.
Owner = ast.stmt | ast.ExceptHandler | ast.match_case
#: Expressions that a dot, an index or a call may follow.
POSTFIXABLE = ast.Name | ast.Attribute | ast.Subscript | ast.Call
_BINDING = (
    ast.BinOp
    | ast.Compare
    | ast.BoolOp
    | ast.UnaryOp
    | ast.Attribute
    | ast.Subscript
    | ast.Call
    | ast.Starred
    | ast.Await
)


@dataclass(frozen=True, slots=True)
class Site:
    """One expression of a statement, with the node and field that hold it."""

    node: ast.expr
    parent: ast.AST
    field: str
    start: int
    end: int
    text: str
    bracketed: bool
    """Whether parentheses of its own stand around it."""

    @property
    def is_called(self) -> bool:
        """Whether it is what a call calls."""
        return isinstance(self.parent, ast.Call) and self.field == "func"

    @property
    def is_free(self) -> bool:
        """Whether brackets, commas or keywords delimit it: no operator around it binds tighter."""
        inside = isinstance(self.parent, ast.Call | ast.Subscript) and self.field in ("args", "slice")
        return self.bracketed or inside or not isinstance(self.parent, _BINDING)

    @property
    def is_loose(self) -> bool:
        """Whether an operator behind it would bind tighter than its own."""
        negation = isinstance(self.node, ast.UnaryOp) and isinstance(self.node.op, ast.Not)
        return negation or isinstance(self.node, ast.BoolOp | ast.Compare | ast.IfExp | ast.Lambda | ast.NamedExpr)


@dataclass(slots=True)
class Statement:
    """One logical line: its owner, where it lies, its expressions, and its place among its siblings."""

    owner: Owner
    scope: Scope
    start: int
    end: int
    """Header only: for a compound statement up to its body."""
    block: list[ast.stmt]
    index: int
    loop: ast.For | ast.AsyncFor | ast.While | None
    """The innermost loop that a `break` here would leave."""
    parent: ast.AST
    sites: list[Site] = field(default_factory=list)

    def variables(self, *values: Value | None) -> list[str]:
        """The variables in scope that hold one of these sorts of value (None: not known), own ones first.

        Without `values` all variables. What a line lacks is most often a name that it already uses.
        """
        own = {site.node.id for site in self.sites if isinstance(site.node, ast.Name)}
        scope = self.scope
        names = [name for name in scope.variables if not values or scope.values.get(name) in values]
        return sorted(names, key=lambda name: name not in own)


def is_docstring(statement: ast.AST) -> bool:
    """Whether the statement is a string of its own."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str | bytes)
    )


def leaves_loop(statements: list[ast.stmt]) -> bool:
    """Whether a `break` or `continue` in `statements` would leave or repeat a loop around them."""
    for statement in statements:
        if isinstance(statement, ast.Break | ast.Continue):
            return True
        if isinstance(statement, FunctionNode | ast.ClassDef):
            continue
        if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
            blocks = [statement.orelse]
        else:
            owners = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
            blocks = [getattr(owner, name, []) for owner in owners for name in ("body", "orelse", "finalbody")]
        if any(leaves_loop(block) for block in blocks):
            return True
    return False


class File:
    """A parsed file: `statements` in source order, each with its scope and expressions.

    Raises `SyntaxError` (from `ast.parse`) when the source is not Python of this interpreter's version.
    """

    def __init__(self, text: str) -> None:
        self.source = SourceText(text)
        try:
            self.tree = ast.parse(text)
        except (ValueError, RecursionError) as error:  # NUL bytes, unpaired surrogates, a thousand brackets
            raise SyntaxError(str(error)) from error
        self.statements: list[Statement] = []
        module = module_scope(self.source, self.tree)
        self._visit_block(self.tree.body, module, None, self.tree)

    def _visit_block(
        self,
        block: list[ast.stmt],
        scope: Scope,
        loop: ast.For | ast.AsyncFor | ast.While | None,
        parent: ast.AST,
    ) -> None:
        for index, statement in enumerate(block):
            if isinstance(statement, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
                continue
            if is_docstring(statement):
                continue
            self._visit_owner(statement, block, index, scope, loop, parent)

    def _visit_owner(
        self,
        owner: Owner,
        block: list[ast.stmt],
        index: int,
        scope: Scope,
        loop: ast.For | ast.AsyncFor | ast.While | None,
        parent: ast.AST,
    ) -> None:
        start, end = self._header(owner)
        record = Statement(owner, scope, start, end, block, index, loop, parent)
        self._add_sites(owner, record)
        self.statements.append(record)
        inner, inner_loop = scope, loop
        if isinstance(owner, FunctionNode):
            inner, inner_loop = function_scope(self.source, owner, scope), None
            record.scope = inner
        elif isinstance(owner, ast.ClassDef):
            inner_loop = None
        elif isinstance(owner, ast.For | ast.AsyncFor | ast.While):
            inner_loop = owner
        for name, value in ast.iter_fields(owner):
            if not isinstance(value, list) or not value:
                continue
            if isinstance(value[0], ast.stmt):
                # the `else` of a loop runs outside of it
                self._visit_block(value, inner, loop if name == "orelse" and inner_loop is owner else inner_loop, owner)
            elif isinstance(value[0], ast.ExceptHandler | ast.match_case):
                for item in value:
                    self._visit_owner(item, block, index, inner, inner_loop, owner)

    def _header(self, owner: Owner) -> tuple[int, int]:
        if isinstance(owner, ast.match_case):
            start = self.source.span(owner.pattern)[0]
            start = self.source.text.rindex("case", 0, start)
            end = self.source.span(owner.body[-1])[1]
        else:
            start, end = self.source.span(owner)
        body = getattr(owner, "body", None) or getattr(owner, "cases", None)
        if isinstance(body, list):
            first = body[0]
            if isinstance(first, ast.match_case):
                end = self._header(first)[0]
            else:
                decorators = getattr(first, "decorator_list", [])
                end = self.source.span(decorators[0])[0] - 1 if decorators else self.source.span(first)[0]
        return start, end

    def _add_sites(self, node: ast.AST, record: Statement) -> None:
        for name, child in children(node):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case | ast.pattern):
                continue
            if name in ("decorator_list", "annotation", "returns", "type_params"):
                continue
            if isinstance(child, ast.expr):
                start, end = self.source.span(child)
                if isinstance(node, ast.Call) and start == self.source.span(node.func)[1]:
                    start, end = start + 1, end - 1  # `sum(… for …)`: the parentheses are the call's own
                text = self.source.text
                bracketed = text[start - 1 : start] == "(" and text[end : end + 1] == ")"
                record.sites.append(Site(child, node, name, start, end, text[start:end], bracketed))
            # Positions inside f-strings are wrong before Python 3.12.
            if not isinstance(child, ast.JoinedStr):
                self._add_sites(child, record)
