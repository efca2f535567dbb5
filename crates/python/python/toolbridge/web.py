"""pydantic-ai's native tools for the web, which the CLI provides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic_ai.native_tools import AbstractNativeTool, WebFetchTool, WebSearchTool

from .hooks import Hook, HookCall, HookOutput

NATIVE_TOOLS: frozenset[type[AbstractNativeTool]] = frozenset({WebSearchTool, WebFetchTool})
"""The native tools that the CLI has."""

KINDS = {"WebSearch": WebSearchTool.kind, "WebFetch": WebFetchTool.kind}
"""The CLI's names for them, with pydantic-ai's."""

_NAMES = {kind: name for name, kind in KINDS.items()}


def unsupported_settings(tool: AbstractNativeTool) -> frozenset[str]:
    """The limits among a tool's settings that the CLI does not enforce."""
    is_limit = {
        "max_uses": getattr(tool, "max_uses", None) is not None,
        "external_web_access": getattr(tool, "external_web_access", None) is False,
    }
    return frozenset(name for name, is_set in is_limit.items() if is_set)


def switched_on(tools: Sequence[AbstractNativeTool], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that enable these tools in the CLI, in addition to the given ones."""
    names = [_NAMES[tool.kind] for tool in tools]
    changed: dict[str, Any] = {}
    # The full Claude Code has them, unless its tools are listed explicitly.
    listed = settings.get("claude_code_builtin_tools")
    if names and (listed is not None or not settings.get("claude_code")):
        changed["builtin_tools"] = [*(listed or ()), *names]
    # As with the agent's tools: if there is a permission callback, it is asked about these, too.
    if names and settings.get("claude_code_can_use_tool") is None:
        changed["allowed_tools"] = [*(settings.get("claude_code_allowed_tools") or ()), *names]
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
