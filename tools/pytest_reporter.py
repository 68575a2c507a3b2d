"""The pytest plugin that reports a run as events, instead of text for a terminal.

Runs in the repository's interpreter with whatever pytest is there (7.0 or newer). Events are JSON objects:

    {"event": "started", "pid": 7, "cpu": 0.2}         collecting begins, in this process, which has used so much
    {"event": "collected", "total": 9}
    {"event": "begin", "test": ID, "cpu": 0.2}         a test starts: at a hang, the last of these names it
    {"event": "done", "test": ID, "outcome": OUTCOME}  passed, failed, error, skipped, xfailed, xpassed
    {"event": "failure", "test": ID, ...}              the first failure only: where, and which assertion
    {"event": "uncollected", "file": FILE, ...}        a file that cannot be imported, as a failure is
    {"event": "internal", "message": TEXT}             pytest or a plugin of it failed
    {"event": "end", "exit": 1}                        pytest's own exit code
"""

from __future__ import annotations

import linecache
import os
import re
import time
from collections.abc import Callable, Generator
from types import ModuleType, SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

import pytest

MAX_MESSAGE = 4_000
"""Characters that are kept of an assertion's message and of what a test printed."""

HEAD_FRAMES, TAIL_FRAMES = 5, 15
"""Frames that are kept of a long traceback: a RecursionError has a thousand."""

ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{5,16}\b")
MACHINERY = re.compile(r"(^<frozen |[/\\](_pytest|pluggy|agent_runtime[/\\]tools)[/\\])")
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$")

if TYPE_CHECKING:
    Frame = dict[str, Any]


class Reporter:
    """Turns pytest's hooks into events; tests named in `first` run before the others, in that order."""

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        root: str,
        scratch: str,
        first: list[str],
        stop_at_first: bool,
    ) -> None:
        self.send = send
        self.scratch = scratch
        """Where `tmp_path` lies: always the same, since tests print it."""
        self.root = root.rstrip("/") + "/"
        self.first = {test: index for index, test in enumerate(first)}
        self.stop_at_first = stop_at_first
        self.at_start: Callable[[Any], None] | None = None
        """Called when everything is ready to collect."""
        self.outcome = ""
        self.failure_sent = False
        self.repository_takes_part = True
        """Whether a conftest or a plugin of the repository may want to see failures as pytest describes them."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self) -> Generator[None, Any, None]:
        """Tell of a conftest that cannot be imported."""
        outcome = yield
        if outcome.excinfo is not None:
            error = outcome.excinfo[1]
            self.uncollected(self.clean(str(getattr(error, "path", "conftest.py"))), error)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: Any) -> None:
        """Fix the place of temporary directories, unless the configuration names one."""
        if getattr(config.option, "basetemp", "") is None:
            config.option.basetemp = self.scratch

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: Any) -> None:
        """Drop what only a terminal shows; a plugin from elsewhere may rely on it, and then it stays."""
        if self.stop_at_first:
            config.option.maxfail = 1
        installed = {package_of(plugin) for plugin, _ in config.pluginmanager.list_plugin_distinfo()}
        present = {package_of(plugin) for plugin in config.pluginmanager.get_plugins() if plugin is not self}
        self.repository_takes_part = not present <= {"_pytest", "pytest", *installed}
        if self.repository_takes_part and config.option.tbstyle == "auto":
            config.option.tbstyle = "native"
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and not installed and not self.repository_takes_part:
            config.pluginmanager.unregister(terminal)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: Any) -> None:
        """Everything is ready to collect; a process that is prepared for many runs stands here and forks them."""
        if self.at_start is not None:
            self.at_start(session.config)
        self.send({"event": "started", "pid": os.getpid(), "cpu": time.process_time()})

    def take_over(self, first: list[str], stop_at_first: bool, config: Any) -> None:
        """Become the reporter of another run, in a process forked at `at_start`."""
        self.first = {test: index for index, test in enumerate(first)}
        if stop_at_first:
            config.option.maxfail = 1

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Move the tests named in `first` to the front."""
        if self.first:
            items.sort(key=lambda item: self.first.get(item.nodeid, len(self.first)))

    def pytest_collection_finish(self, session: Any) -> None:
        """Tell how many tests will run."""
        self.send({"event": "collected", "total": len(session.items)})

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        """Tell of a file that could not be collected: an error of its own, or of something that it imports."""
        report = (yield).get_result()
        call = getattr(report, "call", None)
        if report.outcome == "failed" and call is not None and call.excinfo is not None:
            self.uncollected(collector.nodeid, call.excinfo.value)

    def uncollected(self, nodeid: str, error: BaseException) -> None:
        """Send the event; pytest wraps the error that matters in one of its own."""
        while type(error).__module__.startswith("_pytest.") and (error.__cause__ or getattr(error, "cause", None)):
            error = error.__cause__ or error.cause  # type: ignore[attr-defined]
        self.send({"event": "uncollected", "file": nodeid, **self.describe(error, None)})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.outcome = ""
        self.send({"event": "begin", "test": nodeid, "cpu": time.process_time()})

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        """Describe the first failure while its exception is still there."""
        if not self.repository_takes_part:  # pytest would write out every traceback, at 3 ms each and more
            item.repr_failure = item._repr_failure_py = ShortFailure
        report = (yield).get_result()
        if report.outcome != "failed" or self.failure_sent:
            return
        self.failure_sent = True
        event = {"event": "failure", "test": item.nodeid, "when": call.when}
        if call.excinfo is not None:
            event.update(self.describe(call.excinfo.value, str(item.path)))
        else:
            event.update(message=str(report.longrepr)[:MAX_MESSAGE], traceback=[])
        event["output"] = self.clean("".join(text for _, text in report.sections)[-MAX_MESSAGE:])
        self.send(event)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One of a test's three phases ended."""
        if report.outcome == "failed":
            self.outcome = "failed" if report.when == "call" else "error"
        elif self.outcome in ("failed", "error"):
            return
        elif report.outcome == "skipped":
            self.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        elif report.when == "call":
            self.outcome = "xpassed" if hasattr(report, "wasxfail") else "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test is over."""
        self.send({"event": "done", "test": nodeid, "outcome": self.outcome or "error"})

    def pytest_internalerror(self, excrepr: Any, excinfo: Any) -> None:
        """pytest or a plugin of it failed."""
        self.send({"event": "internal", "message": self.clean(excinfo.exconly(tryshort=True))[:MAX_MESSAGE]})

    def describe(self, error: BaseException, test_file: str | None) -> dict[str, Any]:
        """Where an exception comes from: the line in the test, and the innermost one in the code under test."""
        frames = walk(error.__traceback__)
        own = [frame for frame in frames if frame["file"].startswith(self.root)]
        in_test = [frame for frame in own if frame["file"] == test_file]
        if isinstance(error, SyntaxError) and error.filename and test_file is None:
            text = linecache.getline(error.filename, error.lineno or 0) or error.text or ""
            own.append(make_frame(error.filename, error.lineno or 0, "<module>", text))
        places = in_test or own or frames
        code = [frame for frame in own if not TEST_FILE.search(frame["file"]) and frame["file"] != test_file]
        return {
            "message": self.clean(message_of(error))[:MAX_MESSAGE],
            "place": self.relative(places[-1]) if places else None,
            "code": self.relative(code[-1]) if code else None,
            "traceback": [self.relative(frame) for frame in frames],
        }

    def relative(self, frame: Frame) -> Frame:
        """The frame with its file relative to the repository, where it is in it."""
        return {**frame, "file": self.clean(frame["file"])}

    def clean(self, text: str) -> str:
        """Text that is the same in every run: no path of the workspace, no address."""
        return ADDRESS.sub("0x…", text.replace(self.scratch, "/tmp/pytest").replace(self.root, ""))  # noqa: S108 - shown


def package_of(plugin: Any) -> str:
    """The top-level package that a plugin comes from."""
    name = plugin.__name__ if isinstance(plugin, ModuleType) else plugin.__module__
    return str(name).split(".")[0]


class ShortFailure:
    """A failure as pytest's own `longrepr`, of one line."""

    reprtraceback = None

    def __init__(self, excinfo: Any, style: Any = None) -> None:
        self.text = message_of(excinfo.value)
        self.sections: list[tuple[str, str, str]] = []
        self.reprcrash: Any = SimpleNamespace(path="", lineno=0, message=self.text)

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: Any) -> None:
        """What the terminal shows."""
        writer.line(self.text)


def walk(traceback: TracebackType | None) -> list[Frame]:
    """The frames from the outermost to where the exception was raised, without those of pytest itself."""
    found: list[tuple[str, int, str]] = []
    machinery: dict[str, bool] = {}
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename not in machinery:
            machinery[code.co_filename] = MACHINERY.search(code.co_filename) is not None
        if not machinery[code.co_filename]:
            found.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    if len(found) > HEAD_FRAMES + TAIL_FRAMES:
        found = found[:HEAD_FRAMES] + found[-TAIL_FRAMES:]
    return [make_frame(file, line, name, linecache.getline(file, line)) for file, line, name in found]


def make_frame(file: str, line: int, function: str, code: str) -> Frame:
    """One frame of a traceback as JSON."""
    return {"file": os.path.realpath(file), "line": line, "function": function, "code": code.strip()}


def message_of(error: BaseException) -> str:
    """The exception's text as pytest shows it: an assertion by itself, others after the name of their class."""
    try:
        text = str(error)
    except Exception as broken:  # the class's own __str__ may fail: then say so instead of failing with it
        text = f"<its text cannot be shown: {type(broken).__name__}>"
    if isinstance(error, AssertionError) and text.startswith("assert "):
        return text
    if isinstance(error, SyntaxError):
        text = error.msg or ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name
