"""Talking to the Docker daemon: one client, and its errors as ours."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import docker
import requests.exceptions
from docker.errors import APIError, DockerException, ImageNotFound

from agent_runtime.errors import ImageMissing, SandboxUnavailable
from agent_runtime.sandboxes import owner

START = "start Docker: sudo systemctl start docker, or as root python -m agent_runtime.sandboxes.engine"
REQUEST_LIMIT = 30  # seconds without an answer to one request; create + start take 0.4


@contextmanager
def daemon_errors() -> Iterator[None]:
    """Raise what the docker package raises as one sentence that says what to do."""
    try:
        yield
    except ImageNotFound as error:
        raise ImageMissing(f"{error.explanation}; load it, or leave the image out for the default one") from None
    except APIError as error:
        if "no space left" in str(error).lower():
            raise SandboxUnavailable("the Docker daemon's disk is full; free space: docker system prune") from None
        raise SandboxUnavailable(f"the Docker daemon refused: {error.explanation or error}") from None
    except requests.exceptions.Timeout:
        raise SandboxUnavailable(f"the Docker daemon did not answer within {REQUEST_LIMIT} s; restart it") from None
    except (DockerException, requests.exceptions.ConnectionError) as error:
        raise SandboxUnavailable(f"no Docker daemon answers at {host()}; {START} ({error})") from None


def host() -> str:
    """The address of the daemon."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


def connect() -> docker.DockerClient:
    """A client of the daemon that the environment names (`DOCKER_HOST`).

    Raises `SandboxUnavailable` where none answers.
    """
    look_at_socket()
    with daemon_errors():
        return docker.from_env(timeout=REQUEST_LIMIT)


def look_at_socket() -> None:
    """Tell why a local socket does not serve: the docker package would say the same three things in one."""
    address = host()
    if not address.startswith("unix://"):
        return
    with socket.socket(socket.AF_UNIX) as attempt:
        try:
            attempt.connect(address.removeprefix("unix://"))
        except FileNotFoundError:
            raise SandboxUnavailable(f"no Docker daemon at {address}: the socket is missing; {START}") from None
        except PermissionError:
            raise SandboxUnavailable(
                f"no permission to use Docker at {address}; join its group: sudo usermod -aG docker $USER"
            ) from None
        except OSError as error:
            raise SandboxUnavailable(f"no Docker daemon answers at {address} ({error.strerror}); {START}") from None


def reap(client: docker.DockerClient) -> list[str]:
    """Remove the containers that dead owners left; the names of those removed."""
    removed = []
    with daemon_errors():
        found = client.api.containers(all=True, filters={"label": "agent-runtime.owner-pid"})
        for container in found:
            if owner.is_dead(container["Labels"]) and remove(client, container["Id"]):
                removed.append(container["Names"][0].lstrip("/"))
    return removed


def remove(client: docker.DockerClient, container: str) -> bool:
    """Kill and remove a container, by id or name; False where it was gone already."""
    try:
        client.api.remove_container(container, force=True, v=True)
    except APIError as error:
        # 409: somebody else is removing it at this moment.
        if error.status_code in (404, 409):
            return False
        raise
    return True
