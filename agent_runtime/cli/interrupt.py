"""Signals end a run as a cancellation: the sandbox is removed and the run's folder completed, then we exit."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.abc

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The process was told to end; `code` is what a shell expects it to exit with."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.code = 128 + number


def run_until_signal(work: Callable[[], Awaitable[T]]) -> T:
    """`anyio.run(work)`, cancelled by the first SIGINT, SIGTERM or SIGHUP; `Interrupted` is raised once it is clean.

    A second signal finds Python's own handlers again and ends the process at once.
    """

    async def main() -> T:
        results: list[T] = []
        errors: list[Exception] = []
        received: list[int] = []
        async with anyio.create_task_group() as tasks:

            async def watch(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                with anyio.open_signal_receiver(*SIGNALS) as signals:
                    task_status.started()
                    async for number in signals:
                        received.append(number)
                        tasks.cancel_scope.cancel()
                        return

            await tasks.start(watch)
            try:
                results.append(await work())
            except Exception as error:
                # Kept apart, so that it leaves the task group as itself and not inside an exception group.
                errors.append(error)
            tasks.cancel_scope.cancel()
        if received:
            raise Interrupted(received[0])
        if errors:
            raise errors[0]
        return results[0]

    return anyio.run(main)
