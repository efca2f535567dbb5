"""User functions that the CLI calls on events."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, cast

from pydantic_core import from_json, to_json

from . import _native
from .cli_settings import HookEvent


@dataclass(frozen=True)
class HookCall:
    """The argument of a hook."""

    event: HookEvent
    """The event."""
    input: dict[str, Any]
    """The event's data from the CLI."""

    @property
    def tool_name(self) -> str | None:
        """The tool, such as `Bash` or `mcp__pydantic_tools__add`, if the event concerns one."""
        return self.input.get("tool_name")

    @property
    def tool_input(self) -> dict[str, Any] | None:
        """The tool's arguments, if the event concerns one."""
        return self.input.get("tool_input")


@dataclass(frozen=True)
class HookOutput:
    """A hook's answer. `HookOutput(context="…")` only gives the model additional context."""

    decision: Literal["allow", "deny", "block", "stop"] | None = None
    """The hook's decision, if it makes one; see the methods."""
    reason: str = ""
    """Why."""
    tool_input: Mapping[str, Any] | None = None
    """Replacement arguments for the tool. For `PreToolUse`."""
    context: str | None = None
    """Additional context for the model."""

    @classmethod
    def allow(cls, *, tool_input: Mapping[str, Any] | None = None, context: str | None = None) -> Self:
        """Allows the tool call without asking the user. For `PreToolUse`."""
        return cls("allow", tool_input=tool_input, context=context)

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Denies the tool call; the model sees the reason. For `PreToolUse`."""
        return cls("deny", reason)

    @classmethod
    def block(cls, reason: str) -> Self:
        """Drops the prompt, or makes the model continue instead of stopping; it sees the reason."""
        return cls("block", reason)

    @classmethod
    def stop(cls, reason: str) -> Self:
        """Ends the request after the current step. After `PreToolUse` the tool still runs; see `deny`."""
        return cls("stop", reason)


HookAnswer: TypeAlias = HookOutput | Mapping[str, Any] | None
"""What a hook returns: nothing, a `HookOutput`, or an answer in the CLI's format."""

HookFunction: TypeAlias = Callable[[HookCall], HookAnswer | Awaitable[HookAnswer]]
"""Called with the event, on the event loop of the request."""


@dataclass(frozen=True)
class Hook:
    """A function that is called on an event in the CLI.

    If it raises an exception, or the CLI stops waiting for it, the tool, the prompt or the permission that it
    was called for is denied. The logger `toolbridge` gets the traceback.

    >>> def no_secrets(call: HookCall) -> HookOutput | None:
    ...     return HookOutput.deny("not that one") if "secret" in str(call.tool_input) else None
    >>> hook = Hook("PreToolUse", no_secrets, matcher="Read|Bash")

    Raises:
        InvalidRequestError: If the CLI calls no hooks for the event.
    """

    event: HookEvent
    """The event it is called for."""
    function: HookFunction
    """The function to call."""
    matcher: str = ""
    """For events about tools, a regular expression for the tool's name; empty matches all."""

    def __post_init__(self) -> None:
        _native.check_hook_event(self.event)


async def call_hook(hook: Hook, call: _native.Call) -> bytes:
    """Calls a hook, and serialises its answer for the native module."""
    answer = hook.function(HookCall(cast(HookEvent, call.name), from_json(call.arguments)))
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is None:
        return b"{}"
    if isinstance(answer, HookOutput):
        decision = answer.decision and {answer.decision: answer.reason}
        return to_json({"decision": decision, "input": answer.tool_input, "context": answer.context})
    if isinstance(answer, Mapping):
        return to_json({"raw": answer})
    raise TypeError(
        f"a hook must return `None`, a `HookOutput` or a mapping, not a `{type(answer).__name__}`"
    )
