"""The agent run that a request belongs to."""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context
from typing import Any

from pydantic_ai import RunContext

# So far pydantic-ai has no public name for it.
from pydantic_ai._run_context import get_current_run_context

_served: ContextVar[RunContext[Any] | None] = ContextVar("toolbridge.served", default=None)
"""The run for which a tool or a callback is called."""


def current_run_context() -> RunContext[Any] | None:
    """The agent run whose request this task makes.

    `None` without an agent, and in a tool or a callback of a run, which makes requests of its own.
    """
    run = get_current_run_context()
    # Between its requests, as in the tools of other models, a run has no list of tools.
    has_tools = run is not None and run.tool_manager is not None and run.tool_manager.tools is not None
    return run if has_tools and run is not _served.get() else None


def callbacks_context() -> Context:
    """A copy of the context variables, for tools and callbacks of the current run."""
    context = copy_context()
    context.run(_served.set, get_current_run_context())
    return context
