"""Small repositories, and what a model reads of a run of their tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One repository; `options` are those of `run_tests`, `text` is what it answers."""

    name: str
    files: dict[str, str]
    text: str
    options: dict[str, Any] = field(default_factory=dict)


MEAN = """\
def mean(values):
    total = sum(values)
    return total / len(values)
"""

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


CASES = [
    Case(
        "an error in the code under test",
        {
            "mean.py": MEAN,
            "test_mean.py": TEST_MEAN,
        },
        """\
FAILED 1 of 6 tests
first failure: test_mean.py::test_mean[values2-0]
test_mean.py:8: assert mean(values) == expected
E   ZeroDivisionError: division by zero
at mean.py:3
""",
    ),
    Case(
        "all tests pass",
        {
            "mean.py": """\
def mean(values):
    total = sum(values)
    return total / max(1, len(values))
""",
            "test_mean.py": TEST_MEAN,
        },
        "PASSED 3 tests, 1 skipped\n",
        {"select": ["test_mean.py::test_mean", "test_mean.py::TestMore::test_later"]},
    ),
    Case(
        "an assertion in a helper of the test file",
        {
            "src/line.py": """\
class Queue:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()
""",
            "tests/test_line.py": """\
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
""",
            "pytest.ini": """\
[pytest]
pythonpath = src
""",
        },
        """\
FAILED 2 of 3 tests
first failure: tests/test_line.py::test_order
tests/test_line.py:12: assert queue.pop() == expected
E   assert 2 == 1
""",
    ),
    Case(
        "an address in the message",
        {
            "line.py": """\
class Queue:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()
""",
            "test_line.py": """\
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
""",
        },
        """\
FAILED 1 of 3 tests, stopped there
first failure: test_line.py::test_object
test_line.py:24: assert filled(object()).pop() is None
E   assert <object object at 0x…> is None
""",
        {"first": ["test_line.py::test_object"], "stop_at_first": True},
    ),
    Case(
        "a fixture that fails",
        {
            "test_fixtures.py": """\
import pytest


@pytest.fixture
def broken():
    raise ValueError("no database")


def test_uses_it(broken):
    pass


def test_fine():
    print("printed")
""",
        },
        """\
ERROR in 1 of 2 tests
first failure: test_fixtures.py::test_uses_it
test_fixtures.py:6: raise ValueError("no database")
E   ValueError: no database
""",
    ),
    Case(
        "a syntax error in the code under test",
        {
            "mean.py": """\
def mean(values:
    total = sum(values)
    return total / len(values)
""",
            "test_mean.py": TEST_MEAN,
        },
        """\
ERROR collecting test_mean.py
mean.py:1: def mean(values:
E   SyntaxError: '(' was never closed
""",
    ),
    Case(
        "an import that fails",
        {
            "mean.py": "import nowhere_to_be_found\n",
            "test_mean.py": TEST_MEAN,
        },
        """\
ERROR collecting test_mean.py
mean.py:1: import nowhere_to_be_found
E   ModuleNotFoundError: No module named 'nowhere_to_be_found'
""",
    ),
    Case(
        "a conftest that fails",
        {
            "conftest.py": "raise RuntimeError('not today')\n",
            "test_a.py": "def test_a(): pass\n",
        },
        """\
ERROR collecting conftest.py
conftest.py:1: raise RuntimeError('not today')
E   RuntimeError: not today
""",
    ),
    Case(
        "a conftest with fixtures and hooks",
        {
            "conftest.py": """\
import pytest

@pytest.fixture
def five():
    return 5

def pytest_collection_modifyitems(items):
    items.reverse()
""",
            "test_a.py": """\
def test_a(five):
    assert five == 5

def test_b(five):
    assert five == 6
""",
        },
        """\
FAILED 1 of 2 tests, stopped there
first failure: test_a.py::test_b
test_a.py:5: assert five == 6
E   assert 5 == 6
""",
        {"stop_at_first": True},
    ),
    Case(
        "no tests",
        {
            "mean.py": MEAN,
        },
        "ERROR no tests found\n",
    ),
    Case(
        "a test id that does not exist",
        {
            "test_a.py": "def test_a(): pass\n",
        },
        """\
ERROR pytest refused its arguments or its configuration
E   not found: test_a.py::test_b
""",
        {"select": ["test_a.py::test_b"]},
    ),
    Case(
        "a configuration that pytest refuses",
        {
            "pytest.ini": """\
[pytest]
addopts = --no-such-option
""",
            "test_a.py": "def test_a(): pass\n",
        },
        """\
ERROR pytest refused its arguments or its configuration
E   unrecognized arguments: --no-such-option
""",
    ),
    Case(
        "an endless loop",
        {
            "test_loop.py": """\
def test_ok():
    pass


def test_endless():
    print('begun')
    while True:
        pass
""",
        },
        "TIMED OUT after 0.5 s in test_loop.py::test_endless\n",
        {"test_timeout": 0.5},
    ),
    Case(
        "a hang that no signal of Python's can end",
        {
            "test_re.py": """\
import re

def test_re():
    re.match(r'(a*)*(b*)*$', 'a' * 5000 + 'c')
""",
        },
        "TIMED OUT after 0.5 s in test_re.py::test_re\n",
        {"test_timeout": 0.5},
    ),
    Case(
        "an endless loop at import",
        {
            "loop.py": """\
while True:
    pass
""",
            "test_loop.py": "import loop\n",
        },
        "TIMED OUT after 1 s\n",
        {"test_timeout": 1.0},
    ),
    Case(
        "recursion without end",
        {
            "deep.py": """\
def deep(n):
    return deep(n + 1)
""",
            "test_deep.py": """\
from deep import deep

def test_deep():
    deep(0)
""",
        },
        """\
FAILED 1 of 1 test
first failure: test_deep.py::test_deep
test_deep.py:4: deep(0)
E   RecursionError: maximum recursion depth exceeded
at deep.py:2
""",
    ),
    Case(
        "sys.exit in a test",
        {
            "test_exit.py": """\
import sys

def test_exit():
    sys.exit(0)

def test_after():
    pass
""",
        },
        """\
FAILED 1 of 2 tests
first failure: test_exit.py::test_exit
test_exit.py:4: sys.exit(0)
E   SystemExit: 0
""",
    ),
    Case(
        "os._exit in a test",
        {
            "test_exit.py": """\
import os

def test_exit():
    os._exit(0)
""",
        },
        "ERROR the test process ended with exit code 0 in test_exit.py::test_exit\n",
    ),
    Case(
        "a crash in a test",
        {
            "test_crash.py": """\
import os, signal

def test_crash():
    os.kill(os.getpid(), signal.SIGKILL)
""",
        },
        "ERROR the test process was ended by SIGKILL in test_crash.py::test_crash\n",
    ),
    Case(
        "a megabyte of output",
        {
            "test_loud.py": """\
import os

def test_loud():
    for _ in range(100):
        os.write(1, b'x' * 10_000)
    assert not _
""",
        },
        """\
FAILED 1 of 1 test
first failure: test_loud.py::test_loud
test_loud.py:6: assert not _
E   assert not 99
""",
    ),
    Case(
        "a test that leaves processes behind",
        {
            "test_fork.py": """\
import os, time

def test_fork():
    if os.fork() == 0:
        os.setsid()
        time.sleep(4)
""",
        },
        "PASSED 1 test\n",
    ),
    Case(
        "a package of the same name as ours",
        {
            "agent_runtime/__init__.py": "X = 1\n",
            "test_a.py": """\
import agent_runtime

def test_a():
    assert agent_runtime.X == 1
""",
        },
        "PASSED 1 test\n",
    ),
    Case(
        "a package in the src layout that nobody has installed",
        {
            "src/shop/__init__.py": "X = 1\n",
            "tests/test_a.py": """\
import shop

def test_a():
    assert shop.X == 1
""",
        },
        "PASSED 1 test\n",
    ),
    Case(
        "a module that pytest's own machinery has, too",
        {
            "packaging.py": "X = 1\n",
            "test_a.py": """\
def test_a():
    pass
""",
        },
        "PASSED 1 test\n",
    ),
    Case(
        "temporary directories have a fixed name",
        {
            "test_tmp.py": """\
def test_tmp(tmp_path):
    assert not tmp_path.exists(), tmp_path
""",
        },
        """\
FAILED 1 of 1 test
first failure: test_tmp.py::test_tmp
test_tmp.py:2: assert not tmp_path.exists(), tmp_path
E   AssertionError: PosixPath('/tmp/pytest/test_tmp0')
""",
    ),
]
