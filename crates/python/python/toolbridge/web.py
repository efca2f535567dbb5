"""pydantic-ai's native tools for the web, which the CLI provides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic_ai.exceptions import UserError
from pydantic_ai.native_tools import AbstractNativeTool, WebFetchTool, WebSearchTool

from .hooks import Hook, HookCall, HookOutput

NATIVE_TOOLS: frozenset[type[AbstractNativeTool]] = frozenset({WebSearchTool, WebFetchTool})
"""The native tools that the CLI has."""

KINDS = {"WebSearch": WebSearchTool.kind, "WebFetch": WebFetchTool.kind}
"""The CLI's names for them, with pydantic-ai's."""

_NAMES = {kind: name for name, kind in KINDS.items()}

_UNSUPPORTED = ("max_uses", "external_web_access")


def unsupported_settings(tool: AbstractNativeTool) -> frozenset[str]:
    """The limits among a tool's settings that the CLI does not enforce."""
    given = {name: getattr(tool, name, None) for name in _UNSUPPORTED}
    is_limit = {
        "max_uses": given["max_uses"] is not None,
        "external_web_access": given["external_web_access"] is False,
    }
    return frozenset(name for name, is_set in is_limit.items() if is_set)


def check(tools: Iterable[AbstractNativeTool]) -> None:
    """Rejects tools with limits that would not be enforced. Older versions of pydantic-ai do not check this.

    Raises:
        UserError: If there is one.
    """
    for tool in tools:
        for setting in unsupported_settings(tool):
            raise UserError(
                f"the Claude Code CLI cannot enforce `{setting}` of the native tool `{tool.kind}`"
            )


def switched_on(
    tools: Sequence[AbstractNativeTool], own: Mapping[str, Any], given: Mapping[str, Any], *, asks: bool
) -> dict[str, Any]:
    """The settings that enable these tools in the CLI, based on those of the request and the model."""
    names = [_NAMES[tool.kind] for tool in tools]
    base = {**given, **own}
    changed: dict[str, Any] = {}
    # The full Claude Code has them, unless its tools are listed explicitly.
    if names and (base.get("builtin_tools") is not None or not base.get("claude_code")):
        changed["builtin_tools"] = [*(base.get("builtin_tools") or ()), *names]
    # As with the agent's tools: if there is a permission callback, it is asked about these, too.
    if names and not asks:
        changed["allowed_tools"] = [*(base.get("allowed_tools") or ()), *names]
    return changed


def hooks(tools: Sequence[AbstractNativeTool]) -> list[Hook]:
    """Hooks that restrict the tools to their domains, whatever the model requests."""
    found = []
    for tool in tools:
        if isinstance(tool, WebSearchTool | WebFetchTool) and (tool.allowed_domains or tool.blocked_domains):
            kept = _Kept(tool.allowed_domains, tool.blocked_domains)
            function = kept.search if isinstance(tool, WebSearchTool) else kept.fetch
            found.append(Hook("PreToolUse", function, matcher=_NAMES[tool.kind]))
    return found


class _Kept:
    def __init__(self, allowed: list[str] | None, blocked: list[str] | None) -> None:
        self._allowed, self._blocked = allowed, blocked

    def search(self, call: HookCall) -> HookOutput:
        """Restricts the search to these domains, instead of those that the model names."""
        domains = {"allowed_domains": self._allowed, "blocked_domains": self._blocked}
        named = {name: value for name, value in (call.tool_input or {}).items() if name not in domains}
        return HookOutput(tool_input={**named, **{name: value for name, value in domains.items() if value}})

    def fetch(self, call: HookCall) -> HookOutput | None:
        """Denies pages that are not on these domains."""
        address = urlsplit(str((call.tool_input or {}).get("url", "")))
        place = f"{(address.hostname or '').rstrip('.')}{address.path or '/'}"
        if self._allowed and not any(_is_at(place, domain) for domain in self._allowed):
            return HookOutput.deny(f"only these domains may be read: {', '.join(self._allowed)}")
        if self._blocked and any(_is_at(place, domain) for domain in self._blocked):
            return HookOutput.deny(f"these domains may not be read: {', '.join(self._blocked)}")
        return None


def _is_at(place: str, domain: str) -> bool:
    """Whether a host with a path is at a domain or below it; the domain may have a path, too."""
    host, _, path = place.partition("/")
    of, _, below = domain.lower().removeprefix("https://").removeprefix("http://").partition("/")
    return (host == of or host.endswith(f".{of}")) and f"{path}/".startswith(
        f"{below.rstrip('/')}/" if below else ""
    )
