"""Types of settings that are objects, in the CLI's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

# pydantic, which checks the settings, needs this one before Python 3.12.
from typing_extensions import TypedDict

from . import cli_settings

Count: TypeAlias = Annotated[int, Field(ge=0, le=2**32 - 1)]
Port: TypeAlias = Annotated[int, Field(ge=0, le=2**16 - 1)]


class _Budget(TypedDict, total=False):
    display: Literal["summarized", "omitted"]
    budget_tokens: Count


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
    maxTurns: Count
    background: bool
    effort: cli_settings.Effort
    permissionMode: cli_settings.PermissionMode


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
    httpProxyPort: Port
    socksProxyPort: Port


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
