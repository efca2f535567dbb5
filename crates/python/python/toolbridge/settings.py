"""How the CLI is to run."""

from __future__ import annotations

import functools
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Literal, TypeAlias, TypedDict

from pydantic_ai import exceptions, models
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python

from . import _native
from .callbacks import CanUseTool, MessageCallback, StderrCallback
from .errors import InvalidRequestError
from .hooks import Hook
from .questions import OnAsk

TransportType: TypeAlias = Literal["auto", "stdio", "sdk"]
"""How tool calls travel between the CLI and this process.

`stdio`: the CLI starts a bridge, which calls this process over a Unix socket. `sdk`: over the CLI's own stdin
and stdout. `auto`: whatever works with every version of the CLI; today `stdio`.
"""

DEFAULT_TRANSPORT: TransportType = "auto"

DEFAULT_TIMEOUT_SECONDS = 120.0

DEFAULT_SERVER_NAME = "pydantic_tools"

PermissionMode: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"]
"""What the CLI does about tools that no rule allows."""

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
"""How much a model is to think about its answer."""


class _Budget(TypedDict, total=False):
    display: Literal["summarized", "omitted"]
    budget_tokens: int


class Thinking(_Budget):
    """Whether a model thinks before it answers: as it sees fit, up to `budget_tokens`, or not."""

    type: Literal["adaptive", "enabled", "disabled"]


class _SubagentOptions(TypedDict, total=False):
    tools: Sequence[str]
    disallowedTools: Sequence[str]
    model: str
    skills: Sequence[str]
    memory: Literal["user", "project", "local"]
    mcpServers: Sequence[str | Mapping[str, Any]]
    initialPrompt: str
    maxTurns: int
    background: bool
    effort: Effort | str
    permissionMode: PermissionMode | str


class Subagent(_SubagentOptions):
    """An agent that the model may start, with the names that the CLI has for its parts.

    It has the `tools` that it is given, and no others: `Read`, `mcp__pydantic_tools__add`, `add` for a tool
    of this process, or `*` for all of them.
    """

    description: str
    prompt: str


class SandboxNetwork(TypedDict, total=False):
    """What commands in a sandbox reach of the network, with the names that the CLI has for it."""

    allowedDomains: Sequence[str]
    deniedDomains: Sequence[str]
    allowManagedDomainsOnly: bool
    allowUnixSockets: Sequence[str]
    allowAllUnixSockets: bool
    allowLocalBinding: bool
    allowMachLookup: Sequence[str]
    httpProxyPort: int
    socksProxyPort: int


class Sandbox(TypedDict, total=False):
    """Where commands of the CLI's `Bash` run, with the names that the CLI has for it.

    One that is enabled and cannot be had is an error, unless `failIfUnavailable` is false.
    """

    enabled: bool
    failIfUnavailable: bool
    autoAllowBashIfSandboxed: bool
    excludedCommands: Sequence[str]
    allowUnsandboxedCommands: bool
    network: SandboxNetwork
    ignoreViolations: Mapping[str, Sequence[str]]
    enableWeakerNestedSandbox: bool


class ClaudeCodeModelSettings(ModelSettings, total=False):
    """Settings of one request, of a run, or of an agent. They win over those of the model.

    Each is named as the argument of `ClaudeCodeModel` is, after `claude_code_`, so that they can be merged
    with those of other models. `timeout`, in seconds, is among those that every model has.
    """

    # ALL FIELDS MUST BEGIN WITH `claude_code` SO YOU CAN MERGE THEM WITH OTHER MODELS.

    claude_code: bool
    """Whether the model is the whole of Claude Code; see `ClaudeCodeModel`."""
    claude_code_expand_prompts: bool
    """Whether the CLI reads the files that prompts name with `@`, and runs commands such as `/cost`."""
    claude_code_working_directory: str | os.PathLike[str]
    """Where the CLI works."""
    claude_code_timeout_counts_tools: bool
    """Whether `timeout` also counts the time in which the CLI waits for functions of yours."""
    claude_code_allowed_tools: Sequence[str]
    """Rules for tools that run without a question, such as `Read` or `Bash(git log *)`."""
    claude_code_disallowed_tools: Sequence[str]
    """Rules for tools that must not run."""
    claude_code_builtin_tools: Sequence[str]
    """The CLI's own tools that the model gets; `default` is all that the CLI usually has."""
    claude_code_permission_mode: PermissionMode | str
    """What the CLI does about tools that no rule allows."""
    claude_code_max_turns: int
    """How often the model may be asked in a request."""
    claude_code_max_budget_usd: float
    """What a request may cost."""
    claude_code_system_prompt: str
    """The system prompt, before the agent's own instructions."""
    claude_code_append_system_prompt: str
    """What is added to the system prompt, before the agent's own instructions."""
    claude_code_coding_prompt: bool
    """Whether the system prompt is the CLI's own, which is for coding, where no other is given."""
    claude_code_keep_session: bool
    """Whether the CLI keeps a transcript of the conversation on disk, so that it can be resumed."""
    claude_code_session_id: str
    """The id, a UUID, of a new conversation that is kept."""
    claude_code_continue_conversation: bool
    """Whether the request belongs to the last conversation that was kept in the working directory."""
    claude_code_resume: str
    """The session id of the kept conversation that the request belongs to."""
    claude_code_fork_session: bool
    """Whether that conversation goes on as a copy."""
    claude_code_setting_sources: Sequence[str]
    """The settings files that the CLI reads: `user`, `project`, `local`."""
    claude_code_cli_settings: Mapping[str, Any]
    """Settings for the CLI, such as its settings files hold."""
    claude_code_extra_args: Sequence[str]
    """Further arguments for the CLI."""
    claude_code_env: Mapping[str, str]
    """Variables of the CLI's environment."""
    claude_code_mcp_servers: Mapping[str, Mapping[str, Any]]
    """Further MCP servers, as in the CLI's `mcpServers`."""
    claude_code_fallback_model: str
    """The model to ask where the first is overloaded or not there; several with commas between them."""
    claude_code_effort: Effort | str
    """How much the model is to think about its answer."""
    claude_code_thinking: Thinking
    """Whether the model thinks before it answers."""
    claude_code_task_budget: int
    """How many tokens the model is told that it has for the whole of a request."""
    claude_code_betas: Sequence[str]
    """Features of the API that are being tried out."""
    claude_code_client_app: str
    """How your program calls itself towards the API, such as `shop/1.2`."""
    claude_code_add_dirs: Sequence[str | os.PathLike[str]]
    """Further directories that the CLI's tools may reach."""
    claude_code_agents: Mapping[str, Subagent]
    """Agents that the model may start, by their names."""
    claude_code_skills: Sequence[str] | Literal["all"]
    """The skills that the model may use, of the setting sources, the plugins and the CLI."""
    claude_code_plugins: Sequence[str | os.PathLike[str]]
    """Directories with plugins."""
    claude_code_sandbox: Sandbox
    """Where commands of the CLI's `Bash` run."""
    claude_code_enable_file_checkpointing: bool
    """Whether the CLI keeps copies of files before its tools change them."""
    claude_code_exclude_dynamic_sections: bool
    """Whether the CLI's own system prompt leaves out what is of one user alone."""
    claude_code_system_prompt_snapshot: bool
    """Whether a conversation keeps the system prompt that it began with."""
    claude_code_resume_session_at: str
    """The id of the message after which a resumed conversation goes on."""
    claude_code_resume_drops_turn: str
    """The id of the prompt that is left out by that, with all that came of it and nothing else."""
    claude_code_include_hook_events: bool
    """Whether the CLI says when hooks begin and end."""
    claude_code_forward_subagent_text: bool
    """Whether the CLI says what agents say and think."""
    claude_code_documents: _native.Documents | Sequence[_native.Documents]
    """Documents whose tools the model gets, beside those of the agent or the request."""
    claude_code_tool_servers: _native.McpServer | Sequence[_native.McpServer]
    """Other MCP servers, which start and end with a request. The model gets their tools beside yours."""
    claude_code_nats_tools: _native.NatsTools | Sequence[_native.NatsTools]
    """Tools of other machines that the model gets, beside those of the agent or the request."""
    claude_code_can_use_tool: CanUseTool
    """Decides about tools that no rule allows or forbids."""
    claude_code_hooks: Sequence[Hook]
    """Functions that are called when something happens in the CLI, beside those of the model."""
    claude_code_on_ask: OnAsk
    """Answers what tools and MCP servers ask."""
    claude_code_message_callback: MessageCallback
    """Is called with each message of the CLI."""
    claude_code_stderr_callback: StderrCallback
    """Is called with each line that the CLI writes to its stderr."""


PREFIX = "claude_code_"
"""What the names of this model's settings begin with."""

_ALL_MODELS: frozenset[str] = frozenset(ModelSettings.__annotations__)
"""The settings that pydantic-ai has for every model."""

_OWN: frozenset[str] = frozenset(ClaudeCodeModelSettings.__annotations__) - _ALL_MODELS
"""The settings that only this model has."""

_FOR_PYTHON: frozenset[str] = frozenset(
    {
        "claude_code_documents",
        "claude_code_nats_tools",
        "claude_code_tool_servers",
        "claude_code_can_use_tool",
        "claude_code_hooks",
        "claude_code_on_ask",
        "claude_code_message_callback",
        "claude_code_stderr_callback",
    }
)
"""The settings that the CLI never hears of."""

FOR_CLI: dict[str, str] = {name: name.removeprefix(PREFIX) for name in _OWN - _FOR_PYTHON} | {
    "timeout": "timeout"
}
"""The settings that the CLI understands, and what the native module calls them."""


def known(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings that the CLI understands, by the native module's names."""
    given = (settings or {}).items()
    return as_json({FOR_CLI[name]: value for name, value in given if name in FOR_CLI})


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them; those that are `None` are not set."""
    found = {name: value for name, value in settings.items() if value is not None}
    plain: dict[str, Any] = to_jsonable_python(found, fallback=os.fspath)
    return plain


def given_documents(settings: Mapping[str, Any] | None) -> list[_native.Documents]:
    """The documents among the settings."""
    given = (settings or {}).get("claude_code_documents") or ()
    return [given] if isinstance(given, _native.Documents) else list(given)


def given_servers(settings: Mapping[str, Any] | None) -> list[_native.McpServer | _native.NatsTools]:
    """The other servers and machines among the settings."""
    found: list[_native.McpServer | _native.NatsTools] = []
    for name in ("claude_code_tool_servers", "claude_code_nats_tools"):
        given = (settings or {}).get(name) or ()
        found += [given] if isinstance(given, _native.McpServer | _native.NatsTools) else given
    return found


def check_names(settings: Mapping[str, Any] | None) -> None:
    """Refuses settings that no model has. Those of other models are theirs.

    Raises:
        InvalidRequestError: When there is such a setting; the hint names the nearest that there is.
    """
    for name in settings or {}:
        if name in _OWN or name in _ALL_MODELS:
            continue
        means_ours = name.startswith(PREFIX) or f"{PREFIX}{name}" in _OWN
        if not means_ours and is_of_another_model(name):
            continue
        nearest = _nearest(name)
        has_own = "`ClaudeCodeModelSettings` has those of this model"
        hint = f"did you mean `{nearest}`?" if nearest else has_own
        raise InvalidRequestError(f"there is no setting `{name}`", hint=hint)


def _nearest(name: str) -> str | None:
    """The setting that is most likely meant."""
    if f"{PREFIX}{name}" in _OWN:
        return f"{PREFIX}{name}"
    # Without the prefix: it would make all of them alike.
    bare = {own.removeprefix(PREFIX): own for own in sorted(_OWN)} | {own: own for own in sorted(_ALL_MODELS)}
    found = get_close_matches(name.removeprefix(PREFIX), bare, n=1)
    return bare[found[0]] if found else None


def is_of_another_model(name: str) -> bool:
    """Whether the setting has the prefix of a model of pydantic-ai's, or is that of an imported model."""
    if name.startswith(_other_prefixes()):
        return True
    packages = {kind.__module__.partition(".")[0] for kind in _subclasses(Model)}
    modules = [
        module
        for path, module in list(sys.modules.items())
        if path.partition(".")[0] in packages and isinstance(module, ModuleType)
    ]
    return any(name in kind.__annotations__ for module in modules for kind in _settings_of(module))


@functools.cache
def _other_prefixes() -> tuple[str, ...]:
    """Those of pydantic-ai's models, also of those that are not imported, or cannot be."""
    names = (module.name for module in pkgutil.iter_modules(models.__path__))
    # That of `mcp_sampling` is called by none of these.
    return ("mcp_model_preferences", *(f"{name}_" for name in names if not name.startswith("_")))


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def _settings_of(module: ModuleType) -> Iterator[type[Any]]:
    """The settings that a module has, of whichever model."""
    for value in list(vars(module).values()):
        is_typed_dict = isinstance(value, type) and issubclass(value, dict) and "__total__" in vars(value)
        if is_typed_dict and value.__annotations__.keys() >= _ALL_MODELS:
            yield value


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
