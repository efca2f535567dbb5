"""The executables of this package, the bridge that the CLI starts and `toolbridge`; and the CLI itself."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

_FOLDER = Path(__file__).parent / "_bin"

BRIDGE = _FOLDER / "toolbridge-bridge"


def bundled_cli() -> Path | None:
    """The CLI from the package `claude-agent-sdk`, if that is installed."""
    spec = find_spec("claude_agent_sdk")
    places = (spec and spec.submodule_search_locations) or []
    found = (Path(place) / "_bundled" / "claude" for place in places)
    return next((path for path in found if path.is_file()), None)


def main() -> NoReturn:
    """Replaces this process by `toolbridge`."""
    toolbridge = _FOLDER / "toolbridge"
    os.execv(toolbridge, [str(toolbridge), *sys.argv[1:]])
