"""`agent-runtime eval`: run the agent on every repository in a folder."""

from __future__ import annotations

import argparse
import json
import sys

from agent_runtime.cli.interrupt import run_until_signal
from agent_runtime.cli.run import agent_of
from agent_runtime.evaluate import evaluate


def main(options: argparse.Namespace) -> int:
    """Print progress to standard error and the table or the JSON object to standard output; exit 0 when all ran."""
    agent = agent_of(options)
    found = run_until_signal(lambda: evaluate(agent, options.folder, options.task, out=options.out, tell=_tell))
    if options.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        sys.stdout.write(f"solved {found['solved']} of {len(found['tasks'])}; results in {found['out']}\n")
    return 0


def _tell(message: str) -> None:
    sys.stderr.write(message + "\n")
    sys.stderr.flush()
