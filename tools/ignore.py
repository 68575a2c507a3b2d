"""Walking the files of a repository in a fixed order, without what its ignore files name.

The rules are git's (gitignore(5)): nested files, negation, directory-only and anchored patterns, `**`, character
classes, escapes; an ignored directory is not entered, so nothing in it can be taken back by a negation. They are
applied here, and not by calling git or ripgrep, so that results are the same wherever the repository lies.
Not looked at: the user's global excludes, and whether an ignored file is tracked nevertheless.
"""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH118, PTH123
from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from re import Pattern
from typing import TYPE_CHECKING

VERSION_CONTROL = frozenset((".git", ".hg", ".svn"))

if TYPE_CHECKING:
    Rule = tuple[Pattern[str], bool, bool]
    """What it matches (a path relative to its ignore file), whether it re-includes, whether only directories."""


class IgnoreFile:
    """The rules of one ignore file, for the directory `base` (relative to the root, empty or ending in `/`)."""

    def __init__(self, base: str, text: str) -> None:
        self.base = base
        self.rules: list[Rule] = []
        sources = []
        for line in text.splitlines():
            parsed = parse(line)
            if parsed is not None:
                source, negated, only_directories = parsed
                self.rules.append((re.compile(source), negated, only_directories))
                sources.append(f"(?:{source})")
        self.any = re.compile("|".join(sources)) if sources else None  # one search instead of one per rule

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """Whether the last rule that matches ignores `path` (relative to the root); None where none matches."""
        local = path[len(self.base) :]
        if self.any is None or self.any.match(local) is None:
            return None
        for pattern, negated, only_directories in reversed(self.rules):
            if (is_directory or not only_directories) and pattern.match(local):
                return not negated
        return None


def parse(line: str) -> tuple[str, bool, bool] | None:
    """A line of an ignore file as (regular expression, negated, directories only); None for one without a rule."""
    line = line.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    line = line[1:] if negated else line
    only_directories = line.endswith("/")
    line = line.rstrip("/") if only_directories else line
    if not line:
        return None
    return translate(line), negated, only_directories


def translate(glob: str) -> str:
    """A gitignore pattern as a regular expression for a whole path; without a slash it matches at any depth."""
    anchored = "/" in glob
    glob = glob[1:] if glob.startswith("/") else glob
    out = "" if anchored else "(?:.*/)?"
    at = 0
    while at < len(glob):
        rest, char = glob[at:], glob[at]
        if rest.startswith("**/") and (at == 0 or glob[at - 1] == "/"):
            out, at = out + "(?:.*/)?", at + 3
        elif rest == "**" and (at == 0 or glob[at - 1] == "/"):
            out, at = out + ".+", at + 2
        elif char == "*":
            out, at = out + "[^/]*", at + 1
        elif char == "?":
            out, at = out + "[^/]", at + 1
        elif char == "\\" and len(rest) > 1:
            out, at = out + re.escape(rest[1]), at + 2
        elif char == "[" and "]" in rest[2:]:
            stop = at + rest.index("]", 2)
            body = glob[at + 1 : stop].replace("\\", "\\\\").replace("[", "\\[")
            body = "^" + body[1:] if body[0] in "!^" else body
            out, at = out + f"(?!/)[{body}]", stop + 1
        else:
            out, at = out + re.escape(char), at + 1
    return out + r"\Z"


def walk(root: str, top: str = "") -> Iterator[str]:
    """Paths of regular files below `top`, relative to `root`, in the order of their names; symlinks are left out."""
    yield from _walk(root, "", top, [])


def _walk(root: str, base: str, top: str, ignores: Sequence[IgnoreFile]) -> Iterator[str]:
    try:
        with os.scandir(os.path.join(root, base)) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return  # unreadable, or gone since its parent was listed
    ignores = with_file(root, base, ignores)
    for entry in entries:
        path = base + entry.name
        if entry.is_symlink() or entry.name in VERSION_CONTROL:
            continue
        is_directory = entry.is_dir(follow_symlinks=False)
        below = not top or path == top or path.startswith(top + "/")
        if not below and not (is_directory and top.startswith(path + "/")):
            continue
        if ignored(path, is_directory, ignores):
            continue
        if is_directory:
            yield from _walk(root, path + "/", top, ignores)
        elif entry.is_file(follow_symlinks=False):
            yield path


def with_file(root: str, base: str, ignores: Sequence[IgnoreFile]) -> Sequence[IgnoreFile]:
    """`ignores` and the ignore files of directory `base`, if it has any."""
    names = [".gitignore"] if base else [os.path.join(".git", "info", "exclude"), ".gitignore"]
    for name in names:
        try:
            with open(os.path.join(root, base, name), encoding="utf-8", errors="surrogateescape") as file:
                ignores = [*ignores, IgnoreFile(base, file.read())]
        except OSError:
            continue  # most directories have none
    return ignores


def ignored(path: str, is_directory: bool, ignores: Sequence[IgnoreFile]) -> bool:
    """Whether the innermost ignore file with an opinion ignores `path`."""
    for ignore in reversed(ignores):
        verdict = ignore.verdict(path, is_directory)
        if verdict is not None:
            return verdict
    return False
