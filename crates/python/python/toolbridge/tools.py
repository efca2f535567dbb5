"""The tools of a request: their descriptions for the model, and calling them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeAlias, get_type_hints

from pydantic import ValidationError
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import AgentRunError, ApprovalRequired, CallDeferred, ModelRetry
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import DeferredToolRequests, ToolApproved, ToolDefinition, ToolDenied
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
from ._waiting import Stop, completed
from .deferral import Deferral
from .errors import InvalidRequestError
from .failure import HiddenError, ToolErrors, ends_program, fail, may_be_told
from .hooks import Hook, NativeHook, call_hook
from .meter import Meter
from .progress import current_call
from .results import error_result, result_of

Toolsets: TypeAlias = (
    AbstractToolset[Any]
    | _native.Documents
    | _native.McpServer
    | _native.NatsTools
    | Sequence[
        AbstractToolset[Any]
        | _native.Documents
        | _native.McpServer
        | _native.NatsTools
        | Tool[Any]
        | Callable[..., Any]
    ]
)
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
class Given:
    """The given tools, sorted by kind."""

    toolsets: list[AbstractToolset[Any]] = field(default_factory=list)
    documents: list[_native.Documents] = field(default_factory=list)
    servers: list[_native.McpServer | _native.NatsTools] = field(default_factory=list)
    tools: list[Tool[Any] | Callable[..., Any]] = field(default_factory=list)

    @classmethod
    def of(cls, toolsets: Toolsets) -> Self:
        given = cls()
        single = AbstractToolset | _native.Documents | _native.McpServer | _native.NatsTools
        for one in [toolsets] if isinstance(toolsets, single) else toolsets:
            if isinstance(one, AbstractToolset):
                given.toolsets.append(one)
            elif isinstance(one, _native.Documents):
                given.documents.append(one)
            elif isinstance(one, _native.McpServer | _native.NatsTools):
                given.servers.append(one)
            else:
                given.tools.append(one if isinstance(one, Tool) else as_tool(one))
        return given


@dataclass(frozen=True)
class Offered:
    """The given tools: those that Python calls, and others, whose calls bypass Python."""

    toolset: AbstractToolset[Any]
    documents: tuple[_native.Documents, ...] = ()
    servers: tuple[_native.McpServer | _native.NatsTools, ...] = ()


def offered(toolsets: Toolsets, own: FunctionToolset[Any] | None = None) -> Offered:
    """Splits the given tools into one toolset and the rest. `own` gets the functions and tools."""
    given = Given.of(toolsets)
    if own is not None:
        given.toolsets.append(own)
        for tool in given.tools:
            own.add_tool(tool if isinstance(tool, Tool) else Tool(tool))
    elif given.tools:
        given.toolsets.append(FunctionToolset(given.tools))
    return Offered(combined(given.toolsets), tuple(given.documents), tuple(given.servers))


def combined(toolsets: Sequence[AbstractToolset[Any]]) -> AbstractToolset[Any]:
    """Combines several toolsets into one."""
    return toolsets[0] if len(toolsets) == 1 else CombinedToolset(toolsets)


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


def described(tool: ToolDefinition, *, in_turn: bool = False) -> dict[str, Any]:
    """A tool's description for the native module.

    Args:
        tool: The tool.
        in_turn: Whether its calls never run in parallel with others.
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
    if tool.sequential or in_turn:
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
    in_turn: bool = False
    """Whether its calls run one at a time, whatever its hints are."""

    @property
    def described(self) -> bytes:
        """Its description for the native module."""
        # Without an output schema: a Python function may return something else than its signature states,
        # which a client that expects an object would reject.
        return to_json(described(self.definition, in_turn=self.in_turn))

    @property
    def is_direct(self) -> bool:
        """Whether its calls run in the threads that `Host.start_thread` starts."""
        return self.function is not None


async def served(tool: Tool[Any], model: Model, deps: Any) -> Served | None:
    """A tool without a toolset; `None` if its own `prepare` leaves it out."""
    context: RunContext[Any] = RunContext(deps=deps, model=model, usage=RunUsage())
    manager = await ToolManager(FunctionToolset([tool])).for_run_step(context)
    found = [Served(one.tool_def, manager, direct(tool)) for one in (manager.tools or {}).values()]
    return found[0] if found else None


@dataclass
class Toolbox:
    """Tools, each with the manager that calls it."""

    tools: list[Served] = field(default_factory=list)
    is_structured: bool = False
    """Whether objects are also sent as structured content. A model only ever sees one of the two."""
    meter: Meter | None = None
    """Counts the calls of an agent's run."""
    metered: ToolManager[Any] | None = None
    """The agent's manager; only its calls can be deferred."""
    managers: Sequence[ToolManager[Any]] = ()
    """Make the calls in a conversation, where tools can be added and removed; the first has its own tools."""
    deferral: Deferral | None = None
    """Handles calls that cannot be made during a request."""
    values: dict[str, tuple[Any, bytes]] | None = None
    """Gets what the tools return, and the results made of it, by the id of the call."""
    errors: ToolErrors = "tell"
    """What happens with the exceptions of tools."""
    stop: Stop | None = None
    """Ends the request of the tools, if there is one."""

    @property
    def names(self) -> set[str]:
        return {tool.definition.name for tool in self.tools}

    def add(self, manager: ToolManager[Any], definitions: Iterable[ToolDefinition] | None = None) -> None:
        """Adds the tools of a manager, or only the given ones."""
        if definitions is None:
            definitions = [tool.tool_def for tool in (manager.tools or {}).values()]
        self.tools += [self.served(definition, manager) for definition in definitions]

    def served(self, definition: ToolDefinition, manager: ToolManager[Any]) -> Served:
        """A tool of a manager, ready to be served."""
        in_turn = manager.get_parallel_execution_mode() == "sequential"
        return Served(definition, manager, in_turn=in_turn)

    async def call(self, call: _native.Call) -> bytes:
        """Calls a tool; returns the JSON text of an MCP result."""
        part = ToolCallPart(call.name, call.arguments.decode())
        if call.tool_use_id is not None:
            part.tool_call_id = call.tool_use_id
        having = (one for one in self.managers if call.name in (one.tools or {}))
        tool, manager = call.tool, next(having, call.tool.manager)
        if self.meter is None:
            return await self._result(tool, manager, part)
        counted = partial(self._counted, self.meter, tool, part)
        if self.deferral is None or manager is not self.metered:
            return await counted()
        return await self.deferral.call(part, counted)

    async def _counted(self, meter: Meter, tool: Served, part: ToolCallPart) -> bytes:
        name, manager = part.tool_name, tool.manager
        try:
            meter.begin_call()
        except AgentRunError as error:
            return error_result(error.message)  # never read: the request is ending
        try:
            result = await self._result(tool, meter.in_turn(manager), part)
        except (ModelRetry, ValidationError):
            max_retries = (manager.tools or {})[name].max_retries
            meter.failed(name, max_retries, _retries(manager))
            raise
        finally:
            meter.end_call()
        _retries(manager).pop(name, None)
        return result

    def _kept(self, tool: Served, part: ToolCallPart, value: Any) -> bytes:
        result = self.result(tool, value)
        if self.values is not None and not isinstance(value, ToolDenied):
            self.values[part.tool_call_id] = value, result
        return result

    async def _result(self, tool: Served, manager: ToolManager[Any], part: ToolCallPart) -> bytes:
        """Calls a tool. Its exception is raised, hidden, or ends the request."""
        try:
            return self._kept(tool, part, await call_tool(manager, part))
        except BaseException as error:
            if self.errors == "tell" or may_be_told(error):
                raise
            if self.errors == "raise" and self.stop is not None:
                self.stop.now(error)
            raise HiddenError from error

    def result(self, tool: Served, value: Any) -> bytes:
        """A tool's return value as the JSON text of an MCP result."""
        is_structured = self.is_structured and returns_object(tool.definition)
        return result_of(tool.definition.name, value, is_structured=is_structured)


async def call_tool(manager: ToolManager[Any], part: ToolCallPart) -> Any:
    """Calls a tool; returns its result."""
    if (manager.tools or {})[part.tool_name].tool_def.defer:
        return await call_deferred(manager, part)
    # The model sees each error, so they must not be wrapped for the agent.
    return await manager.handle_call(part, wrap_validation_errors=False)


def _retries(manager: ToolManager[Any]) -> dict[str, int]:
    """How often each tool has failed in a row, as in the context of a call."""
    return {} if manager.ctx is None else manager.ctx.retries


async def call_deferred(manager: ToolManager[Any], part: ToolCallPart) -> Any:
    """Calls a tool that needs an approval or runs elsewhere, if a capability of the agent handles that.

    Not all versions of the manager check this, and a tool must not run without its approval.
    """
    kind = (manager.tools or {})[part.tool_name].tool_def.kind
    needs_approval = kind == "unapproved"
    approvals, calls = ([part], []) if needs_approval else ([], [part])
    requests = DeferredToolRequests(calls=calls, approvals=approvals)
    results = await manager.resolve_deferred_tool_calls(requests)
    result = results and results.to_tool_call_results().get(part.tool_call_id)
    if result is None:
        raise ApprovalRequired if needs_approval else CallDeferred
    if isinstance(result, Exception):
        raise result
    if isinstance(result, ToolApproved):
        if result.override_args is not None:
            part = replace(part, args=result.override_args)
        return await manager.handle_call(part, approved=True, wrap_validation_errors=False)
    return result


Work: TypeAlias = Callable[[], Coroutine[Any, Any, bytes]]
"""Produces an answer. It starts in its task, so that an unstarted one leaves no coroutine unawaited."""


async def answer(call: _native.Call, work: Work) -> None:
    """Answers a call with the outcome of the work, also if that fails."""
    current_call.set(call)
    try:
        call.answer(await work())
    except BaseException as error:
        fail(call, error)
        if issubclass(type(error), asyncio.CancelledError) or ends_program(error):
            raise


@dataclass
class Host:
    """The tools and callbacks of one request or session; all of them run on one event loop."""

    toolbox: Toolbox
    server_name: str
    transport: str
    documents: Sequence[_native.Documents] = ()
    servers: Sequence[_native.RunningServer] = ()
    left_out: Sequence[str] = ()
    """The names of tools of documents and servers that are not offered."""
    decider: Callable[[_native.Call], Coroutine[Any, Any, bytes]] | None = None
    asker: Callable[[_native.Call], Coroutine[Any, Any, bytes]] | None = None
    message: Callable[[bytes], None] | None = None
    stderr: Callable[[str], object] | None = None
    python_hooks: Sequence[Hook] = ()
    until: _native.Ending | None = None
    request: bytes = b""
    """The request and its settings as JSON; empty for a session."""
    is_nested: bool = field(
        default_factory=lambda: (call := current_call.get()) is not None and call.is_awaited
    )
    """Whether it is made by a function that a CLI waits for."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    context: contextvars.Context = field(default_factory=callbacks_context)
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def tools(self) -> list[Served]:
        return self.toolbox.tools

    @property
    def decide(self) -> Callable[[_native.Call], object] | None:
        return self._starter(self.decider)

    @property
    def ask(self) -> Callable[[_native.Call], object] | None:
        return self._starter(self.asker)

    def _starter(
        self, work: Callable[[_native.Call], Coroutine[Any, Any, bytes]] | None
    ) -> Callable[[_native.Call], object] | None:
        return None if work is None else lambda call: self.start(call, partial(work, call))

    @property
    def hooks(self) -> list[NativeHook]:
        def starts(hook: Hook) -> Callable[[_native.Call], object]:
            return lambda call: self.start(call, partial(call_hook, hook, call))

        return [NativeHook(hook.event, hook.matcher, starts(hook)) for hook in self.python_hooks]

    def call(self, call: _native.Call, /) -> None:
        """Starts a tool, in the context of the request. The native module calls this on the event loop."""
        self.start(call, partial(self.toolbox.call, call))

    def start_thread(self, calls: _native.Calls, /) -> None:
        threading.Thread(target=self._serve, args=(calls,), name="toolbridge-tool", daemon=True).start()

    def _serve(self, calls: _native.Calls) -> None:
        is_over = False
        while not is_over:
            # Some programs raise an exception in a thread to stop a function, which may have ended by then.
            with suppress(BaseException):
                is_over = self._serve_one(calls)

    def _serve_one(self, calls: _native.Calls) -> bool:
        """Waits for a call and handles it. Returns whether the thread should end."""
        if not calls.wait():
            return True
        if (call := calls.take()) is not None:
            self.context.copy().run(self.call_directly, call)
        return False

    def call_directly(self, call: _native.Call) -> None:
        """Calls a function in a thread where it may block. The thread survives any exception."""
        current_call.set(call)
        try:
            assert call.tool.function is not None
            value = call.tool.function(call.arguments)
            if inspect.isawaitable(value):
                self._await_later(call, value)
            else:
                call.answer(self.toolbox.result(call.tool, value))
        except BaseException as error:
            fail(call, error)

    def _await_later(self, call: _native.Call, value: Awaitable[Any]) -> None:
        """Continues on the event loop with a call whose function has returned an awaitable."""

        async def work() -> bytes:
            return self.toolbox.result(call.tool, await value)

        def start() -> None:
            # If it is cancelled before it starts, Python would warn that it was never awaited.
            self.start(call, work).add_done_callback(lambda _: _close(value))

        try:
            self.loop.call_soon_threadsafe(start, context=contextvars.copy_context())
        except BaseException:  # the event loop is already closed
            _close(value)
            raise

    def start(self, call: _native.Call, work: Work) -> asyncio.Task[None]:
        task = self.loop.create_task(answer(call, work))
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
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=END_PATIENCE_SECONDS)


def _close(value: Awaitable[Any]) -> None:
    if inspect.iscoroutine(value):
        value.close()


async def start_servers(
    servers: Sequence[_native.McpServer | _native.NatsTools], host: Host, stack: AsyncExitStack
) -> list[_native.RunningServer]:
    """Starts servers and connects to other machines in parallel. They are stopped with `stack`."""
    starting = (completed(server.start, host) for server in servers)
    ended = await asyncio.gather(*starting, return_exceptions=True)
    started = [one for one in ended if not isinstance(one, BaseException)]
    for one in started:
        stack.push_async_callback(completed, one.stop)
    for failure in ended:
        if isinstance(failure, BaseException):
            raise failure
    return started
