"""Tools: typed functions that an agent may call, the built-in ones and the user's own.

    @tool
    def word_count(path: str) -> int:
        \"\"\"Count the words of a file.\"\"\"

The signature gives the JSON Schema, the docstring the description; arguments are validated before the call.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar, cast, overload

import anyio
from pydantic import ValidationError
from pydantic_core import to_json, to_jsonable_python

from agent_runtime.errors import UsageError
from agent_runtime.sandboxes.contract import ToolError, ToolResult
from agent_runtime.signature import Schema, Signature
from agent_runtime.tools.registry import TOOLS

Where = Literal["sandbox", "host"]
F = TypeVar("F", bound=Callable[..., Any])

BOUNDS: dict[str, Schema] = {
    "start": {"minimum": 1},
    "end": {"minimum": 0},
    "limit": {"minimum": 1, "maximum": 1000},
    "select": {"maxItems": 8},
}
"""What annotations of Python 3.8 cannot say of the built-in tools' parameters."""


@dataclass(frozen=True)
class Tool:
    """Something that an agent can call."""

    name: str
    description: str
    parameters: Schema
    """JSON Schema of an object; closed."""

    function: Callable[..., Any]
    where: Where = "sandbox"
    """On the host it runs in this process, with this process's rights; in the sandbox with the sandbox's."""

    reads_only: bool = False
    """Changes nothing: may be run early, again, or in vain."""

    signature: Signature | None = field(default=None, repr=False, compare=False)
    source: str | None = field(default=None, repr=False)
    """What is sent into the sandbox, for a user's function that runs there."""

    def sandbox_call(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The name and the arguments of the call that the tool server gets."""
        if self.source is None:
            return self.name, dict(arguments)
        return "user_tool", {"source": self.source, "name": self.function.__name__, "arguments": dict(arguments)}

    async def invoke(self, arguments: Mapping[str, Any], timeout: float) -> ToolResult:
        """Run a tool of the host, at most `timeout` seconds; whatever it raises becomes its result."""
        if self.signature is None:
            raise UsageError(f"tool {self.name} runs in the sandbox, not on the host")
        try:
            checked = self.signature.validate(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            return _failed("invalid_arguments", f"{self.name}: {place}: {first['msg']}")
        try:
            with anyio.fail_after(timeout):
                value = await self._run(checked)
        except TimeoutError:
            message = f"{self.name} did not end within {timeout:g} s"
            return ToolResult(False, message + "\n", {}, ToolError("timed_out", message), timed_out=True)
        except Exception as error:
            return _failed("raised", f"{self.name} failed: {type(error).__name__}: {error}")
        return ToolResult(True, as_text(value), {"result": to_jsonable_python(value, fallback=str)})

    async def _run(self, arguments: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await cast("Awaitable[Any]", self.function(**arguments))
        return await anyio.to_thread.run_sync(lambda: self.function(**arguments), abandon_on_cancel=True)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, reads_only: bool = False, where: Where = "host") -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, reads_only: bool = False, where: Where = "host"
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a typed function.

    With `where="sandbox"` the function's source text is sent into the sandbox and runs there, in the repository:
    it may use its arguments and what it imports itself, and nothing else of the module that it stands in.
    Raises `UsageError` where the signature cannot be turned into a JSON Schema.
    """
    if function is None:
        return lambda inner: make_tool(inner, reads_only=reads_only, where=where)
    return make_tool(function, reads_only=reads_only, where=where)


def make_tool(function: Callable[..., Any], *, reads_only: bool, where: Where) -> Tool:
    """The `Tool` of a user's function."""
    signature = Signature(function)
    if not signature.description:
        raise UsageError(f"tool {function.__name__} has no docstring; the model reads it to know what the tool does")
    source = source_of(function) if where == "sandbox" else None
    return Tool(
        function.__name__, signature.description, signature.schema, function, where, reads_only, signature, source
    )


def source_of(function: Callable[..., Any]) -> str:
    """The text of a plain function, without its decorators. Raises `UsageError` where it cannot stand alone."""
    name = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.getclosurevars(function).nonlocals:
        raise UsageError(f"tool {name} is async or a closure, which cannot be sent into the sandbox; use where='host'")
    try:
        lines = textwrap.dedent(inspect.getsource(function)).splitlines(keepends=True)
    except (OSError, TypeError) as error:
        raise UsageError(f"tool {name}: its source text is not to be had; define it in a file") from error
    start = next(index for index, line in enumerate(lines) if line.startswith("def "))
    return "from __future__ import annotations\n" + "".join(lines[start:])


@cache
def _builtin_tools() -> dict[str, Tool]:
    made = {name: builtin(name) for name in ("search", "inspect", "patch", "run_tests")}
    made["finish"] = tool(where="host")(finish)
    return made


def builtin_tools(*, shell: bool = False) -> dict[str, Tool]:
    """The tools that an agent has by default, made from the functions that run in the sandbox.

    `shell` adds the one that runs any command.
    """
    return {**_builtin_tools(), **({"shell": builtin("shell")} if shell else {})}


@cache
def builtin(name: str) -> Tool:
    """One of the tools that the tool server knows."""
    entry = TOOLS[name]
    parameters = inspect.signature(entry.function).parameters.values()
    # Keyword-only parameters are for the runtime, not for the model: how to run, not what.
    skip = {"workspace", *(one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY)}
    signature = Signature(entry.function, skip=skip)
    properties = {key: {**value, **BOUNDS.get(key, {})} for key, value in signature.schema["properties"].items()}
    schema = {**signature.schema, "properties": properties}
    if name == "patch":
        schema = either(schema, ["path", "start", "end", "text"], ["path", "old", "text"])
    return Tool(name, signature.description, schema, entry.function, "sandbox", entry.reads_only)


def either(schema: Schema, *shapes: list[str]) -> Schema:
    """The same parameters, of which one of `shapes` must be given, complete and with nothing else."""
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {name: schema["properties"][name] for name in shape},
                "required": shape,
                "additionalProperties": False,
            }
            for shape in shapes
        ]
    }


def finish(status: Literal["solved", "unsolved"], summary: str | None = None) -> str:
    """End the work: solved when the tests pass, unsolved when you cannot get there.

    Args:
        status: Whether the tests pass now.
        summary: One sentence on what was wrong, or what is in the way.
    """
    return summary or status


def as_text(value: Any) -> str:
    """A result as the model reads it: text as it is, anything else as JSON."""
    text = "" if value is None else value if isinstance(value, str) else to_json(value, fallback=str).decode()
    return text if not text or text.endswith("\n") else text + "\n"


def _failed(kind: str, message: str) -> ToolResult:
    return ToolResult(False, message + "\n", {}, ToolError(kind, message))
