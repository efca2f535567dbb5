"""Functions of the user that a request calls: for permissions, and for messages of the CLI."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from pydantic_core import from_json, to_json

from . import _native
from .meter import Meter


class PermissionRule(TypedDict):
    """What a rule is about."""

    toolName: str
    """The tool, such as `Bash` or `mcp__pydantic_tools__add`."""
    ruleContent: NotRequired[str]
    """Which of its calls, in the CLI's words, such as `git status:*`; all of them without this."""


class PermissionUpdate(TypedDict):
    """A change of what is allowed from now on, in the CLI's words."""

    type: Literal["addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"]
    rules: NotRequired[list[PermissionRule]]
    """The rules that are added, removed, or take the place of others."""
    behavior: NotRequired[Literal["allow", "deny", "ask"]]
    """What the rules say."""
    mode: NotRequired[str]
    """The mode that is set, one of `PermissionMode`."""
    directories: NotRequired[list[str]]
    """The directories that are added or removed."""
    destination: NotRequired[Literal["session", "userSettings", "projectSettings", "localSettings", "cliArg"]]
    """Where it is kept. By default nowhere: it holds until the CLI ends."""


@dataclass(frozen=True)
class PermissionRequest:
    """A tool that the model wants to use, and no rule allows or forbids."""

    tool_name: str
    """The tool, such as `Bash` or `mcp__pydantic_tools__add`."""
    tool_input: dict[str, Any]
    """Its arguments."""
    tool_use_id: str | None
    """The model's id for the call."""
    suggestions: Sequence[PermissionUpdate] = ()
    """What would allow this and the like from now on; for `Allow(updates=...)`."""
    reason: str | None = None
    """Why it is asked, in the CLI's words."""
    blocked_path: str | None = None
    """The path that the tool may not touch yet, if it is that."""
    agent_id: str | None = None
    """The agent that wants to use it, if it is one."""


@dataclass(frozen=True)
class Allow:
    """The tool may be used, with other arguments if some are given.

    `updates` is what is allowed from now on, besides.
    """

    tool_input: dict[str, Any] | None = None
    updates: Sequence[PermissionUpdate] = ()


@dataclass(frozen=True)
class Deny:
    """The tool may not be used; the model reads why."""

    message: str
    interrupt: bool = False
    """Whether the whole request is to end."""


Decision: TypeAlias = bool | Allow | Deny

CanUseTool: TypeAlias = Callable[[PermissionRequest], Decision | Awaitable[Decision]]
"""Decides about a tool. It runs on the event loop of the request."""


async def decided(can_use_tool: CanUseTool, call: _native.Call) -> bytes:
    """Asks, and writes the decision as the native module reads it."""
    asked = from_json(call.arguments)
    suggestions = asked.pop("suggestions")
    decision = can_use_tool(
        PermissionRequest(tool_name=call.name, tool_use_id=call.tool_use_id, suggestions=suggestions, **asked)
    )
    if inspect.isawaitable(decision):
        decision = await decision
    if decision is True:
        decision = Allow()
    elif decision is False:
        decision = Deny(f"`{call.name}` may not be used")
    if isinstance(decision, Allow):
        return to_json({"allow": {"tool_input": decision.tool_input, "updates": list(decision.updates)}})
    if isinstance(decision, Deny):
        return to_json({"deny": {"message": decision.message, "interrupt": decision.interrupt}})
    raise TypeError(
        f"`can_use_tool` must return a bool, `Allow` or `Deny`, not a `{type(decision).__name__}`"
    )


MessageCallback: TypeAlias = Callable[[dict[str, Any]], Awaitable[None] | None]
"""Is called with each message of the CLI, on the event loop of the request."""


StderrCallback: TypeAlias = Callable[[str], object]
"""Is called with each line that the CLI writes to its stderr, on the event loop of the request."""


@dataclass
class Listeners:
    """The callbacks for messages in one request. What one raises is reported by the event loop."""

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

    async def end(self, _kind: object, error: object, _traceback: object) -> None:
        """Waits for callbacks that still run; cancels them when the request was given up."""
        running = list(self._running)
        if error is not None:
            for task in running:
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
