"""Which files of a repository a failing test points at: where it failed, and what it imports.

In a repository of hundreds of files a model that may inspect any of them wastes its steps; the test result
already says where to look. Nothing here runs code of the repository: imports are read from the syntax tree.
"""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

DEPTH = 2
"""How many imports away from the test a suspect may be: a package's `__init__` is often between them."""

MOST = 40
"""Files that are read to follow imports; each costs half a millisecond."""


async def suspects(
    tests: Mapping[str, Any], files: Collection[str], read: Callable[[str], Awaitable[bytes]]
) -> list[str]:
    """Paths of `files` that the failing tests point at, nearest first; empty when the tests point nowhere.

    `tests` is the structured result of `run_tests`; `read` gives a file of the workspace.
    """
    present = set(files)
    found = [path for path in dict.fromkeys(_named(tests)) if path in present]
    frontier, done = list(found), set[str]()
    for _ in range(DEPTH):
        following: list[str] = []
        for path in frontier:
            if path in done or not path.endswith(".py") or len(done) >= MOST:
                continue
            done.add(path)
            following += [other for other in _imported(path, await read(path), present) if other not in found]
        frontier = list(dict.fromkeys(following))
        found += frontier
    return found


def _named(tests: Mapping[str, Any]) -> list[str]:
    """Files that the result names: the innermost code first, then the traceback, then the failing tests'."""
    failure = tests.get("first_failure") or {}
    places = [failure.get("code"), *reversed(failure.get("traceback") or []), failure.get("place")]
    named = [str(place["file"]) for place in places if place]
    named += [str(error["file"]) for error in tests.get("collection_errors") or [] if error.get("file")]
    ids = [*(tests.get("failures") or []), tests.get("running")]
    return named + [str(test).partition("::")[0] for test in ids if test]


def _imported(path: str, content: bytes, present: Collection[str]) -> list[str]:
    """Files of the repository that a module imports; none of a module that does not parse."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return []
    folder = path.rpartition("/")[0]
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "/".join(folder.split("/")[: len(folder.split("/")) - node.level + 1]) if node.level else None
            stem = node.module or ""
            inner = [f"{stem}.{alias.name}".strip(".") for alias in node.names]
            if base is not None:
                found += [file for module in (stem, *inner) for file in _files(module, [base], present)]
                continue
            modules = [stem, *inner]
        else:
            continue
        found += [file for module in modules for file in _files(module, [folder, "", "src"], present)]
    return list(dict.fromkeys(found))


def _files(module: str, roots: list[str], present: Collection[str]) -> list[str]:
    """The file of a dotted module name under the first of `roots` that has it."""
    inner = module.replace(".", "/")
    for root in roots:
        stem = "/".join(part for part in (root, inner) if part)
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if path in present:
                return [path]
    return []
