"""Calls that cannot be made during a run: they need an approval, or run elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import (
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    ToolCallPart,
)
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition

from . import _native
from .answer import Reader
from .failure import text_of
from .results import error_result


class Deferral:
    """Ends a request at the first call that cannot be made, after the parallel calls have ended.

    The agent finds that call in the response, together with those that the CLI has not started. It handles
    them as with any other model, so the run ends with its `DeferredToolRequests`.
    """

    def __init__(self, tools: Mapping[str, ToolDefinition], agent: object) -> None:
        self.ending = _native.Ending()
        self._names = tools.keys()
        """The tools whose calls the agent can handle."""
        outputs = getattr(agent, "output_type", None)
        may_any = DeferredToolRequests in (outputs if isinstance(outputs, Sequence) else [outputs])
        self.held = frozenset(name for name, tool in tools.items() if may_any or tool.defer)
        """Those whose calls may be left to the agent; all if it takes `DeferredToolRequests`, because any
        function may then ask for that."""
        self._running = 0
        self._calls: dict[str, ToolCallPart] = {}
        self._results: dict[str, bytes] = {}
        """Results of calls: the CLI may not have reported them yet when the request ends."""

    async def call(self, part: ToolCallPart, work: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """Makes a call. One that cannot be made gets no answer and ends with the request."""
        self._running += 1
        try:
            self._results[part.tool_call_id] = await work()
            return self._results[part.tool_call_id]
        except (ApprovalRequired, CallDeferred):
            self._calls[part.tool_call_id] = part
        except Exception as error:
            self._results[part.tool_call_id] = error_result(text_of(error))
            raise
        finally:
            self._running -= 1
            if self._calls and not self._running:
                self.ending.now()
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never

    @property
    def is_empty(self) -> bool:
        """Whether all calls could be made."""
        return not self._calls

    def left(self, parts: Sequence[ModelResponsePart], reader: Reader) -> list[ModelResponsePart]:
        """The parts of an answer that ended here, with the calls that the agent has to handle."""
        returned = {part.tool_call_id for part in parts if isinstance(part, NativeToolReturnPart)}
        opened: dict[str, NativeToolCallPart] = {}
        left: list[ModelResponsePart] = []
        for part in parts:
            if (
                not isinstance(part, NativeToolCallPart)
                or part.tool_name not in self._names
                or part.tool_call_id in returned
            ):
                left.append(part)
            elif (result := self._results.get(part.tool_call_id)) is not None:
                left += [part, reader.returned(part, result)]
            else:
                opened[part.tool_call_id] = part
        calls = [ToolCallPart(part.tool_name, part.args, part.tool_call_id) for part in opened.values()]
        return [*left, *calls, *(call for name, call in self._calls.items() if name not in opened)]
