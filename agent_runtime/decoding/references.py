"""Where `$ref` leads inside one schema document: JSON pointers, `$id` and `$anchor`; nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from agent_runtime.errors import UnsupportedSchema

_ONE = (
    "additionalProperties", "additionalItems", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
#: Keywords whose schemas describe what is inside the value, one level deeper.
_INSIDE = (
    "additionalProperties", "additionalItems", "contains", "items", "patternProperties", "prefixItems", "properties",
)  # fmt: skip
#: The address of a document that does not name itself.
_BASE = ""


class References:
    """The addressable schemas of one document."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._resources: dict[str, Any] = {_BASE: root}
        self._anchors: dict[str, Any] = {}
        self._base_of: dict[int, str] = {}
        self._index(root, _BASE)

    def resolve(self, schema: Mapping[str, Any], pointer: str) -> tuple[Any, str]:
        """The schema that `$ref` of `schema` names, and a pointer for messages."""
        reference = schema["$ref"]
        if not isinstance(reference, str):
            raise UnsupportedSchema(pointer, "$ref", f"{reference!r} is not a reference")
        base = self._base_of.get(id(schema), _BASE)
        address, fragment = urldefrag(reference)
        # A bare fragment stays in its resource, also under a urn:, which urljoin cannot join.
        address = urljoin(base, address) if address else base
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if f"{address}#{fragment}" in self._anchors:
                return self._anchors[f"{address}#{fragment}"], f"#{fragment}"
            raise UnsupportedSchema(pointer, "$ref", f"{reference!r} is not in this document")
        if address not in self._resources:
            raise UnsupportedSchema(pointer, "$ref", f"{reference!r} is not in this document")
        target = self._resources[address]
        for token in fragment.split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and token in target:
                target = target[token]
            elif isinstance(target, list) and token.isdigit() and int(token) < len(target):
                target = target[int(token)]
            else:
                raise UnsupportedSchema(pointer, "$ref", f"{reference!r} leads nowhere")
            if isinstance(target, Mapping) and "$id" in target and id(target) not in self._base_of:
                raise UnsupportedSchema(pointer, "$ref", f"{reference!r} passes an $id outside of a schema")
        if isinstance(target, Mapping) and id(target) not in self._base_of:
            self._index(target, address)
        return target, fragment

    def depth(self, schema: Any) -> tuple[int, bool]:
        """How many containers deep the values go that `schema` spells out, and whether it is recursive."""
        return self._depth(schema, ())

    def _depth(self, schema: Any, path: tuple[int, ...]) -> tuple[int, bool]:
        if not isinstance(schema, Mapping):
            return 0, False
        if id(schema) in path:
            return 0, True
        path = (*path, id(schema))
        deepest, recursive = 0, False
        for keyword, child in _children(schema):
            inner, again = self._depth(child, path)
            if keyword in ("$defs", "definitions", "contentSchema", "propertyNames"):
                continue
            deepest = max(deepest, inner + (keyword in _INSIDE))
            recursive |= again
        for value in [schema.get("const"), *_as_list(schema.get("enum"))]:
            if not isinstance(value, str):  # a list of paths can have thousands
                deepest = max(deepest, _nesting(value))
        if any(name in schema for name in ("properties", "items", "required", "prefixItems", "contains")):
            deepest = max(deepest, 1)
        if isinstance(schema.get("$ref"), str):
            inner, again = self._depth(self.resolve(schema, "")[0], path)
            deepest, recursive = max(deepest, inner), recursive or again
        return deepest, recursive

    def _index(self, schema: Any, base: str) -> None:
        if not isinstance(schema, Mapping) or id(schema) in self._base_of:
            return
        if isinstance(schema.get("$id"), str):
            base = urldefrag(urljoin(base, schema["$id"]))[0]
            self._resources[base] = schema
        self._base_of[id(schema)] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._anchors[f"{base}#{schema[keyword]}"] = schema
        for _, child in _children(schema):
            self._index(child, base)


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every direct subschema with its keyword."""
    for keyword in _ONE:
        if isinstance(schema.get(keyword), Mapping):
            yield keyword, schema[keyword]
    for keyword in _MANY:
        if isinstance(schema.get(keyword), Sequence):
            yield from ((keyword, child) for child in schema[keyword])
    for keyword in _NAMED:
        if isinstance(schema.get(keyword), Mapping):
            yield from ((keyword, child) for child in schema[keyword].values())


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _nesting(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + max((_nesting(item) for item in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_nesting(item) for item in value), default=0)
    return 0
