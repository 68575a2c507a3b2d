"""The call that does nothing: what the transport alone costs."""

from __future__ import annotations

from agent_runtime.tools.workspace import Outcome, Workspace


def noop(workspace: Workspace) -> Outcome:
    """Do nothing."""
    return Outcome(ok=True, text="")
