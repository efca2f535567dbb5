"""Waiting for the native module without holding up the event loop."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, cast

from . import _native

if TYPE_CHECKING:
    from ._native import Done

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# While the interpreter is whole: whatever is still under way is given back, and no thread comes back later.
atexit.register(_native.shutdown)


async def completed(start: Callable[[*Ts, Done[T]], _native.Task], *arguments: *Ts) -> T:
    """Starts a task and waits for it. Whoever cancels the wait cancels the task, there and then."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # cancelled; the outcome was on its way
        if error is None:
            future.set_result(cast(T, value))
        else:
            future.set_exception(error)

    task = start(*arguments, done)
    try:
        return await future
    finally:
        task.cancel()
