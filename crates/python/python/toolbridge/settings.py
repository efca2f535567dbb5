"""Settings of the CLI."""

from __future__ import annotations

import functools
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from types import ModuleType
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from pydantic_ai import exceptions, models
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python

# pydantic, which checks the settings, needs this one before Python 3.12.
from typing_extensions import TypedDict

from . import _native
from .callbacks import CanUseTool, MessageCallback, PermissionMode, StderrCallback
from .errors import InvalidRequestError
from .failure import ToolErrors
from .hooks import Hook
from .questions import OnAsk
from .setting_types import SettingTypes

TransportType: TypeAlias = Literal["auto", "stdio", "sdk"]
"""How tool calls are transported between the CLI and this process.

`stdio`: the CLI starts a bridge, which calls this process over a Unix socket. `sdk`: over the CLI's own stdin
and stdout. `auto`: whatever works with every version of the CLI; today `stdio`.
"""

DEFAULT_TRANSPORT: TransportType = "auto"

DEFAULT_TIMEOUT_SECONDS = 120.0

DEFAULT_SERVER_NAME = "pydantic_tools"

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
"""How much effort a model spends on its answer."""

BuiltinTool: TypeAlias = Literal[
    "default",
    "Agent",
    "AgentOutputTool",
    "Artifact",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "Brief",
    "ClaudeDesign",
    "Config",
    "CronCreate",
    "CronDelete",
    "CronList",
    "DesignSync",
    "Edit",
    "EndConversation",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "Glob",
    "Grep",
    "JavaScript",
    "KillBash",
    "KillShell",
    "LS",
    "LSP",
    "ListAgents",
    "ListMcpResources",
    "ListMcpResourcesTool",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "OfferChromeSetup",
    "PowerShell",
    "Projects",
    "ProposeGoal",
    "PushNotification",
    "REPL",
    "Read",
    "ReadMcpResource",
    "ReadMcpResourceDirTool",
    "ReadMcpResourceTool",
    "ReadNotifications",
    "RemoteTrigger",
    "ReportFindings",
    "ScheduleWakeup",
    "SendFeedback",
    "SendMessage",
    "SendUserFile",
    "SendUserMessage",
    "ShareOnboardingGuide",
    "ShowOnboardingRolePicker",
    "Skill",
    "SlashCommand",
    "StructuredOutput",
    "SubagentHandback",
    "SubscribePR",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TeamCreate",
    "TeamDelete",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
    "WaitForMcpServers",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
    "propose_skills",
]
"""A tool of the CLI's own; `default` is its usual set. Others, of a newer CLI, are accepted, too."""


_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**32 - 1)]
_Port: TypeAlias = Annotated[int, Field(ge=0, le=2**16 - 1)]


class _Budget(TypedDict, total=False):
    display: Literal["summarized", "omitted"]
    budget_tokens: _Count


class Thinking(_Budget):
    """Whether a model thinks before it answers: adaptively, up to `budget_tokens`, or not at all."""

    type: Literal["adaptive", "enabled", "disabled"]


class _SubagentOptions(TypedDict, total=False):
    tools: Sequence[str]
    disallowedTools: Sequence[str]
    model: str
    skills: Sequence[str]
    memory: Literal["user", "project", "local"]
    mcpServers: Sequence[str | Mapping[str, Any]]
    initialPrompt: str
    maxTurns: _Count
    background: bool
    effort: Effort
    permissionMode: PermissionMode


class Subagent(_SubagentOptions):
    """An agent that the model may start, in the CLI's format.

    It has only the `tools` that it is given: `Read`, `mcp__pydantic_tools__add`, `add` for a tool of this
    process, or `*` for all of them.
    """

    description: str
    prompt: str


class SandboxNetwork(TypedDict, total=False):
    """The network access of commands in a sandbox, in the CLI's format."""

    allowedDomains: Sequence[str]
    deniedDomains: Sequence[str]
    allowManagedDomainsOnly: bool
    allowUnixSockets: Sequence[str]
    allowAllUnixSockets: bool
    allowLocalBinding: bool
    allowMachLookup: Sequence[str]
    httpProxyPort: _Port
    socksProxyPort: _Port


class Sandbox(TypedDict, total=False):
    """The sandbox for commands of the CLI's `Bash`, in the CLI's format.

    If it is enabled but unavailable, that is an error, unless `failIfUnavailable` is false.
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
    """Settings of one request, of a run, or of an agent. They take precedence over those of the model.

    Each is named like the argument of `ClaudeCodeModel`, with the prefix `claude_code_`, so that they can be
    merged with those of other models. `timeout`, in seconds, is one of the settings that every model has.
    """

    # ALL FIELDS MUST BEGIN WITH `claude_code` SO YOU CAN MERGE THEM WITH OTHER MODELS.

    claude_code: bool
    """Whether the model is the full Claude Code; see `ClaudeCodeModel`."""
    claude_code_expand_prompts: bool
    """Whether the CLI reads files that prompts reference with `@`, and runs commands such as `/cost`."""
    claude_code_working_directory: str | os.PathLike[str]
    """The CLI's working directory."""
    claude_code_timeout_counts_tools: bool
    """Whether `timeout` includes the time in which the CLI waits for your functions."""
    claude_code_allowed_tools: Sequence[str]
    """Rules for tools that run without asking for permission, such as `Read` or `Bash(git log *)`."""
    claude_code_disallowed_tools: Sequence[str]
    """Rules for tools that must not run."""
    claude_code_builtin_tools: Sequence[BuiltinTool]
    """The CLI's own tools that the model gets; `default` is the CLI's usual set."""
    claude_code_permission_mode: PermissionMode
    """How the CLI handles tools that no rule allows."""
    claude_code_max_turns: int
    """The maximum number of model turns per request."""
    claude_code_max_budget_usd: float
    """The maximum cost of a request."""
    claude_code_system_prompt: str
    """The system prompt, before the agent's own instructions."""
    claude_code_append_system_prompt: str
    """Text to append to the system prompt, before the agent's own instructions."""
    claude_code_coding_prompt: bool
    """Whether to use the CLI's own system prompt, which is for coding, if no other is given."""
    claude_code_keep_session: bool
    """Whether the CLI stores a transcript of the conversation on disk, so that it can be resumed."""
    claude_code_session_id: str
    """The id, a UUID, of a new conversation that is stored."""
    claude_code_continue_conversation: bool
    """Whether the request continues the last conversation that was stored in the working directory."""
    claude_code_resume: str
    """The session id of a stored conversation that the request continues."""
    claude_code_fork_session: bool
    """Whether to continue a copy of that conversation."""
    claude_code_setting_sources: Sequence[str]
    """The settings files that the CLI reads: `user`, `project`, `local`."""
    claude_code_cli_settings: Mapping[str, Any]
    """Settings for the CLI, in the format of its settings files."""
    claude_code_extra_args: Sequence[str]
    """Further arguments for the CLI."""
    claude_code_env: Mapping[str, str]
    """Environment variables for the CLI."""
    claude_code_mcp_servers: Mapping[str, Mapping[str, Any]]
    """Further MCP servers, as in the CLI's `mcpServers`."""
    claude_code_fallback_model: str
    """The model to use if the first is overloaded or unavailable; several are separated by commas."""
    claude_code_effort: Effort
    """How much effort the model spends on its answer."""
    claude_code_thinking: Thinking
    """Whether the model thinks before it answers."""
    claude_code_task_budget: int
    """The token budget for the whole request that the model is told."""
    claude_code_betas: Sequence[str]
    """Beta features of the API."""
    claude_code_client_app: str
    """The name of your program for the API, such as `shop/1.2`."""
    claude_code_add_dirs: Sequence[str | os.PathLike[str]]
    """Further directories that the CLI's tools may access."""
    claude_code_agents: Mapping[str, Subagent]
    """Agents that the model may start, by name."""
    claude_code_skills: Sequence[str] | Literal["all"]
    """The skills that the model may use, of the setting sources, the plugins and the CLI."""
    claude_code_plugins: Sequence[str | os.PathLike[str]]
    """Directories with plugins."""
    claude_code_sandbox: Sandbox
    """The sandbox for commands of the CLI's `Bash`."""
    claude_code_enable_file_checkpointing: bool
    """Whether the CLI stores copies of files before its tools change them."""
    claude_code_exclude_dynamic_sections: bool
    """Whether the CLI's own system prompt omits user-specific parts."""
    claude_code_system_prompt_snapshot: bool
    """Whether a conversation keeps its first system prompt."""
    claude_code_resume_session_at: str
    """The id of the message after which a resumed conversation continues."""
    claude_code_resume_drops_turn: str
    """The id of the prompt that this drops, together with its answer and nothing else."""
    claude_code_include_hook_events: bool
    """Whether the CLI reports the start and end of hooks."""
    claude_code_forward_subagent_text: bool
    """Whether the CLI reports the text and thoughts of agents."""
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


PREFIX = "claude_code_"
"""The prefix of this model's settings."""

_ALL_MODELS: frozenset[str] = frozenset(ModelSettings.__annotations__)
"""The settings that pydantic-ai has for every model."""

_OWN: frozenset[str] = frozenset(ClaudeCodeModelSettings.__annotations__) - _ALL_MODELS
"""The settings that only this model has."""

_FOR_PYTHON: frozenset[str] = frozenset(
    {
        "claude_code_documents",
        "claude_code_nats_tools",
        "claude_code_tool_servers",
        "claude_code_tool_errors",
        "claude_code_can_use_tool",
        "claude_code_hooks",
        "claude_code_on_ask",
        "claude_code_message_callback",
        "claude_code_stderr_callback",
    }
)
"""The settings that are not passed to the CLI."""

FOR_CLI: dict[str, str] = {name: name.removeprefix(PREFIX) for name in _OWN - _FOR_PYTHON} | {
    "timeout": "timeout"
}
"""The settings for the CLI, with their names in the native module."""


def settings_for_cli(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings for the CLI, by the native module's names."""
    given = {name: value for name, value in (settings or {}).items() if name in FOR_CLI}
    return {FOR_CLI[name]: value for name, value in as_json(given).items()}


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON values; `None` means unset."""
    return {name: _json(name, value) for name, value in settings.items() if value is not None}


def _json(name: str, value: Any) -> Any:
    try:
        return to_jsonable_python(value, fallback=_as_plain)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"`{name}` has a value that JSON does not have") from error


def _as_plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else os.fspath(value)


def given_documents(settings: Mapping[str, Any] | None) -> list[_native.Documents]:
    """The documents in the settings."""
    given = (settings or {}).get("claude_code_documents") or ()
    return [given] if isinstance(given, _native.Documents) else list(given)


def given_servers(settings: Mapping[str, Any] | None) -> list[_native.McpServer | _native.NatsTools]:
    """The other servers and machines in the settings."""
    found: list[_native.McpServer | _native.NatsTools] = []
    for name in ("claude_code_tool_servers", "claude_code_nats_tools"):
        given = (settings or {}).get(name) or ()
        found += [given] if isinstance(given, _native.McpServer | _native.NatsTools) else given
    return found


def check_names(settings: Mapping[str, Any] | None) -> None:
    """Rejects settings that no model has. Settings of other models are ignored.

    Raises:
        InvalidRequestError: If there is such a setting; the hint has the most similar valid name.
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


@functools.cache
def _types() -> SettingTypes:
    return SettingTypes(ClaudeCodeModelSettings, without=_ALL_MODELS)


def check_types(settings: Mapping[str, Any] | None) -> None:
    """Rejects settings of this model whose values have other types.

    Raises:
        InvalidRequestError: If there is one.
    """
    given = dict(settings or {})
    if given:
        _types().check(given)
    timeout = given.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise InvalidRequestError(f"`timeout` takes `float`, not a `{type(timeout).__name__}`")


def _nearest(name: str) -> str | None:
    """The most similar valid setting."""
    if f"{PREFIX}{name}" in _OWN:
        return f"{PREFIX}{name}"
    # Compare without the prefix, which would make all names similar.
    bare = {own.removeprefix(PREFIX): own for own in sorted(_OWN)} | {own: own for own in sorted(_ALL_MODELS)}
    found = get_close_matches(name.removeprefix(PREFIX), bare, n=1)
    return bare[found[0]] if found else None


def is_of_another_model(name: str) -> bool:
    """Whether the setting has the prefix of another pydantic-ai model, or belongs to an imported model."""
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
    """The prefixes of pydantic-ai's models, including those that are not or cannot be imported."""
    names = (module.name for module in pkgutil.iter_modules(models.__path__))
    # The setting of `mcp_sampling` does not have its module's name as a prefix.
    return ("mcp_model_preferences", *(f"{name}_" for name in names if not name.startswith("_")))


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def _settings_of(module: ModuleType) -> Iterator[type[Any]]:
    """The settings classes of a module."""
    for value in list(vars(module).values()):
        is_typed_dict = isinstance(value, type) and issubclass(value, dict) and "__total__" in vars(value)
        if is_typed_dict and value.__annotations__.keys() >= _ALL_MODELS:
            yield value


_WARNING: type[UserWarning] = getattr(exceptions, "UnsupportedSettingWarning", UserWarning)

# pydantic-ai itself warns about these, if it has a class for that.
_OTHERS_WARN: frozenset[str] = frozenset(
    {"stop_sequences", "parallel_tool_calls", "extra_headers", "extra_body"}
    if hasattr(exceptions, "UnsupportedSettingWarning")
    else ()
)

_warned: set[str] = set()


def warn_unsupported(settings: Mapping[str, Any] | None, unsupported: Set[str]) -> None:
    """Warns, once for each, about settings that have no effect."""
    given = {name for name, value in (settings or {}).items() if value is not None}
    for name in sorted((given & unsupported) - _OTHERS_WARN - _warned):
        _warned.add(name)
        warnings.warn(
            f"the setting `{name}` has no effect: the CLI does not support it", _WARNING, stacklevel=2
        )
