"""Whoever hears the messages of the CLI."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeAlias

from pydantic_core import from_json

from .meter import Meter

MessageCallback: TypeAlias = Callable[[dict[str, Any]], Awaitable[None] | None]
"""Is called with each message of the CLI, on the event loop of the request."""


@dataclass
class Teller:
    """Tells all who listen in one request. What a listener raises is the event loop's to report."""

    callbacks: Sequence[MessageCallback]
    meter: Meter | None = None
    _running: set[asyncio.Future[None]] = field(default_factory=set)

    def __call__(self, message: bytes) -> None:
        if self.meter is not None:
            self.meter.hear(message)
        for callback in self.callbacks:
            told = callback(from_json(message))
            if inspect.isawaitable(told):
                task = asyncio.ensure_future(told)
                self._running.add(task)
                task.add_done_callback(self._over)

    def _over(self, task: asyncio.Future[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "a message callback failed", "exception": error, "future": task}
            task.get_loop().call_exception_handler(what)

    async def end(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Waits for those who still listen; when the request was given up, they are too."""
        running = list(self._running)
        if error is not None:
            for task in running:
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
