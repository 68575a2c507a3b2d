"""The HTML page of a run: whole without a network, safe whatever the run wrote, readable after a kill."""

import json
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from agent_runtime.errors import TraceError
from agent_runtime.traces import RunTrace, conventions
from agent_runtime.traces.commands import html_command
from agent_runtime.traces.page import page

HOSTILE = "</pre><script>alert(1)</script>&amp;\udcff"
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Checks that tags nest, and collects them and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def whole_run(run_dir):
    """The scripted run with everything else that a run leaves behind, all of it hostile."""
    events = [
        {"kind": "run_started", "agent": "fixer", "task": HOSTILE, "repo": "/repo", "model": "small"},
        {"kind": "call_decoded", "step": 1, "tool": "search", "arguments": {"pattern": HOSTILE}},
        {"kind": "tool_returned", "step": 1, "ok": False, "text": HOSTILE},
        {"kind": "patch_tried", "step": 2, "path": HOSTILE, "line": 3, "text": HOSTILE, "outcome": HOSTILE},
    ]
    lines = [json.dumps(event) for event in events]
    (run_dir / "events.jsonl").write_text("\n".join([*lines, '{"kind": "tool_ret']))
    result = {
        "status": "solved",
        "reason": HOSTILE,
        "tests": {"ok": True, "text": f"{HOSTILE}\n", "first": {"a": HOSTILE}},
    }
    (run_dir / "result.json").write_text(json.dumps(result))
    (run_dir / "patch.diff").write_bytes(b"--- a\n+++ b\n-old </pre>\n+new \xff\n")
    return run_dir


def test_the_page_has_every_step_and_needs_nothing_else(whole_run):
    text = page(whole_run)
    found = Page(text)
    assert [attributes["id"] for tag, attributes in found.tags if tag == "details"] == ["step-1", "step-2", "step-3"]
    assert not {"script", "iframe", "img", "object"} & {tag for tag, _ in found.tags}
    for _, attributes in found.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("href", "src") or value == "data:,"
    assert "http" not in text.replace(HOSTILE, "")
    assert "solved" in found.words
    assert "step 2: run_tests" in found.words
    assert found.words.count("alert(1)") >= 6


def test_the_canvas_is_shown_step_by_step(tmp_path):
    with RunTrace.start(tmp_path, run_id="r", agent_name="a", model="m") as trace, trace.step(1), trace.chat():
        for entropies in ([2.5, 0.0], [0.1, 0.0]):
            canvas = {"canvas": ["call:", HOSTILE], "entropies": entropies}
            trace.record("denoise", 1_700_000_000_000_000_000, 1_700_000_000_000_000_001, canvas)
    found = Page(page(tmp_path))
    tokens = [attributes for tag, attributes in found.tags if attributes.get("class") == "token"]
    assert [token["title"] for token in tokens] == ["2.500 nats", "0.000 nats", "0.100 nats", "0.000 nats"]
    assert tokens[0]["style"].endswith("1.00)")
    assert found.words.count("call:") == 2


def test_a_run_of_which_only_the_trace_is_left_has_a_page(run_dir):
    found = Page(page(run_dir))
    assert "ended" in found.words
    assert "not run" in found.words


def test_the_command_writes_into_the_folder_or_where_it_is_told(run_dir, tmp_path):
    assert html_command(run_dir) == f"{run_dir / 'trace.html'}\n"
    assert html_command(run_dir, tmp_path / "page.html") == f"{tmp_path / 'page.html'}\n"
    assert (run_dir / "trace.html").read_text() == (tmp_path / "page.html").read_text()
    with pytest.raises(TraceError, match="cannot be written"):
        html_command(run_dir, tmp_path / "missing" / "page.html")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_opens_it_without_a_complaint(whole_run, tmp_path):
    html_command(whole_run)
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
         f"--user-data-dir={tmp_path / 'profile'}", (whole_run / "trace.html").as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    for number in (1, 2, 3):
        assert f'id="step-{number}"' in done.stdout
    assert "<script" not in done.stdout


def test_every_phase_has_a_colour(run_dir):
    text = page(run_dir)
    for phase in conventions.PHASES:
        assert f"</i>{phase}" in text
