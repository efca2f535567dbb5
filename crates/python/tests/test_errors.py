"""The exception classes and their base classes."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from pydantic_ai import exceptions

import toolbridge
from toolbridge import ClaudeCodeError, CLIExecutionError, errors

pytestmark = pytest.mark.oldest

# The base classes of each, without itself and `object`, in method resolution order.
FAILURE = ["ModelFailure", "ClaudeCodeError", "ModelAPIError", "AgentRunError", "RuntimeError", "Exception"]
TREE = {
    "ClaudeCodeError": ["Exception"],
    "InvalidRequestError": ["ClaudeCodeError", "ValueError", "Exception"],
    "CLINotFoundError": FAILURE,
    "CLIExecutionError": FAILURE,
    "CLIResponseParseError": FAILURE,
    "CLIInterruptedError": ["ClaudeCodeError", "Exception"],
    "StructuredOutputError": [
        "ClaudeCodeError",
        "UnexpectedModelBehavior",
        "AgentRunError",
        "RuntimeError",
        "Exception",
    ],
    "ToolNotFoundError": ["ClaudeCodeError", "Exception"],
    "ToolsetNotRegisteredError": ["ClaudeCodeError", "Exception"],
    "McpServerError": ["ClaudeCodeError", "Exception"],
    "NatsError": ["ClaudeCodeError", "Exception"],
    "QuestionError": ["ClaudeCodeError", "Exception"],
    "IPCError": FAILURE,
    "IPCConnectionError": ["IPCError", *FAILURE],
    "IPCMessageSizeError": ["IPCError", *FAILURE],
    "IPCToolExecutionError": ["IPCError", *FAILURE],
    "BridgeStartupError": ["IPCError", *FAILURE],
}


def line_of(kind: type) -> list[str]:
    return [base.__name__ for base in kind.__mro__[1:] if base not in (BaseException, object)]


def is_error(one: object) -> bool:
    return inspect.isclass(one) and issubclass(one, BaseException)


def test_the_exceptions_and_their_base_classes() -> None:
    exported = {name for name in toolbridge.__all__ if is_error(getattr(toolbridge, name))}
    assert {name: line_of(getattr(toolbridge, name)) for name in exported} == TREE
    # The module has one more, their common base, and no others.
    defined = {
        name
        for name, one in vars(errors).items()
        if inspect.isclass(one) and one.__module__ == errors.__name__
    }
    assert defined == {*TREE, "ModelFailure"}


@pytest.mark.parametrize("name", [*TREE])
def test_exceptions_can_be_caught_by_every_base_class(name: str) -> None:
    kind: type[ClaudeCodeError] = getattr(toolbridge, name)
    error = kind("what happened", hint="what to do", recoverable=True)
    for base in kind.__mro__[:-1]:
        with pytest.raises(base):
            raise error
    assert (str(error), error.hint, error.recoverable) == ("what happened", "what to do", True)
    assert error.__notes__ == ["hint: what to do"]


@pytest.mark.parametrize(
    ("error_type", "status", "others"),
    [
        ("exit", None, []),
        ("timeout", None, ["ModelTimeoutError"]),
        ("api", 400, ["ModelHTTPError", "ModelRequestRejectedError"]),
        ("api", 401, ["ModelHTTPError", "ModelAuthenticationError"]),
        ("api", 403, ["ModelHTTPError", "ModelAuthenticationError"]),
        ("api", 404, ["ModelHTTPError", "ModelNotFoundError"]),
        ("rate_limit", 429, ["ModelHTTPError", "ModelRateLimitError"]),
        ("api", 500, ["ModelHTTPError", "ModelServerError"]),
        ("api", 529, ["ModelHTTPError", "ModelOverloadedError"]),
    ],
)
def test_cli_failures_have_pydantic_ais_category(
    error_type: str, status: int | None, others: list[str]
) -> None:
    result: dict[str, Any] = {} if status is None else {"api_error_status": status}
    error = CLIExecutionError("no", error_type=error_type, result=json.dumps(result))
    assert type(error).__name__ == "CLIExecutionError"
    assert isinstance(error, CLIExecutionError)
    # Newer versions of pydantic-ai have more categories; check each that exists.
    categories = {"ModelHTTPError", "ModelTimeoutError", "ModelAuthenticationError", "ModelNotFoundError"}
    categories |= {"ModelRateLimitError", "ModelOverloadedError", "ModelServerError"}
    categories |= {"ModelRequestRejectedError"}
    known = {name: getattr(exceptions, name) for name in categories if hasattr(exceptions, name)}
    is_those = {name for name, kind in known.items() if isinstance(error, kind)}
    assert is_those >= set(others) & known.keys()
    allowed = {base for name in others if name in known for base in [name, *line_of(known[name])]}
    assert is_those <= allowed
    assert getattr(error, "status_code", None) == status
