"""Who calls a tool."""

from __future__ import annotations

from dataclasses import dataclass

from .progress import current_call


@dataclass(frozen=True)
class Client:
    """The program that calls a tool, as far as it is known.

    What a client says of itself is for logs and for telling callers apart; only `pid` comes from the system.
    """

    name: str | None = None
    """What it calls itself, such as `claude-code`."""
    version: str | None = None
    """Its version."""
    session_id: str | None = None
    """The CLI's session, where the client is one that started a bridge."""
    pid: int | None = None
    """The process at the other end of the socket: the bridge, which ends with the client that started it."""


def current_client() -> Client | None:
    """Who calls the tool that runs: one of the many clients that may share a session.

    `None` outside of a tool, and where nothing is known.
    """
    call = current_call.get()
    known = None if call is None else call.client
    return None if known is None else Client(*known)
