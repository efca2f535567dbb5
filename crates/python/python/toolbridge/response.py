"""Converts the native module's answers to pydantic-ai's messages."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    FinishReason,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolReturn,
)
from pydantic_ai.usage import RequestUsage
from pydantic_core import from_json, to_json

from .output import CLI_TOOL, OutputSpec

SYSTEM = "claude-code"
"""The provider's name in messages."""

_FINISHED: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
}


@dataclass(frozen=True)
class Reader:
    """Reads the parts of an answer."""

    server_name: str
    output_spec: OutputSpec
    native_tools: Mapping[str, str] = field(default_factory=dict)
    """The CLI's own tools that pydantic-ai has a name for, with that name."""
    values: dict[str, tuple[Any, bytes]] = field(default_factory=dict)
    """What this process's tools have returned, by call: the value, and the result made of it."""

    def part(self, part: dict[str, Any], names: Mapping[str, str] | None = None) -> ModelResponsePart | None:
        """Converts a part of an answer, or a block of a line of the CLI; `None` if it is of another kind.

        `names` are those of the calls before it: the result in a line does not have its tool's name.
        """
        match part:
            case {"type": "text", "text": text}:
                return TextPart(text)
            case {"type": "thinking", "text": text} | {"type": "thinking", "thinking": text}:
                return ThinkingPart(text, signature=part.get("signature"), provider_name=SYSTEM)
            case {"type": "tool_call" | "tool_use", "id": call_id, "name": name, "input": given}:
                # The CLI has already run this call: the agent must not run it again.
                args = to_json(given).decode()
                return NativeToolCallPart(self.tool_name(name), args, call_id, provider_name=SYSTEM)
            case {"type": "tool_result", "id": call_id} | {"type": "tool_result", "tool_use_id": call_id}:
                name = part.get("name") or (names or {}).get(call_id) or ""
                is_error = part.get("is_error") or False
                return self._returned(
                    self.tool_name(name), call_id, part.get("content", ""), is_error=is_error
                )
        return None

    def blocks(
        self, blocks: list[dict[str, Any]], before: Sequence[ModelResponsePart]
    ) -> list[ModelResponsePart]:
        """Converts what a line of the CLI has; `before` are the parts before it."""
        names = {part.tool_call_id: part.tool_name for part in before if isinstance(part, NativeToolCallPart)}
        parts = (self.part(block, names) for block in blocks)
        return [part for part in parts if part is not None and not self.is_output(part)]

    def returned(self, call: NativeToolCallPart, result: bytes) -> NativeToolReturnPart:
        """The result of a call, if the CLI has not reported one."""
        returned = from_json(result)
        is_error = bool(returned.get("isError"))
        return self._returned(call.tool_name, call.tool_call_id, returned["content"], is_error=is_error)

    def _returned(self, tool: str, call_id: str, blocks: Any, *, is_error: bool) -> NativeToolReturnPart:
        content, metadata = _content(blocks), None
        if call_id in self.values:
            value, result = self.values[call_id]
            metadata = value.metadata if isinstance(value, ToolReturn) else None
            # The model may have read something else, such as a picture, or the start of a long text.
            if isinstance(content, str) and content == _content(from_json(result)["content"]):
                content = _value(value)
        return NativeToolReturnPart(
            tool,
            content,
            call_id,
            metadata=metadata,
            outcome="failed" if is_error else "success",
            provider_name=SYSTEM,
        )

    def tool_name(self, name: str) -> str:
        """A tool's name as the agent knows it."""
        return self.native_tools.get(name) or name.removeprefix(f"mcp__{self.server_name}__")

    def is_output(self, part: ModelResponsePart) -> bool:
        """Whether the part is the call with which the model submits its output to the CLI."""
        if not isinstance(part, NativeToolCallPart | NativeToolReturnPart):
            return False
        return self.is_for_output(part.tool_name)

    def is_for_output(self, tool_name: str) -> bool:
        """Whether the model submits its output with that tool."""
        return self.output_spec.schema is not None and tool_name == CLI_TOOL

    def output(self, calls: Sequence[ModelResponsePart], output: str) -> list[ModelResponsePart]:
        """The last parts of an answer with an output: the call that submitted it, and the output.

        pydantic-ai treats text before a tool call as thoughts, so all other text comes before these parts.
        """
        call = NativeToolCallPart(CLI_TOOL, output, provider_name=SYSTEM)
        return [*(calls or [call]), self.output_spec.part(output)]


def _content(content: Any) -> Any:
    """A tool's result as the model reads it: text, or a list if there are also pictures and other blocks."""
    if not isinstance(content, list):
        return content
    if all(block.get("type") == "text" for block in content):
        return "\n".join(block["text"] for block in content)
    return [_file_or_text(block) for block in content]


def _file_or_text(block: Any) -> Any:
    """A block of a result in pydantic-ai's form."""
    match block:
        case {"type": "text", "text": text}:
            return text
        case {"type": "image" | "document", "source": {"data": data, "media_type": media_type}}:
            return BinaryContent(base64.b64decode(data), media_type=media_type)
        case {"type": "image", "data": data, "mimeType": media_type}:  # not yet in the CLI's form
            return BinaryContent(base64.b64decode(data), media_type=media_type)
    return block


def _value(value: Any) -> Any:
    """What a tool has returned, with the text that a `ToolReturn` adds for the model."""
    if not isinstance(value, ToolReturn):
        return value
    if not value.content:
        return value.return_value
    return [value.return_value, *([value.content] if isinstance(value.content, str) else value.content)]


def output_of(response: dict[str, Any]) -> str | None:
    """The output for the request's schema, as JSON text, if it had one."""
    if "structured_output" not in response:
        return None
    return to_json(response["structured_output"]).decode()


@dataclass(frozen=True)
class CLIUsage:
    """The token counts of a request."""

    input_tokens: int
    output_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int


@dataclass(frozen=True)
class CLIResponse:
    """What the CLI reports about a request besides the answer."""

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
        return cls(**answer["metadata"], usage=CLIUsage(**answer["response"]["usage"]))

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
        """For `ModelResponse.usage`, where the input includes cached tokens."""
        counted = RequestUsage(**vars(self.usage))
        counted.input_tokens += counted.cache_write_tokens + counted.cache_read_tokens
        if self.total_cost_usd is not None:
            counted.cost = Decimal(str(self.total_cost_usd))
        return counted


@dataclass(frozen=True)
class RequestWithMetadata:
    """An answer, and what the CLI reports about it."""

    response: ModelResponse
    cli_response: CLIResponse


def response_of(json: bytes, reader: Reader, model_name: str) -> RequestWithMetadata:
    """Parses an answer of the native module."""
    answer = from_json(json)
    given = answer["response"]
    read = [part for one in given["parts"] if (part := reader.part(one)) is not None]
    parts = [part for part in read if not reader.is_output(part)]
    if (output := output_of(given)) is not None:
        parts += reader.output([part for part in read if reader.is_output(part)], output)
    cli_response = CLIResponse.of(answer)
    response = ModelResponse(
        parts=parts,
        usage=cli_response.request_usage,
        model_name=given["model"] or model_name,
        provider_name=SYSTEM,
        provider_details=cli_response.details,
        provider_response_id=cli_response.session_id,
        finish_reason=cli_response.finish_reason,
    )
    return RequestWithMetadata(response, cli_response)
