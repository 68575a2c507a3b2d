"""A run as one self-contained HTML page: where the time went, each step, its canvas, the patch, the tests.

Plain HTML without scripts: it opens from a file, needs no network, prints, and `<details>` make it usable by keyboard.
"""

from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from .canvas_html import canvas_html
from .conventions import CHAT, OPERATION_NAME, PHASES, STEP, STEP_NUMBER, TOOL_NAME
from .otlp_json import RecordedSpan
from .reading import RecordedTrace, read_trace
from .report import Report, report
from .report_text import ms
from .run_files import RunFiles, read_run_files
from .waterfall_html import COLOURS, Waterfall

_STYLE = Path(__file__).with_name("page.css")


def page(run_dir: Path) -> str:
    """The whole page. Raises TraceError when the folder holds no readable trace."""
    trace, files, found = read_trace(run_dir), read_run_files(run_dir), report([run_dir])
    waterfall = Waterfall(trace)
    title = f"{trace.root.name}, {run_dir.name}"
    body = [
        _head(trace, files),
        _phases(found),
        "<h2>The run</h2>",
        _legend(),
        waterfall.rows(trace.root, trace.root, depth=1),
        "<h2>Steps</h2>",
        *(_step(span, trace, files, waterfall) for span in trace.spans if span.name == STEP),
        _patch(files.patch),
        _tests(files.result.get("tests")),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f"<style>{_STYLE.read_text()}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _head(trace: RecordedTrace, files: RunFiles) -> str:
    status = str(files.result.get("status") or ("interrupted" if trace.interrupted else "ended"))
    reason = files.result.get("reason")
    facts = {
        "status": status + (f": {reason}" if reason else ""),
        "task": files.started.get("task"),
        "repository": files.started.get("repo"),
        "model": files.started.get("model") or trace.root.attributes.get("gen_ai.request.model"),
        "wall time": f"{ms(trace.root.duration_ns / 1e6)} ms",
        "trace": trace.root.trace_id,
    }
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class=left>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value
    )
    return f"<h1>{escape(trace.root.name)}</h1>\n<table class=facts>{rows}</table>"


def _phases(found: Report) -> str:
    head = "".join(
        f"<th>{name}</th>" for name in ("phase", "n", "p50 ms", "p95 ms", "p99 ms", "max ms", "total ms", "share", "")
    )
    rows = []
    for row in found.phases:
        figures = (row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms, row.total_ms)
        cells = "".join(f"<td>{ms(value)}</td>" for value in figures)
        bar = f'<div style="width:{row.share:.1%};background:{COLOURS[row.phase]}"></div>'
        rows.append(
            f"<tr><td>{row.phase}</td><td>{row.n}</td>{cells}<td>{row.share:.1%}</td><td class=bar>{bar}</td></tr>"
        )
    return f"<h2>Where the time went</h2>\n<table><tr>{head}</tr>{''.join(rows)}</table>"


def _legend() -> str:
    marks = "".join(f'<i style="background:{COLOURS[phase]}"></i>{phase}' for phase in PHASES)
    return f'<p class="legend quiet">{marks} — pale: hidden behind something else</p>'


def _step(step: RecordedSpan, trace: RecordedTrace, files: RunFiles, waterfall: Waterfall) -> str:
    number = int(step.attributes.get(STEP_NUMBER, 0))
    inside = [span for span in trace.spans if span.parent_id == step.span_id]
    tools = Counter(str(span.attributes[TOOL_NAME]) for span in inside if TOOL_NAME in span.attributes)
    what = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in tools.items()) or "no tool"
    error = f' <span class="failed">{escape(step.error)}</span>' if step.error else ""
    events = "".join(_event(event) for event in files.by_step.get(number, []))
    chats = [span for span in inside if span.attributes.get(OPERATION_NAME) == CHAT]
    canvases = "".join(canvas_html(chat, trace) for chat in chats)
    return (
        f'<details id="step-{number}"><summary>step {number}: {escape(what)}, {ms(step.duration_ns / 1e6)} ms{error}'
        f"{waterfall.strip(step)}</summary>\n<div>{waterfall.rows(step, step)}{canvases}{events}</div></details>"
    )


def _event(event: dict[str, Any]) -> str:
    kind = event.get("kind")
    if kind == "call_decoded":
        arguments = "\n".join(f"{name}: {value}" for name, value in dict(event.get("arguments") or {}).items())
        return f"<h3>call: {escape(str(event.get('tool')))}</h3><pre>{escape(arguments)}</pre>"
    if kind == "tool_returned":
        failed = "" if event.get("ok") else ' <span class="failed">failed</span>'
        return f"<h3>result{failed}</h3><pre>{escape(str(event.get('text', '')))}</pre>"
    if kind == "patch_tried":
        outcome = escape(str(event.get("outcome", "")))
        where = escape(f"{event.get('path')}:{event.get('line')}")
        return f"<h3>tried: {where}, {outcome}</h3><pre>{escape(str(event.get('text', '')))}</pre>"
    return ""


def _patch(patch: str) -> str:
    if not patch:
        return '<h2>Patch</h2>\n<p class="quiet">none</p>'
    lines = []
    for line in patch.splitlines():
        kind = "added" if line.startswith("+") else "removed" if line.startswith("-") else ""
        lines.append(f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line))
    return "<h2>Patch</h2>\n<pre>" + "\n".join(lines) + "</pre>"


def _tests(tests: Any) -> str:
    if not isinstance(tests, dict):
        return '<h2>Tests</h2>\n<p class="quiet">not run</p>'
    rows = "".join(
        f"<tr><td>{escape(str(name))}</td><td class=left>{_told(value)}</td></tr>"
        for name, value in tests.items()
        if value not in (None, "", [], {})
    )
    return f"<h2>Tests</h2>\n<table class=facts>{rows}</table>"


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return f"<pre>{escape(chr(10).join(f'{name}: {inner}' for name, inner in value.items()))}</pre>"
    text = escape(str(value))
    return f"<pre>{text}</pre>" if "\n" in text else text
