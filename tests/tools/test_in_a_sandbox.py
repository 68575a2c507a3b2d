"""The tools through the channel, on a real container: what users reported about files and patches."""

from __future__ import annotations

import anyio
import pytest
import torch

from agent_runtime.decoding import compile_calls, default_tokenizer
from agent_runtime.decoding.narrow import narrow_parameter
from agent_runtime.decoding.scripted import ScriptedDecoder
from agent_runtime.sandboxes import open_sandbox
from agent_runtime.tool_definition import builtin_tools, tool

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module", params=["docker", "local"])
async def sandbox(request, anyio_backend):
    async with open_sandbox(request.param, run_id="tools") as opened:
        yield opened


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    (root / "crlf.txt").write_bytes(b"one\r\ntwo\r\nthree")
    (root / "tabs.py").write_bytes(b"def f(x):\n\tif x:\n\t\treturn 1\n\treturn 2\n")
    (root / "twice.txt").write_text("a\nb\na\n")
    (root / "odd.txt").write_bytes(b"\x0cfeed\nmixed\r\n\xff\n" + b"x" * 100_000 + b"\nedit\n")
    (root / "test_tabs.py").write_text("from tabs import f\n\n\ndef test_f():\n    assert f(0) == 3\n")
    return root


async def call(sandbox, name, **arguments):
    return await sandbox.call(name, arguments, 30)


async def test_patches_are_exact_and_apply(sandbox, repository, tmp_path):  # F1, F4, F5, F9
    await sandbox.put(repository)
    assert (await call(sandbox, "patch", path="crlf.txt", start=2, end=2, text="TWO")).ok
    assert (await call(sandbox, "patch", path="odd.txt", old="edit", text="edited")).ok
    assert (await call(sandbox, "shell", command="printf '\\000\\001' > artefact.bin")).ok
    assert await sandbox.read("crlf.txt") == b"one\r\nTWO\r\nthree"
    assert await sandbox.read("odd.txt") == (repository / "odd.txt").read_bytes().replace(b"edit\n", b"edited\n")
    difference = await sandbox.diff()
    assert difference.count(b"\n-") - difference.count(b"\n---") == 2
    await anyio.run_process(["git", "init", "-q"], cwd=repository)
    await anyio.run_process(["git", "apply", "-"], cwd=repository, input=difference)
    assert (repository / "crlf.txt").read_bytes() == b"one\r\nTWO\r\nthree"
    assert (repository / "artefact.bin").read_bytes() == b"\0\1"


async def test_tabs_are_shown_as_they_must_be_named(sandbox, repository):  # F2
    await sandbox.put(repository)
    shown = await call(sandbox, "inspect", path="tabs.py", start=2, end=3)
    assert shown.text == "2: \tif x:\n3: \t\treturn 1\n[lines 2-3 of 4]\n"
    assert (await call(sandbox, "patch", path="tabs.py", old="\t\treturn 1", text="\t\treturn 3")).ok
    assert (await sandbox.read("tabs.py")).count(b"\t\treturn 3\n") == 1


async def test_an_ambiguous_block_is_refused(sandbox, repository):  # F3
    await sandbox.put(repository)
    refused = await call(sandbox, "patch", path="twice.txt", old="a", text="c")
    assert refused.error.kind == "refused"
    assert "at lines 1, 3" in refused.text


async def test_links_that_lead_out_are_refused(sandbox, repository):  # F6
    (repository / "out").symlink_to("/etc")
    await sandbox.put(repository)
    calls = [("inspect", {"path": "out/passwd"}), ("patch", {"path": "out/x", "start": 1, "text": ""})]
    for tool_name, arguments in calls:
        refused = await sandbox.call(tool_name, arguments, 10)
        assert refused.error.kind == "outside_workspace"
    assert "passwd" not in (await call(sandbox, "search", pattern="root:")).text


async def test_a_repair_is_tried_and_taken_back(sandbox, repository):
    await sandbox.put(repository)
    failing = await call(sandbox, "run_tests")
    assert failing.text == (
        "FAILED 1 of 1 test\nfirst failure: test_tabs.py::test_f\ntest_tabs.py:5: assert f(0) == 3\nE   assert 2 == 3\n"
    )
    for number, status in [(4, "failed"), (3, "passed")]:
        patched = await call(sandbox, "patch", path="tabs.py", start=4, text=f"\treturn {number}")
        assert (await call(sandbox, "run_tests", stop_at_first=True)).data["status"] == status
        assert (await call(sandbox, "undo", undo=patched.data["undo"])).ok
    assert (await call(sandbox, "run_tests")).text == failing.text
    assert await sandbox.diff() == b""


@tool(where="sandbox")
def count_lines(path: str) -> int:
    """Count the lines of a file."""
    from pathlib import Path

    return len(Path(path).read_text().splitlines())


async def test_a_users_tool_runs_inside(sandbox, repository):
    await sandbox.put(repository)
    assert (await sandbox.call(*count_lines.sandbox_call({"path": "tabs.py"}), 10)).text == "4\n"
    missing = await sandbox.call(*count_lines.sandbox_call({"path": "nothing"}), 10)
    assert missing.error.kind == "raised"


async def test_any_text_gets_through_a_call_unchanged(sandbox, repository):  # C4
    await sandbox.put(repository)
    text = 'a = "\\"\\\\n\\u0041" + \'<|"|>\'  # \t\u2603 \U0001f600 {}[],:\n\n\ttail\n'
    grammar = compile_calls({"patch": builtin_tools()["patch"].parameters}, default_tokenizer())
    script = [("patch", {"path": "tabs.py", "start": 1, "end": 1, "text": text})]
    decoded = ScriptedDecoder(default_tokenizer(), script).decode(grammar, seed=0).value
    assert (await call(sandbox, decoded.name, **decoded.arguments)).ok
    assert await sandbox.read("tabs.py") == text.encode() + b"\tif x:\n\t\treturn 1\n\treturn 2\n"


async def test_a_model_that_wants_nothing_but_blanks_makes_a_call_without_any(sandbox, repository):  # C9
    await sandbox.put(repository)
    tokenizer = default_tokenizer()
    schema = narrow_parameter(builtin_tools()["inspect"].parameters, "path", ["tabs.py"])
    grammar = compile_calls({"inspect": schema}, tokenizer)
    blank = torch.tensor([not tokenizer.decode([token]).strip() for token in range(tokenizer.vocab_size)])
    wanted = torch.where(blank, 0.0, -50.0).expand(128, -1).contiguous()
    end = tokenizer.special("<tool_call|>")
    best = grammar.viterbi(wanted).tolist()
    tokens = best[: best.index(end) + 1]
    assert not any(map(str.isspace, tokenizer.decode(tokens)))
    decoded = grammar.parse(tokens)
    assert (await call(sandbox, decoded.name, **decoded.arguments)).ok
