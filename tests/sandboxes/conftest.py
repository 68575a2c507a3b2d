"""One event loop for the asynchronous tests, and Docker for those that count containers."""

from __future__ import annotations

import pytest

from agent_runtime.sandboxes import daemon


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def client():
    client = daemon.connect()
    yield client
    client.close()


@pytest.fixture
def containers_of(client):
    """A function that names the containers of a run."""

    def names(run_id):
        return [
            one["Names"][0] for one in client.api.containers(all=True, filters={"label": f"agent-runtime.run={run_id}"})
        ]

    return names
