"""What a run may spend: steps, tokens and wall clock, with the clock passed down to every call."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Budget:
    """Counts down while a run goes on; `exhausted()` says in words what ran out."""

    max_steps: int
    max_tokens: int
    timeout: float
    """Seconds of wall clock for the whole run, from the moment that the budget is made."""
    steps: int = 0
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        """The end of the run on the monotonic clock, in seconds."""
        return self.started + self.timeout

    def seconds_left(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def for_call(self, limit: float) -> float:
        """Seconds that one tool call may take: its own limit, or what is left of the run if that is less."""
        return min(limit, self.seconds_left())

    def exhausted(self) -> str | None:
        """The reason why no further step may begin, or None."""
        if self.steps >= self.max_steps:
            return f"the step budget of {self.max_steps} is used up"
        if self.tokens >= self.max_tokens:
            return f"the token budget of {self.max_tokens} is used up"
        if self.seconds_left() <= 0:
            return f"the time budget of {self.timeout:g} s is used up"
        return None
