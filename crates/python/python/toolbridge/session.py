"""Functions of this process for an MCP client that another program starts."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic_ai import Tool
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import from_json

from . import _executable, _native
from ._waiting import check_asyncio, completed
from .errors import InvalidRequestError
from .settings import DEFAULT_SERVER_NAME, DEFAULT_TRANSPORT
from .tools import Host, Toolbox, as_tool, direct_functions, manager_of, offered

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NO_HINT = ("self", "function")

_open: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Removes the files of sessions that are still open, while there is an interpreter to do so."""
    for session in list(_open):
        session.close()


class Session:
    """Functions of this process on a socket, for the Claude Code CLI or any other MCP client.

    As `async with`, they run on the event loop there; as `with`, on one in a thread of its own. Functions
    that are not `async` run in worker threads. Leaving the context removes the session's files, and so does
    the end of the program.

    >>> def add(a: int, b: int) -> int:
    ...     "Adds two numbers"
    ...     return a + b
    >>> with Session(add) as session:
    ...     server = session.mcp_config("tools")["mcpServers"]["tools"]
    >>> server["type"]
    'stdio'

    Or one by one, with what clients are to know of each:

    >>> session = Session()
    >>> @session.tool(read_only=True)
    ... def count(text: str) -> int:
    ...     "Counts the words of a text"
    ...     return len(text.split())
    """

    def __init__(
        self,
        *tools: Callable[..., Any] | Tool[Any] | AbstractToolset[Any] | _native.Documents,
        deps: Any = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        """A session that has not started.

        Args:
            tools: Functions, whose signatures and docstrings become the schemas; tools; toolsets; documents.
            deps: What tools that take a `RunContext` find in it.
            directory: Where its files are, instead of the temporary directory.
        """
        self._tools = tools
        self._offered = offered(tools)
        self._deps = deps
        self._directory = None if directory is None else Path(directory)
        self._stack: AsyncExitStack | None = None
        self._session: _native.Session | None = None
        self._thread: _Thread | None = None

    @overload
    def tool(self, function: _Function, /) -> _Function: ...

    @overload
    def tool(
        self,
        /,
        *,
        read_only: bool | None = None,
        parallel: bool | None = None,
        title: str | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        max_result_chars: int | None = None,
    ) -> Callable[[_Function], _Function]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        read_only: bool | None = None,
        parallel: bool | None = None,
        title: str | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        max_result_chars: int | None = None,
    ) -> Callable[..., Any]:
        """Adds a function to a session that has not started, as a decorator; it stays what it is.

        Args:
            function: The function, whose signature and docstring become the schema.
            read_only: Whether it changes nothing. Its calls may then run side by side.
            parallel: Whether its calls may run side by side though it changes something. The CLI makes such
                calls one after the other all the same; several clients, or others, do not.
            title: A name for people.
            destructive: Whether what it changes may be lost.
            idempotent: Whether a second call with the same arguments changes nothing more.
            open_world: Whether it deals with things outside, such as the web.
            max_result_chars: How long a result may be before the CLI hands it to the model as a file.

        Raises:
            InvalidRequestError: When the session runs already: its clients know its tools.
        """
        said = locals().items()
        metadata = {name: value for name, value in said if value is not None and name not in _NO_HINT}

        def add(function: _Function) -> _Function:
            if self._stack is not None:
                raise InvalidRequestError(
                    "the session runs already, and its clients know its tools",
                    hint="add tools before `with session:`",
                )
            tools = (*self._tools, Tool(as_tool(function), metadata=metadata))
            self._offered = offered(tools)
            self._tools = tools
            return function

        return add if function is None else add(function)

    def mcp_config(self, name: str = DEFAULT_SERVER_NAME) -> dict[str, Any]:
        """The whole object for `claude --mcp-config`, with this session as the server of that name."""
        config: dict[str, Any] = from_json(self._running.mcp_config(name))
        return config

    @property
    def socket_path(self) -> Path:
        """The socket."""
        return Path(self._running.socket_path)

    @property
    def schema_path(self) -> Path:
        """The file that tells a bridge of the tools."""
        return Path(self._running.schema_path)

    @property
    def _running(self) -> _native.Session:
        if self._session is None:
            raise InvalidRequestError(
                "the session does not run", hint="use it inside of `with Session(…) as session:`"
            )
        return self._session

    async def __aenter__(self) -> Session:
        check_asyncio()
        if self._stack is not None:
            raise InvalidRequestError("the session runs already")
        async with AsyncExitStack() as stack:
            toolbox = Toolbox(is_structured=True)
            toolbox.add(await manager_of(self._offered.toolset, TestModel(), self._deps, stack))
            host = Host(
                toolbox,
                server_name=DEFAULT_SERVER_NAME,
                transport=DEFAULT_TRANSPORT,
                documents=self._offered.documents,
                functions=direct_functions(self._offered.functions) if self._offered.functions else {},
            )
            session = _native.Session(host, _executable.BRIDGE, self._directory)
            self._session = session
            _open.add(self)
            stack.push_async_callback(host.end)
            stack.push_async_callback(completed, session.stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        stack, self._stack, self._session = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    def close(self) -> None:
        """Removes the session's files at once, and waits for nothing. What still runs in it is cancelled.

        Leaving the context does more. This is for the end of a program, which sees to it by itself.
        """
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Session:
        self._thread = _Thread(self)
        self._thread.started.result()
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()


class _Thread:
    """An event loop in a thread, for a session in a program that has none."""

    def __init__(self, session: Session) -> None:
        self.started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        context = contextvars.copy_context()
        args, name = (self._run, session), "toolbridge-session"
        self._thread = threading.Thread(target=context.run, args=args, name=name, daemon=True)
        self._thread.start()

    def _run(self, session: Session) -> None:
        # There may not even be a loop to be had.
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
