"""Converts pydantic-ai's messages to the native module's format."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BaseToolCallPart,
    BaseToolReturnPart,
    BinaryContent,
    CachePoint,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, download_item
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from .output import CLI_TOOL
from .response import SYSTEM

_GO_ON = "Go on."
"""The prompt if a conversation ends with a tool result."""


@dataclass
class Messages:
    """Messages in the native module's format; the last one is the prompt."""

    messages: list[dict[str, list[Any]]] = field(default_factory=list)
    system: list[str] = field(default_factory=list)

    def add(self, who: Literal["user", "assistant"], piece: Any) -> None:
        """Adds a piece to the last message if it has the same role, or to a new one."""
        if not self.messages or who not in self.messages[-1]:
            self.messages.append({who: []})
        self.messages[-1][who].append(piece)


async def native_messages(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Messages:
    """Converts pydantic-ai's messages."""
    read = Messages()
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                await _add_request_part(read, part)
        else:
            for response_part in message.parts:
                await _add_response_part(read, response_part)
    read.system.extend(_instructions(messages, parameters))
    if not read.messages or "user" not in read.messages[-1]:
        # The conversation ends with a tool result, from which the model should continue.
        read.add("user", _text(_last_retry(messages) or _GO_ON))
    return read


async def prompt_inputs(content: str | Sequence[UserContent]) -> list[dict[str, Any]]:
    """A prompt in the native module's format."""
    items = [content] if isinstance(content, str) else content
    return [await _input(item) for item in items if not isinstance(item, CachePoint)]


async def _add_request_part(read: Messages, part: Any) -> None:
    if isinstance(part, SystemPromptPart):
        read.system.append(part.content)
    elif isinstance(part, UserPromptPart):
        for piece in await prompt_inputs(part.content):
            read.add("user", piece)
    elif isinstance(part, BaseToolReturnPart):
        read.add("assistant", await _tool_result(part))
    elif isinstance(part, RetryPromptPart):
        text = part.model_response()
        if part.tool_name is None:
            read.add("user", _text(text))
        else:
            read.add("assistant", _result(part.tool_call_id, part.tool_name, text, is_error=True))


async def _add_response_part(read: Messages, part: ModelResponsePart) -> None:
    if _submits_output(part):
        return  # the output is also a separate part
    if isinstance(part, TextPart):
        if part.content:
            read.add("assistant", _text(part.content))
    elif isinstance(part, BaseToolCallPart):
        call = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
        read.add("assistant", {"type": "tool_call", **call})
    elif isinstance(part, BaseToolReturnPart):
        read.add("assistant", await _tool_result(part))
    elif isinstance(part, FilePart):
        read.add("assistant", _text(f"(a file, {part.content.media_type})"))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


async def _input(item: UserContent) -> dict[str, Any]:
    """A piece of user content."""
    if isinstance(item, str):
        return _text(item)
    if isinstance(item, ImageUrl | DocumentUrl):
        downloaded = await download_item(item, data_format="bytes")
        item = BinaryContent(downloaded["data"], media_type=downloaded["data_type"])
    if isinstance(item, BinaryContent):
        if item.is_image or item.media_type == "application/pdf":
            data = base64.b64encode(item.data).decode()
            source = {"type": "base64", "media_type": item.media_type, "data": data}
            return {"type": "image" if item.is_image else "document", "source": source}
        if item.media_type.startswith("text/") or item.media_type == "application/json":
            try:
                return _text(item.data.decode())
            except UnicodeDecodeError as error:
                raise UserError(f"a file of the type `{item.media_type}` is not in UTF-8: {error}") from error
        raise UserError(f"the Claude Code CLI takes text, pictures and PDF, not `{item.media_type}`")
    content = getattr(item, "content", None)
    if content is None:
        raise UserError(f"the Claude Code CLI takes text, pictures and PDF, not a `{type(item).__name__}`")
    return _text(content if isinstance(content, str) else to_json(content).decode())


def _submits_output(part: ModelResponsePart) -> bool:
    """Whether the part is the call with which the model submits its output to the CLI."""
    if not isinstance(part, NativeToolCallPart | NativeToolReturnPart):
        return False
    return part.provider_name == SYSTEM and part.tool_name == CLI_TOOL


async def _tool_result(part: BaseToolReturnPart) -> dict[str, Any]:
    is_error = part.outcome != "success"
    content: Any = part.model_response_str()
    if files := part.files:
        content = [_text(content), *[await _input(file) for file in files]]
    return _result(part.tool_call_id, part.tool_name, content, is_error=is_error)


def _result(call_id: str, name: str, content: Any, *, is_error: bool) -> dict[str, Any]:
    return {"type": "tool_result", "id": call_id, "name": name, "content": content, "is_error": is_error}


def _last_retry(messages: Sequence[ModelMessage]) -> str | None:
    """The last retry prompt, if any."""
    for part in messages[-1].parts if messages else ():
        if isinstance(part, BaseToolReturnPart) and part.outcome not in ("success", "denied"):
            return part.model_response_str()
        if isinstance(part, RetryPromptPart):
            return part.model_response()
    return None


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    if parameters.instruction_parts is not None:
        yield from (part.content for part in parameters.instruction_parts)
        return
    # Without an agent: the instructions of the last message that has any.
    for message in reversed(messages):
        if isinstance(message, ModelRequest) and message.instructions is not None:
            yield message.instructions
            return


def portable_history(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Converts the tool calls of `ClaudeCodeModel` so that any model understands them.

    Its tools run within an answer, so their calls are `NativeToolCallPart` and `NativeToolReturnPart`, which
    models of other providers leave out. This splits each such answer into separate answers and requests with
    `ToolCallPart` and `ToolReturnPart`. Everything else is unchanged; a `ClaudeCodeModel` accepts both.
    """
    moved: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse) and any(map(_is_ours, message.parts)):
            moved.extend(_split(message))
        else:
            moved.append(message)
    return moved


def _is_ours(part: ModelResponsePart) -> bool:
    return isinstance(part, NativeToolCallPart | NativeToolReturnPart) and part.provider_name == SYSTEM


def _split(answer: ModelResponse) -> Iterator[ModelMessage]:
    """Splits an answer into several, with the tool results between them."""
    steps: list[tuple[list[ModelResponsePart], list[ModelRequestPart]]] = [([], [])]
    for part in answer.parts:
        if _submits_output(part):
            continue
        parts, returned = steps[-1]
        if isinstance(part, NativeToolReturnPart) and _is_ours(part):
            returned.append(_returned(part))
            continue
        if returned:
            parts = []
            steps.append((parts, []))
        if isinstance(part, NativeToolCallPart) and _is_ours(part):
            parts.append(ToolCallPart(part.tool_name, part.args_as_json_str(), part.tool_call_id))
        else:
            parts.append(part)
    usage = answer.usage
    for parts, returned in steps:
        if not parts and not returned and len(steps) > 1:
            continue
        yield replace(answer, parts=parts, usage=usage)
        usage = RequestUsage()  # count the usage only once
        if returned:
            yield ModelRequest(parts=returned)


def _returned(part: NativeToolReturnPart) -> ToolReturnPart:
    return ToolReturnPart(
        part.tool_name, part.content, part.tool_call_id, metadata=part.metadata, outcome=part.outcome
    )
