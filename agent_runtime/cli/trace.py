"""`agent-runtime trace`: read what runs recorded."""

from __future__ import annotations

import argparse
import shutil
import sys

from agent_runtime.traces import commands


def main(options: argparse.Namespace) -> int:
    """Print what the action found; `compare` exits 1 when something got slower."""
    code = 0
    match options.action:
        case "report":
            text = commands.report_command(options.runs, options.json)
        case "show":
            width = shutil.get_terminal_size((110, 24)).columns
            text = commands.show_command(options.run, width=width, step=options.step)
        case "compare":
            text, code = commands.compare_command(
                options.before, options.after, threshold=options.threshold / 100, json=options.json
            )
        case "html":
            text = commands.html_command(options.run, options.out)
        case _:
            text = commands.open_command(options.run)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return code
