"""Checks the types of settings, so that an error about one names what Python knows."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, Union, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from . import _native
from .errors import InvalidRequestError

_COUNT = Annotated[int, Field(ge=0, le=2**32 - 1)]

_CONFIG = ConfigDict(strict=True, arbitrary_types_allowed=True, protected_namespaces=())

_LEFT_TO_RUST = ("missing", "literal_error")
"""What the native module reports better: with the nearest name, for example."""


class SettingTypes:
    """The types of settings, from annotations."""

    def __init__(self, annotated: Any, *, without: frozenset[str]) -> None:
        # Those of a `TypedDict` are wrapped.
        written = annotated.__annotations__.items()
        self._written: dict[str, str] = {
            name: getattr(hint, "__forward_arg__", hint) for name, hint in written
        }
        hints = {name: hint for name, hint in get_type_hints(annotated).items() if name not in without}
        self._kinds = {name: _kind(hint) for name, hint in hints.items()}
        kinds: dict[str, Any] = {name: (kind | None, None) for name, kind in self._kinds.items()}
        self._model: type[BaseModel] = create_model("Settings", __config__=_CONFIG, **kinds)

    def check(self, given: Mapping[str, Any]) -> None:
        """Rejects values of other types. `None` means unset.

        Raises:
            InvalidRequestError: If there is one. It never contains the value, which may be a secret.
        """
        for name in ("mcp_servers", "claude_code_mcp_servers"):
            entries = given.get(name)
            if isinstance(entries, Mapping) and any(isinstance(one, _SERVERS) for one in entries.values()):
                raise InvalidRequestError(
                    f"`{name}` takes entries of the CLI's `mcpServers`, not an `McpServer` or `NatsTools`",
                    hint="give those to `set_agent_toolsets`, or as `claude_code_tool_servers` and "
                    "`claude_code_nats_tools` in the settings",
                )
        try:
            self._model.model_validate({name: given[name] for name in given.keys() & self._kinds.keys()})
        except ValidationError as error:
            for fault in error.errors(include_url=False, include_context=False):
                name = str(fault["loc"][0])
                is_left = fault["type"] in _LEFT_TO_RUST and isinstance(fault["input"], str | Mapping)
                if not is_left or name.endswith(("thinking", "tool_errors")):
                    raise InvalidRequestError(self._said(name, given[name], fault)) from None

    def _said(self, name: str, value: Any, fault: Mapping[str, Any]) -> str:
        is_item = isinstance(fault["loc"][-1], int)
        if fault["type"] in ("greater_than_equal", "less_than_equal", "literal_error") and not is_item:
            return f"`{'.'.join(map(str, fault['loc']))}`{fault['msg'].removeprefix('Input')}"
        takes = self._written[name].replace("_native.", "").removesuffix(" | None")
        if fault["type"] == "missing":
            return f"`{name}` takes `{takes}`, and has no `{fault['loc'][-1]}`"
        place: list[str] = []
        for part in fault["loc"][1:]:
            try:
                value = value[part]
            except (TypeError, LookupError):
                break  # the name of one of pydantic's schemas, in a union
            place.append(str(part))
        kind = type(value).__name__
        if not place:
            return f"`{name}` takes `{takes}`, not a `{kind}`"
        return f"`{name}` takes `{takes}`, and has a `{kind}` at `{'.'.join(place)}`"


_SERVERS = (_native.McpServer, _native.NatsTools)


def _kind(hint: Any) -> Any:
    """The type without `None`; whole numbers are those that the native module takes."""
    parts = tuple(part for part in get_args(hint) if part is not NoneType)
    if NoneType in get_args(hint):
        hint = Union[parts]  # noqa: UP007
    return _COUNT if hint is int else hint
