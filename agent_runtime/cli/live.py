"""What a person sees while a run goes on, and its summary at the end."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from agent_runtime import events
from agent_runtime.agent import RunResult


class _Output(Console):
    def on_broken_pipe(self) -> None:
        # Rich would end the process here, with the sandbox still up.
        raise BrokenPipeError


class Live:
    """Prints one line an event to `stream`; colours only when it is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._console = _Output(file=stream, highlight=False, soft_wrap=True)

    def show(self, event: events.Event) -> None:
        """Print what happened."""
        match event:
            case events.RunStarted():
                self._line("run", f"{event.run_id}: {event.task}  [{event.model}, {event.sandbox}]")
            case events.Progress():
                self._line("…", event.message, "dim")
            case events.SandboxReady():
                isolation = "" if event.isolates else "  (NOT isolated)"
                self._line("ready", f"{event.files} files in {event.image}{isolation}  {event.ready_ms:.0f} ms")
            case events.CallDecoded():
                cost = f"decode {event.decode_ms:.0f} ms ({event.forward_passes} passes)"
                self._line(str(event.step), f"{_call(event.tool, event.arguments)}  {cost}", "bold")
            case events.PatchTried() if event.passed:
                edit = f"{event.path}:{event.line}: {event.text.strip()}"
                self._line("", f"edit {event.candidate} passes: {edit}  {event.tool_ms:.0f} ms", "green")
            case events.PatchTried():
                if event.candidate == 1 or event.candidate % 8 == 0:
                    edit = f"{event.path}:{event.line}: {event.text.strip()}"
                    self._line(
                        "",
                        f"edit {event.candidate}: {edit}  → {event.outcome}  {event.tool_ms:.0f} ms",
                        "dim",
                    )
            case events.ToolReturned():
                first, _, rest = event.text.strip().partition("\n")
                more = f"  (+{rest.count(chr(10)) + 1} lines)" if rest else ""
                self._line("", f"→ {first}{more}  tool {event.tool_ms:.0f} ms")
            case events.RunFinished():
                style = "bold green" if event.status == "solved" else "bold red"
                took = f"{event.steps} steps, {event.patches_tried} patches tried, {event.seconds:.1f} s"
                self._line(event.status, f"{event.reason}  ({took})", style)

    def summary(self, result: RunResult, *, applied: bool) -> None:
        """The diff, the test result, the latency table, and where everything lies."""
        if result.patch:
            self._console.print(Syntax(result.patch, "diff", background_color="default"))
        if result.tests is not None:
            passed, total = result.tests.get("passed"), result.tests.get("total")
            outcome = str(result.tests["status"]).replace("_", " ")
            self._line("tests", f"{outcome}: {passed} of {total} pass" if total else outcome)
        table = Table("phase", box=None, title="latency (ms)", title_justify="left")
        for column in ("n", "p50", "p95", "p99", "share"):
            table.add_column(column, justify="right")
        for phase, row in result.latency.items():
            numbers = (f"{row[column]:.2f}" for column in ("p50_ms", "p95_ms", "p99_ms"))
            table.add_row(phase, str(row["n"]), *numbers, f"{row['share']:.1%}")
        self._console.print(table)
        self._line("trace", f"{result.trace}  (open it on Jaeger's upload page)")
        self._line("patch", f"{result.run_dir / 'patch.diff'}{'  (applied)' if applied else ''}")

    def _line(self, label: str, message: str, style: str = "") -> None:
        self._console.print(Text(f"{label:>8}  ", "cyan").append(Text(message, style)))


def _call(tool: str, arguments: dict[str, object]) -> str:
    shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{tool}({shown if len(shown) <= 90 else shown[:87] + '…'})"
