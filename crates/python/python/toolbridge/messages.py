"""pydantic-ai's messages as the native module reads them, and its answers as pydantic-ai's messages."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, Literal

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BaseToolCallPart,
    BaseToolReturnPart,
    BinaryContent,
    CachePoint,
    DocumentUrl,
    FilePart,
    FinishReason,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, download_item
from pydantic_ai.usage import RequestUsage
from pydantic_core import from_json, to_json

from .output import CLI_TOOL, Wanted

SYSTEM = "claude-code"
"""The name of the provider in messages."""

_GO_ON = "Go on."

_FINISHED: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
}

_HAS_COST = any(one.name == "cost" for one in fields(RequestUsage))


@dataclass
class Conversation:
    """A conversation as the native module reads it; the last message is the prompt."""

    messages: list[dict[str, list[Any]]] = field(default_factory=list)
    system: list[str] = field(default_factory=list)

    def say(self, who: Literal["user", "assistant"], piece: Any) -> None:
        """Adds a piece to the last message, if it is of the same side, or to a new one."""
        if not self.messages or who not in self.messages[-1]:
            self.messages.append({who: []})
        self.messages[-1][who].append(piece)


async def conversation(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Conversation:
    """Reads pydantic-ai's messages."""
    read = Conversation()
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                await _add_request_part(read, part)
        else:
            for response_part in message.parts:
                _add_response_part(read, response_part)
    read.system.extend(_instructions(messages, parameters))
    if not read.messages or "user" not in read.messages[-1]:
        # It ends with what a tool returned: that is what the model is to go on from.
        read.say("user", {"text": _last_retry(messages) or _GO_ON})
    return read


async def _add_request_part(read: Conversation, part: Any) -> None:
    if isinstance(part, SystemPromptPart):
        read.system.append(part.content)
    elif isinstance(part, UserPromptPart):
        content = [part.content] if isinstance(part.content, str) else part.content
        for item in content:
            if not isinstance(item, CachePoint):
                read.say("user", await _input(item))
    elif isinstance(part, BaseToolReturnPart):
        read.say("assistant", _tool_result(part))
    elif hasattr(part, "model_response"):  # something to try again
        text = part.model_response()
        if getattr(part, "tool_name", None) is None:
            read.say("user", {"text": text})
        else:
            read.say("assistant", _result(part.tool_call_id, part.tool_name, text, is_error=True))


def _add_response_part(read: Conversation, part: ModelResponsePart) -> None:
    if isinstance(part, TextPart):
        if part.content:
            read.say("assistant", {"text": part.content})
    elif isinstance(part, BaseToolCallPart):
        call = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
        read.say("assistant", {"tool_call": call})
    elif isinstance(part, BaseToolReturnPart):
        read.say("assistant", _tool_result(part))
    elif isinstance(part, FilePart):
        read.say("assistant", {"text": f"(a file, {part.content.media_type})"})


async def _input(item: UserContent) -> dict[str, Any]:
    """A piece of what a user says or shows."""
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, ImageUrl | DocumentUrl):
        downloaded = await download_item(item, data_format="bytes")
        item = BinaryContent(downloaded["data"], media_type=downloaded["data_type"])
    if isinstance(item, BinaryContent):
        data = base64.b64encode(item.data).decode()
        if item.is_image:
            return {"image": [data, item.media_type]}
        if item.media_type == "application/pdf":
            return {"document": [data, item.media_type]}
        if item.media_type.startswith("text/") or item.media_type == "application/json":
            try:
                return {"text": item.data.decode()}
            except UnicodeDecodeError as error:
                raise UserError(f"a file of the type `{item.media_type}` is not in UTF-8: {error}") from error
        raise UserError(f"the Claude Code CLI takes text, pictures and PDF, not `{item.media_type}`")
    content = getattr(item, "content", None)
    if content is None:
        raise UserError(f"the Claude Code CLI takes text, pictures and PDF, not a `{type(item).__name__}`")
    return {"text": content if isinstance(content, str) else to_json(content).decode()}


def _tool_result(part: BaseToolReturnPart) -> dict[str, Any]:
    is_error = part.outcome != "success"
    return _result(part.tool_call_id, part.tool_name, part.model_response_str(), is_error=is_error)


def _result(call_id: str, name: str, content: str, *, is_error: bool) -> dict[str, Any]:
    return {"tool_result": {"id": call_id, "name": name, "content": content, "is_error": is_error}}


def _last_retry(messages: Sequence[ModelMessage]) -> str | None:
    """What the last request wants to be done again."""
    for part in messages[-1].parts if messages else ():
        if isinstance(part, BaseToolReturnPart) and part.outcome not in ("success", "denied"):
            return part.model_response_str()
        if hasattr(part, "model_response"):
            text: str = part.model_response()
            return text
    return None


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Iterator[str]:
    if parameters.instruction_parts is not None:
        yield from (part.content for part in parameters.instruction_parts)
        return
    # A request without an agent: those of the last message that has any.
    for message in reversed(messages):
        if isinstance(message, ModelRequest) and message.instructions is not None:
            yield message.instructions
            return


@dataclass(frozen=True)
class Reader:
    """Reads the parts of an answer."""

    server_name: str
    wanted: Wanted

    def part(self, part: dict[str, Any]) -> ModelResponsePart | None:
        """One part; `None` if pydantic-ai has none of the kind."""
        kind = part["kind"]
        if kind == "text":
            return TextPart(part["text"])
        if kind == "thinking":
            return ThinkingPart(part["text"], signature=part["signature"], provider_name=SYSTEM)
        if kind == "tool_call":
            # The model's own way of calling tools: the agent must not run it again.
            name = self.tool_name(part["name"])
            return NativeToolCallPart(name, part["input"], part["id"], provider_name=SYSTEM)
        if kind == "tool_result":
            return NativeToolReturnPart(
                self.tool_name(part["name"] or ""),
                _content(part["content"]),
                part["id"],
                outcome="failed" if part["is_error"] else "success",
                provider_name=SYSTEM,
            )
        return None

    def tool_name(self, name: str) -> str:
        """A tool's name as the agent knows it."""
        return name.removeprefix(f"mcp__{self.server_name}__")

    def is_output(self, part: ModelResponsePart) -> bool:
        """Whether the part is the model handing in its output to the CLI."""
        if self.wanted.schema is None or not isinstance(part, NativeToolCallPart | NativeToolReturnPart):
            return False
        return part.tool_name == CLI_TOOL

    def output(self, handed_in: Sequence[ModelResponsePart], output: str) -> list[ModelResponsePart]:
        """The last parts of an answer with an output: how it was handed in, and the output.

        pydantic-ai takes text before a tool call for thoughts, so whatever was said comes before this.
        """
        call = NativeToolCallPart(CLI_TOOL, output, provider_name=SYSTEM)
        return [*(handed_in or [call]), self.wanted.part(output)]


def _content(content: Any) -> Any:
    """What a tool gave the model: text, or blocks if they are not all text."""
    if isinstance(content, list) and all(block.get("type") == "text" for block in content):
        return "\n".join(block["text"] for block in content)
    return content


@dataclass(frozen=True)
class CLIUsage:
    """How many tokens a request took."""

    input_tokens: int
    output_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int


@dataclass(frozen=True)
class CLIResponse:
    """What the CLI says about a request besides the answer."""

    total_cost_usd: float | None
    num_turns: int | None
    session_id: str | None
    duration_ms: float | None
    duration_api_ms: float | None
    stop_reason: str | None
    usage: CLIUsage
    raw: dict[str, Any] = field(repr=False)
    """The whole result, as the CLI wrote it."""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> CLIResponse:
        return cls(**answer["metadata"], usage=CLIUsage(**answer["usage"]))

    @property
    def details(self) -> dict[str, Any]:
        """For `ModelResponse.provider_details`."""
        names = ("total_cost_usd", "num_turns", "session_id", "duration_ms", "duration_api_ms", "stop_reason")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def finish_reason(self) -> FinishReason | None:
        return _FINISHED.get(self.stop_reason or "")

    @property
    def request_usage(self) -> RequestUsage:
        """For `ModelResponse.usage`, where the input includes what the cache had."""
        usage = self.usage
        counted = RequestUsage(
            input_tokens=usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens,
            output_tokens=usage.output_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cache_read_tokens=usage.cache_read_tokens,
        )
        if _HAS_COST and self.total_cost_usd is not None:
            counted.cost = Decimal(str(self.total_cost_usd))
        return counted


@dataclass(frozen=True)
class RequestWithMetadata:
    """An answer, and what the CLI says about it."""

    response: ModelResponse
    cli_response: CLIResponse


def answer_of(json: bytes, reader: Reader, model_name: str) -> RequestWithMetadata:
    """Reads an answer of the native module."""
    answer = from_json(json)
    read = [part for one in answer["parts"] if (part := reader.part(one)) is not None]
    parts = [part for part in read if not reader.is_output(part)]
    if (output := answer["structured_output"]) is not None:
        parts += reader.output([part for part in read if reader.is_output(part)], output)
    cli_response = CLIResponse.of(answer)
    response = ModelResponse(
        parts=parts,
        usage=cli_response.request_usage,
        model_name=answer["model"] or model_name,
        provider_name=SYSTEM,
        provider_details=cli_response.details,
        provider_response_id=cli_response.session_id,
        finish_reason=cli_response.finish_reason,
    )
    return RequestWithMetadata(response, cli_response)
