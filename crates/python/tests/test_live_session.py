"""Named sessions that change while they run, clients that are notified, and tools that know their client."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from support import PATIENCE_SECONDS, TOOLBRIDGE, Bridge, Transport, World, cli_answer, soon, text_of

from toolbridge import (
    Client,
    Documents,
    InvalidRequestError,
    IPCError,
    ServerInfo,
    Session,
    current_client,
)

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


def greet() -> str:
    """Greets."""
    return "hello"


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def attached(directory: Path, *names: str) -> dict[str, Any]:
    """A config that finds sessions by name in that directory."""
    environment = {"XDG_RUNTIME_DIR": str(directory), "TMPDIR": str(directory)}
    args = ["attach", *names]
    server = {"command": TOOLBRIDGE, "args": args, "env": environment}
    return {"mcpServers": {"tools": {"type": "stdio", **server}}}


@pytest.mark.parametrize("way", ["bridge", pytest.param("attach", marks=pytest.mark.thorough)])
async def test_a_tool_that_a_tool_adds_is_called_in_the_same_run(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    # After a notification the CLI may take a turn or two to offer the tool.
    turns = ["learn", *["greet"] * 10, "forget"]
    here = world("\n---\n".join([*(f"call {turn} {{}}" for turn in turns), "text {result}"]))
    trace = here.root / "trace"
    monkeypatch.setenv("TOOLBRIDGE_TRACE", str(trace))

    def listed(number: int) -> bool:
        """Whether the CLI was last told of so many tools."""
        whole_lines = trace.read_text().rpartition("\n")[0].splitlines()
        lists = [line for line in map(json.loads, whole_lines) if line["event"] == "tools_list"]
        return bool(lists) and lists[-1]["tools"] == number

    session = Session(name="shop", directory=here.sessions, names_dir=here.root / "toolbridge")

    @session.tool
    def learn() -> str:
        """Learns to greet."""
        session.add(greet, read_only=True)
        soon(lambda: listed(3))
        return "learnt"

    @session.tool
    async def forget() -> str:
        """Forgets it."""
        assert session.remove("greet")
        await asyncio.to_thread(soon, lambda: listed(2))
        return "forgotten"

    async with session:
        config = session.mcp_config("tools") if way == "bridge" else attached(here.root, "shop")
        config["mcpServers"]["tools"].setdefault("env", {})["TOOLBRIDGE_TRACE"] = str(trace)
        assert await cli_answer(here, config) == "forgotten"
    assert here.requests[0]["tools"][-1]["name"] != "mcp__tools__greet"
    last = here.requests[turns.index("forget")]
    assert "mcp__tools__greet" in [tool["name"] for tool in last["tools"]]
    assert '"hello"' in json.dumps(last["messages"][-1]["content"])
    assert list((here.root / "toolbridge").iterdir()) == []


def test_a_session_is_found_by_its_name_and_those_without_are_not(short_path: Path) -> None:
    names_dir = short_path / "toolbridge"
    here: dict[str, Any] = {"directory": short_path, "names_dir": names_dir}
    with (
        Session(add, name="shop", instructions="Numbers only.", **here) as shop,
        Session(add, greet, name="bar", **here),
        Session(Tool(add, name="secret"), directory=short_path),
    ):
        [entry] = names_dir.glob("shop.*")
        assert entry.stat().st_mode & 0o777 == 0o600
        assert json.loads(entry.read_text())["socket"] == str(shop.socket_path)
        with Bridge(attached(short_path)) as bridge:
            assert sorted(bridge.tools) == ["bar__add", "bar__greet", "shop__add"]
            assert text_of(bridge.call("shop__add", a=40, b=2)) == "42"
            assert bridge.introduction["instructions"] == "shop: Numbers only."
        with Bridge(attached(short_path, "shop")) as bridge:
            # A client is told of changes to the list that it knows.
            assert sorted(bridge.tools) == ["add"]
            shop.add(greet)
            changed = "notifications/tools/list_changed"
            soon(
                lambda: (
                    bridge.call("add", a=1, b=2)
                    and changed in [one["method"] for one in bridge.notifications]
                )
            )
            assert sorted(bridge.tools) == ["add", "greet"]
            assert text_of(bridge.call("greet")) == "hello"
    assert list(names_dir.iterdir()) == []


@pytest.mark.parametrize("name", ["", "no good", "x" * 49, "../up", "a__b"])
def test_an_invalid_name_is_refused(short_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError) as raised, Session(add, name=name, directory=short_path):
        pass
    assert raised.value.message == (
        f"`{name}` cannot be a session's name: it has 1 to 48 characters, each of `A-Z a-z 0-9 _ -`, "
        "without `__` and without `_` at its end"
    )
    assert list(short_path.iterdir()) == []


def test_a_names_directory_writable_by_others_is_refused(short_path: Path) -> None:
    names_dir = short_path / "names"
    names_dir.mkdir(mode=0o755)
    session = Session(add, name="shop", directory=short_path, names_dir=names_dir)
    with pytest.raises(IPCError, match="other users can enter it"), session:
        pass
    assert list(short_path.iterdir()) == [names_dir]
    names_dir.chmod(0o700)
    with session, Bridge(session.mcp_config()) as bridge:
        assert text_of(bridge.call("add", a=1, b=2)) == "3"


def test_a_session_has_server_info(short_path: Path) -> None:
    info = ServerInfo("shop", "7", "Orders are numbered from 1000.")
    with (
        Session(add, server=info, directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert bridge.introduction["serverInfo"]["name"] == "shop"
        assert bridge.introduction["serverInfo"]["version"] == "7"
        assert bridge.introduction["instructions"] == "Orders are numbered from 1000."
    with (
        Session(add, server=info, instructions="Ask first.", directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert bridge.introduction["serverInfo"]["name"] == "shop"
        assert bridge.introduction["instructions"] == "Ask first."
    with Session(add, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        assert bridge.introduction["serverInfo"]["name"] == "toolbridge"
        assert "instructions" not in bridge.introduction


async def test_the_model_gets_instructions_and_tools_know_the_client(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call who {}\n---\ntext {result}")
    info = ServerInfo(version="7", instructions="Orders are numbered from 1000.")
    agent = Agent(here.model(transport, server=info))
    seen: list[Client | None] = []

    @agent.tool_plain
    def who() -> str:
        seen.append(current_client())
        return "you"

    result = await agent.run("go")
    assert result.output == "you"
    [client] = seen
    assert client is not None
    assert client.name == "claude-code"
    assert client.version is not None
    has_bridge = transport == "stdio"
    assert (client.pid is not None, client.session_id is not None) == (has_bridge, has_bridge)
    assert "Orders are numbered from 1000." in json.dumps(here.requests[0])


def test_tools_of_all_kinds_know_who_calls(short_path: Path) -> None:
    def in_a_thread() -> str:
        return repr(current_client())

    async def on_the_loop() -> str:
        return await asyncio.create_task(of_a_task())

    async def of_a_task() -> str:
        return repr(current_client())

    def with_context(_: RunContext[None]) -> str:
        return repr(current_client())

    assert current_client() is None
    with (
        Session(in_a_thread, on_the_loop, with_context, directory=short_path) as session,
        Bridge(session.mcp_config()) as one,
        Bridge(session.mcp_config()) as other,
    ):
        for bridge in (one, other):
            for tool in session_tools(bridge):
                assert text_of(bridge.call(tool)) == repr(Client("test", "1", None, bridge.pid))
    assert one.pid != other.pid


def session_tools(bridge: Bridge) -> list[str]:
    tools = list(bridge.tools)
    assert len(tools) == 3
    return tools


async def not_yet(_: RunContext[None], definition: ToolDefinition) -> ToolDefinition:
    await asyncio.sleep(0)
    return definition


def left_out(_: RunContext[None], _definition: ToolDefinition) -> None:
    return None


def test_a_rejected_tool_leaves_the_session_unchanged(short_path: Path) -> None:
    documents = Documents(short_path / "notes", init=True)
    sessions = short_path / "sessions"
    sessions.mkdir()
    toolset: FunctionToolset[None] = FunctionToolset([greet])
    session = Session(add, toolset.prefixed("math"), documents, directory=sessions)
    wrong: list[tuple[Any, str]] = [
        (Tool(greet, name="add"), "two tools are called `add`"),
        (Tool(add, name="math_greet"), "two tools are called `math_greet`"),
        (Tool(add, name="manual_find"), "two tools are called `manual_find`"),
        (Tool(add, name="no good"), "tool name `no good` is empty or has characters other than"),
        (Tool(add, name="slow", prepare=not_yet), "the `prepare` of `slow` waits for something"),
        (3, "a `int` is not a tool"),
    ]
    assert "manual_find" in documents.tool_names
    with session, Bridge(session.mcp_config()) as bridge:
        before = bridge.tools
        for tool, message in wrong:
            with pytest.raises(InvalidRequestError) as raised:
                session.add(tool)
            assert raised.value.message.startswith(message)
            assert raised.value.hint is not None
        with pytest.raises(TypeError, match="no hint `readonly`"):
            session.add(greet, readonly=True)  # type: ignore[call-arg]
        assert not session.remove("math_greet"), "it belongs to its toolset"
        assert not session.remove("nothing")
        session.add(Tool(add, name="hidden", prepare=left_out))
        assert bridge.tools == before
        assert text_of(bridge.call("add", a=1, b=2)) == "3"
        assert session.remove("hidden")
        # All of these names are free again.
        session.add(Tool(greet, name="slow"))
        assert session.remove("add")
        session.add(Tool(greet, name="add"))
        soon(lambda: bridge.tools.keys() == {*before, "slow"})
        soon(lambda: text_of(bridge.call("add")) == "hello")
    session.remove("slow")
    # It may wait before the session starts.
    session.add(Tool(add, name="slow", prepare=not_yet), title="Slow")
    with pytest.raises(InvalidRequestError, match="two tools are called `slow`"):
        session.add(Tool(greet, name="slow"))
    with session, Bridge(session.mcp_config()) as bridge:
        assert text_of(bridge.call("slow", a=1, b=2)) == "3"
        assert bridge.tools["slow"]["title"] == "Slow"
    assert list(sessions.iterdir()) == []


def test_tools_come_and_go_in_all_threads_at_once(short_path: Path) -> None:
    session = Session(directory=short_path)
    threads, each = 8, 12

    def work(thread: int) -> None:
        for number in range(each):
            session.add(Tool(greet, name=f"greet_{thread}_{number}"))
            if number % 2:
                assert session.remove(f"greet_{thread}_{number - 1}")

    @session.tool(parallel=True)
    async def work_here(thread: int) -> str:
        """Works on the event loop."""
        work(thread)
        return "done"

    # Some start before the session runs, some while it starts.
    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    with session, Bridge(session.mcp_config()) as bridge:
        assert text_of(bridge.call("work_here", thread=threads)) == "done"
        for thread in running:
            thread.join(PATIENCE_SECONDS)
        left = {f"greet_{thread}_{number}" for thread in range(threads + 1) for number in range(1, each, 2)}
        soon(lambda: bridge.tools.keys() == {"work_here", *left})
        for name in left:
            assert text_of(bridge.call(name)) == "hello"


def test_a_removed_tool_finishes_its_running_call(short_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    session = Session(add, directory=short_path)

    def given() -> weakref.ref[Any]:
        def slow() -> str:
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)
            return "done"

        session.add(slow, read_only=True)
        return weakref.ref(slow)

    with session, Bridge(session.mcp_config()) as bridge:
        function = given()
        soon(lambda: "slow" in bridge.tools)
        bridge.send("tools/call", "slow", name="slow", arguments={})
        assert begun.wait(PATIENCE_SECONDS)
        assert session.remove("slow")
        soon(lambda: list(bridge.tools) == ["add"])
        go_on.set()
        assert text_of(bridge.answer("slow")) == "done"

        def is_released() -> bool:
            # Objects that Rust has released are freed with the next call into Python.
            assert text_of(bridge.call("add", a=1, b=2))
            gc.collect()
            return function() is None

        soon(is_released)


def test_a_child_of_a_fork_cannot_change_a_session(short_path: Path) -> None:
    session = Session(add, directory=short_path)
    with session, Bridge(session.mcp_config()) as bridge:
        # Another thread is in the middle of a change.
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            with session._lock:
                held.set()
                go_on.wait(PATIENCE_SECONDS)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(PATIENCE_SECONDS)
        child = os.fork()
        if child == 0:
            try:
                session.add(greet)
            except InvalidRequestError as error:
                os._exit(7 if "forked" in error.message else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        go_on.set()
        thread.join(PATIENCE_SECONDS)
        assert os.waitstatus_to_exitcode(status) == 7
        assert list(bridge.tools) == ["add"]


CELL = """
@session.tool
def sub(a: int, b: int) -> str:
    "Subtracts"
    return f"{a - b} by version VERSION"
"""


def defined_again(function: Callable[..., Any]) -> Any:
    """The same function with the code of another run of its cell."""
    return FunctionType(function.__code__.replace(), function.__globals__, function.__name__)


def run_cell(version: int, session: Session, module: str = "__main__") -> None:
    exec(CELL.replace("VERSION", str(version)), {"session": session, "__name__": module})


def test_a_function_that_is_registered_again_replaces_itself(short_path: Path) -> None:
    session = Session(add, directory=short_path)
    for version in (1, 2):
        run_cell(version, session)
    with session, Bridge(session.mcp_config()) as bridge:
        assert list(bridge.tools) == ["add", "sub"]
        assert text_of(bridge.call("sub", a=3, b=1)) == "2 by version 2"
        run_cell(3, session)

        def answers() -> bool:
            # For a moment a client sees no such tool, so that it notices the change.
            bridge.send("tools/call", "again", name="sub", arguments={"a": 3, "b": 1})
            while (answer := bridge.next_message()).get("id") != "again":
                pass
            return "2 by version 3" in str(answer) and list(bridge.tools) == ["add", "sub"]

        soon(answers)
        # Another function of the same name is an error, and so are two at once.
        with pytest.raises(InvalidRequestError, match="two tools are called `sub`"):
            run_cell(4, session, "another_module")
        assert answers()
    with pytest.raises(InvalidRequestError, match="two tools are called `add`"):
        Session(add, add)


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    def look(self) -> str:
        return self.name

    def __call__(self) -> str:
        return self.name


def look_into(shop: Any) -> Any:
    return shop


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("which of them?")


def looks_into(shop: str) -> Callable[..., Any]:
    def look() -> str:
        return shop

    return look


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


@pytest.mark.parametrize(
    ("first", "second", "is_again"),
    [
        (Shop("a").look, Shop("b").look, False),
        (looks_into("a"), looks_into("b"), False),
        (partial(look_into, "a"), partial(look_into, "b"), False),
        (look_into, partial(look_into, "b"), False),
        (Shop("a"), Shop("b"), False),
        (timed(looks_into("a")), timed(looks_into("b")), False),
        (timed(Shop("a").look), timed(Shop("b").look), False),
        (partial(look_into, Incomparable()), partial(look_into, Incomparable()), False),
        (Tool(lambda: 1, name="look"), Tool(lambda: 2, name="look"), False),
        ((shop := Shop("a")).look, shop.look, True),
        (timed(look_into), timed(look_into), True),
        (timed(look_into), timed(defined_again(look_into)), True),
        (partial(look_into, "a"), partial(look_into, "a"), True),
        (partial(look_into, shop="a"), partial(defined_again(look_into), shop="a"), True),
        (partial(timed(look_into), "a"), partial(timed(look_into), "a"), True),
    ],
)
def test_only_the_same_function_replaces_a_tool(first: Any, second: Any, is_again: bool) -> None:
    session = Session()
    session.add(first)
    if is_again:
        session.add(second)
    else:
        with pytest.raises(InvalidRequestError, match="two tools are called"):
            session.add(second)
