"""The agent run that a request belongs to."""

from __future__ import annotations

from collections.abc import Callable
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


def current_run_context() -> RunContext[Any] | None:
    """The agent run of this task. `None` without an agent, or if pydantic-ai does not expose it.

    In the latter case tools have to be registered with `set_agent_toolsets`.
    """
    return None if _find is None else _find()


def knows_runs() -> bool:
    """Whether pydantic-ai exposes the run of a task."""
    return _find is not None
