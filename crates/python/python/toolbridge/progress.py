"""How far a tool is, for its caller."""

from __future__ import annotations

from contextvars import ContextVar

from . import _native
from .results import encodable

current_call: ContextVar[_native.Call | None] = ContextVar("toolbridge_current_call", default=None)
"""The call that this task, or this worker thread, works on."""


def report_progress(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Tells the caller of the tool how far it is. Does nothing outside of a tool, or where it is not wanted.

    Args:
        progress: How much is done; it should grow with each report.
        total: How much there is to do, if that is known.
        message: What is being done.
    """
    call = current_call.get()
    if call is not None:
        call.report_progress(progress, total, None if message is None else encodable(message))
