"""Sandboxes of every kind, shared by the tests of a module; each test puts its own repository."""

from __future__ import annotations

import pytest

from agent_runtime.sandboxes import open_sandbox


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module", params=["docker", "local"])
async def sandbox(request, anyio_backend):
    async with open_sandbox(request.param, run_id="conformance") as opened:
        yield opened
