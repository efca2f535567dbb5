"""A session with functions of this process. It prints the session's paths, and ends when its stdin ends."""

import json
import sys
from typing import Any

from toolbridge import Session


def echo(text: str) -> str:
    """Returns exactly the text."""
    return text


def take(items: list[dict[str, Any]], text: str) -> str:
    """Takes items, and returns the text."""
    return text


def both(items: list[dict[str, Any]], text: str) -> dict[str, Any]:
    """Returns the items."""
    return {"items": items, "text": text}


with Session(echo, take, both) as session:
    print(json.dumps({"socket": str(session.socket_path), "schema": str(session.schema_path)}), flush=True)
    sys.stdin.read()
