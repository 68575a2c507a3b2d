"""Which files belong to a repository, and patches between two trees."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.errors import RepositoryError
from agent_runtime.sandboxes import patches
from agent_runtime.sandboxes.tree import Tree, read_tree


def tree_of(files):
    tree = Tree()
    for path, content in files.items():
        tree.add(path, "file", 0o644, content)
    return tree


def test_a_repository_beyond_the_limit_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 1000)
    with pytest.raises(RepositoryError, match=r"MiB .at big.*ignores"):
        read_tree(tmp_path, 999)
    assert read_tree(tmp_path, 1000)[0].size == 1000


def test_what_cannot_be_sent_is_named(tmp_path):
    (tmp_path / "kept").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    tree, skipped = read_tree(tmp_path, 100)
    assert list(tree.entries) == ["kept"]
    assert skipped == ("pipe",)


def test_links_are_kept_as_links_and_never_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "dangling").symlink_to("nowhere")
    tree, _ = read_tree(root, 1000)
    assert {path: entry.kind for path, entry in tree.entries.items()} == dict.fromkeys(
        ["dangling", "file", "folder"], "link"
    )
    assert tree.read("folder") == os.fsencode(outside)


def test_a_tracked_file_that_was_deleted_is_no_error(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "gone").write_text("x")
    subprocess.run(["git", "-C", tmp_path, "add", "gone"], check=True)
    (tmp_path / "gone").unlink()
    (tmp_path / "new").write_text("y")
    assert list(read_tree(tmp_path, 100)[0].entries) == ["new"]


def test_a_repository_inside_a_repository_is_left_out(tmp_path):
    for folder in (tmp_path, tmp_path / "inner"):
        subprocess.run(["git", "init", "-q", folder], check=True)
        (folder / "file").write_text("x")
    assert list(read_tree(tmp_path, 100)[0].entries) == ["file"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_repository_of_somebody_else_is_one_too(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("x")
    os.chown(tmp_path, 65534, 65534)
    os.chown(tmp_path / ".git", 65534, 65534)
    assert list(read_tree(tmp_path, 100)[0].entries) == [".gitignore"]


def test_no_program_that_a_repository_names_is_run_to_list_it(tmp_path):
    root = tmp_path / "root"
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "-C", root, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false"], check=True)
    (root / "file").write_text("x")
    assert list(read_tree(root, 100)[0].entries) == ["file"]
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_an_enclosing_repository_ignores_is_read_nevertheless(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_text("x")
    assert list(read_tree(tmp_path / "project", 100)[0].entries) == ["file"]


def test_no_setting_of_the_user_changes_a_patch(tmp_path, monkeypatch):
    (tmp_path / ".gitconfig").write_text(
        "[diff]\n\tnoprefix = true\n\tmnemonicPrefix = true\n[core]\n\tautocrlf = true\n[color]\n\tui = always\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    patch = patches.make_patch(tree_of({"a": b"x\r\n"}), tree_of({"a": b"y\r\n"}), [])
    assert patch.startswith(b"diff --git a/a b/a\n")
    assert b"-x\r\n+y\r\n" in patch


NAMES = st.binary(min_size=1, max_size=6).filter(
    lambda name: not set(name) & set(b"/\0") and name not in (b".", b"..") and name.lower() not in (b".git", b"git~1")
)
FILES = st.dictionaries(NAMES.map(os.fsdecode), st.binary(max_size=60), max_size=4)


@settings(max_examples=25, deadline=None)
@given(before=FILES, after=FILES)
def test_a_patch_carries_any_bytes_under_any_name(before, after, tmp_path_factory):
    changed = {path: content for path, content in after.items() if before.get(path) != content}
    patch = patches.make_patch(tree_of(before), tree_of(changed), [path for path in before if path not in after])
    folder = tmp_path_factory.mktemp("patch")
    for path, content in before.items():
        (folder / path).write_bytes(content)
    if patch:
        done = subprocess.run(["git", "apply", "-"], input=patch, cwd=folder, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == after
