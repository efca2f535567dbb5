"""A streamed response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartStartEvent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import StreamedResponse
from pydantic_core import from_json

from . import _native
from ._waiting import Stop, completed
from .agent_run import AgentRun
from .output import CLI_TOOL, StreamedOutput
from .response import SYSTEM, CLIResponse, Reader, output_of

_FROM_MODEL = frozenset({"text_delta", "thinking_delta", "tool_call_delta", "part", "result"})
"""The kinds of events that show that the model answers."""


@dataclass
class ClaudeCodeStreamedResponse(StreamedResponse):
    """Converts the events of a request to pydantic-ai's."""

    _stream: _native.Stream
    _reader: Reader
    _model_name: str
    _stop: Stop
    _run: AgentRun | None = None
    cli_response: CLIResponse | None = field(default=None, init=False)
    """What the CLI reports about the answer, once it is complete."""
    _final: list[ModelResponsePart] | None = field(default=None, init=False)
    """The final parts in order, if some were streamed as something else."""
    _writing: StreamedOutput | None = field(default=None, init=False)
    """The output, while the model writes it."""
    _written: set[int] = field(default_factory=set, init=False)
    """The parts that the output was streamed as."""
    _output_id: str = field(default_factory=lambda: ToolCallPart("").tool_call_id, init=False)
    """The id of the output's call; the same for all attempts of the model."""
    _timestamp: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)
    _block: int = field(default=0, init=False)
    """The block that deltas belong to."""
    _streamed: str = field(default="", init=False)
    """The text of the block so far."""
    _output_calls: list[ModelResponsePart] = field(default_factory=list, init=False)
    """The calls with which the model submitted its output."""
    _held_back: list[str] = field(default_factory=list, init=False)
    """Text that is held back until the output."""
    _held_calls: list[NativeToolCallPart] = field(default_factory=list, init=False)
    """A call that may be left to the agent, and those after it. Only results show that the CLI made them."""
    _first: list[dict[str, Any]] = field(default_factory=list, init=False)
    """The events up to the first that the model causes."""

    async def wait_for_model(self) -> None:
        """Waits for the model's first event, and raises the error of a request that fails before."""
        while not any(_FROM_MODEL & event.keys() for event in self._first):
            events = await self._next()
            if not events:
                return
            self._first += events

    async def _next(self) -> list[dict[str, Any]]:
        return [from_json(event) for event in await completed(self._stream.next, stop=self._stop)]

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        events, self._first = self._first or await self._next(), []
        while events:
            for event in events:
                for known in self._read(event):
                    yield known
            events = await self._next()

    def _read(self, event: dict[str, Any]) -> Iterator[ModelResponseStreamEvent]:
        match event:
            case {"started": {"model": model}}:
                self._model_name = model or self._model_name
            case {"text_delta": text}:
                yield from self._text(text)
            case {"thinking_delta": text}:
                yield from self._thinking(text)
            case {"tool_call_delta": {"id": call_id, "name": name, "json": json}}:
                if self._reader.is_for_output(name):
                    yield from self._output(call_id, json)
            case {"part": part}:
                yield from self._whole(part)
            case {"result": answer}:
                yield from self._end(answer)

    def _text(self, delta: str) -> Iterator[ModelResponseStreamEvent]:
        if self._reader.output_spec.may_be_text:
            return  # the output decides whether this is text; until then it must not be emitted as output
        self._streamed += delta
        yield from self._parts_manager.handle_text_delta(vendor_part_id=self._block, content=delta)

    def _thinking(self, delta: str, signature: str | None = None) -> Iterator[ModelResponseStreamEvent]:
        self._streamed += delta
        if delta or signature:
            yield from self._parts_manager.handle_thinking_delta(
                vendor_part_id=self._block, content=delta, signature=signature, provider_name=SYSTEM
            )

    def _whole(self, part: dict[str, Any]) -> Iterator[ModelResponseStreamEvent]:
        """A complete part. Most text and thoughts have already been streamed in pieces."""
        known = self._reader.part(part)
        if isinstance(known, TextPart | ThinkingPart):
            rest = known.content.removeprefix(self._streamed)
            if isinstance(known, ThinkingPart):
                yield from self._thinking(rest, known.signature)
            elif self._reader.output_spec.may_be_text:
                self._held_back.append(known.content)
            elif rest:
                yield from self._text(rest)
            self._block += 1
            self._streamed = ""
        elif known is not None:
            if self._reader.is_output(known):
                self._output_calls.append(known)
            elif isinstance(known, NativeToolCallPart):
                self._held_calls.append(known)
                yield from self._released(None)
            elif isinstance(known, NativeToolReturnPart):
                yield from self._released(known.tool_call_id)
                yield self._parts_manager.handle_part(vendor_part_id=None, part=known)
            else:
                yield self._parts_manager.handle_part(vendor_part_id=None, part=known)

    def _released(self, returned: str | None) -> Iterator[ModelResponseStreamEvent]:
        """The calls that need not be held any longer, after the result of that call has come."""
        held, self._held_calls = self._held_calls, []
        for call in held:
            is_held = self._held_calls or (self._run is not None and call.tool_name in self._run.held)
            if is_held and call.tool_call_id != returned:
                self._held_calls.append(call)
            else:
                yield self._parts_manager.handle_part(vendor_part_id=None, part=call)

    def _output(self, call_id: str, json: str) -> Iterator[ModelResponseStreamEvent]:
        """A piece of the output. The call that submits it comes first: earlier text is not output."""
        parts, writing = self._parts_manager, self._writing
        if writing is None or writing.call_id != call_id:
            self._writing = writing = StreamedOutput(self._reader.output_spec, call_id)
            call = NativeToolCallPart(CLI_TOOL, None, call_id, provider_name=SYSTEM)
            yield self._recorded(parts.handle_part(vendor_part_id=None, part=call))
        is_first, piece = not writing.is_passed, writing.add(json)
        if not piece:
            return
        if writing.tool is None:
            for event in parts.handle_text_delta(vendor_part_id=call_id, content=piece):
                yield self._recorded(event)
            return
        if is_first:
            # A repeated output replaces the previous one.
            begun = parts.handle_tool_call_part(
                vendor_part_id=CLI_TOOL, tool_name=writing.tool, args="", tool_call_id=self._output_id
            )
            yield self._recorded(begun)
        delta = parts.handle_tool_call_delta(vendor_part_id=CLI_TOOL, args=piece)
        if delta is not None:
            yield delta

    def _recorded(self, event: ModelResponseStreamEvent) -> ModelResponseStreamEvent:
        if isinstance(event, PartStartEvent):
            self._written.add(event.index)
        return event

    def _end(self, answer: dict[str, Any]) -> Iterator[ModelResponseStreamEvent]:
        if self._run is not None:
            self._run.is_answered = True
        self.cli_response = cli_response = CLIResponse.of(answer)
        self._usage = cli_response.request_usage
        self._model_name = answer["response"]["model"] or self._model_name
        self.provider_details = cli_response.details
        self.provider_response_id = cli_response.session_id
        self.finish_reason = cli_response.finish_reason
        output = output_of(answer["response"])
        parts = [*self._parts_manager.get_parts(), *self._held_calls]
        deferred = None if self._run is None or output is not None else self._run.left(parts)
        if deferred is None:
            for call in self._held_calls:
                yield self._parts_manager.handle_part(vendor_part_id=None, part=call)
        streamed = self._parts_manager.get_parts()
        if output is not None:
            *calls, last = self._reader.output(self._output_calls, output)
            more = [*self._held(last), *calls]
            if self._written:
                if isinstance(last, ToolCallPart):
                    last = replace(last, tool_call_id=self._output_id)
                others = [part for index, part in enumerate(streamed) if index not in self._written]
                self._final = [*others, *more, last]
            else:
                more.append(last)
            for part in more:
                yield self._parts_manager.handle_part(vendor_part_id=None, part=part)
        elif deferred is not None:
            self._final, self._usage = deferred
            for part in self._final:
                if part not in streamed:
                    yield self._parts_manager.handle_part(vendor_part_id=None, part=part)
        else:
            # The stream may also have parts of a turn that an older CLI has started by itself.
            read = (self._reader.part(part) for part in answer["response"]["parts"])
            self._final = [part for part in read if part is not None]

    def get(self) -> ModelResponse:
        """The response so far."""
        response = super().get()
        return response if self._final is None else replace(response, parts=self._final)

    def _held(self, output: ModelResponsePart) -> Iterator[ModelResponsePart]:
        """The text before the output, if it could have been mistaken for the output."""
        for text in self._held_back:
            is_text = isinstance(output, TextPart)
            yield TextPart(text) if is_text else ThinkingPart(text, provider_name=SYSTEM)

    def interrupt(self) -> None:
        """Interrupts the answer, like a user would. It ends with a `CLIInterruptedError`."""
        self._stream.interrupt()

    async def close_stream(self) -> None:
        """Ends the request, if it is still running."""
        self._stream.close()

    @property
    def model_name(self) -> str:
        return self._model_name

    @property
    def provider_name(self) -> str:
        return SYSTEM

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._timestamp
