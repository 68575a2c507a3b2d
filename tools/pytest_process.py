"""The process that runs pytest, in the repository's interpreter.

    python -c BOOT PACKAGE cold EVENTS          one run; its request is the first line on the socket EVENTS
    python -c BOOT PACKAGE warm CONTROL         a server that forks a process for each run (`pytest_server`)

Cold and warm share `preload`, `conduct` and `end`, so that their results are equal.
"""

# Plain strings: a `Path` is not imported before the repository decides which modules there are.
# ruff: noqa: PTH110, PTH112, PTH118
from __future__ import annotations

import atexit
import importlib
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

BOOT = (
    "import sys; sys.path[0] = sys.argv[1]; from agent_runtime.tools import pytest_process as p; "
    "p.main(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
)

if TYPE_CHECKING:
    Request = dict[str, Any]
    """`root`, `scratch`, `arguments`, `first` (test ids), `stop_at_first`, `shadowed`: as `run_tests` makes it."""

    Send = Callable[[dict[str, Any]], None]


def main(package: str, mode: str, descriptor: int) -> None:
    """What `BOOT` calls."""
    sys.path.remove(package)
    sys.dont_write_bytecode = True  # leaves no files; and a .pyc is trusted for an edit within the same second
    channel = socket.socket(fileno=descriptor)
    if mode == "warm":
        preload(package)
        sys.modules["agent_runtime.tools.pytest_server"].serve(channel)
        return
    request = json.loads(read_line(channel))
    if request["shadowed"]:
        sys.path.insert(0, request["root"])
    try:
        preload(package)
    except ImportError as error:
        sender(channel)({"event": "internal", "message": f"{type(error).__name__}: {error}"})
        return
    run_once(request, sender(channel))


def preload(package: str) -> None:
    """Import pytest with all its own plugins, and what belongs to the run from `package`."""
    sys.path.append(package)
    try:
        for name in ("pytest_reporter", "pytest_server"):
            importlib.import_module(f"agent_runtime.tools.{name}")
    finally:
        sys.path.remove(package)
    for name in sys.modules["_pytest.config"].default_plugins:
        importlib.import_module(f"_pytest.{name}")


def make_reporter(request: Request, send: Send) -> Any:
    """The plugin for a run."""
    module = sys.modules["agent_runtime.tools.pytest_reporter"]
    return module.Reporter(send, request["root"], request["scratch"], request["first"], request["stop_at_first"])


def run_once(request: Request, send: Send) -> NoReturn:
    """Run pytest from its beginning to its end, and end the process."""
    reporter = make_reporter(request, send)
    end(reporter.send, conduct(request, reporter))


def conduct(request: Request, reporter: Any) -> int:
    """Run pytest in this process, as `python -m pytest` in the root of an installed repository; its exit code."""
    for name in [name for name in sys.modules if name.split(".")[0] == "agent_runtime"]:
        del sys.modules[name]  # the repository may hold a package of that name
    root, arguments = request["root"], request["arguments"]
    os.chdir(root)
    if sys.path[:1] != [root]:
        sys.path.insert(0, root)
    source = os.path.join(root, "src")
    if os.path.isdir(source) and not os.path.exists(os.path.join(source, "__init__.py")):
        sys.path.insert(1, source)  # a package in the src layout, which nobody has installed here
    sys.argv = ["pytest", *arguments]
    try:
        return int(sys.modules["pytest"].main(arguments, plugins=[reporter]))
    except SystemExit as error:  # `sys.exit()` while a test module is imported
        reporter.send({"event": "internal", "message": f"SystemExit: {error.code}"})
        return error.code if isinstance(error.code, int) else 1
    except KeyboardInterrupt:
        return 2


def end(send: Send, code: int) -> NoReturn:
    """Tell the exit code and end, without waiting for threads that tests left running."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    send({"event": "end", "exit": code})
    atexit._run_exitfuncs()
    os._exit(code)


def sender(events: socket.socket) -> Send:
    """What sends an event: a line of JSON, so that a run that dies leaves at most its last one torn."""

    def send(event: dict[str, Any]) -> None:
        events.sendall(json.dumps(event).encode() + b"\n")

    return send


def read_line(events: socket.socket) -> bytes:
    """The first line on a socket."""
    data = b""
    while not data.endswith(b"\n"):
        chunk = events.recv(64 * 1024)
        if not chunk:
            raise EOFError("the request is incomplete")
        data += chunk
    return data
