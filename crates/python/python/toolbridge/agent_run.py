"""An agent's run while the CLI works on one of its requests.

For pydantic-ai all work of the CLI is a single request, so what it does between requests is done here: limits
are checked, usage and failures of tools are counted, and tools are told how far the run is. And a request
ends at the first call that cannot be made now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    ToolCallPart,
)
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage, RunUsage, UsageLimits

from . import _native
from ._waiting import Stop
from .failure import text_of
from .response import SYSTEM, Reader
from .results import error_result

_SYNTHETIC = "<synthetic>"
"""The model name in messages that the CLI creates itself, such as those about errors."""


class AgentRun:
    """One request of an agent's run: its usage and limits, and the calls that are left to the agent.

    The agent finds such calls in the response, together with those that the CLI has not started. It handles
    them as with any other model, so the run ends with its `DeferredToolRequests`.
    """

    def __init__(
        self, run: RunContext[Any], manager: ToolManager[Any] | None, reader: Reader, stop: Stop
    ) -> None:
        self._run = run
        self._stop = stop
        self._turns: dict[str, RequestUsage] = {}
        self._calls = 0
        self._step = 0
        """The turn of the model; those of its subagents are not counted."""
        self._parts: list[ModelResponsePart] = []
        self._response = ModelResponse(self._parts, provider_name=SYSTEM)
        """The response so far."""
        self._reader = reader
        self._failed: dict[str, int] = {}
        """The turn in which a tool last failed: all its failures in one turn count as one."""
        self.is_counted = False
        """Whether pydantic-ai counts this as a request."""
        self.is_answered = False
        """Whether there is a response; pydantic-ai counts its tokens."""
        self.manager = manager
        """The agent's manager; only its calls can be left to the agent."""
        self.ending = _native.Ending()
        tools = {} if manager is None else {name: one.tool_def for name, one in (manager.tools or {}).items()}
        self._names = tools.keys()
        outputs = getattr(run.agent, "output_type", None)
        may_any = DeferredToolRequests in (outputs if isinstance(outputs, Sequence) else [outputs])
        self.held = frozenset(name for name, tool in tools.items() if may_any or tool.defer)
        """The tools whose calls may be left to the agent; all if it takes `DeferredToolRequests`, because any
        function may then ask for that."""
        self._running = 0
        self._deferred: dict[str, ToolCallPart] = {}
        self._results: dict[str, bytes] = {}
        """Results of calls: the CLI may not have reported them yet when the request ends."""

    def on_message(self, message: dict[str, Any]) -> None:
        """Handles each message of the CLI."""
        if message.get("type") == "assistant":
            answer = message.get("message") or {}
            if answer.get("model") != _SYNTHETIC:
                is_subagents = message.get("parent_tool_use_id") is not None
                if (answer.get("id") or "") not in self._turns:
                    self._run.usage.requests += 1
                    self._step += not is_subagents
                if not is_subagents:
                    self._response.model_name = answer.get("model")
                self._turns[answer.get("id") or ""] = _usage(answer.get("usage") or {})
                self._add_parts(message)
                self._check(UsageLimits.check_tokens)
        elif message.get("type") == "user":
            self._add_parts(message)
            # Tool results, after which the model is asked again.
            self._check(UsageLimits.check_before_request)

    def _add_parts(self, line: dict[str, Any]) -> None:
        blocks = (line.get("message") or {}).get("content")
        if line.get("parent_tool_use_id") is None and isinstance(blocks, list):
            self._parts += self._reader.blocks(blocks, self._parts)

    async def call(
        self,
        part: ToolCallPart,
        manager: ToolManager[Any],
        work: Callable[[ToolManager[Any]], Coroutine[Any, Any, bytes]],
    ) -> bytes:
        """Makes a call, in the context of the model's turn. One that is left to the agent gets no answer."""
        if manager is not self.manager:
            return await self._counted(part, manager, work)
        self._running += 1
        try:
            self._results[part.tool_call_id] = await self._counted(part, manager, work)
            return self._results[part.tool_call_id]
        except (ApprovalRequired, CallDeferred):
            self._deferred[part.tool_call_id] = part
        except Exception as error:
            self._results[part.tool_call_id] = error_result(text_of(error))
            raise
        finally:
            self._running -= 1
            if self._deferred and not self._running:
                # After the parallel calls have ended.
                self.ending.now()
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never

    async def _counted(
        self,
        part: ToolCallPart,
        manager: ToolManager[Any],
        work: Callable[[ToolManager[Any]], Coroutine[Any, Any, bytes]],
    ) -> bytes:
        name, context = part.tool_name, manager.ctx
        assert context is not None
        self._calls += 1
        try:
            self._check(UsageLimits.check_before_tool_call)
            if (error := self._stop.error) is not None:
                if isinstance(error, AgentRunError):
                    return error_result(error.message)  # never read: the request is ending
                raise error
            messages = [*context.messages, self._response]
            step = context.run_step + max(self._step - 1, 0)
            result = await work(replace(manager, ctx=replace(context, messages=messages, run_step=step)))
        except (ModelRetry, ValidationError):
            self._count_failure(name, (manager.tools or {})[name].max_retries, context.retries)
            raise
        finally:
            # pydantic-ai has counted it if it succeeded.
            self._calls -= 1
        context.retries.pop(name, None)
        return result

    def _count_failure(self, tool: str, max_retries: int, retries: dict[str, int]) -> None:
        """Counts a retry that a tool asked for. After too many, the request ends."""
        if self._failed.get(tool) == len(self._turns):
            return
        self._failed[tool] = len(self._turns)
        if retries.get(tool, 0) >= max_retries:
            message = f"Tool {tool!r} exceeded max retries count of {max_retries}"
            self._stop.now(UnexpectedModelBehavior(message))
        retries[tool] = retries.get(tool, 0) + 1

    def left(self, parts: Sequence[ModelResponsePart]) -> tuple[list[ModelResponsePart], RequestUsage] | None:
        """The parts of an answer that ended at a call that the agent has to handle, and their usage."""
        if not self._deferred:
            return None
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
                left += [part, self._reader.returned(part, result)]
            else:
                opened[part.tool_call_id] = part
        left += [ToolCallPart(part.tool_name, part.args, part.tool_call_id) for part in opened.values()]
        left += [call for name, call in self._deferred.items() if name not in opened]
        usage = RequestUsage()
        for turn in self._turns.values():
            usage.incr(turn)
        return left, usage

    def settle(self) -> None:
        """Adds to the run's usage what pydantic-ai does not count, after the request has ended."""
        usage = self._run.usage
        if not self.is_answered:
            self._add_tokens(usage)
        if self._turns and (self.is_answered or self.is_counted):
            usage.requests -= 1

    def _add_tokens(self, usage: RunUsage) -> None:
        for turn in self._turns.values():
            usage.incr(turn)

    def _check(self, check: Callable[[UsageLimits, RunUsage], None]) -> None:
        if (limits := self._run.usage_limits) is None:
            return
        usage = copy(self._run.usage)
        usage.details = dict(usage.details)
        self._add_tokens(usage)
        usage.tool_calls += self._calls
        try:
            check(limits, usage)
        except UsageLimitExceeded as error:
            self._stop.now(error)


def _usage(counts: dict[str, Any]) -> RequestUsage:
    """Converts the API's token counts of one turn, where the input excludes cached tokens."""
    write, read = counts.get("cache_creation_input_tokens") or 0, counts.get("cache_read_input_tokens") or 0
    return RequestUsage(
        input_tokens=(counts.get("input_tokens") or 0) + write + read,
        output_tokens=counts.get("output_tokens") or 0,
        cache_write_tokens=write,
        cache_read_tokens=read,
    )
