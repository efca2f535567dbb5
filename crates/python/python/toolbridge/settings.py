"""Settings of `ClaudeCodeModel`, and how they reach the native module."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json

from . import _native
from .callbacks import CanUseTool, MessageCallback, StderrCallback
from .cli_settings import CLISettings
from .errors import InvalidRequestError
from .failure import ToolErrors
from .hooks import Hook
from .questions import OnAsk

TransportType: TypeAlias = Literal["auto", "stdio", "sdk"]
"""How tool calls are transported between the CLI and this process.

`stdio`: the CLI starts a bridge, which calls this process over a Unix socket. `sdk`: over the CLI's own stdin
and stdout. `auto`: whatever works with every version of the CLI; today `stdio`.
"""

DEFAULT_TRANSPORT: TransportType = "auto"

DEFAULT_SERVER_NAME = "pydantic_tools"

Server: TypeAlias = _native.McpServer | _native.NatsTools
"""Another MCP server, or tools of other machines."""


@dataclass(frozen=True)
class ServerInfo:
    """What the server of the tools reports about itself to its clients."""

    name: str | None = None
    """Its name; `toolbridge` by default."""
    version: str | None = None
    """Its version; that of this package by default."""
    instructions: str | None = None
    """What a model should know before it uses the tools."""

    @property
    def given(self) -> dict[str, str]:
        """What is not unset."""
        return {name: text for name, text in vars(self).items() if text is not None}


class _OwnSettings(CLISettings, total=False):
    claude_code_documents: _native.Documents | Sequence[_native.Documents]
    """Documents whose tools the model gets, in addition to those of the agent or the request."""
    claude_code_tool_servers: _native.McpServer | Sequence[_native.McpServer]
    """Other MCP servers, started and stopped with a request; their tools are added to yours."""
    claude_code_nats_tools: _native.NatsTools | Sequence[_native.NatsTools]
    """Tools of other machines that the model gets, in addition to those of the agent or the request."""
    claude_code_tool_errors: ToolErrors
    """What happens when a tool raises an exception: `tell` the model its text, `hide` that, or `raise` it."""
    claude_code_can_use_tool: CanUseTool
    """Decides whether a tool may be used that no rule allows or forbids."""
    claude_code_hooks: Sequence[Hook]
    """Functions that are called on events in the CLI, in addition to those of the model."""
    claude_code_on_ask: OnAsk
    """Answers questions of tools and MCP servers."""
    claude_code_message_callback: MessageCallback
    """Called with each message of the CLI."""
    claude_code_stderr_callback: StderrCallback
    """Called with each line that the CLI writes to its stderr."""


class ClaudeCodeModelSettings(_OwnSettings, ModelSettings, total=False):
    """Settings of a model, an agent or one run. `timeout` is the time limit of a request, in seconds.

    The prefix keeps them apart from those of other models, for example in a `FallbackModel`.
    """


@with_config(ConfigDict(strict=True, arbitrary_types_allowed=True))
class _Checked(_OwnSettings, total=False):
    timeout: float


PREFIX = "claude_code_"
"""The prefix of this model's settings."""

_OWN = frozenset(_OwnSettings.__annotations__)
"""The settings that only this model has."""

_FOR_CLI = {"timeout": "timeout", **{name: name.removeprefix(PREFIX) for name in CLISettings.__annotations__}}
"""The settings for the CLI, with their names in the native module."""


def settings_for_cli(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for the CLI, by the native module's names."""
    return {_FOR_CLI[name]: value for name, value in settings.items() if name in _FOR_CLI}


def as_json(config: Mapping[str, Any], settings: Mapping[str, Any]) -> bytes:
    """What the native module gets; in the settings, `None` means unset."""
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        return to_json({**config, "settings": given}, fallback=_as_plain)
    except ValueError:
        for name, value in given.items():
            try:
                to_json(value, fallback=_as_plain)
            except ValueError as error:
                named = {native: own for own, native in _FOR_CLI.items()}.get(name, name)
                raise InvalidRequestError(f"`{named}` has a value that JSON does not have") from error
        raise


def _as_plain(value: Any) -> Any:
    try:
        return dict(value) if isinstance(value, Mapping) else os.fspath(value)
    except TypeError as error:
        raise ValueError(str(error)) from error


def listed(given: Any, kind: Any) -> list[Any]:
    """One value of a kind, or several, as a list."""
    return [given] if isinstance(given, kind) else list(given or ())


def check_settings(settings: Mapping[str, Any]) -> None:
    """Rejects settings that this model does not have, and values of wrong types.

    Names without the prefix are those of other models.

    Raises:
        InvalidRequestError: If there is one. It never contains the value, which may be a secret.
    """
    for name in settings.keys() - _OWN - ModelSettings.__annotations__.keys():
        if name.startswith(PREFIX) or f"{PREFIX}{name}" in _OWN:
            bare = name.removeprefix(PREFIX)
            known = {own.removeprefix(PREFIX): own for own in sorted(_OWN)} | {"timeout": "timeout"}
            nearest = get_close_matches(bare, known, n=1)
            has_own = "`ClaudeCodeModelSettings` has those of this model"
            hint = f"did you mean `{known[nearest[0]]}`?" if nearest else has_own
            raise InvalidRequestError(f"there is no setting `{name}`", hint=hint)
    try:
        _adapter().validate_python({name: value for name, value in settings.items() if value is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise InvalidRequestError(f"`{'.'.join(map(str, fault['loc']))}`: {fault['msg']}") from None


@functools.cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(_Checked)
