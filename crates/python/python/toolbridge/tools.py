"""The tools of a request: what the model is told about them, and how they are called."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import DeferredToolRequests, ToolApproved, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset
from pydantic_ai.usage import RunUsage
from pydantic_core import to_json

from . import _native
from .progress import current_call
from .results import error_result, result_of

Toolsets: TypeAlias = (
    AbstractToolset[Any]
    | _native.Documents
    | Sequence[AbstractToolset[Any] | _native.Documents | Tool[Any] | Callable[..., Any]]
)
"""One toolset, or documents, or a sequence of toolsets, documents, tools and functions."""

END_PATIENCE_SECONDS = 1.0
"""How long the end of a request waits for its tools. One that blocks a thread cannot be stopped."""

_HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


def read_only(function: Callable[..., Any]) -> Tool[Any]:
    """Marks a function as a tool that changes nothing, so that its calls may run side by side."""
    return Tool(function, metadata={"read_only": True})


@dataclass(frozen=True)
class Offered:
    """What was given to offer: tools that Python calls, and documents, whose calls it never sees."""

    toolset: AbstractToolset[Any]
    documents: tuple[_native.Documents, ...] = ()
    functions: FunctionToolset[Any] | None = None
    """The part of the toolset that was given as functions and tools."""


def offered(toolsets: Toolsets) -> Offered:
    """One toolset and the documents, out of whatever was given."""
    if isinstance(toolsets, AbstractToolset):
        return Offered(toolsets)
    found: list[AbstractToolset[Any]] = []
    documents: list[_native.Documents] = []
    tools: list[Tool[Any] | Callable[..., Any]] = []
    for one in [toolsets] if isinstance(toolsets, _native.Documents) else toolsets:
        if isinstance(one, AbstractToolset):
            found.append(one)
        elif isinstance(one, _native.Documents):
            documents.append(one)
        else:
            tools.append(one)
    functions = FunctionToolset(tools) if tools else None
    if functions is not None:
        found.append(functions)
    return Offered(found[0] if len(found) == 1 else CombinedToolset(found), tuple(documents), functions)


def described(tool: ToolDefinition) -> dict[str, Any]:
    """What the native module is told about a tool."""
    metadata = tool.metadata or {}
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, Mapping):
        annotations = vars(annotations)
    said: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": {"type": "object", **tool.parameters_json_schema},
        "title": metadata.get("title") or annotations.get("title"),
        "max_result_chars": metadata.get("max_result_chars"),
    }
    for name, hint in _HINTS.items():
        values = (metadata.get(name), annotations.get(hint), annotations.get(f"{name}_hint"))
        said[name] = next((value for value in values if value is not None), None)
    return said


def output_schema(tool: ToolDefinition) -> dict[str, Any] | None:
    """The schema of what the tool returns, where that is a JSON object."""
    schema = tool.return_schema
    return schema if schema and schema.get("type") == "object" else None


async def manager_of(
    toolset: AbstractToolset[Any], model: Model, deps: Any, stack: AsyncExitStack
) -> ToolManager[Any]:
    """A manager for a toolset that no agent runs. It is left when `stack` is."""
    context: RunContext[Any] = RunContext(deps=deps, model=model, usage=RunUsage())
    toolset = await toolset.for_run(context)
    await stack.enter_async_context(toolset)
    return await ToolManager(toolset).for_run_step(context)


@dataclass
class Toolbox:
    """Tools by name, each with the manager that calls it."""

    definitions: dict[str, ToolDefinition] = field(default_factory=dict)
    managers: dict[str, ToolManager[Any]] = field(default_factory=dict)
    is_structured: bool = False
    """Whether objects are structured content too. A model only ever sees one of the two."""

    def add(self, manager: ToolManager[Any], definitions: Iterable[ToolDefinition] | None = None) -> None:
        """Adds the tools of a manager, or those of them that are given."""
        if definitions is None:
            definitions = [tool.tool_def for tool in (manager.tools or {}).values()]
        for definition in definitions:
            self.definitions[definition.name] = definition
            self.managers[definition.name] = manager

    def to_json(self) -> bytes | None:
        """The tools as the native module reads them."""
        if not self.definitions:
            return None
        tools = self.definitions.values()
        if not self.is_structured:
            return to_json([described(tool) for tool in tools])
        return to_json([{**described(tool), "output_schema": output_schema(tool)} for tool in tools])

    async def call(self, call: _native.Call) -> bytes:
        """Calls a tool; returns the JSON text of an MCP result."""
        part = ToolCallPart(call.name, call.arguments.decode())
        if call.tool_use_id is not None:
            part.tool_call_id = call.tool_use_id
        manager = self.managers[call.name]
        if (manager.tools or {})[call.name].tool_def.defer:
            value = await resolved(manager, part)
        else:
            # Nested in the agent's request: its budget of retries is not ours, the model sees each error.
            value = await manager.handle_call(part, wrap_validation_errors=False)
        return self.result(call.name, value)

    def result(self, name: str, value: Any) -> bytes:
        """What a tool returned, as the JSON text of an MCP result."""
        is_structured = self.is_structured and output_schema(self.definitions[name]) is not None
        return result_of(name, value, is_structured=is_structured)


async def resolved(manager: ToolManager[Any], part: ToolCallPart) -> Any:
    """Calls a tool that needs an approval or is run elsewhere, if a capability of the agent sees to that.

    Not all versions of the manager ask by themselves, and a tool must not run without its approval.
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


async def answered(call: _native.Call, work: Coroutine[Any, Any, bytes]) -> None:
    """Gives a call its answer, whatever comes of the work."""
    current_call.set(call)
    try:
        call.answer(await work)
    except BaseException as error:
        fail(call, error)
        if not isinstance(error, Exception):
            raise


def fail(call: _native.Call, error: BaseException) -> None:
    """Gives a call an answer that says what went wrong."""
    if isinstance(error, ModelRetry):
        call.answer(error_result(error.message))
    elif isinstance(error, ValidationError):
        call.fail("ValidationError", explained(call.name, error))
    elif isinstance(error, ApprovalRequired | CallDeferred):
        reason = "needs an approval" if isinstance(error, ApprovalRequired) else "is run elsewhere"
        call.fail(type(error).__name__, f"tool `{call.name}` {reason}, which cannot be had during a request")
    elif isinstance(error, Exception):
        call.fail(type(error).__name__, text_of(error) or "no message")
    else:
        call.fail(type(error).__name__, f"tool `{call.name}` was ended")


def text_of(error: Exception) -> str:
    """What an error says, if it can."""
    try:
        return str(getattr(error, "message", None) or error)
    except Exception:
        return ""


def explained(tool: str, error: ValidationError) -> str:
    """What is wrong with arguments, for the model: where, and what."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"at `/{'/'.join(map(str, fault['loc']))}`: {fault['msg']}" for fault in faults]
    return f"invalid arguments for tool `{tool}`: {'; '.join(lines)}"


@dataclass
class Host:
    """What this process offers in one request or session; all of it runs on one event loop."""

    toolbox: Toolbox
    server_name: str
    transport: str
    documents: Sequence[_native.Documents] = ()
    decider: Callable[[_native.Call], Coroutine[Any, Any, bytes]] | None = None
    message: Callable[[bytes], None] | None = None
    functions: Mapping[str, Callable[[bytes], Any]] = field(default_factory=dict)
    """Tools that are called with arguments as JSON text, in any thread."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def tools(self) -> bytes | None:
        return self.toolbox.to_json()

    @property
    def decide(self) -> Callable[[_native.Call], None] | None:
        decider = self.decider
        return None if decider is None else lambda call: self.start(call, decider(call))

    def call(self, call: _native.Call, /) -> None:
        """Starts a tool, in the context of the request. The native module calls this on the loop."""
        self.start(call, self.toolbox.call(call))

    @property
    def direct(self) -> Set[str]:
        """The tools whose calls are for the threads that `start_thread` starts."""
        return set(self.functions)

    def start_thread(self, calls: _native.Calls, /) -> None:
        threading.Thread(target=self._serve, args=(calls,), name="toolbridge-tool", daemon=True).start()

    def _serve(self, calls: _native.Calls) -> None:
        while (call := calls.next()) is not None:
            self.context.copy().run(self.call_directly, call)
            del call  # not while the next one is waited for: its arguments may be large

    def call_directly(self, call: _native.Call) -> None:
        """Calls a function, in a thread where it may block."""
        current_call.set(call)
        try:
            value = self.functions[call.name](call.arguments)
            if inspect.isawaitable(value):
                context = contextvars.copy_context()
                self.loop.call_soon_threadsafe(self._start_later, call, value, context=context)
            else:
                call.answer(self.toolbox.result(call.name, value))
        except BaseException as error:
            fail(call, error)
            if not isinstance(error, Exception):
                with suppress(RuntimeError):  # the loop has ended already
                    self.loop.call_soon_threadsafe(_raise, error)

    def _start_later(self, call: _native.Call, value: Awaitable[Any]) -> None:
        """Goes on with a call whose function has returned something to be awaited."""

        async def work() -> bytes:
            return self.toolbox.result(call.name, await value)

        self.start(call, work())

    def start(self, call: _native.Call, work: Coroutine[Any, Any, bytes]) -> None:
        task = self.loop.create_task(answered(call, work))
        self._running.add(task)
        task.add_done_callback(self._over)
        if not call.on_cancel(task.cancel):
            task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # what ends the whole program has ended the loop already; it is no news

    async def end(self) -> None:
        """Cancels the tools that still run, and waits for them, but not for ever."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=END_PATIENCE_SECONDS)


def _raise(error: BaseException) -> None:
    """What ends the whole program does so where its loop runs."""
    raise error
