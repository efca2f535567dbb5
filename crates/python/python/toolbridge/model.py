"""The Claude Code CLI as a model of pydantic-ai."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import (
    Model,
    ModelRequestParameters,
    StreamedResponse,
    check_allow_model_requests,
)
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.profiles import ModelProfile, ModelProfileSpec
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import FunctionToolset

from . import _executable, _native, web
from ._run_context import current_run_context
from ._waiting import check_asyncio, completed
from .agent_run import AgentRun
from .callbacks import CanUseTool, MessageCallback, MessageCallbacks, decide
from .cli_settings import PermissionMode
from .conversation import Conversation, Output, OutputT
from .errors import InvalidRequestError, ModelFailure
from .hooks import Hook, call_hook
from .output import OutputSpec, output_spec
from .prompt import native_messages
from .questions import OnAsk, answer_question
from .response import SYSTEM, Reader, RequestWithMetadata, response_of
from .settings import (
    DEFAULT_SERVER_NAME,
    DEFAULT_TRANSPORT,
    ClaudeCodeModelSettings,
    ServerInfo,
    TransportType,
    as_json,
    check_settings,
    listed,
    settings_for_cli,
)
from .stream import ClaudeCodeStreamedResponse
from .tools import Host, Offered, Toolsets, all_names, manager_of, start_servers

_PROFILE = ModelProfile(
    supports_tools=True,
    supports_json_schema_output=True,
    default_structured_output_mode="native",
    supports_image_output=False,
    supports_audio_file_input=False,
    supports_video_input=False,
)


@dataclass
class _Prepared:
    """A request that is ready to start."""

    host: Host
    parameters: ModelRequestParameters
    reader: Reader


class ClaudeCodeModel(Model[None]):
    """A model that runs in the Claude Code CLI, and can call tools of this process.

    It has only the tools of its agents or requests: none of the CLI's own tools, no settings files, no system
    prompt but yours. Prompts are plain text. Everything else has to be enabled explicitly.

    Each request starts the CLI; the process and its files are cleaned up when the request ends, whatever the
    outcome. One model can serve many users at once: each run has its own tools, dependencies and settings.
    """

    # fmt: off
    unsupported_settings: ClassVar[frozenset[Any]] = frozenset({
        "max_tokens", "temperature", "top_p", "top_k", "parallel_tool_calls", "seed", "presence_penalty",
        "frequency_penalty", "logit_bias", "stop_sequences", "extra_headers", "extra_body", "service_tier",
    })
    # fmt: on

    def __init__(
        self,
        model_name: str | None = None,
        *,
        settings: ClaudeCodeModelSettings | ModelSettings | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        allowed_tools: Sequence[str] | None = None,
        disallowed_tools: Sequence[str] | None = None,
        permission_mode: PermissionMode | None = None,
        max_turns: int | None = None,
        continue_conversation: bool | None = None,
        can_use_tool: CanUseTool | None = None,
        tool_parameter_restrictions: Mapping[str, Mapping[str, Any]] | None = None,
        hooks: Sequence[Hook] = (),
        on_ask: OnAsk | None = None,
        message_callback: MessageCallback | None = None,
        server: ServerInfo | None = None,
        cli_path: str | os.PathLike[str] | None = None,
        inherit_env: bool = True,
        session_dir: str | os.PathLike[str] | None = None,
        max_concurrent_requests: int | None = None,
        profile: ModelProfileSpec | None = None,
    ) -> None:
        """Creates a model.

        Args:
            model_name: The model to ask, instead of the CLI's default.
            settings: Settings for all requests; those of an agent or a request take precedence. The next
                arguments are some of them, without their prefix.
            working_directory: The CLI's working directory.
            timeout: How many seconds a request may take, 120 by default.
            allowed_tools: Rules for tools that run without asking for permission.
            disallowed_tools: Rules for tools that must not run.
            permission_mode: How the CLI handles tools that no rule allows.
            max_turns: The maximum number of model turns per request.
            continue_conversation: Whether requests continue the last stored conversation.
            can_use_tool: Decides whether a tool may be used that no rule allows or forbids.
            tool_parameter_restrictions: For each tool, by name, a JSON Schema for each restricted parameter.
                A request without such a tool is an error.
            hooks: Functions that are called on events in the CLI: before a tool is used, after a prompt, when
                the model stops. Hooks in the settings are called, too.
            on_ask: Answers questions of tools that call `ask`, and of other MCP servers of the run. Without
                it, questions cannot be answered.
            message_callback: Called with each message of the CLI.
            server: The name, version and instructions that the server of the tools reports.
            cli_path: The CLI's executable, instead of the one on the PATH, in the usual places, or in the
                package `claude-agent-sdk`.
            inherit_env: Whether the CLI inherits this process's environment, or gets only `claude_code_env`.
            session_dir: The directory for the files of sessions, instead of the temporary directory.
            max_concurrent_requests: How many requests run at the same time, each with its own CLI. The others
                wait in order; their `timeout` starts when they do. The default is twice the number of cores;
                `2**32 - 1` means no limit. Open conversations do not count. A run that a tool of another run
                starts neither waits nor counts. One that it starts in a thread without the tool's context
                does: it ends with an error if all that run wait for functions for its `timeout`.
            profile: The model's profile for pydantic-ai, which overrides its default profile.

        Raises:
            InvalidRequestError: If a setting is invalid, or two exclude each other.
        """
        arguments = {
            "timeout": timeout,
            "claude_code_working_directory": working_directory,
            "claude_code_allowed_tools": allowed_tools,
            "claude_code_disallowed_tools": disallowed_tools,
            "claude_code_permission_mode": permission_mode,
            "claude_code_max_turns": max_turns,
            "claude_code_can_use_tool": can_use_tool,
            "claude_code_on_ask": on_ask,
            "claude_code_message_callback": message_callback,
        }
        own: Any = {name: value for name, value in arguments.items() if value is not None}
        own |= settings or {}
        check_settings(own)
        super().__init__(settings=own, profile=_profile(profile))
        self._model_name = model_name
        self._hooks = tuple(hooks)
        self._registered: Offered | None = None
        self._server_name = DEFAULT_SERVER_NAME
        self._transport = DEFAULT_TRANSPORT
        restrictions = [
            (tool, parameter, schema)
            for tool, parameters in (tool_parameter_restrictions or {}).items()
            for parameter, schema in parameters.items()
        ]
        config = {
            "bridge": _executable.BRIDGE,
            "cli": cli_path,
            "bundled_cli": _executable.bundled_cli(),
            "session_dir": session_dir,
            "server": server and server.given,
            "inherit_env": inherit_env,
            "max_concurrent_requests": max_concurrent_requests,
            "restrictions": restrictions,
        }
        # A request may continue another conversation, so this is for those that say nothing about theirs.
        base = {"model": model_name, "continue_conversation": continue_conversation}
        self._native = _native.Model(as_json(config, {**base, **settings_for_cli(own)}))

    @property
    def model_name(self) -> str:
        """The requested model; `default` is the CLI's default. A response has the model that answered."""
        return self._model_name or "default"

    @property
    def system(self) -> str:
        """The provider's name in messages."""
        return SYSTEM

    @classmethod
    def supported_native_tools(cls) -> frozenset[type[AbstractNativeTool]]:
        """The native tools of pydantic-ai that the CLI has."""
        return web.NATIVE_TOOLS

    def unsupported_native_tool_settings(self, native_tool: AbstractNativeTool) -> frozenset[str]:
        """The limits of such a tool that the CLI does not enforce."""
        return web.unsupported_settings(native_tool)

    @property
    def provider(self) -> None:
        """`None`: the CLI manages the account."""
        return None

    def set_agent_toolsets(
        self,
        toolsets: Toolsets | None,
        *,
        server_name: str = DEFAULT_SERVER_NAME,
        transport: TransportType = DEFAULT_TRANSPORT,
        deps: Any = None,
    ) -> None:
        """Registers tools for all requests of this model; they replace those of an earlier call.

        An agent's run gets them beside the agent's own tools, and a conversation beside its `toolsets`. About
        a name that those have themselves, they alone decide, even if a filter or a `prepare` leaves that tool
        out. Any other request gets all registered tools, or only those that it names, also if a tool or a
        callback of a run makes it.

        `server_name` and `transport` also apply to agents' tools.

        Args:
            toolsets: A toolset, or a sequence of toolsets, tools, functions, `Documents` and `McpServer`s;
                `None` removes all.
            server_name: The name of the tools' server: the model sees `mcp__<server_name>__<tool>`.
            transport: How calls are transported.
            deps: The dependencies in the context of these tools; by default those of the run.
        """
        if transport not in ("auto", "stdio", "sdk"):
            raise InvalidRequestError(
                f"there is no transport `{transport}`; there are `auto`, `stdio` and `sdk`"
            )
        self._registered = None if toolsets is None else Offered.of(toolsets, deps)
        self._server_name, self._transport = server_name, transport

    def get_mcp_servers(self) -> dict[str, dict[str, Any]]:
        """The MCP servers in the CLI's configuration. The tools' server gets new paths in each request."""
        own: Mapping[str, Any] = self.settings or {}
        servers = {name: dict(entry) for name, entry in own.get("claude_code_mcp_servers", {}).items()}
        if self._registered is not None:
            if self._transport == "sdk":
                servers[self._server_name] = {"type": "sdk", "name": self._server_name}
            else:
                command = str(_executable.BRIDGE)
                servers[self._server_name] = {"type": "stdio", "command": command, "args": ["bridge"]}
        return servers

    def interrupt(self) -> int:
        """Interrupts all running requests, like a user would, and returns their number."""
        return self._native.interrupt()

    async def keep_warm(self, count: int) -> None:
        """Keeps this many CLIs started and ready for a prompt; 0 stops them. Returns once they are ready.

        A request that can use one of them saves the start, about half a second. It can if it has the same
        settings, system prompt and list of tools as the previous request, and is streamed or not like that.
        Each serves one request and is then replaced, and none waits longer than 5 minutes. A waiting CLI uses
        about 175 MB.
        """
        check_asyncio()
        if count < 0:
            raise InvalidRequestError(f"`keep_warm` takes the number of CLIs, 0 or more, not {count}")
        await completed(self._native.keep_warm, count, Host())

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Sends a request, and waits for the answer."""
        answer = await self.request_with_metadata(messages, model_settings, model_request_parameters)
        return answer.response

    async def request_with_metadata(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestWithMetadata:
        """Sends a request; returns the answer with its cost, turns, session id and durations."""
        async with self._prepared(messages, model_settings, model_request_parameters) as ready:
            json = await completed(self._native.request, ready.host, stop=ready.host.stop)
            answer = response_of(json, ready.reader, self.model_name)
            if (run := ready.host.run) is not None:
                run.is_answered = True
                if (left := run.left(answer.response.parts)) is not None:
                    parts, usage = left
                    answer = replace(answer, response=replace(answer.response, parts=parts, usage=usage))
            return answer

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Sends a request and streams the answer, once the model begins it; an earlier error is raised here.

        Leaving the context ends the request.
        """
        async with self._prepared(messages, model_settings, model_request_parameters, run_context) as ready:
            stream = await completed(self._native.stream, ready.host, stop=ready.host.stop)
            try:
                response = ClaudeCodeStreamedResponse(
                    ready.parameters,
                    _stream=stream,
                    _reader=ready.reader,
                    _model_name=self.model_name,
                    _stop=ready.host.stop,
                    _run=ready.host.run,
                )
                # With the stream in its hands, a `FallbackModel` does not ask another model any more.
                await response.wait_for_model()
                if ready.host.run is not None:
                    ready.host.run.is_counted = True
                yield response
            finally:
                stream.close()

    @asynccontextmanager
    async def conversation(
        self,
        *,
        output_type: type[OutputT] = str,  # type: ignore[assignment]
        toolsets: Toolsets | None = None,
        instructions: str | None = None,
        deps: Any = None,
        keep_session: bool = False,
        resume: str | None = None,
        model_settings: ModelSettings | None = None,
    ) -> AsyncGenerator[Conversation[OutputT]]:
        """A conversation of several prompts on one CLI process, which ends when the context is left.

        >>> async def talk(model: ClaudeCodeModel) -> str:
        ...     async with model.conversation(instructions="Be brief.") as conversation:
        ...         await conversation.send("My name is Ada.")
        ...         return (await conversation.send("What is my name?")).output

        Args:
            output_type: The type of each answer: text, or a type that pydantic supports.
            toolsets: As for `set_agent_toolsets`, whose tools the conversation has beside these. They are
                checked for changes before each prompt.
            instructions: Instructions for the model, after its system prompts.
            deps: The dependencies in the context of tools.
            keep_session: Whether the CLI stores it on disk, so that another one can resume it.
            resume: The session id of a stored conversation that it continues.
            model_settings: Settings that override those of the model. The `timeout` applies to each prompt.
        """
        settings: Any = dict(model_settings or {})
        if keep_session:
            settings["claude_code_keep_session"] = True
        if resume is not None:
            settings["claude_code_resume"] = resume
        output = Output(output_type)
        given = Offered.of(toolsets or [], deps)
        own: FunctionToolset[Any] = FunctionToolset(given.tools)
        given.toolsets, given.tools = [*given.toolsets, own], []
        messages: list[ModelMessage] = [ModelRequest(parts=[], instructions=instructions)]
        parameters = ModelRequestParameters()
        async with self._prepared(messages, settings, parameters, given=given, output=output.spec) as ready:
            native = await completed(self._native.open, ready.host, stop=ready.host.stop)
            try:
                yield Conversation(native, ready.host, ready.reader, output, own, parameters, self.model_name)
            finally:
                await completed(native.stop)

    async def stream_messages(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> AsyncGenerator[dict[str, Any]]:
        """Sends a request; yields each message of the CLI unchanged."""
        received: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        async with self._prepared(
            messages, model_settings, model_request_parameters, listener=received.put_nowait
        ) as ready:
            request = asyncio.ensure_future(completed(self._native.request, ready.host, stop=ready.host.stop))
            request.add_done_callback(lambda _: received.put_nowait(None))
            try:
                while (message := await received.get()) is not None:
                    yield message
                await request
            finally:
                request.cancel()
                await asyncio.wait([request])
                if not request.cancelled():
                    request.exception()  # retrieved, because a reader that stopped early does not

    def _check_allowed(self) -> None:
        check_allow_model_requests()

    @asynccontextmanager
    async def _prepared(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
        *,
        listener: Callable[[dict[str, Any]], None] | None = None,
        given: Offered | None = None,
        output: OutputSpec | None = None,
    ) -> AsyncGenerator[_Prepared]:
        """Prepares a request, or a conversation with `given` tools and `output`.

        Everything is cleaned up when the context is left.
        """
        check_asyncio()
        self._check_allowed()
        merged, parameters = self.prepare_request(model_settings, model_request_parameters)
        settings: Mapping[str, Any] = merged or {}
        check_settings(settings)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._named())
            # A conversation has its own tools, even if it is opened within a run.
            run = None if given is not None else run_context or current_run_context()
            output = output or output_spec(parameters)
            kinds = {tool.kind for tool in parameters.native_tools}
            native_names = {name: kind for name, kind in web.KINDS.items() if kind in kinds}
            can_use_tool, on_ask = (
                settings.get("claude_code_can_use_tool"),
                settings.get("claude_code_on_ask"),
            )
            hooks = (
                *self._hooks,
                *settings.get("claude_code_hooks", ()),
                *web.hooks(parameters.native_tools),
            )
            host = Host(
                errors=settings.get("claude_code_tool_errors") or "tell",
                server_name=self._server_name,
                transport=self._transport,
                decide=can_use_tool and partial(decide, can_use_tool),
                ask=on_ask and partial(answer_question, on_ask),
                stderr=settings.get("claude_code_stderr_callback"),
                hooks=[(hook.event, hook.matcher, partial(call_hook, hook)) for hook in hooks],
            )
            host.values = {}
            reader = Reader(host.server_name, output, native_names, host.values)
            if run is not None:
                host.run = AgentRun(run, _agents_manager(run), reader, host.stop)
                host.until = host.run.ending
                stack.callback(host.run.settle)
            only = await self._offer(host, settings, parameters, run, given, stack)
            stack.push_async_callback(host.end)
            listeners = (settings.get("claude_code_message_callback"), listener)
            callbacks = [one for one in listeners if one is not None]
            if callbacks or run is not None:
                host.message = message_callbacks = MessageCallbacks(callbacks, host.run)
                stack.push_async_exit(message_callbacks.end)
            read = await native_messages(messages, parameters)
            own = {**settings_for_cli(settings), **web.switched_on(parameters.native_tools, settings)}
            prompts = [own.get("append_system_prompt"), *read.system]
            own["append_system_prompt"] = "\n\n".join(prompt for prompt in prompts if prompt) or None
            *history, last = read.messages
            request = {
                "history": history,
                "prompt": last["user"],
                "only": only,
                "output_schema": output.schema,
            }
            host.request = as_json({"request": request}, own)
            yield _Prepared(host, parameters, reader)

    @contextmanager
    def _named(self) -> Generator[None]:
        """Adds the model's name to errors."""
        try:
            yield
        except ModelFailure as error:
            error.model_name = self.model_name
            raise

    async def _offer(
        self,
        host: Host,
        settings: Mapping[str, Any],
        parameters: ModelRequestParameters,
        run: RunContext[Any] | None,
        given: Offered | None,
        stack: AsyncExitStack,
    ) -> list[str] | None:
        """Offers the tools of a request: those that it names, those of its settings, and registered ones.

        An agent's tools are called through its own manager, with its context. A run or a conversation gets
        the registered tools whose names it does not have. Any other request gets all if it names none.

        Returns:
            The names of the tools that the request gets; all if `None`.
        """
        documents = listed(settings.get("claude_code_documents"), _native.Documents)
        servers = listed(settings.get("claude_code_tool_servers"), _native.McpServer)
        servers += listed(settings.get("claude_code_nats_tools"), _native.NatsTools)
        names = [tool.name for tool in parameters.function_tools]
        manager = _agents_manager(run)
        if given is not None:
            documents, servers = [*documents, *given.documents], [*servers, *given.servers]
            manager = await manager_of(given.toolset, self, given.deps, stack)
            host.add(manager)
        elif manager is not None:
            known = manager.tools or {}
            host.add(manager, [tool for tool in parameters.function_tools if tool.name in known])
        always = await start_servers(servers, host, stack)
        of_settings = {name for one in (*documents, *always) for name in one.tool_names}
        missing = set(names) - host.names
        # The tools of a conversation may change, so it names none.
        gets_all = not names and (given is not None or manager is None)
        is_run = manager is not None and not missing
        names += sorted(of_settings)
        others: list[ToolManager[Any]] = []
        started: list[_native.RunningServer] = []
        registered = self._registered
        if registered is not None and (missing or gets_all or is_run):
            decided: set[str] = set()
            if is_run and manager is not None:
                decided = {*await all_names(manager), *(name for one in documents for name in one.tool_names)}
                # What the settings name is for this run: a name that its toolsets have, too, is an error.
                host.left_out = sorted(decided - of_settings)
            more = [one for one in registered.servers if one not in servers]
            started = await start_servers(more, host, stack)
            if is_run:
                names += sorted({name for one in started for name in one.tool_names} - decided)
            for one in registered.documents:
                wanted = (set(one.tool_names) - decided) if is_run else missing & set(one.tool_names)
                if one not in documents and (wanted or (gets_all and not is_run)):
                    documents.append(one)
                    names += sorted(wanted)
            agent = None if run is None else run.agent
            # An agent decides about its own toolsets.
            if agent is None or all(one is not registered.toolset for one in agent.toolsets):
                deps = given.deps if given is not None and registered.deps is None else registered.deps
                other = await manager_of(registered.toolset, self, deps, stack, run)
                tools = [tool.tool_def for tool in (other.tools or {}).values()]
                added = [tool for tool in tools if tool.name not in host.names | decided]
                host.add(other, added)
                names += [tool.name for tool in added if is_run]
                others.append(other)
        host.documents, host.servers = documents, [*always, *started]
        if given is not None and manager is not None and host.tools:
            host.managers = [manager, *others]
        return None if gets_all else list(dict.fromkeys(names))


def _agents_manager(run: RunContext[Any] | None) -> ToolManager[Any] | None:
    """The manager of the tools of an agent's run; none for a request that no run makes."""
    manager = None if run is None else run.tool_manager
    return None if manager is None or manager.tools is None else manager


def _profile(given: ModelProfileSpec | None) -> ModelProfileSpec:
    """The model's profile, overridden by the user's."""
    if given is None:
        return _PROFILE
    if callable(given):
        return lambda default: given(ModelProfile(**{**default, **_PROFILE}))
    return ModelProfile(**{**_PROFILE, **given})
