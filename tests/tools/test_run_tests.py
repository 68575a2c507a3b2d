"""`run_tests`: what a model reads of a run, and that a warm run says exactly what a cold one says."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_runtime.tools import run_tests as module
from agent_runtime.tools.run_tests import run_tests

from .conftest import fill, make_workspace

MEAN = "def mean(values):\n    total = sum(values)\n    return total / len(values)\n"
TEST_MEAN = """\
import pytest

from mean import mean


@pytest.mark.parametrize("values, expected", [([1, 3], 2), ([5], 5), ([], 0)])
def test_mean(values, expected):
    assert mean(values) == expected


class TestMore:
    def test_negative(self):
        assert mean([-1, 1]) == 0

    @pytest.mark.skip
    def test_later(self):
        raise AssertionError

    @pytest.mark.xfail
    def test_known(self):
        assert mean([]) == 0
"""
QUEUE = "class Queue:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        self.items.append(item)\n\n    def pop(self):\n        return self.items.pop()\n"
TEST_QUEUE = """\
from line import Queue


def filled(*items):
    queue = Queue()
    for item in items:
        queue.push(item)
    return queue


def check(queue, expected):
    assert queue.pop() == expected


def test_one():
    check(filled(1), 1)


def test_order():
    check(filled(1, 2), 1)


def test_object():
    assert filled(object()).pop() is None
"""
FIXTURES = """\
import pytest


@pytest.fixture
def broken():
    raise ValueError("no database")


def test_uses_it(broken):
    pass


def test_fine():
    print("printed")
"""
ENDLESS = "def test_ok():\n    pass\n\n\ndef test_endless():\n    print('begun')\n    while True:\n        pass\n"

CASES: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "an error in the code under test": (
        {"mean.py": MEAN, "test_mean.py": TEST_MEAN},
        {},
        "FAILED 1 of 6 tests\n"
        "first failure: test_mean.py::test_mean[values2-0]\n"
        "test_mean.py:8: assert mean(values) == expected\n"
        "E   ZeroDivisionError: division by zero\n"
        "at mean.py:3\n",
    ),
    "all tests pass": (
        {"mean.py": MEAN.replace("/ len(values)", "/ max(1, len(values))"), "test_mean.py": TEST_MEAN},
        {"select": ["test_mean.py::test_mean", "test_mean.py::TestMore::test_later"]},
        "PASSED 3 tests, 1 skipped\n",
    ),
    "an assertion in a helper of the test file": (
        {"src/line.py": QUEUE, "tests/test_line.py": TEST_QUEUE, "pytest.ini": "[pytest]\npythonpath = src\n"},
        {},
        "FAILED 2 of 3 tests\n"
        "first failure: tests/test_line.py::test_order\n"
        "tests/test_line.py:12: assert queue.pop() == expected\n"
        "E   assert 2 == 1\n",
    ),
    "an address in the message": (
        {"line.py": QUEUE, "test_line.py": TEST_QUEUE},
        {"first": ["test_line.py::test_object"], "stop_at_first": True},
        "FAILED 1 of 3 tests, stopped there\n"
        "first failure: test_line.py::test_object\n"
        "test_line.py:24: assert filled(object()).pop() is None\n"
        "E   assert <object object at 0x…> is None\n",
    ),
    "a fixture that fails": (
        {"test_fixtures.py": FIXTURES},
        {},
        "ERROR in 1 of 2 tests\n"
        "first failure: test_fixtures.py::test_uses_it\n"
        'test_fixtures.py:6: raise ValueError("no database")\n'
        "E   ValueError: no database\n",
    ),
    "a syntax error in the code under test": (
        {"mean.py": MEAN.replace("(values):", "(values:"), "test_mean.py": TEST_MEAN},
        {},
        "ERROR collecting test_mean.py\nmean.py:1: def mean(values:\nE   SyntaxError: '(' was never closed\n",
    ),
    "an import that fails": (
        {"mean.py": "import nowhere_to_be_found\n", "test_mean.py": TEST_MEAN},
        {},
        "ERROR collecting test_mean.py\n"
        "mean.py:1: import nowhere_to_be_found\n"
        "E   ModuleNotFoundError: No module named 'nowhere_to_be_found'\n",
    ),
    "a conftest that fails": (
        {"conftest.py": "raise RuntimeError('not today')\n", "test_a.py": "def test_a(): pass\n"},
        {},
        "ERROR collecting conftest.py\nconftest.py:1: raise RuntimeError('not today')\nE   RuntimeError: not today\n",
    ),
    "a conftest with fixtures and hooks": (
        {
            "conftest.py": "import pytest\n\n@pytest.fixture\ndef five():\n    return 5\n\n"
            "def pytest_collection_modifyitems(items):\n    items.reverse()\n",
            "test_a.py": "def test_a(five):\n    assert five == 5\n\ndef test_b(five):\n    assert five == 6\n",
        },
        {"stop_at_first": True},
        "FAILED 1 of 2 tests, stopped there\n"
        "first failure: test_a.py::test_b\ntest_a.py:5: assert five == 6\nE   assert 5 == 6\n",
    ),
    "no tests": ({"mean.py": MEAN}, {}, "ERROR no tests found\n"),
    "a test id that does not exist": (
        {"test_a.py": "def test_a(): pass\n"},
        {"select": ["test_a.py::test_b"]},
        "ERROR pytest refused its arguments or its configuration\nE   not found: test_a.py::test_b\n",
    ),
    "a configuration that pytest refuses": (
        {"pytest.ini": "[pytest]\naddopts = --no-such-option\n", "test_a.py": "def test_a(): pass\n"},
        {},
        "ERROR pytest refused its arguments or its configuration\nE   unrecognized arguments: --no-such-option\n",
    ),
    "an endless loop": (
        {"test_loop.py": ENDLESS},
        {"test_timeout": 0.5},
        "TIMED OUT after 0.5 s in test_loop.py::test_endless\n",
    ),
    "a hang that no signal of Python's can end": (
        {"test_re.py": "import re\n\ndef test_re():\n    re.match(r'(a*)*(b*)*$', 'a' * 5000 + 'c')\n"},
        {"test_timeout": 0.5},
        "TIMED OUT after 0.5 s in test_re.py::test_re\n",
    ),
    "an endless loop at import": (
        {"loop.py": "while True:\n    pass\n", "test_loop.py": "import loop\n"},
        {"test_timeout": 1.0},
        "TIMED OUT after 1 s\n",
    ),
    "recursion without end": (
        {
            "deep.py": "def deep(n):\n    return deep(n + 1)\n",
            "test_deep.py": "from deep import deep\n\ndef test_deep():\n    deep(0)\n",
        },
        {},
        "FAILED 1 of 1 test\nfirst failure: test_deep.py::test_deep\ntest_deep.py:4: deep(0)\n"
        "E   RecursionError: maximum recursion depth exceeded\nat deep.py:2\n",
    ),
    "sys.exit in a test": (
        {"test_exit.py": "import sys\n\ndef test_exit():\n    sys.exit(0)\n\ndef test_after():\n    pass\n"},
        {},
        "FAILED 1 of 2 tests\nfirst failure: test_exit.py::test_exit\ntest_exit.py:4: sys.exit(0)\nE   SystemExit: 0\n",
    ),
    "os._exit in a test": (
        {"test_exit.py": "import os\n\ndef test_exit():\n    os._exit(0)\n"},
        {},
        "ERROR the test process ended with exit code 0 in test_exit.py::test_exit\n",
    ),
    "a crash in a test": (
        {"test_crash.py": "import os, signal\n\ndef test_crash():\n    os.kill(os.getpid(), signal.SIGKILL)\n"},
        {},
        "ERROR the test process was ended by SIGKILL in test_crash.py::test_crash\n",
    ),
    "a megabyte of output": (
        {
            "test_loud.py": "import os\n\ndef test_loud():\n    for _ in range(100):\n        os.write(1, b'x' * 10_000)\n    assert not _\n"
        },
        {},
        "FAILED 1 of 1 test\nfirst failure: test_loud.py::test_loud\ntest_loud.py:6: assert not _\nE   assert not 99\n",
    ),
    "a test that leaves processes behind": (
        {
            "test_fork.py": "import os, time\n\ndef test_fork():\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(1000)\n"
        },
        {},
        "PASSED 1 test\n",
    ),
    "a package of the same name as ours": (
        {
            "agent_runtime/__init__.py": "X = 1\n",
            "test_a.py": "import agent_runtime\n\ndef test_a():\n    assert agent_runtime.X == 1\n",
        },
        {},
        "PASSED 1 test\n",
    ),
    "a module that pytest's own machinery has, too": (
        {"packaging.py": "X = 1\n", "test_a.py": "def test_a():\n    pass\n"},
        {},
        "PASSED 1 test\n",
    ),
    "temporary directories have a fixed name": (
        {"test_tmp.py": "def test_tmp(tmp_path):\n    assert not tmp_path.exists(), tmp_path\n"},
        {},
        "FAILED 1 of 1 test\nfirst failure: test_tmp.py::test_tmp\n"
        "test_tmp.py:2: assert not tmp_path.exists(), tmp_path\nE   AssertionError: PosixPath('/tmp/pytest/test_tmp0')\n",
    ),
}


@pytest.fixture(scope="module")
def warm_server(tmp_path_factory):
    """pytest's server, as the tool server starts it."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those installed for development take a second to load
    before = module.warm_server
    module.start_warm_server(make_workspace(tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("scratch")))
    yield module.warm_server
    module.warm_server.close()
    module.warm_server = before
    monkeypatch.undo()


def comparable(outcome):
    """A result without what is measured."""
    data = {
        key: value for key, value in outcome.data.items() if key not in ("warm", "duration_s", "collect_s", "output")
    }
    return outcome.ok, outcome.text, outcome.timed_out, data


@pytest.mark.parametrize("case", CASES)
def test_a_run_reads_as_stated_and_warm_equals_cold(workspace, warm_server, case):
    files, options, text = CASES[case]
    fill(workspace, files)
    cold = run_tests(workspace, warm=False, **options)
    assert cold.text == text
    assert not cold.data["warm"]
    for _ in range(2):  # from the keeper, and from the prepared process
        warm = run_tests(workspace, **options)
        assert warm.data["warm"] == (case != "a module that pytest's own machinery has, too")
        assert comparable(warm) == comparable(cold)
    assert not list(Path(workspace.root).rglob("__pycache__"))


def test_every_warm_run_sees_the_files_as_they_are(workspace, warm_server):
    fill(
        workspace,
        {
            "value.py": "VALUE = 1\n",
            "test_value.py": "from value import VALUE\n\ndef test_value():\n    assert VALUE == 2\n",
        },
    )
    for content, passes in [("1", False), ("2", True), ("3", False), ("2", True), ("2 if True else 1", True)]:
        fill(workspace, {"value.py": f"VALUE = {content}\n"})  # within one second, and mostly of one size
        assert run_tests(workspace).data["status"] == ("passed" if passes else "failed")
    fill(workspace, {"test_value.py": "def test_other():\n    assert False\n"})
    assert run_tests(workspace).data["failures"] == ["test_value.py::test_other"]
    fill(workspace, {"conftest.py": "import pytest\n\n@pytest.fixture(autouse=True)\ndef skip():\n    pytest.skip()\n"})
    assert run_tests(workspace).data["skipped"] == 1
    Path(workspace.root, "conftest.py").unlink()
    fill(
        workspace,
        {
            "pytest.ini": "[pytest]\npython_functions = check_*\n",
            "test_value.py": "def check(): pass\ndef check_a(): pass\n",
        },
    )
    assert run_tests(workspace).text == "PASSED 1 test\n"


def test_a_deadline_ends_a_run_and_all_that_it_started(workspace, warm_server):
    fill(
        workspace,
        {"test_sleep.py": "import subprocess\n\ndef test_sleep():\n    subprocess.run(['sleep', '31415926'])\n"},
    )
    for warm in (False, True):
        outcome = run_tests(workspace, timeout=1.5, warm=warm)
        assert outcome.timed_out
        assert outcome.text == "TIMED OUT after 1.5 s in test_sleep.py::test_sleep\n"
        assert not running("31415926")


def running(marker):
    """Process ids whose command line holds `marker`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in command.split(b"\0"):
                found.append(int(name))
    return found


def test_without_a_server_a_run_is_cold(workspace, monkeypatch):
    monkeypatch.setattr(module, "warm_server", None)
    fill(workspace, {"test_a.py": "def test_a(): pass\n"})
    outcome = run_tests(workspace)
    assert outcome.text == "PASSED 1 test\n"
    assert not outcome.data["warm"]


def test_an_interpreter_without_pytest_is_told(workspace, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {workspace.python} -S "$@"\n')
    python.chmod(0o755)
    fill(workspace, {"test_a.py": "def test_a(): pass\n"})
    outcome = run_tests(replace(workspace, python=str(python)))
    assert outcome.text.startswith("ERROR pytest could not run\nE   ModuleNotFoundError: No module named 'pytest'")


def test_another_command_tells_its_exit_code_and_the_end_of_its_output(workspace):
    assert run_tests(workspace, "echo fine").text == "PASSED exit code 0\nfine\n"
    failed = run_tests(workspace, "for i in $(seq 100); do echo line $i; test $i = 5 && echo some error; done; exit 3")
    assert failed.text.startswith("FAILED exit code 3\nsome error\n[… 61 lines before]\nline 61\n")
    assert failed.data["exit_code"] == 3
    hung = run_tests(workspace, "echo begun; sleep 100", timeout=0.5)
    assert hung.timed_out
    assert hung.text == "TIMED OUT after 0.5 s\nbegun\n"


def test_a_pytest_command_gives_a_structured_result(workspace):
    fill(workspace, {"test_a.py": "def test_a(): pass\ndef test_b(): pass\n"})
    assert run_tests(workspace, "python -m pytest -q test_a.py::test_b").text == "PASSED 1 test\n"
    assert run_tests(workspace, "pytest -q | tail -1").data["runner"] == "command"


@pytest.mark.skipif("AGENT_RUNTIME_PROGRAMS" not in os.environ, reason="names a folder of repositories to compare on")
def test_warm_equals_cold_on_a_folder_of_repositories(tmp_path, warm_server):
    programs = sorted(path for path in Path(os.environ.get("AGENT_RUNTIME_PROGRAMS", "")).iterdir() if path.is_dir())
    assert programs
    differing = []
    for program in programs:
        workspace = make_workspace(tmp_path / program.name, tmp_path / "scratch", 300)
        fill(workspace, {path.name: path.read_bytes() for path in program.iterdir() if path.is_file()})
        for options in ({}, {"stop_at_first": True}):
            cold = comparable(run_tests(workspace, warm=False, test_timeout=1, **options))
            for _ in range(3):
                began = time.monotonic()
                warm = run_tests(workspace, test_timeout=1, **options)
                if comparable(warm) != cold or not warm.data["warm"] or time.monotonic() - began > 60:
                    differing.append((program.name, options, warm.text, cold[1]))
    assert not differing
