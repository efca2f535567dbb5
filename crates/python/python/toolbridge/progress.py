"""Progress reports of tools to their callers."""

from __future__ import annotations

from contextvars import ContextVar

from . import _native
from .results import encodable

current_call: ContextVar[_native.Call | None] = ContextVar("toolbridge_current_call", default=None)
"""The call that this task or worker thread is handling."""


def report_progress(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Reports a tool's progress to its caller. Does nothing outside of a tool, or if it is not wanted.

    Args:
        progress: How much is done; it should increase with each report.
        total: The total amount, if known.
        message: What is being done.
    """
    call = current_call.get()
    if call is not None:
        call.report_progress(progress, total, None if message is None else encodable(message))
