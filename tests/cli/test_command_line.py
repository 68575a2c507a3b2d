"""The command line as a user meets it: a process, its output, its exit code."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest

from tests.repositories import make_shop

COMMAND = [sys.executable, "-m", "agent_runtime.cli.main"]


@pytest.fixture
def shop(tmp_path):
    return make_shop(tmp_path / "shop")


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}


def call(*arguments, env, timeout=110):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=env, timeout=timeout)


def containers():
    client = docker.from_env()
    try:
        return {item.name: item.labels for item in client.containers.list(all=True)}
    finally:
        client.close()


def ours(run_id):
    return [name for name, labels in containers().items() if labels.get("agent-runtime.run") == run_id]


def test_help_loads_nothing_heavy():
    code = (
        "import sys, contextlib\n"
        "from agent_runtime.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main(['run', '--help'])\n"
        "heavy = {'torch', 'transformers', 'pydantic', 'docker', 'rich', 'anyio', 'opentelemetry', 'numpy'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--apply" in done.stdout


def test_a_run_prints_one_json_object_and_leaves_the_repository_alone(shop, environment):
    before = {path.name: path.read_bytes() for path in shop.iterdir()}
    done = call("run", shop, "--task", "fix it", "--json", "--model", "uniform", "--timeout", 90, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    result = json.loads(done.stdout)
    assert {"status", "steps", "patch", "run_dir", "trace", "latency"} <= set(result)
    assert result["status"] == "solved"
    assert "shop.py" in result["patch"]
    assert (Path(result["run_dir"]) / "trace.jaeger.json").exists()
    assert {path.name: path.read_bytes() for path in shop.iterdir()} == before
    assert containers().keys().isdisjoint(ours(Path(result["run_dir"]).name))


def test_apply_writes_the_patch_and_the_tests_then_pass(shop, environment):
    options = ["--task", "fix it", "--apply", "--model", "uniform", "--sandbox", "local", "--timeout", 90]
    done = call("run", shop, *options, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "(applied)" in done.stdout
    for word in ("run_tests()", "decode", "tool", "solved", "latency", "trace.jaeger.json"):
        assert word in done.stdout
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(shop)], cwd=shop)
    assert again.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "{tmp}/nowhere", "--task", "x"], 2, "there is no repository at"),
        (["run", "{tmp}/shop/shop.py", "--task", "x"], 2, "is not a folder"),
        (["run", "{tmp}/shop"], 2, "--task"),
        (["run", "{tmp}/shop", "--task", "x", "--timeout", "-1"], 2, "not a positive number"),
        (["run", "{tmp}/shop", "--task", "x", "--max-steps", "0"], 2, "not a positive whole number"),
        (["run", "{tmp}/shop", "--task", "x", "--seed", "99999999999999999999"], 2, "not between 0 and"),
        (["run", "{tmp}/shop", "--task", "x", "--test", " "], 2, "the test command is empty"),
        (["run", "{tmp}/shop", "--task", "x", "--out", "{tmp}/shop/shop.py"], 2, "cannot be written"),
        (["run", "{tmp}/shop", "--task", "x", "--model", "{tmp}/nowhere"], 2, "no checkpoint folder"),
        (["run", "{tmp}/shop", "--task", "x", "--model", "{tmp}/shop"], 2, "config.json"),
        (
            ["run", "{tmp}/shop", "--task", "x", "--model", "uniform", "--image", "test.invalid/none:1"],
            3,
            "test.invalid",
        ),
        (["run", "{tmp}/empty", "--task", "x", "--sandbox", "local", "--model", "uniform"], 2, "--test"),
        (["eval", "{tmp}/nowhere"], 2, "is not a folder"),
        (["eval", "{tmp}/empty"], 2, "holds no repositories"),
        (["trace", "report", "{tmp}/empty"], 2, "trace"),
        (["frobnicate"], 2, "invalid choice"),
    ],
)
def test_bad_use_is_one_sentence_and_an_exit_code(shop, tmp_path, environment, arguments, code, message):
    (tmp_path / "empty").mkdir()
    done = call(*(argument.format(tmp=tmp_path) for argument in arguments), env=environment)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_corrupt_checkpoint_is_one_sentence(shop, tmp_path, environment, tiny_folders):
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_folders["small"], folder)
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    done = call("run", shop, "--task", "x", "--sandbox", "local", "--model", folder, env=environment)
    assert done.returncode == 2
    assert "model.safetensors" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["unix:///nonexistent/docker.sock", "tcp://127.0.0.1:9"])
def test_docker_that_does_not_answer_is_one_sentence_and_exit_code_3(shop, environment, host):
    done = call("run", shop, "--task", "x", "--model", "uniform", env={**environment, "DOCKER_HOST": host})
    assert done.returncode == 3, done.stderr
    assert "ocker" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_test_command_that_hangs_ends_with_the_budget(shop, environment):
    options = ["--task", "x", "--test", "sleep 1000", "--timeout", 6, "--model", "uniform", "--json"]
    done = call("run", shop, *options, env=environment)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "unsolved"
    assert result["patch"] == ""


def wait_for(condition, seconds=60):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def start_hanging_run(shop, out, environment):
    options = ["--task", "x", "--test", "sleep 1000", "--out", str(out), "--model", "uniform"]
    command = [*COMMAND, "run", str(shop), *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def started_container(out):
    """The run's id and its container, once the sandbox answers."""
    events = out / "events.jsonl"

    def ready():
        lines = events.read_text().splitlines() if events.exists() else []
        return lines if any('"sandbox_ready"' in line for line in lines) else None

    run_id = json.loads(wait_for(ready)[0])["run_id"]
    assert len(ours(run_id)) == 1
    return run_id


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_removes_the_container_and_completes_the_folder(shop, tmp_path, environment, number):
    process = start_hanging_run(shop, tmp_path / "run", environment)
    run_id = started_container(tmp_path / "run")
    process.send_signal(number)
    _, errors = process.communicate(timeout=40)
    assert process.returncode == 128 + number
    assert "interrupted by" in errors
    assert "Traceback" not in errors
    assert ours(run_id) == []
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "cancelled"


@pytest.mark.parametrize("delay", [0.0, 0.2, 0.4, 0.8])
def test_a_signal_while_the_container_starts_leaves_nothing(shop, tmp_path, environment, delay):
    process = start_hanging_run(shop, tmp_path / "run", environment)
    events = tmp_path / "run" / "events.jsonl"
    line = wait_for(lambda: events.exists() and events.read_text().partition("\n")[0])
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=40)
    assert process.returncode == 130
    assert ours(json.loads(line)["run_id"]) == []


def test_what_a_killed_run_left_is_removed_by_the_next_start(shop, tmp_path, environment):
    left = []
    for number in range(3):
        out = tmp_path / f"killed-{number}"
        process = start_hanging_run(shop, out, environment)
        run_id = started_container(out)
        process.kill()
        process.communicate()
        left += ours(run_id)
    assert len(left) >= 1
    out = tmp_path / "next"
    process = start_hanging_run(shop, out, environment)
    run_id = started_container(out)
    assert containers().keys().isdisjoint(left)
    process.terminate()
    process.communicate(timeout=40)
    assert ours(run_id) == []


def test_tests_that_kill_everything_lose_the_sandbox_and_the_run_is_saved(shop, tmp_path, environment):
    killer = "import os\nfor name in os.listdir('/proc'):\n    if name.isdigit() and int(name) != os.getpid():\n"
    killer += "        try:\n            os.kill(int(name), 9)\n        except OSError:\n            pass\n"
    (shop / "conftest.py").write_text(killer)
    out = tmp_path / "run"
    done = call("run", shop, "--task", "x", "--model", "uniform", "--json", "--out", out, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"agent-runtime: the sandbox ended: .*exit code 137.*\n", done.stderr)
    assert json.loads((out / "result.json").read_text())["status"] == "failed"
    assert (out / "trace.jaeger.json").exists()
    assert ours(json.loads((out / "events.jsonl").read_text().partition("\n")[0])["run_id"]) == []


def test_eval_counts_and_resumes(tmp_path, environment):
    for name in ("one", "two"):
        make_shop(tmp_path / "programs" / name)
    options = ["--json", "--model", "uniform", "--sandbox", "local", "--timeout", 60, "--out", tmp_path / "results"]
    first = call("eval", tmp_path / "programs", *options, env=environment)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert [task["task"] for task in found["tasks"]] == ["one", "two"]
    assert found["solved"] == sum(task["status"] == "solved" for task in found["tasks"])
    for task in found["tasks"]:
        assert {"status", "steps", "patches_tried", "seconds", "latency"} <= set(task)
    again = call("eval", tmp_path / "programs", *options, env=environment)
    assert json.loads(again.stdout) == found
    assert "2 tasks are already in" in again.stderr
    other = call("eval", tmp_path / "programs", *options, "--seed", 1, env=environment)
    assert other.returncode == 2
    assert "other settings" in other.stderr


def test_doctor_says_what_is_there(environment):
    done = call("doctor", "--json", env=environment)
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert {check["name"] for check in found["checks"]} >= {"python", "git", "model", "docker", "image"}
    broken = call("doctor", env={**environment, "DOCKER_HOST": "unix:///nonexistent.sock"})
    assert broken.returncode == 3
    assert "MISSING" in broken.stdout


def test_an_interrupt_before_the_run_begins_is_no_traceback():
    code = (
        "import sys\n"
        "from agent_runtime.cli import doctor, main\n"
        "def interrupted(options): raise KeyboardInterrupt\n"
        "doctor.main = interrupted\n"
        "sys.exit(main.main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_full_disk_is_one_sentence(shop, environment):
    code = (
        "import resource, sys\n"
        "from agent_runtime.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    options = ["--task", "x", "--model", "uniform", "--timeout", "20"]
    command = [sys.executable, "-c", code, "run", str(shop), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_no_part_expects_of_the_file_system_is_one_sentence(shop, environment):
    done = call("eval", shop.parent, "--model", "uniform", "--out", shop / "shop.py", env=environment)
    assert (done.returncode, done.stderr) == (3, f"agent-runtime: File exists: {shop / 'shop.py'}\n")


def test_a_reader_that_goes_away_ends_the_run_cleanly(shop, environment):
    command = [*COMMAND, "run", str(shop), "--task", "x", "--model", "uniform"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=90) == 128 + signal.SIGPIPE
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_schemas_are_checked_and_sampled(tmp_path, environment):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}')
    bad.write_text('{"properties": {"b": {"unevaluatedItems": false}}}')
    checked = call("schema", "check", good, bad, env=environment)
    assert checked.returncode == 2
    assert "good.json: ok" in checked.stdout
    assert "bad.json: refused, 'unevaluatedItems' at /properties/b" in checked.stdout
    sampled = call("schema", "sample", good, "-n", 3, env=environment)
    assert [json.loads(line)["n"] <= 9 for line in sampled.stdout.splitlines()] == [True] * 3
    missing = call("schema", "check", tmp_path / "nowhere.json", env=environment)
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)
