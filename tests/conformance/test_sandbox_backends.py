"""The same sandboxes on the other event loop."""

from __future__ import annotations

import anyio
import pytest

from agent_runtime.sandboxes import open_sandbox


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["docker", "local"])
def test_it_works_on_either_event_loop(kind, backend, tmp_path):
    (tmp_path / "file.txt").write_text("one\n")

    async def use():
        async with open_sandbox(kind, run_id="conformance") as sandbox:
            await sandbox.put(tmp_path)
            await sandbox.call("shell", {"command": "echo x >> file.txt"}, 10)
            with anyio.move_on_after(0.2) as scope:
                await sandbox.call("shell", {"command": "sleep 60"}, 70)
            assert scope.cancelled_caught
            return await sandbox.diff()

    assert b"+x" in anyio.run(use, backend=backend)
