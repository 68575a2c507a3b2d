"""From a typed Python function to what a model needs to call it: JSON Schema, description, validation."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticSchemaGenerationError, PydanticUserError, create_model
from pydantic.fields import FieldInfo

from agent_runtime.errors import UsageError

Schema = dict[str, Any]

SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?):\s*$")
ARGUMENT = re.compile(r"^(?P<name>\*{0,2}\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)$")


class Signature:
    """What can be given to a function: `schema` says it, `validate` enforces it."""

    def __init__(self, function: Callable[..., Any], skip: Iterable[str] = ()) -> None:
        """Read the signature of `function`, without the parameters in `skip`.

        Raises `UsageError` for parameters that are not annotated, `*args`, and types without a JSON Schema.
        """
        name = function.__name__
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError) as error:
            raise UsageError(f"tool {name}: an annotation cannot be resolved: {error}") from error
        self.description, described = read_docstring(inspect.getdoc(function) or "")
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in skip:
                continue
            check(name, parameter, hints)
            required = parameter.default is inspect.Parameter.empty
            info = FieldInfo(default=... if required else parameter.default, description=described.get(parameter.name))
            fields[parameter.name] = (hints[parameter.name], info)
        try:
            self.model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
            self.schema = compact(self.model.model_json_schema())
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
            reason = str(error).split("\n", 1)[0]
            raise UsageError(f"tool {name}: a parameter's type has no JSON Schema: {reason}") from error

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them. Raises pydantic's `ValidationError`."""
        checked = self.model.model_validate(dict(arguments))
        return {key: getattr(checked, key) for key in checked.model_fields_set}


def check(tool: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    """Refuse a parameter that no call by name and value can fill."""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise UsageError(f"tool {tool}: *{parameter.name} has no schema; name and annotate each parameter")
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise UsageError(f"tool {tool}: parameter {parameter.name} is positional-only; arguments are given by name")
    if parameter.name not in hints:
        raise UsageError(f"tool {tool}: parameter {parameter.name} has no annotation; write `{parameter.name}: str`")
    if parameter.name.startswith("_"):
        raise UsageError(f"tool {tool}: parameter {parameter.name} starts with an underscore; give it a public name")


def compact(schema: Schema) -> Schema:
    """The schema without what a model needs not: titles, defaults, and null beside the type of what may be left out."""
    schema = dict(schema)
    schema.pop("title", None)
    schema.pop("description", None)
    required = schema.get("required", [])
    schema["properties"] = {
        key: _without_titles(value if key in required else _without_null(value))
        for key, value in schema.get("properties", {}).items()
    }
    if "$defs" in schema:
        schema["$defs"] = {key: _without_titles(value) for key, value in schema["$defs"].items()}
    return schema


def _without_null(schema: Schema) -> Schema:
    choices = [choice for choice in schema.get("anyOf", []) if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if "anyOf" not in schema:
        return rest
    return {**choices[0], **rest} if len(choices) == 1 else {**rest, "anyOf": choices}


def _without_titles(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    # A property may be named `title`: only where the value is a string is it the annotation.
    return {
        key: {name: _without_titles(item) for name, item in value.items()}
        if key == "properties"
        else _without_titles(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
    }


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's text before its first section, and what its `Args:` section says of each parameter."""
    before: list[str] = []
    described: dict[str, str] = {}
    section, name = "", ""
    for line in text.splitlines():
        heading = SECTION.match(line)
        if heading:
            section, name = heading[1], ""
        elif not section:
            before.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            entry = ARGUMENT.match(line.strip())
            deeper = len(line) - len(line.lstrip()) > 4
            if entry and not (deeper and name):
                name = entry["name"].lstrip("*")
                described[name] = entry["text"]
            elif name:
                described[name] = f"{described[name]} {line.strip()}".strip()
    return "\n".join(before).strip(), described
