"""Plain functions of a session, which run in threads and not on its event loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry, RunContext, Tool
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from support import PATIENCE_SECONDS, PYTHON, TOOLBRIDGE, Bridge, error_of, hanging, text_of

from toolbridge import Session, read_only
from toolbridge.tools import Host, Served, direct

pytestmark = pytest.mark.oldest

REQUEST = contextvars.ContextVar("request", default="none")


class Point(BaseModel):
    x: int
    y: int


def swapped(point: Point, *, times: int = 1) -> Point:
    return Point(x=point.y, y=point.x) if times % 2 else point


def single(point: Point) -> int:
    return point.x


def only_places(a: int, /, b: int = 1) -> int:
    return a - b


def any_number(*numbers: int) -> int:
    return sum(numbers)


def with_context(ctx: RunContext[str]) -> str:
    return ctx.deps


def later() -> Any:
    async def wait() -> str:
        await asyncio.sleep(0)
        return "later"

    return wait()


def picky(choice: str) -> str:
    raise ModelRetry(f"not {choice}, try again")


def broken() -> None:
    raise LookupError("no such order")


def test_functions_that_need_only_arguments_are_called_directly() -> None:
    tools: list[Tool[Any] | Callable[..., Any]] = [
        swapped,
        single,
        read_only(broken),
        later,
        only_places,
        any_number,
        with_context,
        Tool(picky, requires_approval=True),
        Tool(text_of, timeout=5, name="timed"),
    ]
    toolset = FunctionToolset(tools).tools
    names = [name for name, tool in toolset.items() if direct(tool) is not None]
    assert sorted(names) == ["broken", "later", "single", "swapped"]


def test_functions_of_all_kinds_answer_alike(short_path: Path) -> None:
    tools: list[Callable[..., Any]] = [
        swapped,
        single,
        only_places,
        any_number,
        with_context,
        later,
        picky,
        broken,
    ]
    with (
        Session(*tools, deps="mine", directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        told = bridge.call("swapped", point={"x": 1, "y": 2})
        assert told["structuredContent"] == {"x": 2, "y": 1}
        assert text_of(bridge.call("single", x=7, y=2)) == "7"
        assert text_of(bridge.call("only_places", a=5)) == "4"
        assert text_of(bridge.call("any_number", numbers=[1, 2])) == "3"
        assert text_of(bridge.call("with_context")) == "mine"
        assert text_of(bridge.call("later")) == "later"
        rows: list[tuple[str, dict[str, Any], str]] = [
            ("picky", {"choice": "red"}, "not red, try again"),
            ("broken", {}, "no such order (type: LookupError)"),
            ("single", {"x": "many", "y": 2}, "at `/x`: Input should be a valid integer"),
            ("swapped", {}, "at `/point`: Field required"),
        ]
        for tool, arguments, want in rows:
            assert want in error_of(bridge.call(tool, **arguments)), tool


async def test_direct_functions_run_in_threads_with_the_sessions_context(short_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def look() -> str:
        before = REQUEST.get()
        REQUEST.set("changed")
        seen.append((before, threading.current_thread() is threading.main_thread()))
        return before

    REQUEST.set("mine")
    async with Session(look, directory=short_path) as session:
        with Bridge(session.mcp_config()) as bridge:
            for _ in range(2):
                assert text_of(await asyncio.to_thread(bridge.call, "look")) == "mine"
    assert seen == [("mine", False)] * 2
    assert REQUEST.get() == "mine"


def test_a_cancelled_function_keeps_its_turn_until_it_ends(short_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        started.set()
        go_on.wait(PATIENCE_SECONDS)
        order.append("slow")

    def quick() -> str:
        order.append("quick")
        return "quick"

    def look() -> str:
        return "".join(order)

    tools = (slow, quick, read_only(look))
    with Session(*tools, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        bridge.send("tools/call", "cancelled", name="slow", arguments={})
        assert started.wait(PATIENCE_SECONDS)
        bridge.notify("notifications/cancelled", requestId="cancelled")
        bridge.send("tools/call", "quick", name="quick", arguments={})
        # If `quick` had run meanwhile, one of these calls would have seen it.
        for _ in range(100):
            assert text_of(bridge.call("look")) == ""
        go_on.set()
        assert text_of(bridge.answer("quick")) == "quick"
    assert order == ["slow", "quick"]


def test_a_call_cancelled_in_the_queue_never_begins(short_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        started.set()
        go_on.wait(PATIENCE_SECONDS)

    def note(text: str) -> str:
        order.append(text)
        return text

    def look() -> str:
        return "".join(order)

    tools = (slow, note, read_only(look))
    with Session(*tools, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        bridge.send("tools/call", "slow", name="slow", arguments={})
        assert started.wait(PATIENCE_SECONDS)
        bridge.send("tools/call", "unwanted", name="note", arguments={"text": "unwanted"})
        bridge.notify("notifications/cancelled", requestId="unwanted")
        bridge.send("tools/call", "wanted", name="note", arguments={"text": "wanted"})
        # These calls take longer than the delivery of the cancellation.
        for _ in range(100):
            assert text_of(bridge.call("look")) == ""
        go_on.set()
        assert text_of(bridge.answer("wanted")) == "wanted"
    assert order == ["wanted"]


async def test_a_returned_awaitable_is_cancelled(short_path: Path) -> None:
    hang, started, cancelled = hanging()

    def later() -> Any:
        return hang()

    async with Session(later, directory=short_path) as session:
        with Bridge(session.mcp_config()) as bridge:
            bridge.send("tools/call", "one", name="later", arguments={})
            await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
            bridge.notify("notifications/cancelled", requestId="one")
            await asyncio.wait_for(cancelled.wait(), PATIENCE_SECONDS)


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_without_a_message_is_an_answer(short_path: Path) -> None:
    def fails() -> None:
        raise Mute

    with Session(fails, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        assert error_of(bridge.call("fails")) == "no message (type: Mute)"


def test_a_program_exits_while_functions_run(short_path: Path) -> None:
    text = f"""
    import subprocess, sys, threading, time
    from toolbridge import Session

    started = [threading.Event() for _ in range(3)]
    session = Session(directory=sys.argv[1])

    @session.tool(parallel=True)
    def sleep() -> None:
        started[0].set()
        time.sleep(600)

    @session.tool(parallel=True)
    def sleep_often() -> None:
        started[1].set()
        while True: time.sleep(0.001)

    @session.tool(parallel=True)
    def work() -> None:
        started[2].set()
        while True: pass

    with session:
        for tool, has_started in zip(("sleep", "sleep_often", "work"), started):
            command = [sys.argv[2], "call", str(session.socket_path), tool, "{{}}"]
            call = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            assert has_started.wait({PATIENCE_SECONDS})
            call.kill()
            call.wait()
    print("end", flush=True)
    """
    call = [*PYTHON, "-c", textwrap.dedent(text), str(short_path), TOOLBRIDGE]
    done = subprocess.run(call, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert list(short_path.iterdir()) == []


class Unwanted:
    """A call that is cancelled before Python receives it."""

    name, arguments, tool_use_id = "later", b"{}", None

    def on_cancel(self, _: Callable[[], object]) -> bool:
        return False

    def answer(self, result: bytes) -> None: ...

    def fail(self, type_name: str, message: str) -> None: ...


@pytest.mark.anyio
async def test_a_call_that_is_cancelled_before_it_begins_leaves_nothing_unawaited() -> None:
    async def wait() -> None: ...

    # Every warning is an error here, including those from garbage collection.
    host = Host()
    call: Any = Unwanted()
    call.tool = Served(ToolDefinition(name="later"), ToolManager(FunctionToolset()), lambda _: wait())
    host.start(call, host.call)
    await asyncio.to_thread(host._call_directly, call)
    await asyncio.sleep(0)
    await host.end()
    await asyncio.sleep(0)
    gc.collect()
