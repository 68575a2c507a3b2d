"""`agent-runtime schema`: what a grammar makes of a JSON Schema."""

from __future__ import annotations

import argparse
import json
import sys

from agent_runtime.decoding import schema_report


def main(options: argparse.Namespace) -> int:
    """`check` exits 2 when a schema is refused; `sample` prints one valid value a line."""
    if options.action == "sample":
        for value in schema_report.sample(options.file, options.n, options.seed):
            sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        return 0
    checks = [schema_report.check(path) for path in options.files]
    for found in checks:
        sys.stdout.write(f"{found}\n")
    return 0 if all(found.ok for found in checks) else 2
