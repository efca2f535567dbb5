"""Converts exceptions in tools to answers, so that each call gets one."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Literal, TypeAlias

from pydantic import ValidationError
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.tool_manager import ToolManager

from . import _native
from .results import encodable, error_result

ToolErrors: TypeAlias = Literal["tell", "hide", "raise"]
"""What happens when a tool raises an exception.

`tell`: the model is told its type and text, and goes on. `hide`: it is told only the type. `raise`: the
exception ends the run, and its caller gets it, as with other models of pydantic-ai. A `ModelRetry` is for the
model in any case.
"""

LOGGER = logging.getLogger("toolbridge")

_FOR_MODEL: tuple[type[Exception], ...] = (ModelRetry, ToolFailed)
"""With these a tool addresses the model."""

_KEPT: tuple[type[BaseException], ...] = (
    *_FOR_MODEL,
    ValidationError,  # about arguments, which the model wrote
    ApprovalRequired,
    CallDeferred,
    asyncio.CancelledError,
    SystemExit,
    KeyboardInterrupt,
)
"""What the model is told of these is not their text, or is meant for it."""


class HiddenError(Exception):
    """An exception of a tool, its cause, of which the model is told only the type."""

    def __str__(self) -> str:
        return "the tool failed"


def may_be_told(error: BaseException) -> bool:
    """Whether the model may be told of an exception, whatever `tool_errors` is."""
    if issubclass(type(error), ValidationError) and _is_of_tool(error):
        return False
    return issubclass(type(error), _KEPT)


def _is_of_tool(error: BaseException) -> bool:
    """Whether a tool has raised the error, and not pydantic-ai before, because of the arguments."""
    running = ToolManager.execute_tool_call.__name__
    return any(frame.f_code.co_name == running for frame, _ in traceback.walk_tb(error.__traceback__))


_class_name = type.__dict__["__name__"].__get__
"""Reads the name of a class, bypassing its metaclass."""


def fail(call: _native.Call, error: BaseException) -> None:
    """Answers a call with its error, and logs the details.

    Inspecting an error may run user code. Even if that fails, the call is answered.
    """
    interrupted: BaseException | None = None
    text: str | None = None
    if type(error) is HiddenError and error.__cause__ is not None:
        text, error = str(error), error.__cause__
    for step in (_log, partial(_answer, text=text)):
        try:
            step(call, error)
        except BaseException as another:
            interrupted = another if ends_program(another) else interrupted
    # Does nothing if the call was already answered.
    call.fail(name_of(error), "no message: the error cannot be formatted")
    if interrupted is not None:
        raise interrupted


def ends_program(error: BaseException) -> bool:
    """Whether it is the user's Ctrl-C, which only the main thread receives."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and issubclass(type(error), KeyboardInterrupt)


def name_of(error: BaseException) -> str:
    """The name of an error's class."""
    return encodable(_class_name(type(error)))


def text_of(error: BaseException) -> str:
    """The error's text, if it can be read."""
    try:
        return encodable(str(getattr(error, "message", None) or error))
    except BaseException as another:
        if ends_program(another):
            raise
        return ""


def explained(tool: str, error: ValidationError) -> str:
    """What is wrong with the arguments, and where; for the model."""
    return f"invalid arguments for tool `{tool}`: {'; '.join(_faults(error))}"


def _faults(error: ValidationError) -> Iterable[str]:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return (f"at `/{'/'.join(map(str, fault['loc']))}`: {fault['msg']}" for fault in faults)


def _answer(call: _native.Call, error: BaseException, text: str | None) -> None:
    # Not `isinstance`, which runs the error's own `__class__`.
    kind = type(error)
    if text is not None:
        call.fail(name_of(error), text)
    elif issubclass(kind, _FOR_MODEL):
        call.answer(error_result(text_of(error) or "no message"))
    elif issubclass(kind, ValidationError):
        assert isinstance(error, ValidationError)
        call.fail("ValidationError", encodable(explained(call.name, error)))
    elif issubclass(kind, ApprovalRequired | CallDeferred):
        reason = "needs an approval" if issubclass(kind, ApprovalRequired) else "is run elsewhere"
        call.fail(name_of(error), f"tool `{call.name}` {reason}, which is not possible during a request")
    elif issubclass(kind, asyncio.CancelledError):
        call.fail(name_of(error), f"tool `{call.name}` was cancelled")
    elif issubclass(kind, SystemExit | KeyboardInterrupt):
        call.fail(name_of(error), f"tool `{call.name}` tried to end the program")
    else:
        call.fail(name_of(error), text_of(error) or "no message")


def _log(call: _native.Call, error: BaseException) -> None:
    """Logs where the function failed, for its author. Never logs the arguments."""
    kind = type(error)
    if issubclass(kind, _FOR_MODEL) or issubclass(
        kind, ApprovalRequired | CallDeferred | asyncio.CancelledError
    ):
        return  # not an error
    if not LOGGER.isEnabledFor(logging.WARNING):
        return
    if issubclass(kind, ValidationError):
        assert isinstance(error, ValidationError)
        # The error's own text contains the invalid values.
        lines = [*traceback.format_tb(_own(error.__traceback__)), f"{name_of(error)}: ", *_faults(error)]
        LOGGER.warning("`%s` failed\n%s", call.name, encodable("".join(lines)))
        return
    own = kind, error, _own(error.__traceback__)
    LOGGER.warning("`%s` failed", call.name, exc_info=own)


def _own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without its first frame, which belongs to the caller here."""
    return trace.tb_next if trace is not None and trace.tb_next is not None else trace
