"""The bridge, which the CLI starts, and the CLI itself."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

BRIDGE = Path(__file__).parent / "_bin" / "toolbridge-bridge"


def bundled_cli() -> Path | None:
    """The CLI from the package `claude-agent-sdk`, if that is installed."""
    spec = find_spec("claude_agent_sdk")
    places = (spec and spec.submodule_search_locations) or []
    found = (Path(place) / "_bundled" / "claude" for place in places)
    return next((path for path in found if path.is_file()), None)
