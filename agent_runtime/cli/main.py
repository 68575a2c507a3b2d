"""`agent-runtime`: arguments in, one handler called, one exit code out.

Exit codes: 0 solved or done, 1 unsolved, 2 bad use or configuration, 3 a sandbox or engine failed, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

EPILOG = """\
examples:
  agent-runtime run ./my-repo --task "fix the failing test"
  agent-runtime run ./my-repo --task "fix the build" --test "make check" --apply
  agent-runtime trace report RUN_DIR
  agent-runtime doctor
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent-runtime",
        description="Run coding agents against a repository, as fast as one user's machine allows.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_eval(commands)
    _add_trace(commands)
    _add_bench(commands)
    _add_schema(commands)
    doctor = commands.add_parser("doctor", help="say what is there, what is missing, and what to do")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    doctor.set_defaults(handler="agent_runtime.cli.doctor")
    return parser


def _add_agent_options(parser: argparse.ArgumentParser, *, timeout: float) -> None:
    parser.add_argument(
        "--model",
        default="small",
        metavar="PATH|NAME",
        help="'small' (ships with the package), 'uniform' (random logits, a baseline) or a checkpoint folder",
    )
    parser.add_argument(
        "--sandbox",
        choices=["docker", "local"],
        default="docker",
        help="where tools run; 'local' does not isolate: only for code that you trust",
    )
    parser.add_argument(
        "--image", metavar="IMAGE", help="a Docker image with what the tests need and python3 (default: our own)"
    )
    parser.add_argument("--max-steps", type=_positive_int, default=100, metavar="N", help="tool calls (default 100)")
    parser.add_argument(
        "--timeout",
        type=_positive_float,
        default=timeout,
        metavar="S",
        help=f"seconds at most (default {timeout:g})",
    )
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of the canvas noise")


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run",
        help="work on a repository until its tests pass",
        description="Work on a copy of REPO in a sandbox. REPO itself is not written to unless --apply is given.",
    )
    run.add_argument("repo", type=Path, metavar="REPO", help="the repository's folder")
    run.add_argument("--task", required=True, metavar="TEXT", help="what is to be done")
    run.add_argument("--test", metavar="CMD", help="the test command; pytest is found by itself")
    run.add_argument("--json", action="store_true", help="print one JSON object instead of live progress")
    run.add_argument(
        "--out", type=Path, metavar="DIR", help="the run's folder (default: a new one in the state folder)"
    )
    run.add_argument("--apply", action="store_true", help="apply the patch to REPO when the task is solved")
    _add_agent_options(run, timeout=300)
    run.set_defaults(handler="agent_runtime.cli.run")


def _add_eval(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    evaluate = commands.add_parser(
        "eval",
        help="run the agent on every repository in a folder and count what it solves",
        description="Run on every sub-folder of DIR. With --out, finished tasks are kept and not run again.",
    )
    evaluate.add_argument("folder", type=Path, metavar="DIR", help="a folder of repositories")
    evaluate.add_argument("--task", default="Fix the bug so that the tests pass.", metavar="TEXT")
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")
    evaluate.add_argument("--out", type=Path, metavar="DIR", help="where results go; give it again to resume")
    _add_agent_options(evaluate, timeout=120)
    evaluate.set_defaults(handler="agent_runtime.cli.eval")


def _add_trace(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    trace = commands.add_parser("trace", help="read the traces of runs")
    actions = trace.add_subparsers(dest="action", metavar="ACTION", required=True)
    report = actions.add_parser("report", help="where the time went: per phase n, p50, p95, p99, share")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    report.add_argument("--json", action="store_true", help="print one JSON object")
    show = actions.add_parser("show", help="the run as a waterfall in the terminal, its critical path marked")
    show.add_argument("run", type=Path, metavar="RUN_DIR")
    show.add_argument("--step", type=_positive_int, metavar="N", help="this step alone, in full")
    compare = actions.add_parser("compare", help="which phase got slower from A to B; exits 1 on a regression")
    compare.add_argument("before", type=Path, metavar="A")
    compare.add_argument("after", type=Path, metavar="B")
    compare.add_argument("--threshold", type=_positive_float, default=10, metavar="PERCENT", help="default 10")
    compare.add_argument("--json", action="store_true", help="print one JSON object")
    html = actions.add_parser("html", help="write the run as one page that needs no network")
    html.add_argument("run", type=Path, metavar="RUN_DIR")
    html.add_argument("--out", type=Path, metavar="FILE", help="where to (default: in the run's folder)")
    jaeger = actions.add_parser("open", help="how to see the run in Jaeger; starts nothing")
    jaeger.add_argument("run", type=Path, metavar="RUN_DIR")
    trace.set_defaults(handler="agent_runtime.cli.trace")


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser("bench", help="measure side by side with the alternatives")
    benches = bench.add_subparsers(dest="bench", metavar="BENCH", required=True)
    tools = benches.add_parser("tools", help="a tool call over the channel against docker exec")
    tools.add_argument("--json", action="store_true", help="print one JSON object")
    tools.add_argument("-n", type=_positive_int, default=40, help="calls of each docker exec (ours: 50 times as many)")
    bench.set_defaults(handler="agent_runtime.cli.bench")


def _add_schema(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    schema = commands.add_parser("schema", help="what a grammar makes of a JSON Schema")
    actions = schema.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="compile schemas, or say which keyword is refused and where")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    sample = actions.add_parser("sample", help="print valid values, decoded from random logits")
    sample.add_argument("file", type=Path, metavar="FILE")
    sample.add_argument("-n", type=_positive_int, default=5, help="how many (default 5)")
    sample.add_argument("--seed", type=int, default=0, metavar="N")
    schema.set_defaults(handler="agent_runtime.cli.schema")


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {2**32 - 1}")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script: parse, call the command's handler, turn errors into one sentence and a code."""
    options = _parser().parse_args(arguments)
    from agent_runtime.cli.interrupt import Interrupted
    from agent_runtime.errors import AgentRuntimeError

    try:
        code: int = importlib.import_module(options.handler).main(options)
    except AgentRuntimeError as error:
        sys.stderr.write(f"agent-runtime: {error}\n")
        return error.exit_code
    except Interrupted as error:
        sys.stderr.write(f"agent-runtime: {error}; the sandbox was removed and the run's folder is complete\n")
        return error.code
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): not an error of ours, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        # Before the run has begun to listen for signals, or in a command that does not: nothing is to be cleaned.
        return 128 + 2
    except OSError as error:
        # What no part of the program expects, say a disk that fills up: still one sentence.
        sys.stderr.write(f"agent-runtime: {error.strerror or error}: {error.filename or 'no file'}\n")
        return 3
    return code


if __name__ == "__main__":
    raise SystemExit(main())
