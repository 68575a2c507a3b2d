"""`inspect` shows a file with line numbers, its outline, or what a directory holds."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH112
from __future__ import annotations

import ast
import os
import re
from typing import Any

from agent_runtime.tools import textfile
from agent_runtime.tools.lines import ending, is_binary, show, split
from agent_runtime.tools.workspace import Outcome, OutsideWorkspace, Workspace, failure

MAX_LINES = 400
MAX_TEXT = 400
"""Characters of one line that are shown."""

MAX_ENTRIES = 200

HEADING = re.compile(r"^#{1,6}\s+\S")
DEFINITION = re.compile(
    r"^\s*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([^)]*\))?|unsafe|"
    r"extern|inline|virtual|override)\s+)*"
    r"(?:class|interface|struct|enum|union|trait|impl|function|fn|func|def|sub|proc|module|namespace|package|type|record|"
    r"object|macro_rules!)\b"
)
C_FUNCTION = re.compile(r"^[A-Za-z_][\w\s*&:<>,~\[\]]*\([^;]*\)\s*(?:const\s*)?\{?\s*$")
ASSIGNED_FUNCTION = re.compile(r"^(?:export\s+)?(?:const|let|var)\s+\w+\s*=\s*(?:async\s*)?(?:function\b|\(|\w+\s*=>)")


def inspect(
    workspace: Workspace,
    path: str,
    start: int | None = None,
    end: int | None = None,
    outline: bool = False,
) -> Outcome:
    """Show lines of a file, numbered, or its classes and functions, or the entries of a directory.

    Args:
        path: File or directory, relative to the repository.
        start: First line to show, counted from 1.
        end: Last line to show.
        outline: Only the lines that begin a class, a function or a section.
    """
    try:
        real_path = textfile.locate(workspace, path)
        if os.path.isdir(real_path):
            return list_directory(workspace, real_path)
        problem = textfile.unreadable(real_path, path)
        if problem is not None:
            return problem
        data, _ = textfile.load(real_path)
    except OutsideWorkspace as error:
        return failure("outside_workspace", str(error))
    except OSError as error:
        return failure("io", f"{path} cannot be read: {error.strerror}")
    name = workspace.relative(real_path)
    if is_binary(data):
        return failure("binary", f"{name} is a binary file of {len(data)} bytes", path=name, bytes=len(data))
    lines = split(data)
    return show_outline(name, data, lines) if outline else show_range(name, lines, start, end)


def show_range(name: str, lines: list[bytes], start: int | None, end: int | None) -> Outcome:
    """Lines `start` to `end`, as many of them as are shown at once."""
    total = len(lines)
    first = 1 if start is None else start
    last = total if end is None else min(end, total)
    if first < 1 or (first > max(1, total)) or (end is not None and end < first):
        return failure("usage", f"lines {first}-{last if end is None else end} are not in {name}, which has {total}")
    last = min(last, first + MAX_LINES - 1)
    shown = [show(line) for line in lines[first - 1 : last]]
    notes = []
    if not lines:
        notes.append(f"[{name} is empty]")
    if first > 1 or last < total:
        notes.append(f"[lines {first}-{last} of {total}]")
    if any(ending(line) == b"\r\n" for line in lines[first - 1 : last]):
        notes.append("[lines end with CRLF, which patch keeps]")
    numbered = [f"{number}: {cut(text)}" for number, text in enumerate(shown, first)]
    return Outcome(
        ok=True,
        text="".join(line + "\n" for line in numbered + notes),
        data={"path": name, "start": first, "end": last, "total": total, "lines": shown},
        truncated=last < total and end is None,
    )


def show_outline(name: str, data: bytes, lines: list[bytes]) -> Outcome:
    """The lines that begin something."""
    entries = python_outline(data) if name.endswith((".py", ".pyi")) else None
    if entries is None:
        entries = [(number, number) for number, line in enumerate(lines, 1) if begins_something(show(line))]
    found: list[dict[str, Any]] = [
        {"start": start, "end": end, "text": show(lines[start - 1])} for start, end in entries[:MAX_LINES]
    ]
    notes = [f"[no outline: {name} has {len(lines)} lines]"] if not found else []
    if len(entries) > MAX_LINES:
        notes.append(f"[the first {MAX_LINES} of {len(entries)} entries]")
    return Outcome(
        ok=True,
        text="".join(line + "\n" for line in [f"{entry['start']}: {cut(entry['text'])}" for entry in found] + notes),
        data={"path": name, "total": len(lines), "outline": found},
        truncated=len(entries) > MAX_LINES,
    )


def python_outline(data: bytes) -> list[tuple[int, int]] | None:
    """First and last lines of Python's classes and functions; None where the file does not parse."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return None
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sorted((node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, kinds))


def begins_something(line: str) -> bool:
    """Whether a line of a language that is not parsed looks like a heading or a definition."""
    patterns = (HEADING, DEFINITION, C_FUNCTION, ASSIGNED_FUNCTION)
    return any(pattern.match(line) for pattern in patterns)


def list_directory(workspace: Workspace, real_path: str) -> Outcome:
    """The entries of a directory, directories with a slash at their end."""
    with os.scandir(real_path) as listing:
        entries = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in listing if entry.name != ".git")
    notes = ["[empty directory]"] if not entries else []
    if len(entries) > MAX_ENTRIES:
        notes.append(f"[the first {MAX_ENTRIES} of {len(entries)} entries]")
    return Outcome(
        ok=True,
        text="".join(line + "\n" for line in entries[:MAX_ENTRIES] + notes),
        data={"path": workspace.relative(real_path), "entries": entries[:MAX_ENTRIES], "total": len(entries)},
        truncated=len(entries) > MAX_ENTRIES,
    )


def cut(text: str) -> str:
    """A line of bearable length, which tells that it was cut."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"
