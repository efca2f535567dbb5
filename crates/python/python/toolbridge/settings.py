"""How the CLI is to run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, TypeAlias

from pydantic_ai import exceptions
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python

from . import _native
from .permission import CanUseTool
from .teller import MessageCallback

TransportType: TypeAlias = Literal["auto", "stdio", "sdk"]
"""How tool calls travel between the CLI and this process.

`stdio`: the CLI starts a bridge, which calls this process over a Unix socket. `sdk`: over the CLI's own stdin
and stdout. `auto`: whatever works with every version of the CLI; today `stdio`.
"""

DEFAULT_TRANSPORT: TransportType = "auto"

DEFAULT_TIMEOUT_SECONDS = 120.0

DEFAULT_SERVER_NAME = "pydantic_tools"

PermissionMode: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]
"""What the CLI does about tools that no rule allows."""


class ClaudeCodeModelSettings(ModelSettings, total=False):
    """Settings of one request, of a run, or of an agent. They win over those of the model.

    `timeout`, in seconds, is among those that every model has.
    """

    claude_code: bool
    """Whether the model is the whole of Claude Code; see `ClaudeCodeModel`."""
    expand_prompts: bool
    """Whether the CLI reads the files that prompts name with `@`, and runs commands such as `/cost`."""
    working_directory: str | os.PathLike[str]
    """Where the CLI works."""
    allowed_tools: Sequence[str]
    """Rules for tools that run without anybody being asked, such as `Read` or `Bash(git log *)`."""
    disallowed_tools: Sequence[str]
    """Rules for tools that must not run."""
    builtin_tools: Sequence[str]
    """The CLI's own tools that the model gets; `default` is all that the CLI usually has."""
    permission_mode: PermissionMode | str
    """What the CLI does about tools that no rule allows."""
    max_turns: int
    """How often the model may be asked in a request."""
    max_budget_usd: float
    """What a request may cost."""
    system_prompt: str
    """The system prompt, before the agent's own instructions."""
    append_system_prompt: str
    """What is added to the system prompt, before the agent's own instructions."""
    coding_prompt: bool
    """Whether the system prompt is the CLI's own, which is for coding, where no other is given."""
    keep_session: bool
    """Whether the CLI keeps a transcript of the conversation on disk, so that it can be resumed."""
    session_id: str
    """The id, a UUID, of a new conversation that is kept."""
    continue_conversation: bool
    """Whether the request belongs to the last conversation that was kept in the working directory."""
    resume: str
    """The session id of the kept conversation that the request belongs to."""
    fork_session: bool
    """Whether that conversation goes on as a copy."""
    setting_sources: Sequence[str]
    """The settings files that the CLI reads: `user`, `project`, `local`."""
    cli_settings: Mapping[str, Any]
    """Settings for the CLI, such as its settings files hold."""
    extra_args: Sequence[str]
    """Further arguments for the CLI."""
    env: Mapping[str, str]
    """Variables of the CLI's environment."""
    mcp_servers: Mapping[str, Mapping[str, Any]]
    """Further MCP servers, as in the CLI's `mcpServers`."""
    documents: _native.Documents | Sequence[_native.Documents]
    """Documents whose tools the model gets, beside those of the agent or the request."""
    can_use_tool: CanUseTool
    """Decides about tools that no rule allows or forbids."""
    message_callback: MessageCallback
    """Is called with each message of the CLI."""


_FOR_PYTHON: frozenset[str] = frozenset({"documents", "can_use_tool", "message_callback"})
"""The settings that the CLI never hears of."""

OWN_SETTINGS: frozenset[str] = frozenset(ClaudeCodeModelSettings.__annotations__) - frozenset(
    ModelSettings.__annotations__
) - _FOR_PYTHON | {"timeout"}
"""The settings that the CLI understands."""


def known(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings that the CLI understands, as JSON has them; those that are `None` are not set."""
    given = (settings or {}).items()
    found = {name: value for name, value in given if name in OWN_SETTINGS and value is not None}
    plain: dict[str, Any] = to_jsonable_python(found, fallback=os.fspath)
    return plain


def given_documents(settings: Mapping[str, Any] | None) -> list[_native.Documents]:
    """The documents among the settings."""
    given = (settings or {}).get("documents") or ()
    return [given] if isinstance(given, _native.Documents) else list(given)


_WARNING: type[UserWarning] = getattr(exceptions, "UnsupportedSettingWarning", UserWarning)

# Of these pydantic-ai warns itself, where it has a class for that.
_OTHERS_WARN: frozenset[str] = frozenset(
    {"stop_sequences", "parallel_tool_calls", "extra_headers", "extra_body"}
    if hasattr(exceptions, "UnsupportedSettingWarning")
    else ()
)

_warned: set[str] = set()


def warn_unsupported(settings: Mapping[str, Any] | None, unsupported: Set[str]) -> None:
    """Warns, once for each, of settings that have no effect."""
    given = {name for name, value in (settings or {}).items() if value is not None}
    for name in sorted((given & unsupported) - _OTHERS_WARN - _warned):
        _warned.add(name)
        warnings.warn(
            f"the setting `{name}` has no effect: the CLI has none of the kind", _WARNING, stacklevel=2
        )
