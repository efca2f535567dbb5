"""The conversations that the CLI keeps."""

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
    """What is known of a conversation without reading all of it."""

    session_id: str
    """Its id, for `resume`."""
    title: str | None
    """Its title, given by somebody or by the CLI."""
    tag: str | None
    """Its tag, if somebody has given it one."""
    first_prompt: str | None
    """The beginning of what was said first."""
    directory: str | None
    """Where the CLI worked."""
    modified: datetime
    """When something was last written to it."""
    created: datetime | None
    """When it began."""
    bytes: int
    """How long its file is."""


@dataclass(frozen=True)
class SessionMessage:
    """One message of a conversation."""

    id: str
    """Its id, for `resume_session_at` and `fork`. What one answer has done may be several messages."""
    message: ModelMessage
    """What was said or done."""


class Sessions:
    """The conversations that the CLI keeps for a model's working directory, or for all directories.

    `ClaudeCodeModel.sessions` makes it. All that it does blocks until files are read or written.
    """

    def __init__(self, ask: Callable[[bytes], bytes], reader: Reader, *, everywhere: bool) -> None:
        self._ask, self._reader, self._everywhere = ask, reader, everywhere

    def _done(self, what: str, **given: Any) -> Any:
        return from_json(self._ask(to_json({"what": what, "everywhere": self._everywhere, **given})))

    def list(self) -> Sequence[SessionInfo]:
        """What there is, the newest first."""
        return [_info(one) for one in self._done("list")]

    def get(self, session_id: str) -> SessionInfo:
        """What is known of one of them."""
        return _info(self._done("get", session_id=session_id))

    def messages(self, session_id: str) -> Sequence[SessionMessage]:
        """What was said and done in it. Where somebody has gone back and said something else, that."""
        said = self._done("messages", session_id=session_id)
        return [SessionMessage(one["id"], self._message(one["message"])) for one in said]

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
        """Gives it another title."""
        self._done("rename", session_id=session_id, title=title)

    def tag(self, session_id: str, tag: str | None) -> None:
        """Gives it a tag, or takes it away."""
        self._done("tag", session_id=session_id, tag=tag)

    def delete(self, session_id: str) -> None:
        """Removes it for good, with what its agents did. One that a CLI has open is not removed."""
        self._done("delete", session_id=session_id)

    def fork(self, session_id: str, *, up_to: str | None = None, title: str | None = None) -> str:
        """Makes a copy, up to the message with that id or of all of it, and returns the copy's id."""
        copy: str = self._done("fork", session_id=session_id, up_to=up_to, title=title)
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
