"""What a run knows of its workspace, and what can therefore be said in the next call.

A call that names a file that is not there, a line past the end, or that asks again what was just
answered, wastes a step. Here the tools' schemas are narrowed to what makes sense now, so that such calls
cannot be decoded at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_runtime.decoding.narrow import narrow_parameter, narrow_text, required_only
from agent_runtime.tool_definition import Tool

Schema = dict[str, Any]
LISTED = 20
"""Files that a guided model chooses from without a search: so few are named in `inspect` as they are."""

NAME = r"^[A-Za-z_][A-Za-z0-9_]{2,23}$"
"""What a guided model may search for."""


@dataclass
class Knowledge:
    """Facts about the workspace as it is now; every change of a file makes test results stale."""

    files: list[str]
    """Text files of the repository, in order."""
    inspected: set[str] = field(default_factory=set)
    """Files that the transcript shows in their present form."""
    tests: dict[str, Any] | None = None
    """The last complete test result, as the `run_tests` tool reports it."""
    test_seconds: float | None = None
    """What they took, or None when they hung or have not run."""
    tests_current: bool = False
    """Whether `tests` is of the workspace as it is now."""
    patched: set[str] = field(default_factory=set)
    """Files that a patch has changed."""
    suspects: list[str] = field(default_factory=list)
    """Files that the failing tests point at, nearest first."""
    asked: set[str] = field(default_factory=set)
    """The other tools that were called since a file was shown or changed, or tests were run."""
    tried: dict[str, set[str]] = field(default_factory=dict)
    """Per file, the texts that edits have made of it and whose tests failed."""
    exhausted: set[str] = field(default_factory=set)
    """Files for which no untried edit is left."""

    @property
    def tests_pass(self) -> bool:
        """Whether the tests passed on the workspace as it is now."""
        return self.tests_current and self.tests is not None and bool(self.tests["status"] == "passed")

    def called(self, name: str) -> None:
        """A tool was called: once it is answered, asking again serves only when there is something new to ask for."""
        if name in ("inspect", "patch", "run_tests"):
            self.asked.clear()
        else:
            self.asked.add(name)

    def changed(self, path: str) -> None:
        """A file was changed: what was seen and tested before no longer holds."""
        self.tests_current = False
        self.inspected.discard(path)
        self.patched.add(path)

    def editable(self) -> list[str]:
        """Python files that were looked at and still have untried edits, suspects alone while there are any."""
        open_files = [path for path in sorted(self.inspected - self.exhausted) if is_source(path)]
        return [path for path in open_files if path in self.suspects] or open_files

    def unseen(self) -> list[str]:
        """Files that the transcript does not show, suspects alone while there are any."""
        hidden = [path for path in self.files if path not in self.inspected]
        return [path for path in hidden if path in self.suspects] or hidden


def is_source(path: str) -> bool:
    """Whether a file is program text that a repair may change: Python, and not a test."""
    name = path.rsplit("/", 1)[-1]
    is_test = name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
    return name.endswith(".py") and not is_test and not path.startswith("tests/")


def sayable(
    tools: Mapping[str, Tool], known: Knowledge, proposal: Mapping[str, Any] | None, *, guided: bool
) -> dict[str, Schema]:
    """The schemas of the calls that make sense now, by tool name; never empty.

    With `guided` (edit canvases) only required parameters are offered; `patch` is the best untried edit or
    absent; `inspect` names files not yet shown, those that failing tests point at first; `search` is for a name,
    where there are too many files to choose from; no other tool is called again before something else was
    learnt; a change is tested before anything else; `finish` claims what the tests say. Without it the model is
    free within paths that exist. In both, `run_tests` waits for something new to test.
    """
    schemas: dict[str, Schema] = {}
    untested = known.tests is not None and not known.tests_current
    if guided and untested and "run_tests" in tools:
        return {"run_tests": required_only(tools["run_tests"].parameters)}
    for name, tool in tools.items():
        schema = _narrowed(name, tool.parameters, known, proposal, guided=guided)
        if schema is not None:
            schemas[name] = schema
    if not schemas:
        # Nothing is left to look at, to try or to test: the only honest call is to say so.
        schemas = {"finish": required_only(narrow_parameter(tools["finish"].parameters, "status", ["unsolved"]))}
    return schemas


def _narrowed(
    name: str, schema: Schema, known: Knowledge, proposal: Mapping[str, Any] | None, *, guided: bool
) -> Schema | None:
    unseen = known.unseen()
    match name:
        case "finish" if known.tests_pass:
            return required_only(narrow_parameter(schema, "status", ["solved"]))
        case "finish":
            return None if guided else schema
        case "run_tests" if known.tests_current:
            return None
        case "run_tests":
            return required_only(schema)
        case "patch" if guided:
            return None if proposal is None or known.tests_pass else _exactly(proposal)
        case "inspect" | "search" if guided and (known.tests_pass or not unseen):
            return None
        case "search" if guided and len(known.files) <= LISTED:
            return None
        case "inspect":
            narrowed = narrow_parameter(schema, "path", unseen if guided else known.files)
            return required_only(narrowed) if guided else narrowed
        case "patch":
            return narrow_parameter(schema, "path", known.files) if known.files else schema
        case _ if guided and (name in known.asked or known.tests_pass):
            return None
        case "search" if guided:
            # A name is what a repair looks for; free text is long: canvases of 256 tokens instead of 32.
            return required_only(narrow_text(schema, "pattern", NAME))
        case _ if guided:
            return required_only(schema)
    return schema


def _exactly(arguments: Mapping[str, Any]) -> Schema:
    """A schema with one member: these arguments."""
    return {
        "type": "object",
        "properties": {key: {"const": value} for key, value in arguments.items()},
        "required": sorted(arguments),
        "additionalProperties": False,
    }


def listing(files: Sequence[str], limit: int = 5_000) -> list[str]:
    """Files that a path parameter may name: at most `limit`, since a larger enumeration costs compile time.

    Names with control characters, or with bytes that are no UTF-8 (here surrogates), are no text to decode.
    """
    return sorted(path for path in files if path.isprintable())[:limit]
