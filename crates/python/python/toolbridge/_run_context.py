"""The agent run that a request belongs to."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from importlib import import_module
from typing import Any

from pydantic_ai import RunContext

# Prefer a public name if a version has one; so far it is only in a private module.
_PLACES = ("pydantic_ai", "pydantic_ai._run_context")

_Find = Callable[[], RunContext[Any] | None]


def _found() -> _Find | None:
    for place in _PLACES:
        try:
            found: _Find | None = getattr(import_module(place), "get_current_run_context", None)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


_find = _found()

_served: ContextVar[RunContext[Any] | None] = ContextVar("toolbridge.served", default=None)
"""The run for which a tool or a callback is called."""


def current_run_context() -> RunContext[Any] | None:
    """The agent run whose request this task makes.

    `None` without an agent, in a tool or a callback of a run, which makes requests of its own, or if
    pydantic-ai does not expose the run. In the last case tools have to be registered with
    `set_agent_toolsets`.
    """
    run = None if _find is None else _find()
    if run is None or run is _served.get():
        return None
    # Between its requests, as in the tools of other models, a run has no list of tools.
    return None if run.tool_manager is None or run.tool_manager.tools is None else run


def callbacks_context() -> Context:
    """A copy of the context variables, for tools and callbacks of the current run."""
    context = copy_context()
    if _find is not None:
        context.run(_served.set, _find())
    return context


def knows_runs() -> bool:
    """Whether pydantic-ai exposes the run of a task."""
    return _find is not None
