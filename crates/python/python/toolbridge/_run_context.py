"""The agent's run that a request belongs to."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pydantic_ai import RunContext

# A version that makes it public is preferred; so far all have it in a private module only.
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
    """The run that this task works for. `None` without an agent, and where pydantic-ai does not say.

    In the latter case tools have to be registered with `set_agent_toolsets`.
    """
    return None if _find is None else _find()


def knows_runs() -> bool:
    """Whether pydantic-ai says which run a task works for."""
    return _find is not None
