"""The Claude Code CLI as a model of pydantic-ai."""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeVar, overload

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ModelResponsePart
from pydantic_ai.models import (
    Model,
    ModelRequestParameters,
    StreamedResponse,
    check_allow_model_requests,
)
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.profiles import ModelProfile, ModelProfileSpec
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from . import _executable, _native, web
from ._run_context import current_run_context, knows_runs
from ._waiting import Stop, check_asyncio, completed
from .answer import SYSTEM, Reader, RequestWithMetadata, answer_of
from .callbacks import (
    CanUseTool,
    MessageCallback,
    MessageCallbacks,
    PermissionMode,
    StderrCallback,
    decide,
)
from .chat import Chat, Output, OutputT
from .conversation import conversation
from .deferral import Deferral
from .errors import InvalidRequestError, ModelFailure
from .failure import ToolErrors
from .hooks import Hook
from .meter import Meter
from .output import OutputSpec, output_spec
from .questions import OnAsk, answer_question
from .server_info import ServerInfo, as_dict
from .setting_types import SettingTypes
from .settings import (
    DEFAULT_SERVER_NAME,
    DEFAULT_TIMEOUT_SECONDS,
    DEFAULT_TRANSPORT,
    FOR_CLI,
    BuiltinTool,
    Effort,
    Sandbox,
    Subagent,
    Thinking,
    TransportType,
    as_json,
    check_names,
    check_types,
    given_documents,
    given_servers,
    settings_for_cli,
    warn_unsupported,
)
from .stream import ClaudeCodeStreamedResponse
from .tools import Host, Offered, Toolbox, Toolsets, all_names, manager_of, offered, start_servers

_Kind = TypeVar("_Kind", bound="ClaudeCodeModel")

_PROFILE = ModelProfile(
    supports_tools=True,
    supports_json_schema_output=True,
    default_structured_output_mode="native",
    supports_image_output=False,
    supports_audio_file_input=False,
    supports_video_input=False,
)


@dataclass(frozen=True)
class _Registered:
    offered: Offered
    server_name: str
    transport: TransportType
    deps: Any
    is_empty: bool = False
    """Whether there are no tools, only the name and the transport for those of agents."""


@dataclass(frozen=True)
class _ChatOptions:
    """What a conversation has in place of a request's parameters."""

    offered: Offered
    deps: Any
    output_spec: OutputSpec


@dataclass
class _Tools:
    """The tools of a request."""

    toolbox: Toolbox
    documents: list[_native.Documents]
    servers: list[_native.McpServer | _native.NatsTools]
    """Other servers and machines that were registered, without those in the settings."""
    names: list[str] | None
    """Which of the tools the request gets; all if `None`."""
    agents: set[str] | None
    """The names about which the run's agent or the conversation decides; `None` for other requests."""


@dataclass
class _Prepared:
    """A request that is ready to start."""

    host: Host
    reader: Reader
    parameters: ModelRequestParameters
    stop: Stop
    meter: Meter | None

    def meter_answered(self) -> None:
        if self.meter is not None:
            self.meter.is_answered = True

    @property
    def held_tools(self) -> frozenset[str]:
        """The tools whose calls may be left to the agent."""
        deferral = self.host.toolbox.deferral
        return frozenset() if deferral is None else deferral.held

    def deferred(
        self, parts: Sequence[ModelResponsePart]
    ) -> tuple[list[ModelResponsePart], RequestUsage] | None:
        """The parts and the usage of an answer that ended at a call that cannot be made now."""
        deferral = self.host.toolbox.deferral
        if deferral is None or deferral.is_empty or self.meter is None:
            return None
        return deferral.left(parts, self.reader), self.meter.usage


class ClaudeCodeModel(Model[None]):
    """A model that runs in the Claude Code CLI, and can call tools of this process.

    It has only the tools of its agents or requests: none of the CLI's own tools, no settings files, no system
    prompt but yours. Prompts are plain text. Everything else has to be enabled explicitly.

    Each request starts the CLI; the process and its files are cleaned up when the request ends, whatever the
    outcome. One model can serve many users at once: each run has its own tools, dependencies and settings.
    """

    unsupported_settings: ClassVar[frozenset[Any]] = frozenset(
        {
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "parallel_tool_calls",
            "seed",
            "presence_penalty",
            "frequency_penalty",
            "logit_bias",
            "stop_sequences",
            "extra_headers",
            "extra_body",
            "service_tier",
        }
    )

    def __init__(
        self,
        model_name: str | None = None,
        *,
        claude_code: bool = False,
        expand_prompts: bool = False,
        working_directory: str | os.PathLike[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        timeout_counts_tools: bool | None = None,
        allowed_tools: Sequence[str] | None = None,
        disallowed_tools: Sequence[str] | None = None,
        builtin_tools: Sequence[BuiltinTool] | None = None,
        permission_mode: PermissionMode | None = None,
        max_turns: int | None = None,
        max_budget_usd: float | None = None,
        system_prompt: str | None = None,
        append_system_prompt: str | None = None,
        coding_prompt: bool | None = None,
        keep_session: bool = False,
        session_id: str | None = None,
        continue_conversation: bool = False,
        resume: str | None = None,
        fork_session: bool = False,
        setting_sources: Sequence[str] | None = None,
        cli_settings: Mapping[str, Any] | None = None,
        fallback_model: str | None = None,
        effort: Effort | None = None,
        thinking: Thinking | None = None,
        task_budget: int | None = None,
        betas: Sequence[str] | None = None,
        client_app: str | None = None,
        add_dirs: Sequence[str | os.PathLike[str]] | None = None,
        agents: Mapping[str, Subagent] | None = None,
        skills: Sequence[str] | Literal["all"] | None = None,
        plugins: Sequence[str | os.PathLike[str]] | None = None,
        sandbox: Sandbox | None = None,
        enable_file_checkpointing: bool | None = None,
        exclude_dynamic_sections: bool | None = None,
        system_prompt_snapshot: bool | None = None,
        resume_session_at: str | None = None,
        resume_drops_turn: str | None = None,
        include_hook_events: bool | None = None,
        forward_subagent_text: bool | None = None,
        extra_args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = True,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        strict_mcp_config: bool | None = None,
        cli_path: str | os.PathLike[str] | None = None,
        session_dir: str | os.PathLike[str] | None = None,
        server: ServerInfo | None = None,
        message_callback: MessageCallback | None = None,
        stderr_callback: StderrCallback | None = None,
        can_use_tool: CanUseTool | None = None,
        hooks: Sequence[Hook] = (),
        on_ask: OnAsk | None = None,
        tool_errors: ToolErrors = "tell",
        allow_own_tools: bool | None = None,
        tool_parameter_restrictions: Mapping[str, Mapping[str, Any]] | None = None,
        max_concurrent_requests: int | None = None,
        settings: ModelSettings | None = None,
        profile: ModelProfileSpec | None = None,
    ) -> None:
        """Creates a model; these settings apply to all its requests.

        Args:
            model_name: The model to ask, instead of the CLI's default.
            claude_code: Whether the model is the full Claude Code, like `claude` in a terminal: with its own
                tools and system prompt, settings files, `CLAUDE.md`, memories, skills, hooks, the MCP servers
                of the user and the project, and a transcript of each conversation on disk.
            expand_prompts: Whether the CLI interprets prompts: it then reads files that are referenced with
                `@`, and runs a prompt that begins with `/` as a command. Never enable this for untrusted
                prompts.
            working_directory: The CLI's working directory. The default is an empty directory, or this
                process's directory if a feature of the CLI needs one: its own tools, settings files, stored
                conversations, other servers.
            timeout: How many seconds a request may take, excluding the time in which the CLI waits for your
                functions: tools, hooks, `can_use_tool`.
            timeout_counts_tools: Whether `timeout` includes that time. It does not by default.
            allowed_tools: Rules for tools that run without asking for permission.
            disallowed_tools: Rules for tools that must not run.
            builtin_tools: The CLI's own tools that the model gets, such as `Read`; `default` is the CLI's
                usual set. None by default.
            permission_mode: How the CLI handles tools that no rule allows.
            max_turns: The maximum number of model turns per request.
            max_budget_usd: The maximum cost of a request.
            system_prompt: The system prompt, before an agent's own instructions. There is none by default.
            append_system_prompt: Text to append to the system prompt, before an agent's own instructions.
            coding_prompt: Whether to use the CLI's own system prompt, which is for coding, if there is no
                `system_prompt`.
            keep_session: Whether the CLI stores a transcript of each conversation on disk, so that it can be
                resumed. Nothing is stored by default.
            session_id: The id, a UUID, of a new conversation, which is stored. Each request needs a different
                one.
            continue_conversation: Whether requests continue the last conversation that was stored in the
                working directory. It is stored.
            resume: The session id of a stored conversation that requests continue. It is stored.
            fork_session: Whether to continue a copy of that conversation.
            setting_sources: The settings files that the CLI reads (`user`, `project`, `local`), with the
                `CLAUDE.md`, skills, agents and hooks that belong to them. None by default.
            cli_settings: Settings for the CLI, in the format of its settings files.
            fallback_model: The model to use if the first is overloaded or unavailable; several are separated
                by commas.
            effort: How much effort the model spends on its answer.
            thinking: Whether the model thinks before it answers.
            task_budget: The token budget for the whole request that the model is told.
            betas: Beta features of the API. The CLI sends them only with an API key.
            client_app: The name of your program for the API, such as `shop/1.2`.
            add_dirs: Further directories that the CLI's tools may access.
            agents: Agents that the model may start, by name. It gets the tool that starts them; they have
                only the tools they are given.
            skills: The skills that the model may use, or `all`: those of `setting_sources`, of `plugins`, and
                the CLI's own. It gets the tool that runs them.
            plugins: Directories with plugins: skills, agents, hooks, commands, MCP servers.
            sandbox: The sandbox for commands of the CLI's `Bash`. An unavailable sandbox is an error.
            enable_file_checkpointing: Whether the CLI stores copies of files before its tools change them.
            exclude_dynamic_sections: Whether the CLI's own system prompt omits user-specific parts, so that
                the API can cache it for several users.
            system_prompt_snapshot: Whether a conversation keeps its first system prompt, even if it is
                resumed with another.
            resume_session_at: The id of the message after which the conversation of `resume` continues.
            resume_drops_turn: The id of the prompt that this drops. Dropping anything else is an error.
            include_hook_events: Whether the CLI reports the start and end of hooks to `message_callback`.
            forward_subagent_text: Whether the CLI reports the text and thoughts of agents to
                `message_callback`.
            extra_args: Further arguments for the CLI.
            env: Environment variables for the CLI.
            inherit_env: Whether the CLI inherits this process's environment, or gets only `env`.
            mcp_servers: Further MCP servers, as in the CLI's `mcpServers`.
            strict_mcp_config: Whether to ignore the MCP servers of the user's and the project's
                configuration. They are ignored, unless `claude_code` is set.
            cli_path: The CLI's executable, instead of the one on the PATH, in the usual places, or in the
                package `claude-agent-sdk`.
            session_dir: The directory for the files of sessions, instead of the temporary directory.
            server: The name, version and instructions that the server of the tools reports.
            message_callback: Called with each message of the CLI.
            stderr_callback: Called with each line that the CLI writes to its stderr.
            can_use_tool: Decides whether a tool may be used that no rule allows or forbids.
            hooks: Functions that are called on events in the CLI: before a tool is used, after a prompt, when
                the model stops. Hooks in the settings are called, too.
            on_ask: Answers questions of tools that call `ask`, and of other MCP servers of the run. Without
                it, questions cannot be answered.
            tool_errors: What happens when a tool raises an exception. `tell`: the model is told its type and
                text, and goes on. `hide`: it is told only the type. `raise`: the exception ends the run, or
                the conversation; the caller gets it. A `ModelRetry` is for the model in any case.
            allow_own_tools: Whether this process's tools run without asking for permission. They do, unless
                there is a `can_use_tool`.
            tool_parameter_restrictions: For each tool, by name, a JSON Schema for each restricted parameter.
                A request without such a tool is an error.
            max_concurrent_requests: How many requests run at the same time, each with its own CLI. The others
                wait in order; their `timeout` starts when they do. The default is twice the number of cores;
                `2**32 - 1` means no limit. Open conversations do not count. A run that a tool of another run
                starts neither waits nor counts. One that it starts in a thread without the tool's context
                does: it ends with an error if all that run wait for functions for its `timeout`.
            settings: Settings for all requests; those of an agent or a request take precedence.
            profile: The model's profile for pydantic-ai, which overrides its default profile.

        Raises:
            InvalidRequestError: If a setting is invalid, or two exclude each other.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_names(settings)
        check_types(settings)
        settings_for_cli(settings)
        _argument_types().check(given)
        super().__init__(settings=settings, profile=_profile(profile))
        self._given = given
        """The arguments for making a copy."""
        self._model_name = model_name
        self._message_callback = message_callback
        self._stderr_callback = stderr_callback
        self._can_use_tool = can_use_tool
        self._hooks = tuple(hooks)
        self._on_ask = on_ask
        self._tool_errors = tool_errors
        self._append_system_prompt = append_system_prompt
        self._mcp_servers = {name: dict(entry) for name, entry in (mcp_servers or {}).items()}
        self._registered: _Registered | None = None
        # The appended system prompt is assembled in each request.
        own = {name: given[name] for name in FOR_CLI.values() if name != "append_system_prompt"}
        own["mcp_servers"] = self._mcp_servers or None
        restrictions = [
            (tool, parameter, schema)
            for tool, parameters in (tool_parameter_restrictions or {}).items()
            for parameter, schema in parameters.items()
        ]
        config = {
            "settings": {"model": model_name, **as_json(own)},
            "bridge": _executable.BRIDGE,
            "guard": _executable.BRIDGE,
            "cli": cli_path,
            "bundled_cli": _executable.bundled_cli(),
            "session_dir": session_dir,
            "server": as_dict(server),
            "inherit_env": inherit_env,
            "strict_mcp_config": strict_mcp_config,
            "allow_own_tools": allow_own_tools,
            "max_concurrent_requests": max_concurrent_requests,
            "restrictions": restrictions,
        }
        self._native = _native.Model(to_json(as_json(config)))

    def __copy__(self) -> Self:
        return self._copied(self._given)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Callbacks are shared: the copied object of a bound method would be called instead of the user's.
        plain = {name: value for name, value in self._given.items() if name not in _SHARED}
        return self._copied({**self._given, **deepcopy(plain, memo)})

    def _copied(self, given: Mapping[str, Any]) -> Self:
        copied = _recreated(type(self), given)
        vars(copied).update({name: value for name, value in vars(self).items() if name not in vars(copied)})
        copied._registered = self._registered
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        made = vars(_recreated(type(self), self._given))
        more = {name: value for name, value in vars(self).items() if name not in made}
        parts = {**self._given, "set_agent_toolsets": self._registered, **more}
        for name, value in parts.items():
            try:
                pickle.dumps(value)
            except Exception as error:
                raise pickle.PicklingError(
                    f"`{name}` of the model cannot be pickled: {error}. Functions of modules can be; "
                    "tools, and what else belongs to one process, can be given in each request"
                ) from error
        return _recreated, (type(self), self._given), {"_registered": self._registered, **more}

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
        is_empty = toolsets is None
        self._registered = _Registered(offered(toolsets or []), server_name, transport, deps, is_empty)

    def get_mcp_servers(self) -> dict[str, dict[str, Any]]:
        """The MCP servers in the CLI's configuration. The tools' server gets new paths in each request."""
        servers = dict(self._mcp_servers)
        if (registered := self._registered) is not None and not registered.is_empty:
            if registered.transport == "sdk":
                servers[registered.server_name] = {"type": "sdk", "name": registered.server_name}
            else:
                command = str(_executable.BRIDGE)
                servers[registered.server_name] = {"type": "stdio", "command": command, "args": ["bridge"]}
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
        host = Host(Toolbox(), server_name=DEFAULT_SERVER_NAME, transport=DEFAULT_TRANSPORT)
        await completed(self._native.keep_warm, count, host)

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
        async with self._prepared(messages, model_settings, model_request_parameters, None) as ready:
            json = await completed(self._native.request, ready.host, stop=ready.stop)
            answer = answer_of(json, ready.reader, self.model_name)
            ready.meter_answered()
            if (deferred := ready.deferred(answer.response.parts)) is not None:
                parts, usage = deferred
                return replace(answer, response=replace(answer.response, parts=parts, usage=usage))
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
            stream = await completed(self._native.stream, ready.host, stop=ready.stop)
            try:
                response = ClaudeCodeStreamedResponse(
                    ready.parameters,
                    _stream=stream,
                    _reader=ready.reader,
                    _model_name=self.model_name,
                    _stop=ready.stop,
                    _answered=ready.meter_answered,
                    _deferred=ready.deferred,
                    _held_tools=ready.held_tools,
                )
                # With the stream in its hands, a `FallbackModel` does not ask another model any more.
                await response.wait_for_model()
                if ready.meter is not None:
                    ready.meter.is_counted = True
                yield response
            finally:
                stream.close()

    @overload
    def conversation(
        self,
        *,
        toolsets: Toolsets | None = None,
        instructions: str | None = None,
        deps: Any = None,
        model_settings: ModelSettings | None = None,
    ) -> AbstractAsyncContextManager[Chat[str]]: ...

    @overload
    def conversation(
        self,
        *,
        output_type: type[OutputT],
        toolsets: Toolsets | None = None,
        instructions: str | None = None,
        deps: Any = None,
        model_settings: ModelSettings | None = None,
    ) -> AbstractAsyncContextManager[Chat[OutputT]]: ...

    def conversation(
        self,
        *,
        output_type: type[Any] = str,
        toolsets: Toolsets | None = None,
        instructions: str | None = None,
        deps: Any = None,
        model_settings: ModelSettings | None = None,
    ) -> AbstractAsyncContextManager[Chat[Any]]:
        """A conversation of several prompts on one CLI process, which ends when the context is left.

        >>> async def talk(model: ClaudeCodeModel) -> str:
        ...     async with model.conversation(instructions="Be brief.") as chat:
        ...         await chat.send("My name is Ada.")
        ...         return (await chat.send("What is my name?")).output

        Args:
            output_type: The type of each answer: text, or a type that pydantic supports.
            toolsets: As for `set_agent_toolsets`, whose tools the conversation has beside these. They are
                checked for changes before each prompt.
            instructions: Instructions for the model, after its system prompts.
            deps: The dependencies in the context of tools.
            model_settings: Settings that override those of the model. The `timeout` applies to each prompt.
        """
        return self._conversation(Output(output_type), toolsets, instructions, deps, model_settings)

    @asynccontextmanager
    async def _conversation(
        self,
        output: Output[OutputT],
        toolsets: Toolsets | None,
        instructions: str | None,
        deps: Any,
        model_settings: ModelSettings | None,
    ) -> AsyncGenerator[Chat[OutputT]]:
        own: FunctionToolset[Any] = FunctionToolset()
        messages: list[ModelMessage] = [ModelRequest(parts=[], instructions=instructions)]
        parameters = ModelRequestParameters()
        chat = _ChatOptions(offered(toolsets or [], own), deps, output.spec)
        async with self._prepared(messages, model_settings, parameters, None, chat=chat) as ready:
            native = await completed(self._native.open, ready.host, stop=ready.stop)
            toolbox = ready.host.toolbox
            try:
                yield Chat(
                    native, ready.reader, output, toolbox, own, parameters, self.model_name, ready.stop
                )
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
            messages, model_settings, model_request_parameters, None, received.put_nowait
        ) as ready:
            request = asyncio.ensure_future(completed(self._native.request, ready.host, stop=ready.stop))
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
        run_context: RunContext[Any] | None,
        listener: Callable[[dict[str, Any]], None] | None = None,
        chat: _ChatOptions | None = None,
    ) -> AsyncGenerator[_Prepared]:
        """Prepares a request or a conversation. Everything is cleaned up when the context is left."""
        check_asyncio()
        self._check_allowed()
        all_settings = merge_model_settings(self.settings, model_settings)
        check_names(all_settings)
        check_types(all_settings)
        warn_unsupported(all_settings, self.unsupported_settings)
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        given: Mapping[str, Any] = settings or {}
        registered = self._registered
        documents, servers = given_documents(given), given_servers(given)
        if chat is not None:
            documents += chat.offered.documents
            servers += chat.offered.servers
        async with AsyncExitStack() as stack:
            stack.enter_context(self._named())
            # A conversation has its own tools, even if it is opened within a run.
            run = None if chat is not None else run_context or current_run_context()
            stop = Stop()
            meter = None if run is None else Meter(run, stop)
            if meter is not None:
                stack.callback(meter.settle)
            tools = await self._tools(parameters, documents, run, registered, stack, chat)
            tools.toolbox.errors = given.get("claude_code_tool_errors") or self._tool_errors
            tools.toolbox.stop = stop
            read = await conversation(messages, parameters)
            can_use_tool = given.get("claude_code_can_use_tool") or self._can_use_tool
            on_ask = given.get("claude_code_on_ask") or self._on_ask
            web.check(parameters.native_tools)
            own = settings_for_cli(given)
            own |= web.switched_on(parameters.native_tools, own, self._given, asks=can_use_tool is not None)
            prompts = [own.get("append_system_prompt", self._append_system_prompt), *read.system]
            own["append_system_prompt"] = "\n\n".join(prompt for prompt in prompts if prompt) or None
            output = output_spec(parameters) if chat is None else chat.output_spec
            host = Host(
                tools.toolbox,
                server_name=registered.server_name if registered else DEFAULT_SERVER_NAME,
                transport=registered.transport if registered else DEFAULT_TRANSPORT,
                documents=tools.documents,
                decider=can_use_tool and partial(decide, can_use_tool),
                asker=on_ask and partial(answer_question, on_ask),
                stderr=given.get("claude_code_stderr_callback") or self._stderr_callback,
                python_hooks=(
                    *self._hooks,
                    *given.get("claude_code_hooks", ()),
                    *web.hooks(parameters.native_tools),
                ),
            )
            stack.push_async_callback(host.end)
            always = await start_servers(servers, host, stack)
            others = await start_servers([one for one in tools.servers if one not in servers], host, stack)
            host.servers = [*always, *others]
            if tools.names is not None:
                tools.names += [name for one in always for name in one.tool_names]
            if tools.agents is not None:
                if tools.names is not None:
                    names = {name for one in others for name in one.tool_names}
                    tools.names += sorted(names - tools.agents)
                # These are for this run or conversation: a name that its toolsets have, too, is an error.
                named = {name for one in documents for name in one.tool_names}
                named |= {name for one in always for name in one.tool_names}
                host.left_out = sorted(tools.agents - named)
            listeners = (given.get("claude_code_message_callback") or self._message_callback, listener)
            callbacks = [one for one in listeners if one is not None]
            if callbacks or meter is not None:
                host.message = message_callbacks = MessageCallbacks(callbacks, meter)
                stack.push_async_exit(message_callbacks.end)
            if meter is not None and (manager := _agents_manager(run)) is not None:
                tools.toolbox.meter, tools.toolbox.metered = meter, manager
                agents_tools = (manager.tools or {}).items()
                definitions = {name: tool.tool_def for name, tool in agents_tools}
                deferral = Deferral(definitions, getattr(run, "agent", None))
                tools.toolbox.deferral = deferral
                host.until = deferral.ending
            *history, last = read.messages
            request = {
                "history": history,
                "prompt": last["user"],
                "only": tools.names,
                "output_schema": output.schema,
            }
            kinds = {tool.kind for tool in parameters.native_tools}
            native_names = {name: kind for name, kind in web.KINDS.items() if kind in kinds}
            values: dict[str, tuple[Any, bytes]] = {}
            tools.toolbox.values = values
            reader = Reader(host.server_name, output, native_names, values)
            if meter is not None:
                meter.reader = reader
            host.request = to_json({"request": request, "settings": own})
            yield _Prepared(host, reader, parameters, stop, meter)

    @contextmanager
    def _named(self) -> Generator[None]:
        """Adds the model's name to errors."""
        try:
            yield
        except ModelFailure as error:
            error.model_name = self.model_name
            raise

    async def _tools(
        self,
        parameters: ModelRequestParameters,
        documents: list[_native.Documents],
        run_context: RunContext[Any] | None,
        registered: _Registered | None,
        stack: AsyncExitStack,
        chat: _ChatOptions | None,
    ) -> _Tools:
        """The tools of a request: those that it names, the documents of its settings, and registered ones.

        An agent's tools are called through its own manager, with its context. A run or a conversation gets
        the registered tools whose names it does not have. Any other request gets all if it names none.
        """
        toolbox = Toolbox()
        documents = [*documents]
        names = [tool.name for tool in parameters.function_tools]
        manager = _agents_manager(run_context)
        if chat is not None:
            manager = await manager_of(chat.offered.toolset, self, chat.deps, stack)
            toolbox.add(manager)
        elif manager is not None:
            own = manager.tools or {}
            toolbox.add(manager, [tool for tool in parameters.function_tools if tool.name in own])
        missing = set(names) - toolbox.names
        # The tools of a conversation may change, so it names none.
        gets_all = not names and (chat is not None or (manager is None and knows_runs()))
        is_run = manager is not None and not missing
        names += [name for one in documents for name in one.tool_names]
        servers: list[_native.McpServer | _native.NatsTools] = []
        others: list[ToolManager[Any]] = []
        agents: set[str] = set()
        if registered is not None and (missing or gets_all or is_run):
            if is_run and manager is not None and not registered.is_empty:
                agents = {*await all_names(manager), *(name for one in documents for name in one.tool_names)}
            servers += registered.offered.servers
            for one in registered.offered.documents:
                wanted = (set(one.tool_names) - agents) if is_run else missing & set(one.tool_names)
                if one not in documents and (wanted or (gets_all and not is_run)):
                    documents.append(one)
                    names += sorted(wanted)
            if not _is_of(registered.offered.toolset, run_context):
                toolset, deps = registered.offered.toolset, registered.deps
                if chat is not None and deps is None:
                    deps = chat.deps
                other = await manager_of(toolset, self, deps, stack, run_context)
                known_tools = [tool.tool_def for tool in (other.tools or {}).values()]
                added = [tool for tool in known_tools if tool.name not in toolbox.names | agents]
                toolbox.add(other, added)
                if is_run:
                    names += [tool.name for tool in added]
                others.append(other)
        if chat is not None and manager is not None and toolbox.tools:
            toolbox.managers = [manager, *others]
        only = None if gets_all else list(dict.fromkeys(names))
        return _Tools(toolbox, documents, servers, only, agents if is_run else None)


_SHARED = frozenset(
    {"message_callback", "stderr_callback", "can_use_tool", "hooks", "on_ask", "settings", "profile"}
)
"""The arguments that a copy shares with its model."""


def _agents_manager(run: RunContext[Any] | None) -> ToolManager[Any] | None:
    """The manager of the tools of an agent's run; none for a request that no run makes."""
    manager = None if run is None else run.tool_manager
    return None if manager is None or manager.tools is None else manager


@functools.cache
def _argument_types() -> SettingTypes:
    """The types of the model's own arguments."""
    return SettingTypes(ClaudeCodeModel.__init__, without=frozenset({"return", "settings", "profile"}))


def _recreated(kind: type[_Kind], given: Mapping[str, Any]) -> _Kind:
    """Creates a model of that class from the original arguments. Attributes of a subclass are copied."""
    model = kind.__new__(kind)
    ClaudeCodeModel.__init__(model, **given)
    return model


def _is_of(toolset: AbstractToolset[Any], run_context: RunContext[Any] | None) -> bool:
    """Whether the toolset belongs to the agent that makes the request, which then decides about it."""
    agent = run_context.agent if run_context is not None else None
    return agent is not None and any(toolset is own for own in agent.toolsets)


def _profile(given: ModelProfileSpec | None) -> ModelProfileSpec:
    """The model's profile, overridden by the user's."""
    if given is None:
        return _PROFILE
    if callable(given):
        return lambda default: given(ModelProfile(**{**default, **_PROFILE}))
    return ModelProfile(**{**_PROFILE, **given})
