"""`user_tool` runs a user's own function, whose source text comes with the call."""

from __future__ import annotations

import json
import os
from typing import Any

from agent_runtime.tools.workspace import Outcome, Workspace, failure

MAX_TEXT = 64 * 1024
"""Characters of a result that are kept."""


def user_tool(workspace: Workspace, source: str, name: str, arguments: dict[str, Any]) -> Outcome:
    """Define the function `name` by `source` and call it, in the root of the repository."""
    os.chdir(workspace.root)
    namespace: dict[str, Any] = {"__name__": "user_tool"}
    try:
        exec(compile(source, f"<tool {name}>", "exec"), namespace)  # noqa: S102 - a user's tool is code by intent
        value = namespace[name](**arguments)
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except Exception as error:
        return failure("raised", f"{name} failed: {type(error).__name__}: {error}")
    if len(text) > MAX_TEXT:
        return failure("too_large", f"{name} returned {len(text)} characters, more than {MAX_TEXT}")
    return Outcome(ok=True, text=text if not text or text.endswith("\n") else text + "\n", data={"result": value})
