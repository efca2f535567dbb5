"""What can go wrong, as exceptions. The native module raises them by name.

Those that are failures of a model are pydantic-ai's errors too, so that code that catches these, such as its
`FallbackModel`, needs to know nothing of this package.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior


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
        # Not `super()`: pydantic-ai's classes are told other things, each version's others.
        Exception.__init__(self, message)
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

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, (type(self), self.message), dict(vars(self))

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        vars(self).update(state or {})


def _bare(kind: type[ClaudeCodeError], message: str) -> ClaudeCodeError:
    """What a pickled error begins with; the rest is its state."""
    return kind.__new__(kind, message)


class ModelFailure(ClaudeCodeError, ModelAPIError):
    """A model that gave no answer, for whatever reason; `model_name` says which."""

    def __init__(self, message: str, **facts: Any) -> None:
        # For what this version has there besides: it is the same for all errors.
        ModelAPIError.__init__(self, "default", message)
        ClaudeCodeError.__init__(self, message, **facts)


class InvalidRequestError(ClaudeCodeError, ValueError):
    """A request or a setting that makes no sense."""


class CLINotFoundError(ModelFailure):
    """The Claude Code CLI is not installed, or not where it was said to be."""


class CLIExecutionError(ModelFailure):
    """The CLI ran, or should have, and came to no result; `error_type` says more.

    One that has a status of the API is a `ModelHTTPError` too, and of the category that pydantic-ai has for
    the status; a time-out is a `ModelTimeoutError`, where pydantic-ai has that.
    """

    def __new__(cls, message: str, **facts: Any) -> CLIExecutionError:
        result = facts.get("result")
        status = None if result is None else json.loads(result).get("api_error_status")
        kind = _execution_error(facts.get("error_type"), status) if cls is CLIExecutionError else cls
        return super().__new__(kind, message)

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message, **facts)
        status = (self.result or {}).get("api_error_status")
        if isinstance(self, ModelHTTPError) and isinstance(status, int):
            ModelHTTPError.__init__(self, status, self.model_name, self.result)
            ClaudeCodeError.__init__(self, message, **{**facts, "hint": None})
            self.hint = facts.get("hint")

    def __reduce__(self) -> tuple[Any, ...]:
        status = getattr(self, "status_code", None)
        return _bare_execution_error, (self.message, self.error_type, status), dict(vars(self))


def _bare_execution_error(message: str, error_type: str | None, status: int | None) -> CLIExecutionError:
    kind = _execution_error(error_type, status)
    return kind.__new__(kind, message)


_CATEGORIES = {
    401: "ModelAuthenticationError",
    403: "ModelAuthenticationError",
    404: "ModelNotFoundError",
    429: "ModelRateLimitError",
    529: "ModelOverloadedError",
}
"""What newer versions of pydantic-ai call errors with these statuses."""


@functools.cache
def _execution_error(error_type: str | None, status: int | None) -> type[CLIExecutionError]:
    """The class that is all of pydantic-ai's that the error is. It has no name of its own."""
    names: list[str] = []
    if isinstance(status, int):
        other = "ModelServerError" if status >= 500 else "ModelRequestRejectedError"
        names = ["ModelHTTPError", _CATEGORIES.get(status, other)]
    elif error_type == "timeout":
        names = ["ModelTimeoutError"]
    others = [getattr(exceptions, name) for name in names if hasattr(exceptions, name)]
    if not others:
        return CLIExecutionError
    about = {"__module__": __name__, "__doc__": CLIExecutionError.__doc__}
    return type(CLIExecutionError.__name__, (CLIExecutionError, *others), about)


class CLIInterruptedError(ClaudeCodeError):
    """The request was interrupted."""


class CLIResponseParseError(ModelFailure):
    """The CLI's output is not what it should be."""


class StructuredOutputError(ClaudeCodeError, UnexpectedModelBehavior):
    """The model gave no output that fits the schema; `text` is what it said instead."""

    body: str | None = None


class ToolNotFoundError(ClaudeCodeError):
    """A request names a tool that is not in the registered toolsets."""


class ToolsetNotRegisteredError(ClaudeCodeError):
    """A request names tools, but none are registered."""


class QuestionError(ClaudeCodeError):
    """A tool asked for something that cannot be asked for, or the answer cannot be used."""


class McpServerError(ClaudeCodeError):
    """Another MCP server could not be started, or connected to."""


class NatsError(ClaudeCodeError):
    """The tools of other machines cannot be reached over NATS."""


class IPCError(ModelFailure):
    """Something between this process and the bridge did not work."""


class IPCConnectionError(IPCError):
    """The connection between bridge and process failed."""


class IPCMessageSizeError(IPCError):
    """A message is larger than the protocol allows."""


class IPCToolExecutionError(IPCError):
    """A tool could not be run. The model is told; a request does not raise this."""


class BridgeStartupError(IPCError):
    """The CLI could not start the bridge to the tools."""
