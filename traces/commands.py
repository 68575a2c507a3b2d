"""What `agent-runtime trace …` prints. Each function gives the text; all raise TraceError in one sentence."""

import json as json_module
from collections.abc import Sequence
from pathlib import Path

from agent_runtime.errors import TraceError

from .compare import compare
from .jaeger import rebuild
from .page import page
from .reading import JAEGER_FILE, read_trace
from .report import report
from .show import show

PAGE_FILE = "trace.html"
JAEGER_PAGE = "http://localhost:16686"
DOCKER_COMMAND = "docker run --rm -p 16686:16686 -p 4317:4317 -p 4318:4318 jaegertracing/jaeger:latest"


def report_command(run_dirs: Sequence[Path], json: bool = False) -> str:
    """`trace report RUN…`: where the time of these runs went."""
    found = report(run_dirs)
    return json_module.dumps(found.to_json(), indent=2) + "\n" if json else found.to_text()


def show_command(run_dir: Path, *, width: int = 110, step: int | None = None) -> str:
    """`trace show RUN`: the run, or one step, as a waterfall in `width` columns."""
    return show(read_trace(run_dir), width=width, step=step)


def compare_command(
    run_a: Path, run_b: Path, *, threshold: float = 0.1, least_ms: float = 1.0, json: bool = False
) -> tuple[str, int]:
    """`trace compare A B`: the text, and the exit code: 1 when a phase of B is slower beyond the threshold."""
    found = compare(run_a, run_b, threshold=threshold, least_ms=least_ms)
    text = json_module.dumps(found.to_json(), indent=2) + "\n" if json else found.to_text()
    return text, int(bool(found.regressions))


def open_command(run_dir: Path) -> str:
    """`trace open RUN`: how to see the run in Jaeger; starts nothing by itself."""
    trace_id = read_trace(run_dir).root.trace_id
    path = (run_dir / JAEGER_FILE).resolve()
    if not path.is_file():
        rebuild(run_dir)
    return f"""Start Jaeger, if none is running:
  {DOCKER_COMMAND}
Then open {JAEGER_PAGE}/search, choose Upload, and give it
  {path}
or, if OTEL_EXPORTER_OTLP_ENDPOINT named this Jaeger when the run was made, open
  {JAEGER_PAGE}/trace/{trace_id}
"""


def html_command(run_dir: Path, path: Path | None = None) -> str:
    """`trace html RUN`: writes the page, into the run's folder unless told where, and tells its path."""
    path = run_dir / PAGE_FILE if path is None else path
    text = page(run_dir)
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror}.") from error
    return f"{path}\n"
