"""Conversations with several prompts on one CLI process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from pydantic import TypeAdapter, create_model
from pydantic_ai import Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserContent, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.toolsets import FunctionToolset
from pydantic_core import from_json, to_json
from typing_extensions import TypeVar

from . import _native as native
from ._waiting import completed
from .cli_settings import PermissionMode
from .errors import InvalidRequestError
from .output import OutputSpec
from .prompt import prompt_inputs
from .response import CLIResponse, Reader
from .stream import ClaudeCodeStreamedResponse
from .tools import Host, Served, all_names, as_tool, is_again, next_step

OutputT = TypeVar("OutputT", default=str)


@dataclass(frozen=True)
class ConversationResponse(Generic[OutputT]):
    """The model's answer to one prompt."""

    output: OutputT
    """Its text, or the value for the conversation's `output_type`."""
    response: ModelResponse
    """The whole response, with tool calls."""
    cli_response: CLIResponse
    """What the CLI reports about it."""


@dataclass(frozen=True)
class McpServerStatus:
    """The status of an MCP server."""

    name: str
    status: str
    """`connected`, `failed`, `pending`, or another status of the CLI."""
    error: str | None = None
    """Why it failed, if the CLI reports it."""


class Output(Generic[OutputT]):
    """Converts answers to the output type."""

    def __init__(self, output_type: type[OutputT]) -> None:
        self.spec = OutputSpec()
        self._adapter: TypeAdapter[Any] | None = None
        self._is_wrapped = False
        if output_type is str:
            return
        self._adapter = TypeAdapter(output_type)
        schema = self._adapter.json_schema()
        if schema.get("type") != "object":
            # The CLI requires a schema of an object.
            self._adapter, self._is_wrapped = (
                TypeAdapter(create_model("Output", response=(output_type, ...))),
                True,
            )
            schema = self._adapter.json_schema()
        self.spec = OutputSpec(schema)

    def of(self, response: ModelResponse) -> OutputT:
        """The output in a response."""
        if self._adapter is None:
            return cast(OutputT, _text(response))
        read = self._adapter.validate_json(_text(response))
        return cast(OutputT, read.response if self._is_wrapped else read)


def _text(response: ModelResponse) -> str:
    """The text after the last tool call."""
    texts: list[str] = []
    for part in response.parts:
        if part.part_kind == "text":
            texts.append(part.content)
        elif part.part_kind != "thinking":
            texts.clear()
    return "\n\n".join(texts)


@dataclass(eq=False, repr=False)
class Conversation(Generic[OutputT]):
    """A conversation on one CLI process, created by `ClaudeCodeModel.conversation`.

    Prompts run one after the other: a prompt sent during an answer waits for its end. A timeout or an
    interrupt ends one answer, and the next prompt works. After the CLI has exited, all further calls fail.
    """

    _native: native.Conversation
    _host: Host
    _reader: Reader
    _output: Output[OutputT]
    _own: FunctionToolset[Any]
    _parameters: ModelRequestParameters
    _model_name: str
    _messages: list[ModelMessage] = field(default_factory=list, init=False)
    _running: list[native.Stream] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._known = {tool.definition.name: tool.definition for tool in self._host.tools}
        """The dynamic tools that the CLI currently knows."""

    async def send(self, prompt: str | Sequence[UserContent]) -> ConversationResponse[OutputT]:
        """Sends a prompt, and waits for the answer. Cancelling the wait interrupts the model."""
        async with self.stream(prompt) as stream:
            async for _ in stream:
                pass
        response = stream.get()
        assert stream.cli_response is not None
        return ConversationResponse(self._output.of(response), response, stream.cli_response)

    @asynccontextmanager
    async def stream(self, prompt: str | Sequence[UserContent]) -> AsyncGenerator[ClaudeCodeStreamedResponse]:
        """Sends a prompt and streams the answer. Leaving the context interrupts this answer."""
        inputs = await prompt_inputs(prompt)
        await self._refresh()
        running = self._native.stream(to_json(inputs))
        self._running.append(running)
        stream = ClaudeCodeStreamedResponse(
            self._parameters,
            _stream=running,
            _reader=self._reader,
            _model_name=self._model_name,
            _stop=self._host.stop,
        )
        try:
            yield stream
        finally:
            running.close()
            self._running.remove(running)
            if stream.cli_response is not None:
                self._messages += [ModelRequest(parts=[UserPromptPart(prompt)]), stream.get()]
            if not self._running:
                self._reader.values.clear()  # no answer needs them any more

    def interrupt(self) -> None:
        """Interrupts the current answer and the waiting ones. They end with a `CLIInterruptedError`."""
        for stream in self._running:
            stream.interrupt()

    @property
    def messages(self) -> list[ModelMessage]:
        """The messages so far, for an agent's `message_history`. Interrupted answers are left out."""
        return list(self._messages)

    @property
    def session_id(self) -> str | None:
        """The conversation's id, once the first answer has begun. A stored one can be resumed with it."""
        return self._native.session_id

    async def set_model(self, model_name: str | None) -> None:
        """Changes the model from the next prompt on; `None` is the CLI's default."""
        await completed(self._native.set_model, model_name)

    async def set_permission_mode(self, mode: PermissionMode) -> None:
        """Sets the permission mode from the next prompt on."""
        await completed(self._native.set_permission_mode, mode)

    async def mcp_servers(self) -> list[McpServerStatus]:
        """The MCP servers, and whether they are connected."""
        servers = from_json(await completed(self._native.mcp_servers))
        return [McpServerStatus(**server) for server in servers]

    async def context_usage(self) -> dict[str, Any]:
        """How full the model's context is, as reported by the CLI."""
        usage: dict[str, Any] = from_json(await completed(self._native.context_usage))
        return usage

    async def rewind_files(self, prompt_id: str) -> None:
        """Restores files that the CLI's tools have changed: to their state before the prompt with that id.

        A `message_callback` receives the id, as the `uuid` of the prompt. This needs
        `enable_file_checkpointing` and `keep_session`.
        """
        await completed(self._native.rewind_files, prompt_id)

    def add(self, tool: Callable[..., Any] | Tool[Any]) -> None:
        """Adds a function or a tool, from the next prompt on.

        Tools added to a toolset of the conversation are available from then on, too. The same function, or
        one that is defined again, with the same `__module__` and `__qualname__`, replaces the earlier one,
        also if it is decorated or made a partial again: a notebook's cell may be run again.
        """
        made = tool if isinstance(tool, Tool) else Tool(as_tool(tool))
        earlier = self._own.tools.get(made.name)
        is_replaced = earlier is not None and is_again(made, earlier)
        if not is_replaced and (made.name in self._known or earlier is not None):
            raise InvalidRequestError(f"two tools are called `{made.name}`", hint="rename one of the two")
        if not self._known:
            raise InvalidRequestError(
                "a conversation that began without tools has none", hint="give it one when it begins"
            )
        if is_replaced:
            del self._own.tools[made.name]
        self._own.add_tool(made)

    def remove(self, name: str) -> bool:
        """Removes a function or a tool, from the next prompt on. Tools of toolsets cannot be removed.

        The CLI may still offer it to the model; calls then fail.

        Returns:
            Whether it existed.
        """
        return self._own.tools.pop(name, None) is not None

    async def _refresh(self) -> None:
        """Tells the CLI which tools were added or removed."""
        if not self._host.managers:
            return
        self._host.managers = own, *others = [await next_step(one) for one in self._host.managers]
        decided = await all_names(own)
        now = {name: (tool.tool_def, own) for name, tool in (own.tools or {}).items()}
        for other in others:
            tools = (other.tools or {}).items()
            now |= {name: (tool.tool_def, other) for name, tool in tools if name not in decided}
        for name, definition in list(self._known.items()):
            if name not in now or now[name][0] != definition:
                self._native.remove(name)
                del self._known[name]
        for name, (definition, manager) in now.items():
            if name not in self._known:
                self._native.add(Served(definition, manager))
                self._known[name] = definition
