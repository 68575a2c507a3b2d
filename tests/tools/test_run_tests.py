"""`run_tests`: what a model reads of a run, and that a warm run says exactly what a cold one says."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.tools import run_tests as module
from agent_runtime.tools.run_tests import run_tests

from .conftest import fill, make_workspace
from .repositories import CASES


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_reads_as_stated_and_warm_equals_cold(workspace, warm_server, case):
    fill(workspace, case.files)
    cold = run_tests(workspace, warm=False, **case.options)
    assert cold.text == case.text
    assert not cold.data["warm"]
    for _ in range(2):  # from the keeper, and from the prepared process
        warm = run_tests(workspace, **case.options)
        assert warm.data["warm"] == (case.name != "a module that pytest's own machinery has, too")
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
        outcome = run_tests(workspace, timeout=5, warm=warm)  # a busy machine starts Python in 3 s
        assert outcome.timed_out
        assert outcome.text == "TIMED OUT after 5 s in test_sleep.py::test_sleep\n"
        assert not running("31415926")


def running(marker):
    """Process ids whose command line holds `marker`."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in command.split(b"\0"):
                found.append(int(process.name))
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
