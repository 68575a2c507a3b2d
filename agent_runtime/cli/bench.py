"""`agent-runtime bench`: ratios against the alternatives, measured side by side in one run."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from agent_runtime.bench.rows import Report
from agent_runtime.bench.tools import bench_tools


def main(options: argparse.Namespace) -> int:
    """Run one benchmark and print its rows."""
    found = bench_tools(n=options.n)
    if options.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        _show(found)
    return 0


def _show(found: Report) -> None:
    table = Table(title=f"bench {found['bench']} (milliseconds)", title_justify="left", box=None)
    for column in (
        "measure",
        "against",
        "n",
        "p50",
        "p95",
        "p99",
        "their n",
        "their p50",
        "p95",
        "p99",
        "ratio p50",
    ):
        table.add_column(column, justify="left" if column in ("measure", "against") else "right")
    for row in found["rows"]:
        cells = [row["measure"], row["against"]]
        for side in (row["ours"], row["theirs"]):
            cells += [str(side["n"]), *(f"{side[key]:.3f}" for key in ("p50_ms", "p95_ms", "p99_ms"))]
        table.add_row(*cells, f"{row['ratio_p50']:.1f}×")
    # In a pipe there is no width to keep to, and a figure that is cut off is worth nothing.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120).print(table)
