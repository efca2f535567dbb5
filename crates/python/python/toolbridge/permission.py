"""Who decides whether a tool may be used."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from . import _native


@dataclass(frozen=True)
class PermissionRequest:
    """A tool that the model wants to use, and no rule allows or forbids."""

    tool_name: str
    """The tool, such as `Bash` or `mcp__pydantic_tools__add`."""
    tool_input: dict[str, Any]
    """Its arguments."""
    tool_use_id: str | None
    """The model's id for the call."""


@dataclass(frozen=True)
class Allow:
    """The tool may be used, with other arguments if some are given."""

    tool_input: dict[str, Any] | None = None


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
    decision = can_use_tool(PermissionRequest(call.name, from_json(call.arguments), call.tool_use_id))
    if inspect.isawaitable(decision):
        decision = await decision
    if decision is True:
        decision = Allow()
    elif decision is False:
        decision = Deny(f"`{call.name}` may not be used")
    if isinstance(decision, Allow):
        return to_json({"allow": decision.tool_input})
    if isinstance(decision, Deny):
        return to_json({"deny": {"message": decision.message, "interrupt": decision.interrupt}})
    raise TypeError(
        f"`can_use_tool` must return a bool, `Allow` or `Deny`, not a `{type(decision).__name__}`"
    )
