"""What a server of tools reports about itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .settings import as_json


@dataclass(frozen=True)
class ServerInfo:
    """What the server of the tools reports about itself to its clients."""

    name: str | None = None
    """Its name; `toolbridge` by default."""
    version: str | None = None
    """Its version; that of this package by default."""
    instructions: str | None = None
    """What a model should know before it uses the tools."""


def as_dict(server: ServerInfo | None) -> dict[str, str] | None:
    """The server's information for the native module."""
    return None if server is None else as_json(asdict(server))
