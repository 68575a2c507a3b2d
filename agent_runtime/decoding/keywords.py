"""Reading the keywords of one schema: their values as Python, or a refusal that names keyword and place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from agent_runtime.errors import UnsupportedSchema

TYPES = ("null", "boolean", "number", "string", "array", "object")
_DIALECTS = ("https://json-schema.org/draft/", "http://json-schema.org/draft-0", "http://json-schema.org/schema")
_REFUSED = {
    "$dynamicRef": "a reference that depends on the path of evaluation",
    "$recursiveRef": "a reference that depends on the path of evaluation",
    "unevaluatedItems": "which items were evaluated is not known beforehand",
    "unevaluatedProperties": "which properties were evaluated is not known beforehand",
    "divisibleBy": "a keyword of draft 3",
    "extends": "a keyword of draft 3",
    "disallow": "a keyword of draft 3",
    "propertyDependencies": "a proposal that is not part of draft 2020-12",
}


def refuse_unknown(schema: Mapping[str, Any], pointer: str) -> None:
    """Raises `UnsupportedSchema` for keywords and dialects that are never supported."""
    for keyword, reason in _REFUSED.items():
        if keyword in schema and schema[keyword] is not True:
            raise UnsupportedSchema(pointer, keyword, reason)
    dialect = schema.get("$schema", _DIALECTS[0])
    if not isinstance(dialect, str) or not dialect.startswith(_DIALECTS):
        raise UnsupportedSchema(pointer, "$schema", f"the dialect {dialect!r} is not known")


def types_of(schema: Mapping[str, Any], pointer: str) -> dict[str, str]:
    """The allowed types; the value of "number" is "integer" when only whole numbers are."""
    given = schema.get("type", list(TYPES))
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence):
        raise UnsupportedSchema(pointer, "type", f"{given!r} is not a type")
    types: dict[str, str] = {}
    for name in names:
        if name == "integer":
            types.setdefault("number", "integer")
        elif name in TYPES:
            types[name] = name
        else:
            raise UnsupportedSchema(pointer, "type", f"{name!r} is not a type")
    if schema.get("nullable") is True and "type" in schema:
        types["null"] = "null"  # OpenAPI 3.0
    return types


def bound_of(
    schema: Mapping[str, Any], pointer: str, closed: str, opened: str, tighter: Callable[..., Any]
) -> tuple[Decimal | None, bool]:
    """The tighter one of an inclusive and an exclusive bound, and whether it is exclusive."""
    bound, exclusive = schema.get(closed), schema.get(opened)
    if isinstance(exclusive, bool):  # draft 4
        exclusive, bound = (bound, None) if exclusive else (None, bound)
    for keyword, value in ((closed, bound), (opened, exclusive)):
        if value is not None and not is_number(value):
            raise UnsupportedSchema(pointer, keyword, f"{value!r} is not a finite number")
    if exclusive is not None and (bound is None or tighter(bound, exclusive) == exclusive):
        return _decimal(exclusive), True
    return (None if bound is None else _decimal(bound)), False


def count_of(schema: Mapping[str, Any], pointer: str, keyword: str, default: int | None) -> int | None:
    """A keyword whose value is a count, also written as a whole decimal (`2.0`)."""
    if keyword not in schema:
        return default
    value = schema[keyword]
    if not is_number(value) or value < 0 or value != int(value):
        raise UnsupportedSchema(pointer, keyword, f"{value!r} is not a count")
    return int(value)


def flag_of(schema: Mapping[str, Any], pointer: str, keyword: str) -> bool:
    """A keyword that is true or false; false when it is left out."""
    value = schema.get(keyword, False)
    if not isinstance(value, bool):
        raise UnsupportedSchema(pointer, keyword, f"{value!r} is neither true nor false")
    return value


def finite_values(schema: Any) -> list[Any] | None:
    """The values of an enum, each once; None when `schema` does not list its values."""
    if not isinstance(schema, Mapping):
        return None
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if listed is None:
        listed = {"boolean": [False, True], "null": [None]}.get(str(schema.get("type")))
    if listed is None:
        return None
    distinct = {json.dumps(_plain(value), sort_keys=True): value for value in listed}
    return list(distinct.values())


def _plain(value: Any) -> Any:
    """`value` with whole floats as integers, so that equal values look the same."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case Mapping():
            return "object"
        case _:
            return "array"


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0


def _decimal(value: float) -> Decimal:
    """The shortest decimal of a float, which is what canonical texts are compared with."""
    return Decimal(repr(value)) + 0


def mapping_of(schema: Mapping[str, Any], pointer: str, keyword: str) -> Mapping[str, Any]:
    value = schema.get(keyword, {})
    if not isinstance(value, Mapping):
        raise UnsupportedSchema(pointer, keyword, f"{value!r} is not an object")
    return value


def list_of(schema: Mapping[str, Any], pointer: str, keyword: str) -> Sequence[Any]:
    value = schema.get(keyword)
    if keyword in schema and (not isinstance(value, Sequence) or isinstance(value, str) or not value):
        raise UnsupportedSchema(pointer, keyword, "is not a list of schemas")
    return value or []


def names_of(value: Any, pointer: str, keyword: str) -> Sequence[str]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise UnsupportedSchema(pointer, keyword, f"{value!r} is not a list of names")
    return value


def escape(name: str) -> str:
    """A reference token of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
