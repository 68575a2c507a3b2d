"""Compiled code that is kept between runs: of the repository's files as they were, byte for byte.

A run that loads a file whose bytes are known gets the code object that was made of these very bytes before; compiling
a small test file with pytest's rewritten assertions takes 5 ms, comparing its bytes 0.03 ms. Modules themselves are
never kept, except those of the standard library.
"""

# ruff: noqa: PTH123, PTH120
from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

MAX_FILES = 2_000
"""Files of a repository whose code is kept: 20 MB or so."""

REWRITER = "_pytest.assertion.rewrite"
STANDARD_LIBRARY = os.path.dirname(os.__file__) + "/"

if TYPE_CHECKING:
    Known = dict[str, tuple[bytes, CodeType]]
    """Bytes and code by path."""


class Memo:
    """What earlier runs have loaded."""

    def __init__(self) -> None:
        self.plain: Known = {}
        self.rewritten: Known = {}
        self.rewrite: Any = importlib.import_module("_pytest.assertion.rewrite")
        self.compile_rewritten: Callable[[Any, Any], tuple[Any, CodeType]] = self.rewrite._rewrite_test
        self.compile_plain = importlib.machinery.SourceFileLoader.source_to_code

    def install(self) -> None:
        """Let this process and those forked from it use what is known."""
        memo = self

        def source_to_code(loader: Any, data: Any, path: Any, **options: Any) -> CodeType:
            known = memo.plain.get(path)
            if known is not None and known[0] == data:
                return known[1]
            code: CodeType = memo.compile_plain(loader, data, path, **options)
            return code

        def rewrite_test(path: Any, config: Any) -> tuple[Any, CodeType]:
            known = memo.rewritten.get(str(path))
            if known is not None and not config.getini("enable_assertion_pass_hook") and read(str(path)) == known[0]:
                return None, known[1]  # None where pytest wants what a .pyc would need; none is written
            return memo.compile_rewritten(path, config)

        importlib.machinery.SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign,assignment]
        self.rewrite._rewrite_test = rewrite_test

    def learn(self, loaded: dict[str, list[str]]) -> None:
        """Compile what a run has loaded (see `loaded_modules`) and is not known yet, and import what may be shared."""
        for name in loaded["shared"]:
            try:
                importlib.import_module(name)
            except ImportError:
                continue  # it belongs to something else that is not there
        for path in loaded["plain"][: MAX_FILES - len(self.plain)]:
            self.note(self.plain, path, lambda path, data: compile(data, path, "exec", dont_inherit=True))
        for path in loaded["rewritten"][: MAX_FILES - len(self.rewritten)]:
            self.note(self.rewritten, path, self.rewritten_code)

    def note(self, known: Known, path: str, make: Callable[[str, bytes], CodeType]) -> None:
        """Keep the code of one file."""
        if path in known:
            return
        data = read(path)
        try:
            code = make(path, data)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return  # it has changed since it was loaded; the run that loads it next tells of it
        if read(path) == data:
            known[path] = (data, code)

    def rewritten_code(self, path: str, data: bytes) -> CodeType:
        """The code of a test file with pytest's assertions."""
        return self.compile_rewritten(importlib.import_module("pathlib").Path(path), None)[1]


def read(path: str) -> bytes:
    """The bytes of a file; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def loaded_modules(root: str, before: set[str]) -> dict[str, list[str]]:
    """What a run has imported besides the modules `before`.

    Paths of files by how they were compiled: those of the repository, and those of plugins, whose assertions pytest
    rewrites too (hypothesis: 66 files, a second). Names of the standard library's modules.
    """
    found: dict[str, list[str]] = {"plain": [], "rewritten": [], "shared": []}
    prefix = root.rstrip("/") + "/"
    for name, module in list(sys.modules.items()):
        spec: Any = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        if name in before or not isinstance(origin, str):
            continue
        plain = type(spec.loader) is importlib.machinery.SourceFileLoader
        if origin.endswith(".py") and (origin.startswith(prefix) or type(spec.loader).__module__ == REWRITER):
            found["plain" if plain else "rewritten"].append(origin)
        elif origin.startswith(STANDARD_LIBRARY) and "site-packages" not in origin and spec.name == name:
            found["shared"].append(name)
    return found
