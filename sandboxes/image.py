"""The sandbox image: found, or built once.

With an image registry in reach it is built from `Dockerfile`; without one, on Debian as root, from Debian's own
packages by debootstrap. The tag is the hash of both recipes, so a changed recipe makes a new image.

python -m agent_runtime.sandboxes.image      exit 0 when the image is there afterwards, else 3
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import docker
import requests.exceptions
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag

from agent_runtime.errors import AgentRuntimeError, ImageMissing
from agent_runtime.sandboxes import daemon

Progress = Callable[[str], None]

DOCKERFILE = Path(__file__).with_name("Dockerfile")
BASE = "python:3.12-slim"
APT = Path("/etc/apt")
DEBIAN = "bookworm"
PACKAGES = ("python3", "git", "python3-pytest", "ripgrep", "ca-certificates")
UNNEEDED = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
REGISTRY_LIMIT = 8  # seconds for a registry to answer at all; without one the daemon's own time-outs take a minute
PULL_LIMIT = 600  # seconds between two signs of life of a pull or build
OVERRIDE = "AGENT_RUNTIME_IMAGE"


def no_progress(phase: str) -> None:
    """Tell nobody."""


def image_tag() -> str:
    """The tag of the image that this version of the recipe makes."""
    recipe = DOCKERFILE.read_bytes() + " ".join((DEBIAN, *PACKAGES)).encode()
    return f"agent-runtime-sandbox:{hashlib.sha256(recipe).hexdigest()[:12]}"


async def ensure_image(progress: Progress | None = None) -> str:
    """The tag of an image that is there: the one `AGENT_RUNTIME_IMAGE` names, or the project's own, built if need be.

    `progress` is called, in the thread of the caller, with what begins: "pull …", "build …", "bootstrap …".
    Raises `ImageMissing` or `SandboxUnavailable`.
    """
    tell = progress or no_progress

    def from_thread(phase: str) -> None:
        anyio.from_thread.run_sync(tell, phase)

    return await anyio.to_thread.run_sync(ensure, from_thread)


def ensure(progress: Progress) -> str:
    """The same, blocking."""
    client = daemon.connect()
    try:
        named = os.environ.get(OVERRIDE)
        if named:
            if not is_present(client, named):
                progress(f"pull {named}")
                pull(client, named)
            return named
        tag = image_tag()
        if not is_present(client, tag):
            with one_builder():
                if not is_present(client, tag):
                    build(client, tag, progress)
        return tag
    finally:
        client.close()


def is_present(client: docker.DockerClient, tag: str) -> bool:
    """Whether the daemon has an image of that name."""
    with daemon.daemon_errors():
        try:
            client.images.get(tag)
        except ImageNotFound:
            return False
    return True


def pull(client: docker.DockerClient, name: str) -> None:
    """Pull an image. Raises `ImageMissing`."""
    repository, tag = parse_repository_tag(name)
    try:
        for line in client.api.pull(repository, tag=tag or "latest", stream=True, decode=True):
            if "error" in line:
                raise ImageMissing(f"image {name} is not here and cannot be pulled: {line['error']}")
    except (APIError, requests.exceptions.RequestException) as error:
        raise ImageMissing(f"image {name} is not here and cannot be pulled: {reason_of(error)}") from None


def build(client: docker.DockerClient, tag: str, progress: Progress) -> None:
    """Make the image by whichever way is open. Raises `ImageMissing`."""
    if is_present(client, BASE) or registry_answers():
        progress(f"build {tag} from {BASE}")
        build_from_dockerfile(client, tag)
    elif shutil.which("apt-get") and os.geteuid() == 0:
        progress(f"bootstrap {tag} from Debian packages")
        build_from_packages(client, tag, progress)
    else:
        raise ImageMissing(
            "no image registry answers, and an image of Debian packages is made by root alone; "
            f"load an image that has python3 and name it in {OVERRIDE}"
        )


def registry_answers() -> bool:
    """Whether the daemon reaches the registry of `BASE`, told within `REGISTRY_LIMIT` seconds."""
    try:
        quick = docker.from_env(timeout=REGISTRY_LIMIT)
    except DockerException:
        return False
    try:
        quick.images.get_registry_data(BASE)
    except (DockerException, requests.exceptions.RequestException):
        return False
    finally:
        quick.close()
    return True


def build_from_dockerfile(client: docker.DockerClient, tag: str) -> None:
    """`docker build` of the recipe beside this file."""
    context = io.BytesIO(DOCKERFILE.read_bytes())
    try:
        client.images.build(fileobj=context, tag=tag, buildargs={"BASE": BASE}, rm=True, timeout=PULL_LIMIT)
    except (BuildError, APIError, requests.exceptions.RequestException) as error:
        raise ImageMissing(f"the sandbox image cannot be built: {reason_of(error)}") from None


def build_from_packages(client: docker.DockerClient, tag: str, progress: Progress) -> None:
    """Debian's packages, from the mirror that this machine uses, imported as one layer; about a minute."""
    if not shutil.which("debootstrap"):
        progress("install debootstrap")
        run(["apt-get", "update", "-q"])
        run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "debootstrap"])
    with tempfile.TemporaryDirectory(prefix="agent-runtime-image-", ignore_cleanup_errors=True) as folder:
        root = Path(folder) / "root"
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            DEBIAN,
            str(root),
            apt_mirror(),
        ]
        run(command, apt_proxy())
        for unneeded in UNNEEDED:
            shutil.rmtree(root / unneeded, ignore_errors=True)
        progress(f"import {tag}")
        archive = Path(folder) / "root.tar"
        run(["tar", "-C", str(root), "-cf", str(archive), "."])
        repository, _, version = tag.rpartition(":")
        with daemon.daemon_errors():
            client.api.import_image_from_file(
                str(archive), repository=repository, tag=version, changes=["ENV PATH=/usr/local/bin:/usr/bin:/bin"]
            )


def apt_mirror() -> str:
    """The first Debian mirror in this machine's own apt sources."""
    sources = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))]
    for source in sources:
        for line in source.read_text(errors="replace").splitlines() if source.is_file() else []:
            words = line.split()
            if words[:1] == ["deb"]:
                words = [word for word in words[1:] if not word.startswith(("[", "arch=", "signed-by="))]
            elif words[:1] == ["URIs:"]:
                words = words[1:]
            else:
                continue
            address = next((word for word in words if "://" in word), "")
            if address.rstrip("/").endswith("/debian"):
                return address
    raise ImageMissing(f"no Debian mirror is named in {APT}; add one to sources.list")


def apt_proxy() -> dict[str, str]:
    """The proxy that apt is told to use, for programs that do not read apt's configuration."""
    command = ["apt-config", "shell", "proxy", "Acquire::http::Proxy"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True)
    for word in shlex.split(done.stdout):
        if word.startswith("proxy=http"):
            return {"http_proxy": word.removeprefix("proxy=")}
    return {}


def run(command: list[str], settings: Mapping[str, str] | None = None) -> None:
    """Run a command to its end. Raises `ImageMissing` with the last line that it printed."""
    environment = {**os.environ, **(settings or {}), "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).decode("utf-8", "replace").strip().splitlines()
        raise ImageMissing(
            f"the sandbox image cannot be built: {command[0]}: {lines[-1] if lines else done.returncode}"
        )


@contextmanager
def one_builder() -> Iterator[None]:
    """Held by one process of this user at a time."""
    path = Path(tempfile.gettempdir()) / f"agent-runtime-image-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def reason_of(error: Exception) -> str:
    """The part of an error of the docker package that says something."""
    return str(getattr(error, "explanation", None) or error)


def main() -> int:
    """See the module's docstring."""
    try:
        ensure(print_line)
    except AgentRuntimeError as error:
        print_line(str(error))
        return error.exit_code
    return 0


def print_line(line: str) -> None:
    """Tell the terminal."""
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
