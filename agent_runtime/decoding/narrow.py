"""Schemas narrowed to what exists now, so that a call cannot name a file or a line that is not there.

Pure functions from schema to schema: the result is compiled like any other, and equal parts of it are not
compiled again (`regular.py` keeps them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_runtime.chat import JSON

#: Up to this many files each has its own line limit; with more, the longest file's limit holds for all.
FILES_WITH_LIMITS = 4

_OPTIONS = ("anyOf", "oneOf", "allOf")


def narrow(
    schema: Mapping[str, Any],
    *,
    paths: Sequence[str] | None = None,
    lines: Mapping[str, int] | None = None,
    path: str = "path",
    first: str = "start",
    last: str = "end",
) -> dict[str, Any]:
    """`schema` for a tree of files: its property `path` is one of `paths`, lines lie inside the file.

    `lines` gives each file's number of lines n: `first` is then at most n + 1 (where text is appended),
    `last` at most n. Properties that the schema does not have are left alone, as is what `paths` omits.
    """
    known = list(paths if paths is not None else lines or ())

    def limited(branch: Mapping[str, Any], count: int) -> dict[str, Any]:
        for name, most in ((first, count + 1), (last, count)):
            if name in branch.get("properties", {}):
                branch = _with(branch, name, {"maximum": most})
        return dict(branch)

    def narrowed(branch: Mapping[str, Any]) -> dict[str, Any]:
        properties = branch["properties"]
        if lines is not None and path in properties and (first in properties or last in properties):
            if 0 < len(known) <= FILES_WITH_LIMITS:
                counts: dict[int, list[str]] = {}
                for name in known:
                    counts.setdefault(lines.get(name, 0), []).append(name)
                options = [limited(_with(branch, path, {"enum": names}), count) for count, names in counts.items()]
                return options[0] if len(options) == 1 else {"anyOf": options}
            branch = limited(branch, max(lines.values(), default=0))
        return _with(branch, path, {"enum": known}) if path in properties else dict(branch)

    return _objects(schema, narrowed)


def narrow_parameter(schema: Mapping[str, Any], name: str, values: Sequence[JSON]) -> dict[str, Any]:
    """`schema` with its property `name`, wherever it is declared at the top level, one of `values`."""

    def narrowed(branch: Mapping[str, Any]) -> dict[str, Any]:
        return _with(branch, name, {"enum": list(values)}) if name in branch["properties"] else dict(branch)

    return _objects(schema, narrowed)


def narrow_text(schema: Mapping[str, Any], name: str, pattern: str) -> dict[str, Any]:
    """`schema` with its string property `name`, wherever it is declared at the top level, matching `pattern`."""

    def narrowed(branch: Mapping[str, Any]) -> dict[str, Any]:
        return _with(branch, name, {"pattern": pattern}) if name in branch["properties"] else dict(branch)

    return _objects(schema, narrowed)


def required_only(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` without the properties that need not be given."""

    def reduced(branch: Mapping[str, Any]) -> dict[str, Any]:
        needed = branch.get("required", ())
        kept = {name: value for name, value in branch["properties"].items() if name in needed}
        return {**branch, "properties": kept, "additionalProperties": False}

    return _objects(schema, reduced)


def _objects(schema: Mapping[str, Any], change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """`schema` with `change` applied to the object itself and to each of its alternatives."""
    result = dict(schema)
    for keyword in _OPTIONS:
        if isinstance(schema.get(keyword), Sequence):
            result[keyword] = [
                _objects(option, change) if isinstance(option, Mapping) else option for option in schema[keyword]
            ]
    return change(result) if isinstance(result.get("properties"), Mapping) else result


def _with(branch: Mapping[str, Any], name: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """`branch` with more keywords for one of its properties; a tighter limit that is there stays."""
    old = branch["properties"][name]
    if not isinstance(old, Mapping) or old.keys() & limits.keys():
        new: dict[str, Any] = {"allOf": [old, dict(limits)]}
    else:
        new = {**old, **limits}
    return {**branch, "properties": {**branch["properties"], name: new}}
