"""The executable that the CLI starts as the bridge. It comes with this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

PATH = Path(__file__).parent / "_bin" / "toolbridge"


def main() -> NoReturn:
    """Becomes the executable."""
    os.execv(PATH, [str(PATH), *sys.argv[1:]])
