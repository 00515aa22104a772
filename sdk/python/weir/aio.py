"""`async def` without an event loop: a sandbox serves one call, so a coroutine is run to its end, and waits in the host.

What is awaited yields a tuple of things that the host can wait for, and is resumed with those that are ready. `asyncio`
has no part in it; its own futures and timers cannot be awaited here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from ._interface import current

T = TypeVar("T")


class Waiting:
    """Awaitable until the host says that `waitable` is ready."""

    def __init__(self, waitable: Any) -> None:
        self._waitable = waitable

    def __await__(self) -> Generator[Any, Any, None]:
        yield (self._waitable,)


def run(awaitable: Awaitable[T]) -> T:
    """Runs a coroutine to its end, and gives what it returns."""
    steps = awaitable.__await__()
    ready: Any = None
    try:
        while True:
            waitables = steps.send(ready)
            if not isinstance(waitables, tuple):
                raise RuntimeError("only what weir makes can be awaited: fetches, chunks, sleep and gather")
            ready = [waitables[index] for index in current().wait(waitables)]
    except StopIteration as end:
        result: T = end.value
        return result


async def sleep(seconds: float) -> None:
    """Waits so long."""
    await Waiting(current().timer(seconds))


class gather(Awaitable[list[Any]]):
    """Awaits all at once, and gives their results in the order in which they were given. The first exception ends it and
    those that still run."""

    def __init__(self, *awaitables: Awaitable[Any]) -> None:
        self._awaitables = awaitables

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        steps = [awaitable.__await__() for awaitable in self._awaitables]
        results: list[Any] = [None] * len(steps)
        waiting: dict[int, tuple[Any, ...]] = {}

        def step(index: int, ready: list[Any] | None) -> None:
            try:
                waiting[index] = steps[index].send(ready)
            except StopIteration as end:
                results[index] = end.value

        try:
            for index in range(len(steps)):
                step(index, None)
            while waiting:
                ready = yield tuple(waitable for waitables in waiting.values() for waitable in waitables)
                for index, waitables in list(waiting.items()):
                    woken = [waitable for waitable in waitables if any(waitable is other for other in ready)]
                    if woken:
                        del waiting[index]
                        step(index, woken)
        finally:
            for one in steps:
                one.close()
        return results

