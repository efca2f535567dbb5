"""User functions that a request calls: for permissions, and for messages of the CLI."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from pydantic_core import from_json, to_json

from . import _native
from .agent_run import AgentRun
from .cli_settings import PermissionMode


class PermissionRule(TypedDict):
    """A permission rule."""

    toolName: str
    """The tool, such as `Bash` or `mcp__pydantic_tools__add`."""
    ruleContent: NotRequired[str]
    """Which of its calls, in the CLI's syntax, such as `git status:*`; all of them if missing."""


class PermissionUpdate(TypedDict):
    """A change of the permissions from now on, in the CLI's format."""

    type: Literal["addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"]
    rules: NotRequired[list[PermissionRule]]
    """The rules to add, remove or replace."""
    behavior: NotRequired[Literal["allow", "deny", "ask"]]
    """The effect of the rules."""
    mode: NotRequired[PermissionMode]
    """The mode to set."""
    directories: NotRequired[list[str]]
    """The directories to add or remove."""
    destination: NotRequired[Literal["session", "userSettings", "projectSettings", "localSettings", "cliArg"]]
    """Where it is stored. By default it is not stored, and applies until the CLI exits."""


@dataclass(frozen=True)
class PermissionRequest:
    """A tool that the model wants to use, and that no rule allows or forbids."""

    tool_name: str
    """The tool, such as `Bash` or `mcp__pydantic_tools__add`."""
    tool_input: dict[str, Any]
    """Its arguments."""
    tool_use_id: str | None
    """The model's id for the call."""
    suggestions: Sequence[PermissionUpdate] = ()
    """Updates that would allow this and similar calls from now on; for `Allow(updates=...)`."""
    reason: str | None = None
    """Why permission is requested, in the CLI's words."""
    blocked_path: str | None = None
    """The path that the tool may not access yet, if that is the reason."""
    agent_id: str | None = None
    """The subagent that wants to use it, if it is one."""


@dataclass(frozen=True)
class Allow:
    """Allows the call, with other arguments if some are given.

    `updates` change the permissions from now on.
    """

    tool_input: dict[str, Any] | None = None
    updates: Sequence[PermissionUpdate] = ()


@dataclass(frozen=True)
class Deny:
    """Denies the call; the model sees the message."""

    message: str
    interrupt: bool = False
    """Whether to end the whole request."""


Decision: TypeAlias = bool | Allow | Deny

CanUseTool: TypeAlias = Callable[[PermissionRequest], Decision | Awaitable[Decision]]
"""Decides whether a tool may be used. It runs on the event loop of the request."""


async def decide(can_use_tool: CanUseTool, call: _native.Call) -> bytes:
    """Calls the function, and serialises its decision for the native module."""
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
"""Called with each message of the CLI, on the event loop of the request."""


StderrCallback: TypeAlias = Callable[[str], object]
"""Called with each line that the CLI writes to its stderr, on the event loop of the request."""


@dataclass
class MessageCallbacks:
    """Who gets the messages of one request. Exceptions of callbacks are reported by the event loop."""

    callbacks: Sequence[MessageCallback]
    run: AgentRun | None = None
    _running: set[asyncio.Future[None]] = field(default_factory=set)

    def __call__(self, message: bytes) -> None:
        read = from_json(message)
        if self.run is not None:
            self.run.on_message(read)
        for callback in self.callbacks:
            result = callback(read)
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(result)
                self._running.add(task)
                task.add_done_callback(self._over)

    def _over(self, task: asyncio.Future[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "a message callback failed", "exception": error, "future": task}
            task.get_loop().call_exception_handler(what)

    async def end(self, _kind: object, error: object, _traceback: object) -> None:
        """Waits for callbacks that are still running; cancels them if the request was cancelled."""
        running = list(self._running)
        if error is not None:
            for task in running:
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
