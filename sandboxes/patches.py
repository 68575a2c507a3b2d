"""Two trees → a patch, byte-exact, by the host's git.

Both sides go through `git fast-import` into a repository that lives for one patch: no path or content from a
sandbox is ever written to the host's file system, and no attribute, filter or setting of the user changes a byte.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent_runtime.errors import SandboxUnavailable
from agent_runtime.sandboxes.tree import Tree

GIT_LIMIT = 120.0  # seconds for one git command; a patch of 20 MB takes under 2
SETTLED = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}


def git(arguments: list[str], repository: Path, data: bytes, settings: Mapping[str, str]) -> bytes:
    """The output of one git command on a bare repository. Raises `SandboxUnavailable` without git."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", f"--git-dir={repository}", *arguments]
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, check=False, timeout=GIT_LIMIT, env={**environment, **settings}
        )
    except FileNotFoundError:
        raise SandboxUnavailable("git is not installed; install it: apt install git") from None
    if done.returncode not in (0, 1):
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise SandboxUnavailable(f"git {arguments[0]} failed: {reason}")
    return done.stdout


def make_patch(before: Tree, after: Tree, deleted: Iterable[str]) -> bytes:
    """The patch that turns `before` into `before` with `after`'s files in it and `deleted` gone."""
    gone = [path for path in deleted if path in before.entries]
    if not after.entries and not gone:
        return b""
    old = [path for path in [*after.entries, *gone] if path in before.entries]
    stream = commit("before", before, old) + commit("after", after, list(after.entries)) + b"done\n"
    with tempfile.TemporaryDirectory(prefix="agent-runtime-patch-") as folder:
        repository = make_repository(Path(folder))
        git(["fast-import", "--quiet", "--done"], repository, stream, SETTLED)
        return git(
            ["diff-tree", "-p", "--binary", "--full-index", "--no-renames", "--no-color", "--no-ext-diff",
             "--no-textconv", "-r", "refs/heads/before", "refs/heads/after"],
            repository, b"", SETTLED,
        )  # fmt: skip


def make_repository(folder: Path) -> Path:
    """An empty bare repository; by hand, which saves the 8 ms of `git init`."""
    (folder / "objects").mkdir()
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/before\n")
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    return folder


def commit(name: str, tree: Tree, paths: list[str]) -> bytes:
    """A branch `name` that holds `paths` of `tree`, in fast-import's language."""
    parts = [f"commit refs/heads/{name}\ncommitter - <-> 0 +0000\ndata 0\n".encode()]
    for path in paths:
        content = tree.read(path)
        parts.append(f"M {tree.entries[path].git_mode} inline ".encode() + quoted(path) + b"\n")
        parts.append(b"data %d\n" % len(content) + content + b"\n")
    return b"".join(parts)


def quoted(path: str) -> bytes:
    """A path as fast-import wants it: C style, every byte that could mislead as octal."""
    safe = b"/._-+@=,()[]{}~!#$%^&;:' "
    octal = (
        bytes([byte]) if bytes([byte]).isalnum() or byte in safe else b"\\%03o" % byte for byte in os.fsencode(path)
    )
    return b'"' + b"".join(octal) + b'"'


def ignored(paths: list[str], ignore_files: Mapping[str, bytes], exclude: bytes) -> set[str]:
    """Those of `paths` that git would ignore, by the baseline's .gitignore files, `exclude` and the user's settings."""
    if not paths:
        return set()
    with tempfile.TemporaryDirectory(prefix="agent-runtime-ignore-") as folder:
        repository = Path(folder) / "git"
        repository.mkdir()
        make_repository(repository)
        (repository / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
        (repository / "info").mkdir()
        (repository / "info" / "exclude").write_bytes(exclude)
        work = Path(folder) / "work"
        work.mkdir()
        for path, content in ignore_files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(content)
        data = b"".join(os.fsencode(path) + b"\0" for path in paths)
        found = git(
            ["-C", str(work), f"--work-tree={work}", "check-ignore", "--no-index", "-z", "--stdin"],
            repository,
            data,
            {},
        )
        return {os.fsdecode(path) for path in found.split(b"\0") if path}
