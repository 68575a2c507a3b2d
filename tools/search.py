"""`search` finds text in the files of the repository."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH118
from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent_runtime.tools import textfile
from agent_runtime.tools.ignore import translate, walk
from agent_runtime.tools.lines import is_binary, show, split
from agent_runtime.tools.workspace import Outcome, Workspace, failure

MAX_MATCHES = 1_000
MAX_FILE = 4 * 1024 * 1024
"""Bytes; larger files are passed over and counted."""

MAX_TEXT = 200
"""Characters of one line that are shown."""

MAX_SECONDS = 10.0
"""50,000 small files take about 2 s."""

MARGIN = 0.2
"""Seconds kept before the call's deadline."""

if TYPE_CHECKING:
    Matcher = Callable[[bytes], list[tuple[int, str]]]


def search(
    workspace: Workspace,
    pattern: str,
    regex: bool = False,
    glob: str | None = None,
    limit: int = 50,
) -> Outcome:
    """Find the lines that contain a text or match a regular expression, as `path:line: text`.

    Ignored and binary files are passed over.

    Args:
        pattern: Text, case-sensitive, within one line.
        regex: Take `pattern` as a Python regular expression.
        glob: Only files that match, such as `*.py` or `src/**/*.ts`.
        limit: Most matches to return.
    """
    if not pattern or "\n" in pattern:
        return failure("usage", "the pattern is empty or spans lines; search for text within one line")
    try:
        match = regex_matcher(pattern) if regex else text_matcher(pattern)
        wanted = re.compile(translate(glob)) if glob else None
    except re.error as error:
        return failure("usage", f"this is no regular expression: {error}")
    limit = max(1, min(limit, MAX_MATCHES))
    stop_at = time.monotonic() + max(0.0, min(MAX_SECONDS, workspace.remaining() - MARGIN))
    found: list[dict[str, Any]] = []
    scanned = too_large = 0
    more = out_of_time = False
    for path in walk(workspace.root):
        if wanted is not None and wanted.match(path) is None:
            continue
        if time.monotonic() > stop_at:
            out_of_time = True
            break
        data = load(workspace, path)
        if data is None:
            continue
        scanned += 1
        if len(data) > MAX_FILE:
            too_large += 1
            continue
        for line, text in match(data):
            if len(found) == limit:
                more = True
                break
            found.append({"path": path, "line": line, "text": text})
        if more:
            break
    notes = []
    if not found and not out_of_time:
        notes.append("no matches")
    if more:
        notes.append(f"[the first {limit} matches; narrow the search for the others]")
    if out_of_time:
        notes.append("[out of time: part of the repository was not searched; name a glob]")
    if too_large:
        notes.append(f"[{too_large} files larger than {MAX_FILE // 1024 // 1024} MB were passed over]")
    lines = [f"{hit['path']}:{hit['line']}: {cut(hit['text'])}" for hit in found]
    return Outcome(
        ok=True,
        text="".join(line + "\n" for line in lines + notes),
        data={"matches": found, "files": scanned, "complete": not (more or out_of_time or too_large)},
        truncated=more or out_of_time,
    )


def load(workspace: Workspace, path: str) -> bytes | None:
    """A text file's bytes; None where it is binary or cannot be read."""
    try:
        data, _ = textfile.load(os.path.join(workspace.root, path))
    except OSError:
        return None  # gone or unreadable: not an answer to the search
    return None if is_binary(data) else data


def text_matcher(text: str) -> Matcher:
    """What finds the lines with a text: one look at the whole file first, which rules most files out."""
    wanted = text.encode("utf-8", "surrogatepass")

    def match(data: bytes) -> list[tuple[int, str]]:
        if wanted not in data:
            return []
        return [(index, show(line)) for index, line in enumerate(split(data), 1) if wanted in line]

    return match


def regex_matcher(pattern: str) -> Matcher:
    """What finds the lines that match. Raises `re.error`."""
    compiled = re.compile(pattern)

    def match(data: bytes) -> list[tuple[int, str]]:
        texts = ((index, show(line)) for index, line in enumerate(split(data), 1))
        return [(index, text) for index, text in texts if compiled.search(text)]

    return match


def cut(text: str) -> str:
    """A line of bearable length, which tells that it was cut."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"
