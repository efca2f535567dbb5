"""The exceptions of this package. The native module raises them by name.

Failures of a model are also pydantic-ai errors, so that code that catches those, such as its `FallbackModel`,
need not know this package.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior


class ClaudeCodeError(Exception):
    """The base class of all errors in a request or a session.

    The message states what happened; `hint`, if set, how to fix it.
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
        # Not `super()`: the constructors of pydantic-ai's classes differ between versions.
        Exception.__init__(self, message)
        self.message: str = message
        """What happened."""
        self.hint: str | None = hint
        """How to fix it."""
        self.recoverable: bool = recoverable
        """Whether the same request may succeed when repeated."""
        self.error_type: str | None = error_type
        """The kind of failure if the CLI failed, such as `rate_limit` or `timeout`."""
        self.result: dict[str, Any] | None = None if result is None else json.loads(result)
        """The CLI's result, if there is one: it contains the cost and the session id."""
        self.text: str | None = text
        """The model's text, if it gave no output that fits the schema."""
        if hint:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, (type(self), self.message), dict(vars(self))

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        vars(self).update(state or {})


def _bare(kind: type[ClaudeCodeError], message: str) -> ClaudeCodeError:
    """Recreates a pickled error; its state is restored afterwards."""
    return kind.__new__(kind, message)


class ModelFailure(ClaudeCodeError, ModelAPIError):
    """A model gave no answer; `model_name` is its name."""

    def __init__(self, message: str, **facts: Any) -> None:
        # Sets what else this version's class has; it is the same for all errors.
        ModelAPIError.__init__(self, "default", message)
        ClaudeCodeError.__init__(self, message, **facts)


class InvalidRequestError(ClaudeCodeError, ValueError):
    """A request or a setting is invalid."""


class CLINotFoundError(ModelFailure):
    """The Claude Code CLI is not installed, or not at the given path."""


class CLIExecutionError(ModelFailure):
    """The CLI failed to start, or gave no result; `error_type` has the kind.

    With an HTTP status of the API it is also a `ModelHTTPError`, and of pydantic-ai's class for that status;
    a timeout is also a `ModelTimeoutError`.
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
"""The names of pydantic-ai's error classes for these statuses."""


@functools.cache
def _execution_error(error_type: str | None, status: int | None) -> type[CLIExecutionError]:
    """A class that also derives from all matching pydantic-ai classes; its name stays the same."""
    names: list[str] = []
    if isinstance(status, int):
        other = "ModelServerError" if status >= 500 else "ModelRequestRejectedError"
        names = ["ModelHTTPError", _CATEGORIES.get(status, other)]
    elif error_type == "timeout":
        names = ["ModelTimeoutError"]
    if not names:
        return CLIExecutionError
    others = [getattr(exceptions, name) for name in names]
    about = {"__module__": __name__, "__doc__": CLIExecutionError.__doc__}
    return type(CLIExecutionError.__name__, (CLIExecutionError, *others), about)


class CLIInterruptedError(ClaudeCodeError):
    """The request was interrupted."""


class CLIResponseParseError(ModelFailure):
    """The CLI's output has an unexpected format."""


class StructuredOutputError(ClaudeCodeError, UnexpectedModelBehavior):
    """The model gave no output that fits the schema; `text` is its text instead."""

    body: str | None = None


class ToolNotFoundError(ClaudeCodeError):
    """A request names a tool that is not in the registered toolsets."""


class ToolsetNotRegisteredError(ClaudeCodeError):
    """A request names tools, but no toolsets are registered."""


class QuestionError(ClaudeCodeError):
    """A tool asked an unsupported question, or the answer is invalid."""


class McpServerError(ClaudeCodeError):
    """Another MCP server could not be started or reached."""


class NatsError(ClaudeCodeError):
    """The tools of other machines cannot be reached over NATS."""


class IPCError(ModelFailure):
    """The communication between this process and the bridge failed."""


class IPCConnectionError(IPCError):
    """The connection between bridge and process failed."""


class IPCMessageSizeError(IPCError):
    """A message is larger than the protocol allows."""


class IPCToolExecutionError(IPCError):
    """A tool failed, and the process that has it did not name the type of the error.

    The bridge reports this type to its client, so only a model reads it. Nothing in this package raises it,
    because nothing in this package calls tools over the socket.
    """


class BridgeStartupError(IPCError):
    """The bridge to the tools could not be started."""
