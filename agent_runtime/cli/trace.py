"""`agent-runtime trace`: read what runs recorded."""

from __future__ import annotations

import argparse
import json
import sys

from agent_runtime.traces import report


def main(options: argparse.Namespace) -> int:
    """Print the report of one or more run folders."""
    found = report(options.runs)
    sys.stdout.write((json.dumps(found.to_json()) if options.json else found.to_text()) + "\n")
    return 0
