"""`patch` changes exactly what it was asked to change, and `undo` takes it back."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_runtime.tools.lines import EditRefused, occurrences, replace_block, replace_lines, split
from agent_runtime.tools.patch import patch, undo

from .conftest import fill

ENDINGS = [b"\n", b"\r\n", b"\r"]
BODIES = st.binary(max_size=6).map(lambda data: data.replace(b"\n", b"x").replace(b"\r", b"y"))
ODD_BODIES = st.one_of(BODIES, st.sampled_from([b"\x0c", b"\ttab", b"\xff\xfe", b"a" * 3000, "é€".encode(), b""]))


@st.composite
def files(draw):
    """Bytes of a file: uniform or mixed newlines, with or without one at the end."""
    endings = draw(st.sampled_from([[ending] for ending in ENDINGS] + [ENDINGS[:2], ENDINGS]))
    lines = draw(st.lists(st.tuples(ODD_BODIES, st.sampled_from(endings)), max_size=8))
    data = b"".join(body + ending for body, ending in lines)
    return data + draw(st.sampled_from([b"", b"last"]))


TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r"), max_size=12)


@given(files(), st.data(), TEXTS)
def test_lines_outside_the_edit_keep_every_byte(data, choice, text):
    lines = split(data)
    start = choice.draw(st.integers(1, len(lines) + 1))
    end = choice.draw(st.integers(start - 1, len(lines)))
    before, after = b"".join(lines[: start - 1]), b"".join(lines[end:])
    try:
        changed = replace_lines(data, start, end, text).apply(data)
    except EditRefused:
        assume(b"\r" not in data)  # only a lone carriage return may be in the way
        raise
    assert changed.startswith(before)
    assert changed.endswith(after)
    assert split(changed)[: start - 1] == lines[: start - 1] or start > len(lines)
    assert split(changed)[len(split(changed)) - len(lines[end:]) :] == lines[end:]
    if not text:
        assert changed == before + after


@given(files(), st.data(), TEXTS)
def test_an_edit_is_undone_by_its_inverse(data, choice, text):
    lines = split(data)
    start = choice.draw(st.integers(1, len(lines) + 1))
    try:
        splice = replace_lines(data, start, choice.draw(st.integers(start - 1, len(lines))), text)
    except EditRefused:
        return
    changed = splice.apply(data)
    inverse = type(splice)(splice.offset, splice.inserted, splice.removed, splice.line)
    assert inverse.apply(changed) == data


@given(files(), st.data(), TEXTS)
def test_a_block_is_replaced_only_where_it_is_unique(data, choice, text):
    begin = choice.draw(st.integers(0, len(data)))
    finish = choice.draw(st.integers(begin, len(data)))
    try:
        old = data[begin:finish].decode()
    except UnicodeDecodeError:
        return
    try:
        splice = replace_block(data, old, text)
    except EditRefused:
        assume(old and len(occurrences(data, old)) == 1 and b"\r" not in data)
        raise
    assert len(occurrences(data, old)) == 1
    assert data[splice.offset :].startswith(splice.removed)
    assert splice.offset <= begin <= finish <= splice.offset + len(splice.removed)


def patched(workspace, content, **arguments):
    """The file's bytes after a patch that must work."""
    fill(workspace, {"file.txt": content})
    outcome = patch(workspace, "file.txt", **arguments)
    assert outcome.ok, outcome.text
    return Path(workspace.root, "file.txt").read_bytes()


def test_one_line_of_a_crlf_file_changes_and_no_other(workspace):  # F1
    assert patched(workspace, b"one\r\ntwo\r\nthree\r\n", start=2, text="TWO") == b"one\r\nTWO\r\nthree\r\n"
    assert patched(workspace, b"one\r\ntwo\r\n", old="two", text="a\nb") == b"one\r\na\r\nb\r\n"


def test_tabs_stay_tabs(workspace):  # F2
    assert patched(workspace, b"if x:\n\treturn 1\n", old="\treturn 1", text="\treturn 2") == b"if x:\n\treturn 2\n"


def test_an_ambiguous_block_is_refused_with_all_its_lines(workspace):  # F3
    fill(workspace, {"file.txt": "x = 1\ny = 2\nx = 1\n"})
    outcome = patch(workspace, "file.txt", old="x = 1", text="x = 3")
    assert not outcome.ok
    assert outcome.error["kind"] == "refused"
    assert "2 times, at lines 1, 3" in outcome.text
    assert Path(workspace.root, "file.txt").read_text() == "x = 1\ny = 2\nx = 1\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start": 2, "text": "B"}, b"a\nB"),
        ({"start": 2, "text": "B\nC\n"}, b"a\nB\nC"),
        ({"start": 3, "end": 2, "text": "c"}, b"a\nb\nc"),
        ({"start": 1, "text": ""}, b"b"),
        ({"start": 1, "text": "A"}, b"A\nb"),
    ],
)
def test_a_missing_newline_at_the_end_stays_missing(workspace, arguments, expected):  # F4
    assert patched(workspace, b"a\nb", **arguments) == expected


def test_a_link_out_of_the_workspace_is_refused(workspace, tmp_path):  # F6
    (tmp_path / "secret").write_text("secret\n")
    Path(workspace.root, "link").symlink_to(tmp_path / "secret")
    Path(workspace.root, "folder").symlink_to(tmp_path)
    for path in ("link", "folder/secret", "../secret", str(tmp_path / "secret")):
        outcome = patch(workspace, path, start=1, text="changed")
        assert not outcome.ok
        assert outcome.error["kind"] == "outside_workspace"
    assert (tmp_path / "secret").read_text() == "secret\n"


def test_a_link_inside_the_workspace_is_followed_and_stays_a_link(workspace):
    fill(workspace, {"real.txt": "a\n"})
    Path(workspace.root, "link.txt").symlink_to("real.txt")
    assert patch(workspace, "link.txt", start=1, text="b").text == "replaced line 1 of real.txt\n"
    assert Path(workspace.root, "link.txt").is_symlink()
    assert Path(workspace.root, "real.txt").read_text() == "b\n"


def test_permissions_are_kept(workspace):  # F7
    fill(workspace, {"run.sh": "#!/bin/sh\necho 1\n"})
    path = Path(workspace.root, "run.sh")
    path.chmod(0o755)
    assert patch(workspace, "run.sh", start=2, text="echo 2").ok
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert [entry.name for entry in Path(workspace.root).iterdir()] == ["run.sh"]


def test_odd_bytes_outside_the_edit_are_untouched(workspace):  # F9
    odd = b"\x0cform feed\n" + b"long " * 40_000 + b"\r\n\xff\xfelatin\rmac\r"
    assert patched(workspace, odd + b"edit me\n", start=5, text="edited") == odd + b"edited\n"


def test_a_byte_order_mark_stays_first(workspace):
    assert patched(workspace, b"\xef\xbb\xbfa\nb\n", start=1, text="A") == b"\xef\xbb\xbfA\nb\n"
    assert patched(workspace, b"\xef\xbb\xbfa\nb\n", old="a", text="A") == b"\xef\xbb\xbfA\nb\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"start": 3, "text": "x"}, "replaced line 3 of f.py\n"),
        ({"start": 3, "end": 5, "text": "x"}, "replaced lines 3-5 of f.py\n"),
        ({"start": 3, "end": 2, "text": "x"}, "inserted before line 3 of f.py\n"),
        ({"start": 3, "text": ""}, "deleted line 3 of f.py\n"),
        ({"start": 3, "end": 4, "text": ""}, "deleted lines 3-4 of f.py\n"),
        ({"old": "line 2", "text": "x"}, "replaced line 2 of f.py\n"),
    ],
)
def test_the_text_says_what_was_done(workspace, arguments, text):
    fill(workspace, {"f.py": "".join(f"line {number}\n" for number in range(1, 8))})
    assert patch(workspace, "f.py", **arguments).text == text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"start": 9, "text": "x"}, "whose last line is 2"),
        ({"start": 2, "end": 0, "text": "x"}, "whose last line is 2"),
        ({"start": 0, "text": "x"}, "whose last line is 2"),
        ({"text": "x"}, "name either"),
        ({"start": 1, "old": "a", "text": "x"}, "name either"),
        ({"old": "", "text": "x"}, "empty"),
        ({"old": "  def foo():", "text": "x"}, "differs only in white space from line 1: def foo():"),
        ({"old": "def fop():", "text": "x"}, "nearest line is 1: def foo():"),
        ({"start": 1, "text": "\ud800"}, "surrogate"),
    ],
)
def test_a_refusal_says_what_would_do(workspace, arguments, part):
    fill(workspace, {"f.py": "def foo():\n    pass\n"})
    outcome = patch(workspace, "f.py", **arguments)
    assert not outcome.ok
    assert part in outcome.text
    assert Path(workspace.root, "f.py").read_text() == "def foo():\n    pass\n"


def test_files_that_have_no_lines_are_refused(workspace):
    fill(workspace, {"data.bin": b"\0\1\2", "folder/x": ""})
    assert patch(workspace, "data.bin", start=1, text="x").error["kind"] == "binary"
    assert patch(workspace, "folder", start=1, text="x").error["kind"] == "is_directory"
    assert patch(workspace, "nothing", start=1, text="x").error["kind"] == "not_found"
    assert patch(workspace, ".git/config", start=1, end=0, text="x").error["kind"] == "outside_workspace"


def test_a_new_file_is_made_and_undone(workspace):
    outcome = patch(workspace, "new/file.py", start=1, end=0, text="x = 1")
    assert outcome.text == "created new/file.py\n"
    assert Path(workspace.root, "new/file.py").read_text() == "x = 1\n"
    assert undo(workspace, outcome.data["undo"]).ok
    assert not Path(workspace.root, "new/file.py").exists()


def test_undo_restores_every_byte_and_refuses_once_the_file_has_changed(workspace):
    content = b"a\r\n\xffb\nc"
    fill(workspace, {"f": content})
    first = patch(workspace, "f", start=2, text="x\ny")
    assert undo(workspace, first.data["undo"]).ok
    assert Path(workspace.root, "f").read_bytes() == content
    second = patch(workspace, "f", start=2, text="z")
    patch(workspace, "f", start=1, text="other")
    assert undo(workspace, second.data["undo"]).error["kind"] == "changed"
    assert undo(workspace, "no token").error["kind"] == "usage"
