"""Put a run's patch onto the user's repository: all of it or nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from agent_runtime.errors import PatchConflict


def apply_patch(repo: Path, patch: bytes) -> None:
    """Apply a git-format patch to the folder `repo`; `PatchConflict` and no change at all when it does not fit.

    `git apply` works outside git repositories too and checks everything before it writes anything. The
    ceiling keeps git from taking a repository further up for the one that is meant.
    """
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(repo.resolve().parent), "LC_ALL": "C"}
    done = subprocess.run(command, cwd=repo, input=patch, capture_output=True, env=environment, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().partition("\n")[0].removeprefix("error: ")
        raise PatchConflict(f"the patch does not apply to {repo}, which was left as it is: {reason}")
