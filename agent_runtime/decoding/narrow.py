"""State-aware narrowing: a tool's parameters restricted to what exists now.

Pure functions from schema to schema. What they return admits a subset of what they were given, so a call
decoded under it is valid under the tool's own schema too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

Schema = dict[str, Any]


def narrow_parameter(schema: Schema, name: str, values: Sequence[Any]) -> Schema:
    """Parameter `name` may only be one of `values`; schemas without it stay as they are."""
    return narrow_properties(schema, name, lambda _: {"enum": list(values)})


def narrow_lines(schema: Schema, names: Collection[str], last: int) -> Schema:
    """Integer parameters `names` may not exceed line `last`."""
    for name in names:
        schema = narrow_properties(schema, name, lambda old: {**old, "maximum": min(last, old.get("maximum", last))})
    return schema


def narrow_properties(schema: Schema, name: str, change: Callable[[Schema], Schema]) -> Schema:
    """Apply `change` to the property `name` of an object schema, in each branch of an `anyOf`."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [narrow_properties(branch, name, change) for branch in schema["anyOf"]]}
    properties: Schema = schema.get("properties", {})
    if name not in properties:
        return schema
    return {**schema, "properties": {**properties, name: change(properties[name])}}


def required_only(schema: Schema) -> Schema:
    """Only the parameters that must be given, in each branch of an `anyOf`."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [required_only(branch) for branch in schema["anyOf"]]}
    required = schema.get("required", [])
    kept = {name: value for name, value in schema.get("properties", {}).items() if name in required}
    return {**schema, "properties": kept, "additionalProperties": False}
