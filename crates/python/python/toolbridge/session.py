"""Serves functions of this process to an MCP client that another program starts."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

from pydantic_ai import Tool
from pydantic_ai.models.test import TestModel
from pydantic_core import from_json, to_json

from . import _executable, _native
from ._waiting import check_asyncio, completed
from .errors import InvalidRequestError
from .settings import DEFAULT_SERVER_NAME, ServerInfo
from .tools import (
    Host,
    Offer,
    Offered,
    Served,
    as_tool,
    is_again,
    manager_of,
    served,
    start_servers,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

_Made = TypeVar("_Made")

_MODEL = TestModel()
"""The model in the context of tools, if there is no real one."""

_PARK_CHARS = 25_000
"""The default length above which results are kept in the process."""

_open: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Removes the files of open sessions at exit, while the interpreter still works."""
    for session in list(_open):
        session.close()


def _unlock_all() -> None:
    """Resets locks in a forked child: the thread that held one does not exist there."""
    for session in list(_open):
        session._lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_all)


class ToolHints(TypedDict, total=False):
    """What clients should know about a tool besides its name, description and parameters."""

    read_only: bool | None
    """Whether it changes nothing. Its calls may then run in parallel."""
    parallel: bool | None
    """Whether its calls may run in parallel although it changes something. The CLI sends calls of tools that
    are not read-only one after another, so this matters only for several clients."""
    title: str | None
    """A display name."""
    destructive: bool | None
    """Whether its changes may destroy data."""
    idempotent: bool | None
    """Whether a second call with the same arguments has no further effect."""
    open_world: bool | None
    """Whether it accesses external systems, such as the web."""
    max_result_chars: int | None
    """The maximum length of a result before the CLI gives it to the model as a file."""


def _made(tool: Callable[..., Any] | Tool[Any], hints: ToolHints) -> Tool[Any]:
    """A tool with those hints."""
    unknown = hints.keys() - ToolHints.__annotations__.keys()
    if unknown:
        raise TypeError(
            f"there is no hint `{min(unknown)}`; there are: {', '.join(ToolHints.__annotations__)}"
        )
    metadata = {name: value for name, value in hints.items() if value is not None}
    if not isinstance(tool, Tool):
        return Tool(as_tool(tool), metadata=metadata)
    if metadata:
        tool = copy(tool)
        tool.metadata = {**(tool.metadata or {}), **metadata}
    return tool


def _at_once(name: str, work: Coroutine[Any, Any, _Made]) -> _Made:
    """Runs a coroutine that never waits, from any thread, even one that runs an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        made: _Made = done.value
        return made
    work.close()
    raise InvalidRequestError(
        f"the `prepare` of `{name}` waits for something, and the session is already running",
        hint="add it before `with session:`",
    )


class Session:
    """Serves functions of this process on a socket, for the Claude Code CLI or any other MCP client.

    With `async with`, they run on the current event loop; with `with`, on an event loop in a separate thread.
    Functions that are not `async` run in worker threads. The session's files are removed when the context is
    left, or when the program exits.

    >>> def add(a: int, b: int) -> int:
    ...     "Adds two numbers"
    ...     return a + b
    >>> with Session(add) as session:
    ...     server = session.mcp_config("tools")["mcpServers"]["tools"]
    >>> server["type"]
    'stdio'

    Or one by one, with hints for clients, also while the session runs:

    >>> session = Session()
    >>> @session.tool(read_only=True)
    ... def count(text: str) -> int:
    ...     "Counts the words of a text"
    ...     return len(text.split())
    """

    def __init__(
        self,
        *tools: Offer | list[Offer],
        name: str | None = None,
        instructions: str | None = None,
        server: ServerInfo | None = None,
        deps: Any = None,
        directory: str | os.PathLike[str] | None = None,
        names_dir: str | os.PathLike[str] | None = None,
        park: int | bool = False,
    ) -> None:
        """Creates a session; entering its context starts it.

        Args:
            tools: Functions, whose signatures and docstrings become the schemas; tools; toolsets; documents;
                other MCP servers, which are started and stopped with the session; tools of other machines; or
                lists of those.
            name: The name under which `toolbridge attach` finds it: 1 to 48 characters of `A-Z a-z 0-9 _ -`.
                Several sessions may have the same name. Without a name it cannot be found.
            instructions: What a model should know before it uses the tools.
            server: The name and version that the session's MCP server reports.
            deps: The dependencies in the `RunContext` of tools.
            directory: The directory for its files, instead of the temporary directory.
            names_dir: The directory in which its name is published, instead of the user's default one. Only
                this user may have access to it.
            park: Keep results with more characters than this in the process; `True` means 25,000. The model
                gets a handle; if it passes the handle to another tool, that tool receives the text.
        """
        given = Offered.of([one for some in tools for one in (some if isinstance(some, list) else [some])])
        self._offered = given
        self._started: list[_native.RunningServer] = []
        self._tools: dict[str, Tool[Any]] = {}
        self._served: dict[str, Served] = {}
        """By the same names, while the session runs."""
        self._lock = threading.RLock()
        """Protects `_tools` and what is served."""
        self._name = name
        self._names_dir = None if names_dir is None else Path(names_dir)
        if instructions is not None:
            server = replace(server or ServerInfo(), instructions=instructions)
        self._server = server
        self._deps = deps
        self._park = _PARK_CHARS if park is True else park or None
        self._directory = None if directory is None else Path(directory)
        self._stack: AsyncExitStack | None = None
        self._session: _native.Session | None = None
        self._thread: _Thread | None = None
        for tool in given.tools:
            self._add(_made(tool, {}), may_replace=False)
        given.tools = []

    @overload
    def tool(self, function: _Function, /) -> _Function: ...

    @overload
    def tool(self, /, **hints: Unpack[ToolHints]) -> Callable[[_Function], _Function]: ...

    def tool(
        self, function: Callable[..., Any] | None = None, /, **hints: Unpack[ToolHints]
    ) -> Callable[..., Any]:
        """Adds a function, as a decorator, and returns it unchanged. See `add`."""

        def add(function: _Function) -> _Function:
            self.add(function, **hints)
            return function

        return add if function is None else add(function)

    def add(self, tool: Callable[..., Any] | Tool[Any], /, **hints: Unpack[ToolHints]) -> None:
        """Adds a function or a tool. Clients of a running session are notified, and offer it to their models.

        May be called from any thread, and by tools of the session. The same function, or one that is
        defined again, with the same `__module__` and `__qualname__`, replaces the earlier one, also if it is
        decorated or made a partial again: a notebook's cell may be run again.

        Args:
            tool: A function, whose signature and docstring become the schema, or a tool.
            hints: What clients should know about it.

        Raises:
            InvalidRequestError: If it cannot be a tool, or its name is taken. The session is then unchanged.
        """
        self._add(_made(tool, hints))

    def _add(self, made: Tool[Any], *, may_replace: bool = True) -> None:
        with self._lock:
            earlier = self._tools.get(made.name)
            if earlier is not None and not (may_replace and is_again(made, earlier)):
                raise InvalidRequestError(f"two tools are called `{made.name}`", hint="rename one of the two")
            if (session := self._session) is not None:
                one = _at_once(made.name, served(made, _MODEL, self._deps))
                self.remove(made.name)
                if one is not None:
                    session.add(one)
                    self._served[made.name] = one
            self._tools[made.name] = made

    def remove(self, name: str) -> bool:
        """Removes a function or a tool; clients of a running session are notified. Running calls continue.

        May be called from any thread, and by tools of the session. Tools of toolsets and documents cannot be
        removed.

        Returns:
            Whether it existed.
        """
        with self._lock:
            # Keep a reference until the native module has removed it: finalizers may call this session again.
            one = self._served.get(name)
            if (session := self._session) is not None and one is not None:
                session.remove(one.definition.name)
            self._served.pop(name, None)
            return self._tools.pop(name, None) is not None

    def mcp_config(self, name: str = DEFAULT_SERVER_NAME) -> dict[str, Any]:
        """The complete object for `claude --mcp-config`, with this session as the server of that name."""
        config: dict[str, Any] = from_json(self._running.mcp_config(name))
        return config

    @property
    def socket_path(self) -> Path:
        """The path of the socket."""
        return Path(self._running.socket_path)

    @property
    def schema_path(self) -> Path:
        """The path of the file with the tools' schemas, for a bridge."""
        return Path(self._running.schema_path)

    @property
    def _running(self) -> _native.Session:
        if self._session is None:
            raise InvalidRequestError(
                "the session is not running", hint="use it inside of `with Session(…) as session:`"
            )
        return self._session

    async def __aenter__(self) -> Session:
        check_asyncio()
        if self._stack is not None:
            raise InvalidRequestError("the session is already running")
        async with AsyncExitStack() as stack:
            host = Host(is_structured=True, documents=self._offered.documents)
            if self._offered.toolsets:
                host.add(await manager_of(self._offered.toolset, _MODEL, self._deps, stack))
            tools = list(self._tools.values())
            ready = [(tool, await served(tool, _MODEL, self._deps)) for tool in tools]
            host.servers = self._started = await start_servers(self._offered.servers, host, stack)
            with self._lock:
                session = self._start(host, ready)
            _open.add(self)
            stack.push_async_callback(host.end)
            stack.push_async_callback(completed, session.stop)
            self._stack = stack.pop_all()
        return self

    def _start(self, host: Host, ready: list[tuple[Tool[Any], Served | None]]) -> _native.Session:
        """Starts to serve the current tools: some may have been added or removed since `ready` was made."""
        own: dict[str, Served] = {}
        for name, tool in list(self._tools.items()):
            known = [one for of, one in ready if of is tool]
            one = known[0] if known else _at_once(name, served(tool, _MODEL, self._deps))
            if one is not None:
                own[name] = one
        host.tools += own.values()
        session = _native.Session(
            host,
            _executable.BRIDGE,
            self._directory,
            self._name,
            self._names_dir,
            None if self._server is None else to_json(self._server.given),
            self._park,
        )
        # The native module holds the tools, so that removed ones can be freed.
        host.tools.clear()
        self._session, self._served = session, own
        return session

    async def __aexit__(self, *_: object) -> None:
        with self._lock:
            stack, self._stack, self._session, self._served = self._stack, None, None, {}
        if stack is not None:
            await stack.aclose()

    def close(self) -> None:
        """Removes the session's files immediately without waiting. Running calls are cancelled.

        Leaving the context does more. This runs automatically when the program exits.
        """
        session, self._session, self._served = self._session, None, {}
        if session is not None:
            session.close()
        started, self._started = self._started, []
        for server in started:
            server.close()

    def __enter__(self) -> Session:
        self._thread = _Thread(self)
        self._thread.started.result()
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()


class _Thread:
    """An event loop in a thread, for a session in a program without one."""

    def __init__(self, session: Session) -> None:
        self.started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        context = contextvars.copy_context()
        args, name = (self._run, session), "toolbridge-session"
        self._thread = threading.Thread(target=context.run, args=args, name=name, daemon=True)
        self._thread.start()

    def _run(self, session: Session) -> None:
        # Creating the loop may fail, too.
        try:
            asyncio.run(self._serve(session))
        except BaseException as error:
            if self.started.done():
                raise
            self.started.set_exception(error)

    async def _serve(self, session: Session) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with session:
            self.started.set_result(None)
            await self._end.wait()

    def end(self) -> None:
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
