"""What can go wrong, as exceptions. The native module raises them by name."""

from __future__ import annotations

import json
from typing import Any


class ClaudeCodeError(Exception):
    """Anything that goes wrong in a request or a session.

    The message says what happened; `hint`, if there is one, what to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        recoverable: bool = False,
        error_type: str | None = None,
        result: str | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message: str = message
        """What happened."""
        self.hint: str | None = hint
        """What to do about it."""
        self.recoverable: bool = recoverable
        """Whether the same request may succeed when it is made again."""
        self.error_type: str | None = error_type
        """What kind of failure it is, such as `rate_limit` or `timeout`, where the CLI failed."""
        self.result: dict[str, Any] | None = None if result is None else json.loads(result)
        """The CLI's result, where it came to one: its cost and session id are in there."""
        self.text: str | None = text
        """What the model said instead of an output that fits the schema."""
        if hint:
            self.add_note(f"hint: {hint}")


class InvalidRequestError(ClaudeCodeError, ValueError):
    """A request or a setting that makes no sense."""


class CLINotFoundError(ClaudeCodeError):
    """The Claude Code CLI is not installed, or not where it was said to be."""


class CLIExecutionError(ClaudeCodeError):
    """The CLI ran, or should have, and came to no result; `error_type` says more."""


class CLIInterruptedError(ClaudeCodeError):
    """The request was interrupted."""


class CLIResponseParseError(ClaudeCodeError):
    """The CLI's output is not what it should be."""


class StructuredOutputError(ClaudeCodeError):
    """The model gave no output that fits the schema; `text` is what it said instead."""


class ToolNotFoundError(ClaudeCodeError):
    """A request names a tool that is not in the registered toolsets."""


class ToolsetNotRegisteredError(ClaudeCodeError):
    """A request names tools, but none are registered."""


class IPCError(ClaudeCodeError):
    """Something between this process and the bridge did not work."""


class IPCConnectionError(IPCError):
    """The connection between bridge and process failed."""


class IPCMessageSizeError(IPCError):
    """A message is larger than the protocol allows."""


class IPCToolExecutionError(IPCError):
    """A tool could not be run. The model is told; a request does not raise this."""


class BridgeStartupError(IPCError):
    """The CLI could not start the bridge to the tools."""
