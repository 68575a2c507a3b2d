"""A workspace in a temporary directory, and a way to fill it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

import agent_runtime
from agent_runtime.tools.workspace import Workspace

PACKAGE = str(Path(agent_runtime.__file__).resolve().parent.parent)


def make_workspace(root: Path, scratch: Path, seconds: float = 60.0) -> Workspace:
    root.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    return Workspace(
        root=str(root.resolve()),
        tmp=str(scratch.resolve()),
        python=sys.executable,
        package=PACKAGE,
        deadline=time.monotonic() + seconds,
    )


def fill(workspace: Workspace, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = Path(workspace.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def workspace(tmp_path):
    return make_workspace(tmp_path / "work", tmp_path / "scratch")
