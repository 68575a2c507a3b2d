"""What `agent-runtime trace …` prints. Each function gives the text; all raise TraceError in one sentence."""

import json as json_module
from collections.abc import Sequence
from pathlib import Path

from .report import report


def report_command(run_dirs: Sequence[Path], json: bool = False) -> str:
    """`trace report RUN…`: where the time of these runs went."""
    found = report(run_dirs)
    return json_module.dumps(found.to_json(), indent=2) + "\n" if json else found.to_text()
