"""What goes wrong in a tool, as its answer. Each call gets one."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Iterable
from types import TracebackType

from pydantic import ValidationError
from pydantic_ai import exceptions
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry

from . import _native
from .results import encodable, error_result

LOGGER = logging.getLogger("toolbridge")

# With these a tool talks to the model; older versions of pydantic-ai do not have all of them.
_SAID: tuple[type[Exception], ...] = (ModelRetry, getattr(exceptions, "ToolFailed", ModelRetry))

_class_name = type.__dict__["__name__"].__get__
"""The name of a class, which a metaclass cannot keep to itself."""


def fail(call: _native.Call, error: BaseException) -> None:
    """Gives a call an answer that says what went wrong, and the logger more than that.

    Looking at an error may run the user's code. Whatever comes of that, there is an answer.
    """
    interrupted: BaseException | None = None
    for step in (_log, _answer):
        try:
            step(call, error)
        except BaseException as another:
            interrupted = another if ends_program(another) else interrupted
    # If there was none by then.
    call.fail(name_of(error), "no message: what went wrong cannot be said")
    if interrupted is not None:
        raise interrupted


def ends_program(error: BaseException) -> bool:
    """Whether it is the user's Ctrl-C, which only the main thread hears of."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and issubclass(type(error), KeyboardInterrupt)


def name_of(error: BaseException) -> str:
    """The name of an error's class."""
    return encodable(_class_name(type(error)))


def text_of(error: BaseException) -> str:
    """What an error says, if it can."""
    try:
        return encodable(str(getattr(error, "message", None) or error))
    except BaseException as another:
        if ends_program(another):
            raise
        return ""


def explained(tool: str, error: ValidationError) -> str:
    """What is wrong with arguments, for the model: where, and what."""
    return f"invalid arguments for tool `{tool}`: {'; '.join(_faults(error))}"


def _faults(error: ValidationError) -> Iterable[str]:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return (f"at `/{'/'.join(map(str, fault['loc']))}`: {fault['msg']}" for fault in faults)


def _answer(call: _native.Call, error: BaseException) -> None:
    # Not `isinstance`, which asks the error for its class.
    kind = type(error)
    if issubclass(kind, _SAID):
        call.answer(error_result(text_of(error) or "no message"))
    elif issubclass(kind, ValidationError):
        assert isinstance(error, ValidationError)
        call.fail("ValidationError", encodable(explained(call.name, error)))
    elif issubclass(kind, ApprovalRequired | CallDeferred):
        reason = "needs an approval" if issubclass(kind, ApprovalRequired) else "is run elsewhere"
        call.fail(name_of(error), f"tool `{call.name}` {reason}, which cannot be had during a request")
    elif issubclass(kind, asyncio.CancelledError):
        call.fail(name_of(error), f"tool `{call.name}` was ended")
    elif issubclass(kind, SystemExit | KeyboardInterrupt):
        call.fail(name_of(error), f"tool `{call.name}` called for the end of the program")
    else:
        call.fail(name_of(error), text_of(error) or "no message")


def _log(call: _native.Call, error: BaseException) -> None:
    """What the function's author has to know: where it failed. Never what it was called with."""
    kind = type(error)
    if issubclass(kind, _SAID) or issubclass(kind, ApprovalRequired | CallDeferred | asyncio.CancelledError):
        return  # nothing went wrong
    if not LOGGER.isEnabledFor(logging.WARNING):
        return
    if issubclass(kind, ValidationError):
        assert isinstance(error, ValidationError)
        # Its own text has the values that were not valid.
        lines = [*traceback.format_tb(_own(error.__traceback__)), f"{name_of(error)}: ", *_faults(error)]
        LOGGER.warning("`%s` failed\n%s", call.name, encodable("".join(lines)))
        return
    own = kind, error, _own(error.__traceback__)
    LOGGER.warning("`%s` failed", call.name, exc_info=own)


def _own(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without its first frame, which is the call's and says nothing."""
    return trace.tb_next if trace is not None and trace.tb_next is not None else trace
