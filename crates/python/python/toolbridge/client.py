"""The client that calls a tool."""

from __future__ import annotations

from dataclasses import dataclass

from .progress import current_call


@dataclass(frozen=True)
class Client:
    """The program that calls a tool, as far as it is known.

    What a client reports about itself is for logs and for telling callers apart; only `pid` comes from the
    system.
    """

    name: str | None = None
    """The name it reports, such as `claude-code`."""
    version: str | None = None
    """Its version."""
    session_id: str | None = None
    """The CLI's session, if the client is a CLI that started a bridge."""
    pid: int | None = None
    """The process connected to the socket: the bridge, which exits with the client that started it."""


def current_client() -> Client | None:
    """The client that calls the running tool; several clients may share a session.

    `None` outside of a tool, or if nothing is known.
    """
    call = current_call.get()
    known = None if call is None else call.client
    return None if known is None else Client(*known)
