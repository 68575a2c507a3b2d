"""What every sandbox does, whatever it is made of."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import time
from pathlib import Path

import anyio
import pytest

from agent_runtime.errors import RepositoryError, SandboxLost
from agent_runtime.sandboxes import open_sandbox

pytestmark = pytest.mark.anyio


async def shell(sandbox, command, timeout=20.0):
    return await sandbox.call("shell", {"command": command}, timeout)


async def alive(sandbox, marker):
    """How many processes whose command line holds `marker` live in the sandbox; the question itself not counted."""
    found = await shell(sandbox, f"grep -la '[{marker[0]}]{marker[1:]}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l")
    return int(found.text)


@pytest.fixture
def marker():
    """Seconds to sleep that no other process on this machine sleeps."""
    return str(secrets.randbelow(10**8) + 10**8)


def make_repository(root: Path) -> Path:
    """A small git repository with one file of each kind that a patch must carry."""
    root.mkdir()
    (root / "plain.txt").write_text("one\ntwo\nthree\n")
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    (root / "no_newline.txt").write_bytes(b"one\ntwo")
    (root / "binary.bin").write_bytes(bytes(range(256)) * 8)
    (root / "gone.txt").write_text("to be deleted\n")
    (root / "empty.txt").write_bytes(b"")
    (root / "script.sh").write_text("#!/bin/sh\necho hi\n")
    (root / "script.sh").chmod(0o755)
    (root / "folder" / "deep").mkdir(parents=True)
    (root / "folder" / "deep" / 'tab\tand "quote" é.txt').write_text("name\n")
    (root / "folder" / os.fsdecode(b"not-utf8-\xff.txt")).write_text("name\n")
    (root / "link").symlink_to("plain.txt")
    (root / "out").symlink_to("/etc")
    (root / ".gitignore").write_text("*.log\nbuild/\n")
    (root / "noise.log").write_text("ignored\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    return root


def git(root: Path, *arguments: str, data: bytes = b"") -> bytes:
    """The output of a git command that no setting of the user bends."""
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "-c", "init.defaultBranch=main", "-C", root, *arguments],
        input=data,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Kind, executable bit and bytes of everything below `root` but git's own."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = os.fsencode(path.relative_to(root)).decode("latin-1")
        if name.split("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[name] = ("link", 0, os.fsencode(path.readlink()))
        else:
            found[name] = ("file", path.stat().st_mode & 0o100, path.read_bytes())
    return found


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "repository")


# Calls


async def test_a_call_is_answered(sandbox):
    result = await sandbox.call("noop", {}, 5)
    assert (result.ok, result.text, result.error) == (True, "", None)


async def test_it_says_what_it_is(sandbox):
    assert sandbox.info.kind in ("docker", "local")
    assert sandbox.info.isolates is (sandbox.info.kind == "docker")
    assert sandbox.info.python.startswith("3.")


async def test_a_tool_that_does_not_exist_is_refused_with_the_names_of_those_that_do(sandbox):
    result = await sandbox.call("no_such_tool", {}, 5)
    assert result.error.kind == "unknown_tool"
    assert "noop" in result.error.message


@pytest.mark.parametrize("arguments", [{}, {"command": "true", "wrong": 1}])
async def test_arguments_that_do_not_fit_are_refused(sandbox, arguments):
    result = await sandbox.call("shell", arguments, 5)
    assert result.error.kind == "invalid_arguments"


async def test_phases_tell_where_the_time_went(sandbox):
    before = time.time_ns()
    result = await shell(sandbox, "sleep 0.1")
    after = time.time_ns()
    assert [phase.name for phase in result.phases] == ["queue", "process", "cleanup"]
    process = result.phases[1]
    assert process.end_ns - process.start_ns >= 100_000_000
    assert before <= result.phases[0].start_ns
    assert result.phases[-1].end_ns <= after


async def test_calls_run_side_by_side(sandbox):
    async with anyio.create_task_group() as group:
        group.start_soon(shell, sandbox, "sleep 1.5")
        await anyio.sleep(0.2)
        with anyio.fail_after(1):
            for _ in range(20):
                assert (await sandbox.call("noop", {}, 5)).ok
        group.cancel_scope.cancel()


async def test_many_calls_at_once_each_get_their_own_answer(sandbox):
    answers = {}

    async def ask(number):
        answers[number] = (await shell(sandbox, f"echo {number}")).text

    async with anyio.create_task_group() as group:
        for number in range(24):
            group.start_soon(ask, number)
    assert answers == {number: f"{number}\n" for number in range(24)}


# Processes and time


async def test_stdin_is_empty(sandbox):
    with anyio.fail_after(5):
        assert (await shell(sandbox, "cat; echo done")).text == "done\n"


async def test_there_is_no_terminal(sandbox):
    result = await shell(sandbox, "test -t 0 || test -t 1 || test -t 2 || (: < /dev/tty) 2>/dev/null || echo none")
    assert result.text == "none\n"


async def test_a_pager_does_not_wait_for_a_key(sandbox, repository):
    await sandbox.put(repository)
    make = "git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm first"
    result = await shell(sandbox, f"{make} && git log && $PAGER plain.txt")
    assert "first" in result.text
    assert result.text.endswith("three\n")
    assert not result.timed_out


async def test_a_busy_loop_is_dead_when_its_deadline_has_passed(sandbox, marker):
    started = time.monotonic()
    result = await shell(sandbox, f"echo began; exec python3 -c 'while True: pass' {marker}", timeout=1)
    assert time.monotonic() - started < 4
    assert result.timed_out
    assert result.text.startswith("began\n")
    assert await alive(sandbox, marker) == 0


async def test_the_child_of_a_deadline_test_really_ran(sandbox, marker):
    async with anyio.create_task_group() as group:
        group.start_soon(shell, sandbox, f"sleep {marker}", 2)
        with anyio.fail_after(2):
            while await alive(sandbox, marker) == 0:
                pass
    assert await alive(sandbox, marker) == 0


async def test_a_process_that_ignores_signals_and_left_its_session_dies_too(sandbox, marker):
    inner = f"trap '' TERM HUP; sleep {marker}"
    command = f'(trap "" TERM HUP INT; setsid sh -c "{inner}" &) ; sleep {marker}'
    result = await shell(sandbox, command, timeout=1)
    assert result.timed_out
    assert await alive(sandbox, marker) == 0


async def test_a_daemon_does_not_outlive_the_call_that_started_it(sandbox, marker):
    result = await shell(sandbox, f"setsid nohup sleep {marker} >/dev/null 2>&1 & echo started")
    assert result.text == "started\n"
    assert await alive(sandbox, marker) == 0


async def test_a_background_process_that_holds_the_output_open_does_not_hold_up_the_call(sandbox, marker):
    with anyio.fail_after(5):
        result = await shell(sandbox, f"sleep {marker} & echo done")
    assert result.text == "done\n"
    assert await alive(sandbox, marker) == 0


async def test_a_cancelled_call_is_dead_when_the_cancellation_returns(sandbox, marker):
    with anyio.move_on_after(0.5) as scope:
        await shell(sandbox, f"sleep {marker}")
    assert scope.cancelled_caught
    assert await alive(sandbox, marker) == 0
    assert (await shell(sandbox, "echo next")).text == "next\n"


async def test_an_error_in_one_of_several_calls_takes_its_siblings_along(sandbox, marker):
    async def fail():
        await anyio.sleep(0.3)
        raise ValueError("one of them failed")

    with pytest.raises(ExceptionGroup):  # noqa: PT012
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(shell, sandbox, f"sleep {marker}")
            group.start_soon(fail)
    assert await alive(sandbox, marker) == 0


async def test_a_tool_that_hangs_itself_is_killed_soon_after_its_deadline(sandbox, marker):
    started = time.monotonic()
    result = await shell(sandbox, f"(setsid sleep {marker} &); kill -STOP $PPID; sleep {marker}", timeout=1)
    assert time.monotonic() - started < 6
    assert result.timed_out
    assert result.error.kind == "timed_out"
    assert await alive(sandbox, marker) == 0


async def test_a_worker_that_is_killed_while_it_is_idle_fails_no_later_call(sandbox, marker):
    workers = "for child in $(cat /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/task/*/children); do test $child = $PPID"
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(shell, sandbox, "sleep 0.2")
    await shell(sandbox, f"{workers} || kill -9 $child; done")
    for _ in range(4):
        assert (await shell(sandbox, "echo fine")).text == "fine\n"


async def test_a_call_whose_process_is_killed_from_inside_is_reported(sandbox, marker):
    result = await shell(sandbox, f"(sleep {marker} &); kill -9 $PPID; sleep {marker}")
    assert result.error.kind == "killed"
    assert await alive(sandbox, marker) == 0
    assert (await sandbox.call("noop", {}, 5)).ok


# Output


async def test_output_is_bytes_with_invalid_text_replaced(sandbox):
    result = await shell(sandbox, r"printf 'a\215b\377\0c\n'")
    assert result.text == "a\ufffdb\ufffd\0c\n"


async def test_a_hundred_megabytes_are_cut_at_the_source_and_their_size_is_told(sandbox):
    result = await shell(sandbox, "echo first; yes 0123456789012345678901234567890 | head -c 104857600; echo last", 60)
    assert result.truncated
    assert result.total_bytes == 104857600 + 11
    assert len(result.text) < 80_000
    assert result.text.startswith("first\n")
    assert result.text.endswith("last\n")
    spilled = result.data["spilled"]
    assert (await shell(sandbox, f"wc -c < {spilled}; head -c 6 {spilled}; rm {spilled}")).text == "104857611\nfirst\n"


async def test_a_command_that_prints_little_and_ends_at_once_gives_exactly_that(sandbox):
    for number in range(50):
        assert (await shell(sandbox, f"printf {number}")).text == f"{number}\n"
        assert (await shell(sandbox, "true")).text == ""


# Files


async def test_what_is_put_is_there(sandbox, repository):
    report = await sandbox.put(repository)
    assert report.files == len(contents(repository)) - 1  # noise.log is ignored
    result = await shell(
        sandbox, "cat plain.txt; ./script.sh; readlink link out; stat -c %a script.sh plain.txt; ls -A"
    )
    assert result.text.startswith("one\ntwo\nthree\nhi\nplain.txt\n/etc\n755\n644\n")
    assert "noise.log" not in result.text
    assert await sandbox.read("binary.bin") == bytes(range(256)) * 8
    assert await sandbox.diff() == b""


async def test_a_second_put_replaces_the_first(sandbox, repository, tmp_path):
    await sandbox.put(repository)
    await shell(sandbox, "mkdir -p left && echo x > left/over && chmod 000 left")
    other = tmp_path / "other"
    other.mkdir()
    (other / "only.txt").write_text("x\n")
    report = await sandbox.put(other)
    assert report.files == 1
    assert (await shell(sandbox, "ls -A")).text == "only.txt\n"


async def test_a_directory_outside_git_is_put_without_what_tools_wrote(sandbox, tmp_path):
    for name in ("a.py", ".venv/lib/b.py", "__pycache__/a.pyc", "node_modules/c/d.js", "src/e.py"):
        path = tmp_path / "plain" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "plain" / "dirlink").symlink_to("src")
    assert (await sandbox.put(tmp_path / "plain")).files == 3
    assert (await shell(sandbox, "find . ! -type d | sort")).text == "./a.py\n./dirlink\n./src/e.py\n"


async def test_what_is_no_repository_is_refused(sandbox, tmp_path):
    with pytest.raises(RepositoryError, match="does not exist"):
        await sandbox.put(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RepositoryError, match="is not a directory"):
        await sandbox.put(tmp_path / "file")


async def test_one_file_can_be_read(sandbox, repository):
    await sandbox.put(repository)
    await shell(sandbox, "printf changed > plain.txt")
    assert await sandbox.read("plain.txt") == b"changed"
    assert await sandbox.read("link") == b"changed"
    for path in ("missing.txt", "folder", "out/passwd", "../x", "/etc/passwd"):
        with pytest.raises(RepositoryError):
            await sandbox.read(path)


async def test_the_patch_turns_the_repository_into_the_workspace(sandbox, repository, tmp_path):
    await sandbox.put(repository)
    result = await shell(
        sandbox,
        r"""set -e
        printf 'one\nTWO\nthree\n' > plain.txt
        printf 'one\r\nTWO\r\nthree\r\n' > crlf.txt
        printf 'one\nTWO' > no_newline.txt
        printf '\000\001\377' >> binary.bin
        rm gone.txt
        printf x > empty.txt
        chmod 644 script.sh
        chmod 755 no_newline.txt
        ln -sf crlf.txt link
        rm out; mkdir out; echo real > out/file
        printf 'new, no newline' > 'folder/new file.txt'
        printf '\000bin' > new.bin
        ln -s ../plain.txt folder/newlink
        printf 'a\n' > "$(printf 'folder/new\nline\377')"
        """,
    )
    assert result.text == ""
    patch = await sandbox.diff()
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy, symlinks=True)
    git(copy, "apply", "--binary", "-", data=patch)
    expected = contents(repository)
    expected["plain.txt"] = ("file", 0, b"one\nTWO\nthree\n")
    expected["crlf.txt"] = ("file", 0, b"one\r\nTWO\r\nthree\r\n")
    expected["no_newline.txt"] = ("file", 0o100, b"one\nTWO")
    expected["binary.bin"] = ("file", 0, bytes(range(256)) * 8 + b"\x00\x01\xff")
    expected["empty.txt"] = ("file", 0, b"x")
    expected["script.sh"] = ("file", 0, b"#!/bin/sh\necho hi\n")
    expected["link"] = ("link", 0, b"crlf.txt")
    expected["folder/new file.txt"] = ("file", 0, b"new, no newline")
    expected["new.bin"] = ("file", 0, b"\x00bin")
    expected["folder/newlink"] = ("link", 0, b"../plain.txt")
    expected["folder/new\nline\xff"] = ("file", 0, b"a\n")
    expected["out/file"] = ("file", 0, b"real\n")
    del expected["gone.txt"], expected["out"]
    assert contents(copy) == expected


async def test_the_patch_leaves_out_what_tools_wrote_and_what_git_ignores(sandbox, repository):
    await sandbox.put(repository)
    await shell(
        sandbox,
        "mkdir -p __pycache__ .pytest_cache/v build node_modules/x folder/__pycache__; for f in __pycache__/a.pyc "
        "b.pyc .pytest_cache/v/c build/d e.log node_modules/x/f folder/__pycache__/g; do echo x > $f; done; "
        "mkdir m; echo x > m/.git; ln -s /etc .GIT; mkfifo pipe; touch plain.txt; echo new > new.txt",
    )
    patch = await sandbox.diff()
    assert [line for line in patch.splitlines() if line.startswith(b"diff")] == [b"diff --git a/new.txt b/new.txt"]


async def test_a_tracked_file_in_an_ignored_folder_is_in_the_patch(sandbox, repository):
    (repository / "build").mkdir()
    (repository / "build" / "kept.txt").write_text("x\n")
    git(repository, "add", "-f", "build/kept.txt")
    await sandbox.put(repository)
    await shell(sandbox, "echo y > build/kept.txt; echo z > build/other.txt")
    patch = await sandbox.diff()
    assert b"build/kept.txt" in patch
    assert b"build/other.txt" not in patch


async def test_a_change_that_keeps_size_and_time_is_seen(sandbox, repository):
    await sandbox.put(repository)
    result = await shell(
        sandbox,
        "touch -r plain.txt stamp && printf 'one\\nTWO\\nthree\\n' 1<> plain.txt && touch -r stamp plain.txt; rm stamp",
    )
    assert result.text == ""
    assert b"+TWO" in await sandbox.diff()
    assert await sandbox.diff(()) == b""


async def test_a_patch_of_twenty_megabytes_comes_out_whole(sandbox, repository, tmp_path):
    await sandbox.put(repository)
    await shell(sandbox, "yes 'a line of a big text file' | head -c 20971520 > big.txt")
    await shell(sandbox, "head -c 3000000 /dev/urandom > big.bin")
    with anyio.fail_after(60):
        patch = await sandbox.diff()
    assert len(patch) > 20971520
    git(repository, "apply", "-", data=patch)
    assert (repository / "big.txt").stat().st_size == 20971520
    assert (repository / "big.bin").read_bytes() == await sandbox.read("big.bin")


async def test_what_tests_write_without_end_is_left_out_of_the_patch_and_named(sandbox, repository, caplog):
    await sandbox.put(repository)
    await shell(sandbox, "head -c 70000000 /dev/zero > endless.bin; echo new > new.txt; echo changed > plain.txt")
    patch = await sandbox.diff()
    assert re.findall(rb"^diff --git a/(\S+)", patch, re.MULTILINE) == [b"new.txt", b"plain.txt"]
    assert "left out of it: endless.bin" in caplog.text


async def test_a_snapshot_brings_everything_back(sandbox, repository):
    await sandbox.put(repository)
    await shell(sandbox, "echo changed > plain.txt; echo new > new.txt; rm gone.txt; chmod 755 crlf.txt")
    first = await sandbox.diff()
    name = await sandbox.snapshot()
    await shell(sandbox, "echo again > plain.txt; rm new.txt; echo x > gone.txt; rm -r folder")
    await shell(sandbox, "rm out; ln -s plain.txt new2; mkdir new.txt")
    assert await sandbox.diff() != first
    await sandbox.restore(name)
    assert await sandbox.diff() == first
    assert (await shell(sandbox, "cat plain.txt new.txt; ls new2 2>/dev/null")).text.startswith("changed\nnew\n[exit")
    with pytest.raises(KeyError):
        await sandbox.restore("no such snapshot")


async def test_the_untouched_state_is_a_snapshot_too(sandbox, repository):
    await sandbox.put(repository)
    name = await sandbox.snapshot()
    await shell(sandbox, "rm -rf ./* ; echo x > .gitignore")
    await sandbox.restore(name)
    assert await sandbox.diff() == b""


# Life and death


@pytest.mark.parametrize("kind", ["docker", "local"])
async def test_a_lost_server_fails_every_call_with_one_error(kind, anyio_backend):
    async with open_sandbox(kind, run_id="conformance") as sandbox:
        async with anyio.create_task_group() as group:

            async def wait():
                with pytest.raises(SandboxLost):
                    await shell(sandbox, "sleep 60")

            group.start_soon(wait)
            await anyio.sleep(0.3)
            with anyio.fail_after(10), pytest.raises(SandboxLost):
                await shell(sandbox, "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 5")
        with anyio.fail_after(1), pytest.raises(SandboxLost):
            await sandbox.call("noop", {}, 5)


@pytest.mark.parametrize("kind", ["docker", "local"])
async def test_an_error_of_the_user_passes_through_unchanged(kind, anyio_backend):
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with open_sandbox(kind, run_id="conformance") as sandbox:
            await sandbox.call("noop", {}, 5)
            raise ZeroDivisionError


@pytest.mark.parametrize("kind", ["docker", "local"])
async def test_a_sandbox_that_was_not_entered_says_so(kind, anyio_backend):
    sandbox = open_sandbox(kind, run_id="conformance")
    with pytest.raises(Exception, match="async with"):
        await sandbox.call("noop", {}, 5)
