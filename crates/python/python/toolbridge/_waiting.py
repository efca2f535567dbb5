"""Waiting for the native module without blocking the event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from anyio import CancelScope

from . import _native
from .errors import InvalidRequestError

if TYPE_CHECKING:
    from ._native import Done

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Before the interpreter is torn down: stops all running work, so that no native thread calls back later.
atexit.register(_native.shutdown)


def check_asyncio() -> None:
    """Raises if no asyncio event loop is running.

    Raises:
        InvalidRequestError: If there is none.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidRequestError(
            "this needs a running event loop of asyncio",
            hint="with trio, run it in a thread: `trio.to_thread.run_sync(asyncio.run, …)`",
        ) from None


@dataclass(frozen=True)
class EventLoop:
    """Where the native module calls functions: an event loop, and the context variables there."""

    loop: Any = field(default_factory=asyncio.get_running_loop)
    """An asyncio loop, or what has its `call_soon_threadsafe`."""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


class Stop:
    """Ends a request early: the current or next wait for it raises the error."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._waiting: set[asyncio.Future[Any]] = set()

    def now(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            for future in self._waiting:
                if not future.done():
                    future.set_exception(error)

    def add(self, future: asyncio.Future[Any]) -> None:
        if self.error is not None:
            raise self.error
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)


async def completed(
    start: Callable[[*Ts, Done[T]], _native.Task], *arguments: *Ts, stop: Stop | None = None
) -> T:
    """Starts a task and waits for it. Cancelling the wait cancels the task, and waits until it is dropped."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    ended: asyncio.Future[None] = loop.create_future()
    if stop is not None:
        stop.add(future)

    def done(value: T | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(None)
        if future.done():
            return  # cancelled before
        if error is None:
            future.set_result(cast(T, value))
        else:
            future.set_exception(error)

    task = start(*arguments, done)
    try:
        return await future
    except GeneratorExit:
        task.cancel()  # the loop is closed
        raise
    except BaseException:
        if task.cancel():
            with CancelScope(shield=True):  # anyio repeats a cancellation
                await ended
        raise
