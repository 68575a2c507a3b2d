"""`agent-runtime doctor`: what is there, what is missing, what to do."""

from __future__ import annotations

import argparse
import json
import sys

from agent_runtime.doctor import examine


def main(options: argparse.Namespace) -> int:
    """Print one line a check; exit 0 when a run would work with the defaults, else 3."""
    checks = examine()
    good = all(check.ok or not check.required for check in checks)
    if options.json:
        sys.stdout.write(json.dumps({"ok": good, "checks": [vars(check) for check in checks]}) + "\n")
    else:
        for check in checks:
            mark = "ok     " if check.ok else ("MISSING" if check.required else "absent ")
            sys.stdout.write(f"{mark}  {check.name:<12} {check.found}\n")
            if not check.ok and check.remedy:
                sys.stdout.write(f"{'':22}{check.remedy}\n")
        sys.stdout.write("ready\n" if good else "not ready: see the lines marked MISSING\n")
    return 0 if good else 3
