"""The bridge, which the CLI starts, and the CLI itself."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from . import _native

BRIDGE = Path(__file__).parent / "_bin" / "toolbridge-bridge"


def bundled_cli() -> Path | None:
    """The CLI from the package `claude-agent-sdk`, if that is installed."""
    spec = find_spec("claude_agent_sdk")
    places = (spec and spec.submodule_search_locations) or []
    found = (Path(place) / "_bundled" / "claude" for place in places)
    return next((path for path in found if path.is_file()), None)


def find_cli() -> Path:
    """The path of the CLI that a model without `cli_path` starts, for a program that starts it itself.

    It is searched on the PATH, in the usual places, and in the package `claude-agent-sdk`.

    Raises:
        CLINotFoundError: If there is none.
    """
    return _native.find_cli(bundled_cli())
