"""Usage and limits of an agent's run while the CLI works on one of its requests.

For pydantic-ai all work of the CLI is a single request, so what it does between requests is done here: limits
are checked, usage and failures of tools are counted, and tools are told how far the run is.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import ModelResponse, ModelResponsePart
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import RequestUsage, RunUsage, UsageLimits
from pydantic_core import from_json

from ._waiting import Stop
from .answer import SYSTEM, Reader

_SYNTHETIC = "<synthetic>"
"""The model name in messages that the CLI creates itself, such as those about errors."""


class Meter:
    """Counts the usage of one request, and stops it at a limit of its run."""

    def __init__(self, run: RunContext[Any], stop: Stop) -> None:
        self._run = run
        self._stop = stop
        # Older versions of pydantic-ai do not have it.
        self._limits: UsageLimits | None = getattr(run, "usage_limits", None)
        self._turns: dict[str, RequestUsage] = {}
        self._calls = 0
        self._step = 0
        """The turn of the model; those of its subagents are not counted."""
        self._parts: list[ModelResponsePart] = []
        self._response = ModelResponse(self._parts, provider_name=SYSTEM)
        """The response so far."""
        self.reader: Reader | None = None
        self._failed: dict[str, int] = {}
        """The turn in which a tool last failed: all its failures in one turn count as one."""
        self.is_counted = False
        """Whether pydantic-ai counts this as a request."""
        self.is_answered = False
        """Whether there is a response; pydantic-ai counts its tokens."""

    def on_message(self, message: bytes) -> None:
        """Handles each message of the CLI."""
        content = from_json(message)
        if content.get("type") == "assistant":
            answer = content.get("message") or {}
            if answer.get("model") != _SYNTHETIC:
                self._begin_turn(answer, content.get("parent_tool_use_id") is not None)
                self._turns[answer.get("id") or ""] = _usage(answer.get("usage") or {})
                self._add_parts(content)
                self._check(UsageLimits.check_tokens)
        elif content.get("type") == "user":
            self._add_parts(content)
            # Tool results, after which the model is asked again.
            self._check(UsageLimits.check_before_request)

    def _begin_turn(self, answer: dict[str, Any], is_subagents: bool) -> None:
        if (answer.get("id") or "") not in self._turns:
            self._run.usage.requests += 1
            self._step += not is_subagents
        if not is_subagents:
            self._response.model_name = answer.get("model")

    def _add_parts(self, line: dict[str, Any]) -> None:
        blocks = (line.get("message") or {}).get("content")
        if self.reader is not None and line.get("parent_tool_use_id") is None and isinstance(blocks, list):
            self._parts += self.reader.blocks(blocks, self._parts)

    def in_turn(self, manager: ToolManager[Any]) -> ToolManager[Any]:
        """The manager with the context of the model's current turn."""
        assert manager.ctx is not None
        messages = [*manager.ctx.messages, self._response]
        step = manager.ctx.run_step + max(self._step - 1, 0)
        return replace(manager, ctx=replace(manager.ctx, messages=messages, run_step=step))

    def begin_call(self) -> None:
        """Call this before a tool is called.

        Raises:
            UsageLimitExceeded: If the limit of calls is reached. The request ends.
        """
        self._calls += 1
        self._check(UsageLimits.check_before_tool_call)
        if self._stop.error is not None:
            self._calls -= 1
            raise self._stop.error

    def end_call(self) -> None:
        """Call this after the call; pydantic-ai has counted it if it succeeded."""
        self._calls -= 1

    def failed(self, tool: str, max_retries: int, retries: dict[str, int]) -> None:
        """Counts a retry that a tool asked for. After too many, the request ends."""
        if self._failed.get(tool) == len(self._turns):
            return
        self._failed[tool] = len(self._turns)
        if retries.get(tool, 0) >= max_retries:
            message = f"Tool {tool!r} exceeded max retries count of {max_retries}"
            self._stop.now(UnexpectedModelBehavior(message))
        retries[tool] = retries.get(tool, 0) + 1

    @property
    def usage(self) -> RequestUsage:
        """The usage of the request's turns, as far as known."""
        total = RequestUsage()
        for turn in self._turns.values():
            total.incr(turn)
        return total

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
        if self._limits is None:
            return
        usage = copy(self._run.usage)
        usage.details = dict(usage.details)
        self._add_tokens(usage)
        usage.tool_calls += self._calls
        try:
            check(self._limits, usage)
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
