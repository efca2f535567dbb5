"""`Agent("claude-code:sonnet")`: models by their names, as pydantic-ai has them.

pydantic-ai looks names up in a function of its own, `pydantic_ai.models.infer_model`, which asks no other
packages. (Newer versions have a capability for it, `ResolveModelId`, which each agent has to be given.)
So this puts another function in its place, which sees to names that begin with `claude-code:` and leaves all
others to the former one. Importing this package does that; `unregister` takes it back. Code that imported
`infer_model` from pydantic-ai before this package was imported has the former one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from pydantic_ai import models
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model

from .answer import SYSTEM
from .model import ClaudeCodeModel

PREFIX = f"{SYSTEM}:"

_NAME = "infer_model"

_Infer = Callable[..., Model[Any]]

_ours: _Infer | None = None
"""The function that is in the place of pydantic-ai's, which is its `__wrapped__`."""


def register() -> None:
    """Has pydantic-ai know names such as `claude-code:sonnet`. Importing this package does it."""
    global _ours
    if _ours is not None:
        return
    former: _Infer = getattr(models, _NAME)

    @functools.wraps(former)
    def infer_model(model: Any, *args: Any, **kwargs: Any) -> Model[Any]:
        # Another package may have wrapped this one in turn, and would go on calling it.
        is_registered = _ours is infer_model
        if is_registered and isinstance(model, str) and model.startswith(PREFIX):
            return _named(model.removeprefix(PREFIX))
        return former(model, *args, **kwargs)

    _ours = infer_model
    _put(infer_model, former)


def unregister() -> None:
    """Takes back what `register` did."""
    global _ours
    if _ours is not None:
        ours, _ours = _ours, None
        _put(ours.__wrapped__, ours)  # type: ignore[attr-defined]


def _named(name: str) -> ClaudeCodeModel:
    if not name:
        raise UserError(f"`{PREFIX}` names no model; `{PREFIX}default` is the CLI's own choice")
    return ClaudeCodeModel(None if name == "default" else name)


def _put(function: _Infer, former: _Infer) -> None:
    """Puts a function in the place of another, wherever pydantic-ai has that."""
    for module in _modules():
        if vars(module).get(_NAME) is former:
            setattr(module, _NAME, function)


def _modules() -> Iterator[ModuleType]:
    """The modules of pydantic-ai. Those that are not imported yet will find what is in the first."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] == "pydantic_ai":
            yield module
