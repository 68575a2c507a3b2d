"""`search` finds what people wrote, in a fixed order, and leaves the rest alone."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.tools.ignore import walk
from agent_runtime.tools.search import search

from .conftest import fill


def test_matches_come_as_path_line_and_text_in_the_order_of_paths(workspace):
    fill(workspace, {"b.py": "x = 1\n\tneedle = 2\n", "a/z.py": "needle\r\n", "a.py": "no\n"})
    outcome = search(workspace, "needle")
    assert outcome.text == "a/z.py:1: needle\nb.py:2: \tneedle = 2\n"
    assert outcome.data["matches"][1] == {"path": "b.py", "line": 2, "text": "\tneedle = 2"}
    assert outcome.data["complete"]


def test_text_is_taken_literally_and_a_regular_expression_only_when_asked_for(workspace):
    fill(workspace, {"a": "f(x)\nfoo\nfx\n"})
    assert search(workspace, "f(x)").text == "a:1: f(x)\n"
    assert search(workspace, r"^f\w+$", regex=True).text == "a:2: foo\na:3: fx\n"
    assert search(workspace, "(", regex=True).error["kind"] == "usage"
    assert search(workspace, "nothing").text == "no matches\n"


def test_long_lines_are_cut_and_say_so(workspace):
    fill(workspace, {"a": "needle" + "x" * 5_000})
    assert search(workspace, "needle").text == "a:1: needle" + "x" * 194 + "… (5006 characters)\n"


def test_the_limit_is_told(workspace):
    fill(workspace, {"a": "x\n" * 9})
    outcome = search(workspace, "x", limit=3)
    assert outcome.text.endswith("a:3: x\n[the first 3 matches; narrow the search for the others]\n")
    assert not outcome.data["complete"]


def test_a_glob_names_files_at_any_depth_or_from_the_root(workspace):
    fill(workspace, {"a.py": "x\n", "src/b.py": "x\n", "src/c.ts": "x\n", "src/deep/d.ts": "x\n"})
    assert search(workspace, "x", glob="*.py").text == "a.py:1: x\nsrc/b.py:1: x\n"
    assert search(workspace, "x", glob="src/**/*.ts").text == "src/c.ts:1: x\nsrc/deep/d.ts:1: x\n"


def test_binary_files_links_and_git_are_passed_over(workspace, tmp_path):
    fill(workspace, {"a.bin": b"needle\0", ".git/config": "needle\n", "real": "needle\n"})
    (tmp_path / "outside").write_text("needle\n")
    Path(workspace.root, "link").symlink_to(tmp_path / "outside")
    Path(workspace.root, "loop").symlink_to(".")
    assert search(workspace, "needle").text == "real:1: needle\n"


def test_bytes_that_are_not_utf8_are_replaced(workspace):
    fill(workspace, {"a": b"caf\xe9 needle\n"})
    assert search(workspace, "needle").text == "a:1: caf\ufffd needle\n"


def test_ignored_files_are_passed_over_with_nested_rules_and_negation(workspace):
    fill(
        workspace,
        {
            ".gitignore": "*.log\n!keep.log\nbuild/\n/top\n",
            "a.log": "x\n",
            "keep.log": "x\n",
            "build/out": "x\n",
            "build/.gitignore": "!out\n",
            "top": "x\n",
            "sub/top": "x\n",
            "sub/.gitignore": "*.tmp\n!a.log\n",
            "sub/a.log": "x\n",
            "sub/b.tmp": "x\n",
        },
    )
    assert search(workspace, "x").text == "keep.log:1: x\nsub/a.log:1: x\nsub/top:1: x\n"


NAMES = st.sampled_from(["a", "b", "ab", "a.o", "b.txt", "foo bar", "[x]"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
RULES = st.sampled_from(
    [
        *(
            "a",
            "b/",
            "/a",
            "*.o",
            "!a.o",
            "!ab",
            "a/*",
            "a/**",
            "**/b",
            "a/**/b.txt",
            "?",
            "[ab]",
            "[!a]b",
            "a*",
            "# a",
        ),
        *("!a/", "/*", "!/a", "*", r"foo\ bar", "foo bar ", r"\[x\]", "!*.txt", "a/b", "*/b.txt"),
    ]
)


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
@settings(max_examples=60, deadline=None)
@given(st.sets(PATHS, min_size=1, max_size=10), st.lists(RULES, max_size=5), st.lists(RULES, max_size=3))
def test_the_files_are_those_that_git_lists(tmp_path_factory, paths, rules, nested):
    root = tmp_path_factory.mktemp("repository")
    for path in paths:
        target = root / path
        if not any(parent.is_file() for parent in target.parents) and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("x\n")
    (root / ".gitignore").write_text("".join(rule + "\n" for rule in rules))
    if (root / "a").is_dir():
        (root / "a" / ".gitignore").write_text("".join(rule + "\n" for rule in nested))
    environment = {"HOME": str(root), "PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=root, env=environment, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=root,
        env=environment,
        check=True,
        capture_output=True,
    )
    assert sorted(walk(str(root))) == sorted(listed.stdout.decode().split("\0")[:-1])
    shutil.rmtree(root)


def test_fifty_thousand_files_are_searched_in_bounded_time(workspace):  # F10
    for folder in range(100):
        path = Path(workspace.root, f"d{folder:03}")
        path.mkdir()
        for file in range(500):
            (path / f"f{file:03}.txt").write_text("hay\n")
    fill(workspace, {"d099/needle.txt": "needle\n", ".gitignore": "d00*/\n"})
    began = time.monotonic()
    outcome = search(workspace, "needle")
    took = time.monotonic() - began
    assert took < 10.5
    if outcome.data["complete"]:
        assert outcome.text == "d099/needle.txt:1: needle\n"
        assert outcome.data["files"] == 45_001 + 1
    hurried = search(replace(workspace, deadline=time.monotonic() + 0.5), "needle")
    assert "out of time" in hurried.text
    assert not hurried.data["complete"]
