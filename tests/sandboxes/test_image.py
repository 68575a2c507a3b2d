"""The image recipe, the engine, and imports that must stay light."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent_runtime.errors import ImageMissing, SandboxUnavailable, UsageError
from agent_runtime.sandboxes import daemon, engine, image, open_sandbox

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
async def test_the_image_is_there_after_it_was_asked_for_and_is_not_built_twice(anyio_backend):
    tag = await image.ensure_image()
    heard = []
    started = time.monotonic()
    assert await image.ensure_image(heard.append) == tag
    assert time.monotonic() - started < 2
    assert heard == []


@pytest.mark.anyio
async def test_another_image_can_be_named_and_is_pulled_with_a_word_about_it(monkeypatch, anyio_backend):
    monkeypatch.setenv(image.OVERRIDE, "agent-runtime-test.invalid/none:1")
    heard = []
    with pytest.raises(ImageMissing, match="cannot be pulled"):
        await image.ensure_image(heard.append)
    assert heard == ["pull agent-runtime-test.invalid/none:1"]


def test_the_tag_changes_with_the_recipe(monkeypatch):
    before = image.image_tag()
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "jq"))
    assert image.image_tag() != before


def test_two_builders_take_turns():
    order = []

    def build(name):
        with image.one_builder():
            order.append(name)
            time.sleep(0.2)
            order.append(name)

    threads = [threading.Thread(target=build, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


def test_without_a_registry_and_without_root_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(image, "is_present", lambda client, tag: False)
    monkeypatch.setattr(image, "registry_answers", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ImageMissing, match=image.OVERRIDE):
        image.build(None, "tag", lambda phase: None)


@pytest.mark.parametrize(
    ("source", "mirror"),
    [
        ("deb http://mirror.example/debian bookworm main\n", "http://mirror.example/debian"),
        ("deb [signed-by=/x arch=amd64] https://mirror.example/debian/ bookworm main\n", "https://mirror.example/debian/"),
        ("Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n", "http://mirror.example/debian"),
        ("# deb http://a.example/debian x\ndeb http://b.example/apt x y\ndeb http://c.example/debian x y\n",
         "http://c.example/debian"),
    ],
)  # fmt: skip
def test_the_mirror_is_the_one_that_this_machine_uses(source, mirror, tmp_path, monkeypatch):
    (tmp_path / "sources.list").write_text(source)
    monkeypatch.setattr(image, "APT", tmp_path)
    assert image.apt_mirror() == mirror


def test_a_command_that_fails_is_told_by_its_last_line():
    with pytest.raises(ImageMissing, match="no such thing"):
        image.run(["sh", "-c", "echo first; echo no such thing >&2; exit 1"])


def test_the_status_of_the_engine_is_its_version_or_what_to_do(monkeypatch, tmp_path):
    status = engine.docker_status()
    assert status.answers
    assert status.version
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing.sock")
    status = engine.docker_status()
    assert not status.answers
    assert "start Docker" in status.problem


def test_starting_an_engine_that_answers_is_nothing():
    engine.start_engine(lambda phase: pytest.fail(phase))


def test_an_engine_elsewhere_is_not_started_here(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing.sock")
    with pytest.raises(SandboxUnavailable, match="start Docker"):
        engine.start_engine(lambda phase: pytest.fail(phase))


def test_the_engine_command_ends_with_3_and_one_sentence(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DOCKER_HOST": f"unix://{tmp_path}/missing.sock"}
    command = [sys.executable, "-m", "agent_runtime.sandboxes.engine"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "start Docker" in done.stderr


def test_a_full_disk_is_its_own_sentence():
    from docker.errors import APIError

    with pytest.raises(SandboxUnavailable, match="disk is full"), daemon.daemon_errors():
        raise APIError("500", explanation="write /var/lib/docker/x: no space left on device")


def test_another_kind_of_sandbox_is_a_usage_error():
    with pytest.raises(UsageError, match="docker and local"):
        open_sandbox("chroot", run_id="x")


def test_the_package_imports_neither_docker_nor_anyio():
    program = "import sys, agent_runtime.sandboxes; print({'docker', 'anyio', 'pydantic'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
