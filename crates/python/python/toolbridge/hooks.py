"""Functions of the user that the CLI calls when something happens in it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from pydantic_core import from_json, to_json

from . import _native

HookEvent: TypeAlias = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "Notification",
    "PermissionRequest",
]
"""Something that happens in the CLI, and that a hook is called for."""


@dataclass(frozen=True)
class HookCall:
    """What a hook is told."""

    event: HookEvent | str
    """What happens."""
    input: dict[str, Any]
    """All that the CLI says of it."""

    @property
    def tool_name(self) -> str | None:
        """The tool, such as `Bash` or `mcp__pydantic_tools__add`, if it is about one."""
        return self.input.get("tool_name")

    @property
    def tool_input(self) -> dict[str, Any] | None:
        """The tool's arguments, if it is about one."""
        return self.input.get("tool_input")


@dataclass(frozen=True)
class HookOutput:
    """What a hook answers. `HookOutput(context="…")` only tells the model something besides."""

    decision: Literal["allow", "deny", "block", "stop"] | None = None
    """What is to happen, if the hook decides about that; see the methods."""
    reason: str = ""
    """Why."""
    tool_input: Mapping[str, Any] | None = None
    """The arguments that the tool is used with instead. For `PreToolUse`."""
    context: str | None = None
    """What the model is told besides."""

    @classmethod
    def allow(cls, *, tool_input: Mapping[str, Any] | None = None, context: str | None = None) -> Self:
        """Lets the tool be used without anybody being asked. For `PreToolUse`."""
        return cls("allow", tool_input=tool_input, context=context)

    @classmethod
    def deny(cls, reason: str) -> Self:
        """Keeps the tool from being used; the model reads why. For `PreToolUse`."""
        return cls("deny", reason)

    @classmethod
    def block(cls, reason: str) -> Self:
        """Has the prompt left out, or the model go on instead of ending; it reads why."""
        return cls("block", reason)

    @classmethod
    def stop(cls, reason: str) -> Self:
        """Ends the request."""
        return cls("stop", reason)


HookAnswer: TypeAlias = HookOutput | Mapping[str, Any] | None
"""What a hook returns: nothing, a `HookOutput`, or an answer as the CLI takes it."""

HookFunction: TypeAlias = Callable[[HookCall], HookAnswer | Awaitable[HookAnswer]]
"""Is called with what happens, on the event loop of the request."""


@dataclass(frozen=True)
class Hook:
    """A function that is called when something happens in the CLI.

    If it raises an exception, the tool, the prompt or the permission that it was called for is denied; so it
    is when the CLI does not wait for it any more. The logger `toolbridge` gets the traceback.

    >>> def no_secrets(call: HookCall) -> HookOutput | None:
    ...     return HookOutput.deny("not that one") if "secret" in str(call.tool_input) else None
    >>> hook = Hook("PreToolUse", no_secrets, matcher="Read|Bash")
    """

    event: HookEvent | str
    """What it is called for."""
    function: HookFunction
    """What is called."""
    matcher: str = ""
    """Which of those: for events about tools a regular expression for the tool's name; all if it is empty."""


@dataclass(frozen=True)
class Listening:
    """A hook as the native module has it."""

    event: str
    matcher: str
    call: Callable[[_native.Call], object]
    """Starts it, on the loop."""


async def heard(hook: Hook, call: _native.Call) -> bytes:
    """Calls a hook, and writes its answer as the native module reads it."""
    answer = hook.function(HookCall(call.name, from_json(call.arguments)))
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
