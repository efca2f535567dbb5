"""Threads for functions that may block.

Through the event loop and its worker threads a small call takes five times as long. (Threads kept in Rust
would save another 5 %, which is 10 µs.)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from . import _native

MAX_THREADS = 256
"""The maximum number of functions that run at the same time; more calls wait."""


class Threads:
    """A pool of threads that grows on demand.

    Unlike those of `ThreadPoolExecutor`, they do not keep the process from exiting while a function blocks,
    and end with the session. And no call is lost if a program raises an exception in a thread to stop a
    function that has just ended: calls wait in `_calls` until a thread looks there.
    """

    def __init__(self, serve: Callable[[_native.Call], None]) -> None:
        self._serve = serve
        self._calls: deque[_native.Call] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._idle: set[threading.Thread] = set()
        self._count = 0
        self._is_over = False

    def run(self, call: _native.Call) -> None:
        """Runs the call in a thread. The native module calls this from its own threads."""
        self._calls.append(call)
        self._wake.put(None)
        if len(self._calls) <= len(self._idle) or self._count >= MAX_THREADS:
            return
        try:
            threading.Thread(target=self._work, name="toolbridge-tool", daemon=True).start()
            self._count += 1
        except RuntimeError:
            if not self._count:
                self._calls.remove(call)
                raise

    def end(self) -> None:
        """Lets the threads end when they are idle."""
        self._is_over = True
        for _ in range(self._count):
            self._wake.put(None)

    def _work(self) -> None:
        thread = threading.current_thread()
        is_over = False
        while not is_over:
            with suppress(BaseException):
                if self._calls:
                    self._idle.discard(thread)
                    self._work_once()
                elif self._is_over:
                    is_over = True
                else:
                    self._idle.add(thread)
                    self._wake.get()

    def _work_once(self) -> None:
        with suppress(IndexError):  # another thread was first
            call = self._calls.popleft()
            if call.is_wanted:
                self._serve(call)
