"""`Agent("claude-code:sonnet")`: finds models by name, as pydantic-ai does.

pydantic-ai looks up names in its function `pydantic_ai.models.infer_model`, which cannot be extended by other
packages. (Newer versions have a capability for it, `ResolveModelId`, which each agent has to be given.) So
this module replaces that function by one that handles names with the prefix `claude-code:` and passes all
others on to the original. Importing this package does that; `unregister` reverts it. Code that imported
`infer_model` from pydantic-ai before this package was imported keeps the original.
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
"""The function that replaces pydantic-ai's, which is its `__wrapped__`."""


def register() -> None:
    """Registers names such as `claude-code:sonnet` with pydantic-ai. Importing this package calls it."""
    global _ours
    if _ours is not None:
        return
    former: _Infer = getattr(models, _NAME)

    @functools.wraps(former)
    def infer_model(model: Any, *args: Any, **kwargs: Any) -> Model[Any]:
        # Another package may have wrapped this function, and would still call it.
        is_registered = _ours is infer_model
        if is_registered and isinstance(model, str) and model.startswith(PREFIX):
            return _named(model.removeprefix(PREFIX))
        return former(model, *args, **kwargs)

    _ours = infer_model
    _put(infer_model, former)


def unregister() -> None:
    """Reverts `register`."""
    global _ours
    if _ours is not None:
        ours, _ours = _ours, None
        _put(ours.__wrapped__, ours)  # type: ignore[attr-defined]


def _named(name: str) -> ClaudeCodeModel:
    if not name:
        raise UserError(f"`{PREFIX}` names no model; `{PREFIX}default` is the CLI's own choice")
    return ClaudeCodeModel(None if name == "default" else name)


def _put(function: _Infer, former: _Infer) -> None:
    """Replaces a function in all modules of pydantic-ai that have it."""
    for module in _modules():
        if vars(module).get(_NAME) is former:
            setattr(module, _NAME, function)


def _modules() -> Iterator[ModuleType]:
    """The modules of pydantic-ai. Modules imported later take the function from the first one."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] == "pydantic_ai":
            yield module
