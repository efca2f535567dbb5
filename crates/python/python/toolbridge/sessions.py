"""The conversations that the CLI stores."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    UserContent,
    UserPromptPart,
)
from pydantic_core import from_json, to_json

from .answer import SYSTEM, Reader


@dataclass(frozen=True)
class SessionInfo:
    """A summary of a conversation."""

    session_id: str
    """Its id, for `resume`."""
    title: str | None
    """Its title, set by a user or by the CLI."""
    tag: str | None
    """Its tag, if it has one."""
    first_prompt: str | None
    """The beginning of the first prompt."""
    directory: str | None
    """The CLI's working directory."""
    modified: datetime
    """When it was last changed."""
    created: datetime | None
    """When it was created."""
    bytes: int
    """The size of its file."""


@dataclass(frozen=True)
class SessionMessage:
    """One message of a conversation."""

    id: str
    """Its id, for `resume_session_at` and `fork`. One answer may consist of several messages."""
    message: ModelMessage
    """The message itself."""


class Sessions:
    """The conversations that the CLI stores for a model's working directory, or for all directories.

    Created by `ClaudeCodeModel.sessions`. All methods block while they read or write files.
    """

    def __init__(self, ask: Callable[[bytes], bytes], reader: Reader, *, everywhere: bool) -> None:
        self._ask, self._reader, self._everywhere = ask, reader, everywhere

    def _call(self, what: str, **given: Any) -> Any:
        return from_json(self._ask(to_json({"what": what, "everywhere": self._everywhere, **given})))

    def list(self) -> Sequence[SessionInfo]:
        """All conversations, newest first."""
        return [_info(one) for one in self._call("list")]

    def get(self, session_id: str) -> SessionInfo:
        """The summary of one conversation."""
        return _info(self._call("get", session_id=session_id))

    def messages(self, session_id: str) -> Sequence[SessionMessage]:
        """The messages of a conversation. If the user went back and continued differently, the last
        branch."""
        messages = self._call("messages", session_id=session_id)
        return [SessionMessage(one["id"], self._message(one["message"])) for one in messages]

    def history(self, session_id: str) -> Sequence[ModelMessage]:
        """The same, as the `message_history` of a run; see `portable_history` for other models."""
        history: list[ModelMessage] = []
        for one in self.messages(session_id):
            last = history[-1] if history else None
            if isinstance(last, ModelResponse) and isinstance(one.message, ModelResponse):
                history[-1] = replace(last, parts=[*last.parts, *one.message.parts])
            else:
                history.append(one.message)
        return history

    def rename(self, session_id: str, title: str) -> None:
        """Changes its title."""
        self._call("rename", session_id=session_id, title=title)

    def tag(self, session_id: str, tag: str | None) -> None:
        """Sets or removes its tag."""
        self._call("tag", session_id=session_id, tag=tag)

    def delete(self, session_id: str) -> None:
        """Deletes it permanently, with its subagents' output. One that a CLI has open is not deleted."""
        self._call("delete", session_id=session_id)

    def fork(self, session_id: str, *, up_to: str | None = None, title: str | None = None) -> str:
        """Copies it, up to the message with that id or completely, and returns the copy's id."""
        copy: str = self._call("fork", session_id=session_id, up_to=up_to, title=title)
        return copy

    def _message(self, message: dict[str, Sequence[dict[str, Any]]]) -> ModelMessage:
        if "user" in message:
            content = [_content(one) for one in message["user"]]
            [first, *others] = content
            return ModelRequest([UserPromptPart(content if others or not isinstance(first, str) else first)])
        parts = [part for one in message["assistant"] if (part := self._reader.part(one)) is not None]
        return ModelResponse(parts, provider_name=SYSTEM)


def _info(info: dict[str, Any]) -> SessionInfo:
    def moment(seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)

    created = info.pop("created")
    return SessionInfo(
        modified=moment(info.pop("modified")), created=None if created is None else moment(created), **info
    )


def _content(item: dict[str, Any]) -> UserContent:
    if item["type"] == "text":
        text: str = item["text"]
        return text
    source = item["source"]
    return BinaryContent(base64.b64decode(source["data"]), media_type=source["media_type"])
