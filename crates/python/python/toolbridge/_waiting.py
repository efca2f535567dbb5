"""Waiting for the native module without holding up the event loop."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from typing import TypeVar

from . import _native

T = TypeVar("T")

# While the interpreter is whole: whatever is still under way is given back, and no thread comes back later.
atexit.register(_native.shutdown)


async def completed(start: Callable[[_native.Done[T]], _native.Task]) -> T | None:
    """Starts a task and waits for it. Whoever cancels the wait cancels the task, there and then."""
    future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

    def done(value: T | None, error: BaseException | None, /) -> None:
        if future.done():
            return  # cancelled; the outcome was on its way
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    task = start(done)
    try:
        return await future
    finally:
        task.cancel()
