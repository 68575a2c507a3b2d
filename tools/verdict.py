"""What a run of tests came to: from the events of `pytest_reporter` to data, and to the text a model reads."""

from __future__ import annotations

import signal
from typing import Any

MAX_LINE = 200
"""Characters of one line of the text."""

USAGE = 4
"""pytest's exit code for arguments or a configuration that it refuses."""

PASSED, FAILED, ERROR, TIMED_OUT, NO_TESTS = "passed", "failed", "error", "timed_out", "no_tests"


class Verdict:
    """The state of a run, event after event."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.total: int | None = None
        self.running: str | None = None
        self.first_failure: dict[str, Any] | None = None
        self.uncollected: list[dict[str, Any]] = []
        self.internal: str | None = None
        self.exit_code: int | None = None
        self.ended = False

    def take(self, event: dict[str, Any]) -> None:
        """The next event."""
        kind = event.pop("event")
        if kind == "collected":
            self.total = event["total"]
        elif kind == "begin":
            self.running = event["test"]
        elif kind == "done":
            self.running = None
            self.outcomes[event["test"]] = event["outcome"]
        elif kind == "failure":
            self.first_failure = event
        elif kind == "uncollected":
            self.uncollected.append(event)
        elif kind == "internal":
            self.internal = event["message"]
        elif kind == "end":
            self.exit_code, self.ended = event["exit"], True

    def data(self, timed_out_after: float | None, killed_test: bool) -> dict[str, Any]:
        """The structured result; `killed_test` where a test's own limit, not the run's, was passed."""
        outcomes = list(self.outcomes.values())
        if killed_test and self.running is not None:
            outcomes.append("failed")
        count = {name: outcomes.count(name) for name in ("passed", "failed", "skipped", "xfailed", "xpassed")}
        failures = [test for test, outcome in self.outcomes.items() if outcome in ("failed", "error")]
        if killed_test and self.running is not None:
            failures.append(self.running)
        return {
            "runner": "pytest",
            "status": self.status(timed_out_after),
            **count,
            "errors": outcomes.count("error") + len(self.uncollected),
            "total": self.total if self.total is not None else len(outcomes),
            "first_failure": self.first_failure,
            "collection_errors": self.uncollected,
            "failures": failures,
            "running": self.running,
            "message": self.internal,
            "exit_code": self.exit_code,
            "timed_out": timed_out_after is not None,
            "timed_out_after_s": timed_out_after,
        }

    def status(self, timed_out_after: float | None) -> str:
        """One word for all of it."""
        if timed_out_after is not None:
            return TIMED_OUT
        if self.uncollected or self.internal or not self.ended:
            return ERROR
        return {0: PASSED, 1: FAILED, 5: NO_TESTS}.get(self.exit_code or 0, ERROR)


def render(data: dict[str, Any]) -> str:
    """The text for a model: how many failed, and of the first failure the test, its assertion and its cause."""
    lines = [headline(data)]
    failure = data["first_failure"]
    if data["collection_errors"] and failure is None:
        lines += place_and_message(data["collection_errors"][0])
    elif failure is not None:
        lines += [f"first failure: {failure['test']}", *place_and_message(failure)]
        if failure.get("code"):
            lines.append(f"at {failure['code']['file']}:{failure['code']['line']}")
    if data["message"]:
        lines.append(f"E   {first_line(data['message'])}")
    return "".join(cut(line) + "\n" for line in lines)


def headline(data: dict[str, Any]) -> str:
    """The first line."""
    failed, errors, total = data["failed"], data["errors"], data["total"]
    where = f" in {data['running']}" if data["running"] else ""
    if data["status"] == TIMED_OUT:
        return f"TIMED OUT after {seconds(data['timed_out_after_s'])} s{where}"
    if data["collection_errors"]:
        more = len(data["collection_errors"]) - 1
        return f"ERROR collecting {data['collection_errors'][0]['file']}" + (f" and {more} more" if more else "")
    if failed:
        also = f", {errors} with errors" if errors else ""
        return f"FAILED {failed} of {tests(total)}{also}" + (", stopped there" if data["stopped_early"] else "")
    if errors:
        return f"ERROR in {errors} of {tests(total)}"
    if data["status"] == PASSED:
        skipped = data["skipped"] + data["xfailed"]
        return f"PASSED {tests(data['passed'] + data['xpassed'])}" + (f", {skipped} skipped" if skipped else "")
    if data["status"] == NO_TESTS:
        return "ERROR no tests found"
    if data["message"]:
        return "ERROR pytest could not run"
    if data["exit_code"] == USAGE:
        return "ERROR pytest refused its arguments or its configuration"
    return f"ERROR the test process {ending(data['exit_code'])}{where}"


def place_and_message(failure: dict[str, Any]) -> list[str]:
    """The line that failed and why."""
    place = failure.get("place")
    lines = [f"{place['file']}:{place['line']}: {place['code']}"] if place else []
    return [*lines, f"E   {first_line(failure['message'])}"]


def ending(exit_code: int | None) -> str:
    """How a process ended that did not tell by itself."""
    if exit_code is None:
        return "ended without a word"
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


def tests(count: int) -> str:
    """`1 test`, `9 tests`."""
    return f"{count} test" if count == 1 else f"{count} tests"


def seconds(value: float) -> str:
    """A limit as one would say it: 5, 0.5."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def first_line(text: str) -> str:
    """The first line of a message that may have many."""
    return text.split("\n", 1)[0]


def cut(line: str) -> str:
    """A line of bearable length, which tells that it was cut."""
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}… ({len(line)} characters)"
