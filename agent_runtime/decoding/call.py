"""What a decoded call is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent_runtime.chat import JSON


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool: its name, and arguments that validate against its schema."""

    name: str
    arguments: Mapping[str, JSON]
