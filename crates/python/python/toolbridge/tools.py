"""The tools of a request: their descriptions for the model, and calling them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self, TypeAlias, get_type_hints

from pydantic_ai import RunContext, Tool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolDefinition, ToolDenied
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    WrapperToolset,
)
from pydantic_ai.usage import RunUsage
from pydantic_core import to_json

from . import _native
from ._run_context import callbacks_context
from ._waiting import EventLoop, Stop, completed
from .agent_run import AgentRun
from .errors import InvalidRequestError
from .failure import HiddenError, ToolErrors, ends_program, fail, may_be_told
from .progress import current_call
from .results import result_of
from .settings import DEFAULT_SERVER_NAME, DEFAULT_TRANSPORT, Server
from .threads import Threads

Offer: TypeAlias = AbstractToolset[Any] | _native.Documents | Server | Tool[Any] | Callable[..., Any]
"""What can be offered: toolsets, documents, servers, tools of other machines, tools and functions."""

Toolsets: TypeAlias = AbstractToolset[Any] | _native.Documents | Server | Sequence[Offer]
"""A toolset, documents, a server or tools of other machines; or a sequence of those and of functions."""

END_PATIENCE_SECONDS = 1.0
"""How long the end of a request waits for its tools. One that blocks a thread cannot be stopped."""

_HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


def read_only(function: Callable[..., Any]) -> Tool[Any]:
    """Marks a function as a tool that changes nothing, so that its calls may run in parallel."""
    return Tool(function, metadata={"read_only": True})


@dataclass
class Offered:
    """The given tools: toolsets, which Python calls, and others, whose calls bypass Python."""

    toolsets: list[AbstractToolset[Any]] = field(default_factory=list)
    documents: list[_native.Documents] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    tools: list[Tool[Any] | Callable[..., Any]] = field(default_factory=list)
    deps: Any = None
    """The dependencies in the context of the toolsets."""

    @classmethod
    def of(cls, toolsets: Toolsets, deps: Any = None) -> Self:
        given = cls(deps=deps)
        single = AbstractToolset | _native.Documents | Server
        for one in [toolsets] if isinstance(toolsets, single) else toolsets:
            if isinstance(one, AbstractToolset):
                given.toolsets.append(one)
            elif isinstance(one, _native.Documents):
                given.documents.append(one)
            elif isinstance(one, Server):
                given.servers.append(one)
            else:
                given.tools.append(one if isinstance(one, Tool) else as_tool(one))
        return given

    @cached_property
    def toolset(self) -> AbstractToolset[Any]:
        """One toolset with all that Python calls."""
        own = [FunctionToolset(self.tools)] if self.tools else []
        all_toolsets = [*self.toolsets, *own]
        return all_toolsets[0] if len(all_toolsets) == 1 else CombinedToolset(all_toolsets)


def is_again(tool: Tool[Any], earlier: Tool[Any]) -> bool:
    """Whether it has the same function, or one defined again, as by a notebook's cell that is run twice."""
    return _is_again(tool.function, earlier.function)


def _is_again(new: Callable[..., Any], old: Callable[..., Any]) -> bool:
    inner = [inspect.unwrap(one) for one in (new, old)]
    if inner[0] == inner[1]:
        return True
    name = getattr(new, "__qualname__", None)
    # All lambdas of a module have the same name.
    if name is None or name.endswith("<lambda>"):
        return False
    if any(getattr(new, of, None) != getattr(old, of, None) for of in ("__module__", "__qualname__")):
        return False
    bound = [getattr(one, "__self__", None) for one in (new, old)]
    if bound[0] is not bound[1]:
        return _is_partial_again(*bound)
    # Other functions of the same definition, such as the closures that one factory makes, share its code.
    codes = [getattr(one, "__code__", None) for one in inner]
    return codes[0] is not codes[1]


def _is_partial_again(new: object, old: object) -> bool:
    if not (isinstance(new, partial) and isinstance(old, partial) and _is_again(new.func, old.func)):
        return False
    with suppress(Exception):  # comparing may run user code
        return bool((new.args, new.keywords) == (old.args, old.keywords))
    return False


def as_tool(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that pydantic-ai can make a tool of, which requires a name.

    Raises:
        InvalidRequestError: If the function cannot be a tool.
    """
    inner, is_partial = function, False
    while isinstance(inner, partial):
        inner, is_partial = inner.func, True
    name = getattr(inner, "__name__", type(inner).__name__)
    if not callable(inner):
        raise InvalidRequestError(
            f"a `{name}` is not a tool",
            hint="give functions, `Tool`s, toolsets, `Documents`, `McpServer`s or `NatsTools`",
        )
    call = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.isasyncgenfunction(call):
        hint = "collect what it yields, and return that; `report_progress` says how far it is"
        raise InvalidRequestError(f"`{name}` is an async generator, and a tool has one result", hint=hint)
    if not is_partial and hasattr(function, "__name__"):
        return function
    if inspect.iscoroutinefunction(call):

        async def call_later(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return _named(call_later, function, inner, name)

    def call_now(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return _named(call_now, function, inner, name)


def _named(
    outer: Callable[..., Any], function: Callable[..., Any], inner: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """A function with the name and docstring of the inner one, and the remaining parameters."""
    hinted = inner if inspect.isroutine(inner) else type(inner).__call__
    outer.__name__ = outer.__qualname__ = name
    outer.__self__ = function  # type: ignore[attr-defined]
    outer.__doc__ = inspect.getdoc(inner)
    outer.__module__ = getattr(inner, "__module__", __name__)
    # Arguments bound by `partial` cannot be given again.
    given = set(function.keywords) if isinstance(function, partial) else set()
    hints = get_type_hints(hinted, include_extras=True)
    signature = inspect.signature(function)
    left = [
        one.replace(annotation=hints.get(one.name, one.annotation))
        for one in signature.parameters.values()
        if one.name not in given
    ]
    outer.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=left, return_annotation=hints.get("return", signature.return_annotation)
    )
    names = {one.name for one in left} | {"return"}
    outer.__annotations__ = {name: hint for name, hint in hints.items() if name in names}
    return outer


def direct(tool: Tool[Any]) -> Callable[[bytes], Any] | None:
    """Calls a plain function with arguments as JSON text; `None` for a tool that needs its manager."""
    schema = tool.function_schema
    asks_for_more = (
        tool.prepare or tool.args_validator or tool.requires_approval or tool.timeout,
        schema.takes_ctx or schema.is_async,
        # Some arguments have no name.
        schema.positional_fields or schema.var_positional_field,
    )
    # For example an object with an asynchronous `__call__`.
    if any(asks_for_more) or not inspect.isroutine(schema.function):
        return None
    function, validate = schema.function, schema.validator.validate_json
    return lambda arguments: function(**validate(arguments))


def _described(tool: ToolDefinition, manager: ToolManager[Any]) -> dict[str, Any]:
    """A tool's description for the native module.

    It has no output schema: a Python function may return something else than its signature states, which a
    client that expects an object would reject.
    """
    metadata = tool.metadata or {}
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, Mapping):
        annotations = vars(annotations)
    hints: dict[str, Any] = {}
    for name, hint in _HINTS.items():
        values = (metadata.get(name), annotations.get(hint), annotations.get(f"{name}_hint"))
        stated = next((value for value in values if value is not None), None)
        # Clients assume that a tool without hints changes something.
        if stated is not None and (stated or name != "read_only"):
            hints[hint] = stated
    is_parallel = bool(metadata.get("parallel"))
    if tool.sequential or manager.get_parallel_execution_mode() == "sequential":
        hints.pop("readOnlyHint", None)
        is_parallel = False
    return {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": {"type": "object", **tool.parameters_json_schema},
        "title": metadata.get("title") or annotations.get("title"),
        "annotations": hints,
        "parallel": is_parallel,
        "max_result_chars": metadata.get("max_result_chars"),
    }


def returns_object(tool: ToolDefinition) -> bool:
    """Whether the tool returns a JSON object, according to its signature."""
    return bool(tool.return_schema) and (tool.return_schema or {}).get("type") == "object"


async def manager_of(
    toolset: AbstractToolset[Any],
    model: Model,
    deps: Any,
    stack: AsyncExitStack,
    run: RunContext[Any] | None = None,
) -> ToolManager[Any]:
    """A manager for a toolset that no agent has. It is closed with `stack`."""
    context: RunContext[Any] = RunContext(deps=deps, model=model, usage=RunUsage())
    if run is not None:
        context = replace(run, deps=run.deps if deps is None else deps, retries={})
    toolset = await toolset.for_run(context)
    await stack.enter_async_context(toolset)
    return await ToolManager(toolset).for_run_step(context)


async def next_step(manager: ToolManager[Any]) -> ToolManager[Any]:
    """The manager with the tools that its toolset has now."""
    assert manager.ctx is not None
    return await manager.for_run_step(replace(manager.ctx, run_step=manager.ctx.run_step + 1))


async def all_names(manager: ToolManager[Any]) -> set[str]:
    """The names of all tools of a manager, including those that a filter or a `prepare` leaves out."""
    assert manager.ctx is not None
    return {*(manager.tools or {}), *await _all_names(manager.toolset, manager.ctx)}


async def _all_names(toolset: AbstractToolset[Any], context: RunContext[Any]) -> set[str]:
    if isinstance(toolset, FunctionToolset):
        return set(toolset.tools)
    inner: list[AbstractToolset[Any]] = []
    if isinstance(toolset, WrapperToolset):
        inner.append(toolset.wrapped)
    elif isinstance(toolset, CombinedToolset):
        inner += toolset.toolsets
    else:
        toolset.apply(inner.append)
    if inner and inner[0] is toolset:
        return set(await toolset.get_tools(context))
    names = {name for one in inner for name in await _all_names(one, context)}
    if isinstance(toolset, PrefixedToolset):
        return {f"{toolset.prefix}_{name}" for name in names}
    if isinstance(toolset, RenamedToolset):
        renamed = {old: new for new, old in toolset.name_map.items()}
        return {renamed.get(name, name) for name in names}
    return names


@dataclass(frozen=True, eq=False)
class Served:
    """A tool as it is offered."""

    definition: ToolDefinition
    manager: ToolManager[Any]
    """Calls the tool, unless `function` is set."""
    function: Callable[[bytes], Any] | None = None
    """Calls the tool with arguments as JSON text, in any thread."""

    @property
    def described(self) -> bytes:
        """Its description for the native module."""
        return to_json(_described(self.definition, self.manager))

    @property
    def is_direct(self) -> bool:
        """Whether its calls run in threads of the host."""
        return self.function is not None


async def served(tool: Tool[Any], model: Model, deps: Any) -> Served | None:
    """A tool without a toolset; `None` if its own `prepare` leaves it out."""
    context: RunContext[Any] = RunContext(deps=deps, model=model, usage=RunUsage())
    manager = await ToolManager(FunctionToolset([tool])).for_run_step(context)
    found = [Served(one.tool_def, manager, direct(tool)) for one in (manager.tools or {}).values()]
    return found[0] if found else None


Work: TypeAlias = Callable[[_native.Call], Coroutine[Any, Any, bytes]]
"""Produces the answer of a call."""


async def answer(call: _native.Call, work: Work) -> None:
    """Answers a call with the outcome of the work, also if that fails."""
    current_call.set(call)
    try:
        call.answer(await work(call))
    except BaseException as error:
        fail(call, error)
        if issubclass(type(error), asyncio.CancelledError) or ends_program(error):
            raise


@dataclass
class Host:
    """The tools and callbacks of one request or session; all of them run on one event loop."""

    tools: list[Served] = field(default_factory=list)
    managers: Sequence[ToolManager[Any]] = ()
    """Make the calls in a conversation, where tools can be added and removed; the first has its own tools."""
    is_structured: bool = False
    """Whether objects are also sent as structured content. A model only ever sees one of the two."""
    run: AgentRun | None = None
    values: dict[str, tuple[Any, bytes]] | None = None
    """What the tools return, and the results made of it, by the id of the call; for a model's response."""
    errors: ToolErrors = "tell"
    """What happens with the exceptions of tools."""
    stop: Stop = field(default_factory=Stop)
    """Ends the request of the tools."""
    server_name: str = DEFAULT_SERVER_NAME
    transport: str = DEFAULT_TRANSPORT
    documents: Sequence[_native.Documents] = ()
    servers: Sequence[_native.RunningServer] = ()
    left_out: Sequence[str] = ()
    """The names of tools of documents and servers that are not offered."""
    decide: Work | None = None
    ask: Work | None = None
    message: Callable[[bytes], None] | None = None
    stderr: Callable[[str], object] | None = None
    hooks: Sequence[tuple[str, str, Work]] = ()
    """The event, the matcher, and what calls the hook."""
    until: _native.Ending | None = None
    request: bytes = b""
    """The request and its settings as JSON; empty for a session."""
    is_nested: bool = field(
        default_factory=lambda: (call := current_call.get()) is not None and call.is_awaited
    )
    """Whether it is made by a function that a CLI waits for."""
    event_loop: EventLoop = field(default_factory=lambda: EventLoop(context=callbacks_context()))
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._threads = Threads(self._call_directly)
        self.run_in_thread = self._threads.run

    @property
    def names(self) -> set[str]:
        return {tool.definition.name for tool in self.tools}

    def add(self, manager: ToolManager[Any], definitions: Iterable[ToolDefinition] | None = None) -> None:
        """Adds the tools of a manager, or only the given ones."""
        if definitions is None:
            definitions = [tool.tool_def for tool in (manager.tools or {}).values()]
        self.tools += [Served(definition, manager) for definition in definitions]

    async def call(self, call: _native.Call) -> bytes:
        """Calls a tool; returns the JSON text of an MCP result."""
        part = ToolCallPart(call.name, call.arguments.decode())
        if call.tool_use_id is not None:
            part.tool_call_id = call.tool_use_id
        having = (one for one in self.managers if call.name in (one.tools or {}))
        manager, work = next(having, call.tool.manager), partial(self._result, call.tool, part)
        return await (work(manager) if self.run is None else self.run.call(part, manager, work))

    async def _result(self, tool: Served, part: ToolCallPart, manager: ToolManager[Any]) -> bytes:
        """Calls a tool. Its exception is raised, hidden, or ends the request."""
        try:
            # The model sees each error, so they must not be wrapped for the agent.
            value = await manager.handle_call(part, wrap_validation_errors=False)
            result = self.result(tool, value)
        except BaseException as error:
            if self.errors == "tell" or may_be_told(error):
                raise
            if self.errors == "raise":
                self.stop.now(error)
            raise HiddenError from error
        if self.values is not None and not isinstance(value, ToolDenied):
            self.values[part.tool_call_id] = value, result
        return result

    def result(self, tool: Served, value: Any) -> bytes:
        """A tool's return value as the JSON text of an MCP result."""
        is_structured = self.is_structured and returns_object(tool.definition)
        return result_of(tool.definition.name, value, is_structured=is_structured)

    def _call_directly(self, call: _native.Call) -> None:
        """Calls a function in a thread where it may block."""
        self.event_loop.context.copy().run(self._answer_directly, call)

    def _answer_directly(self, call: _native.Call) -> None:
        current_call.set(call)
        try:
            assert call.tool.function is not None
            value = call.tool.function(call.arguments)
            if inspect.isawaitable(value):
                self._await_later(call, value)
            else:
                call.answer(self.result(call.tool, value))
        except BaseException as error:
            fail(call, error)

    def _await_later(self, call: _native.Call, value: Awaitable[Any]) -> None:
        """Continues on the event loop with a call whose function has returned an awaitable."""

        async def work(call: _native.Call) -> bytes:
            return self.result(call.tool, await value)

        def start() -> None:
            # If it is cancelled before it starts, Python would warn that it was never awaited.
            self.start(call, work).add_done_callback(lambda _: _close(value))

        try:
            self.event_loop.loop.call_soon_threadsafe(start, context=contextvars.copy_context())
        except BaseException:  # the event loop is already closed
            _close(value)
            raise

    def start(self, call: _native.Call, work: Work) -> asyncio.Task[None]:
        """Starts to answer a call, in the context of the request. Called on the event loop."""
        task: asyncio.Task[None] = self.event_loop.loop.create_task(answer(call, work))
        self._running.add(task)
        task.add_done_callback(self._over)
        if not call.on_cancel(task.cancel):
            task.cancel()
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved; an exception that ends the program has already stopped the loop

    async def end(self) -> None:
        """Cancels the tools that are still running, and waits for them for a limited time."""
        self._threads.end()
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=END_PATIENCE_SECONDS)


def _close(value: Awaitable[Any]) -> None:
    if inspect.iscoroutine(value):
        value.close()


async def start_servers(
    servers: Sequence[Server], host: Host, stack: AsyncExitStack
) -> list[_native.RunningServer]:
    """Starts servers and connects to other machines in parallel. They are stopped with `stack`."""
    starting = (completed(server.start, host.event_loop) for server in servers)
    ended = await asyncio.gather(*starting, return_exceptions=True)
    started = [one for one in ended if not isinstance(one, BaseException)]
    for one in started:
        stack.push_async_callback(completed, one.stop)
    for failure in ended:
        if isinstance(failure, BaseException):
            raise failure
    return started
