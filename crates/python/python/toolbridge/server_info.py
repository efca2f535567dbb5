"""What a server of tools says of itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .settings import as_json


@dataclass(frozen=True)
class ServerInfo:
    """How the server of the tools introduces itself to its clients."""

    name: str | None = None
    """Its name; `toolbridge` by default."""
    version: str | None = None
    """Its version; that of this package by default."""
    instructions: str | None = None
    """What a model should know before it uses the tools."""


def said(server: ServerInfo | None) -> dict[str, str] | None:
    """What the native module is told about a server."""
    return None if server is None else as_json(asdict(server))
