"""A session: functions of this process for an MCP client that another program starts."""

from __future__ import annotations

import asyncio
import contextvars
import doctest
import json
import logging
import subprocess
import textwrap
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, ToolReturn
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.toolsets import FunctionToolset
from support import (
    PATIENCE_SECONDS,
    PICTURE,
    PYTHON,
    TOOLBRIDGE,
    Bridge,
    World,
    cli_answer,
    hanging,
    prompt,
    soon,
    text_of,
)

import toolbridge.session
from toolbridge import ClaudeCodeModel, InvalidRequestError, Session, read_only, report_progress

MakeWorld = Callable[[str], World]

pytestmark = [pytest.mark.anyio, pytest.mark.oldest]


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


async def shout(text: str) -> str:
    """Says it louder."""
    await asyncio.sleep(0)
    return text.upper()


def called(session: Session, tool: str, arguments: dict[str, Any]) -> tuple[int, str]:
    """A tool's result, called with the executable of the wheel."""
    call = [TOOLBRIDGE, "call", str(session.socket_path), tool, json.dumps(arguments)]
    ended = subprocess.run(call, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    return ended.returncode, (ended.stdout or ended.stderr).strip()


def test_functions_are_offered_from_a_program_without_a_loop(short_path: Path) -> None:
    with Session(add, shout, directory=short_path) as session:
        assert called(session, "add", {"a": 41}) == (0, "42")
        assert called(session, "shout", {"text": "hey"}) == (0, "HEY")
        code, said = called(session, "add", {"a": "many"})
        assert code != 0
        assert "ValidationError" in said
        schemas = {schema["name"]: schema for schema in json.loads(session.schema_path.read_text())}
        assert schemas["add"]["description"] == "Adds two numbers."
        assert schemas["add"]["input_schema"]["properties"]["b"]["description"] == "The other."
        assert schemas["add"]["input_schema"]["required"] == ["a"]
    assert list(short_path.iterdir()) == []
    with pytest.raises(InvalidRequestError, match="is not running"):
        session.mcp_config()


def test_the_example_in_the_documentation_is_true() -> None:
    assert doctest.testmod(toolbridge.session).failed == 0


async def test_functions_run_on_the_loop_of_the_session(short_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def here(ctx: RunContext[str]) -> str:
        assert asyncio.get_running_loop() is loop
        return ctx.deps

    async with Session(here, deps="mine", directory=short_path) as session:
        assert await asyncio.to_thread(called, session, "here", {}) == (0, "mine")
    assert list(short_path.iterdir()) == []


async def test_a_session_can_be_left_while_a_call_runs(short_path: Path) -> None:
    hang, started, cancelled = hanging()

    async with Session(hang, directory=short_path) as session:
        call = asyncio.create_task(asyncio.to_thread(called, session, "hang", {}))
        await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
    assert cancelled.is_set()
    code, _ = await call
    assert code != 0
    assert list(short_path.iterdir()) == []


def test_tools_are_added_by_a_decorator(short_path: Path) -> None:
    session = Session(shout, directory=short_path)

    @session.tool
    def count(text: str) -> int:
        """Counts words."""
        return len(text.split())

    @session.tool(
        read_only=True,
        title="Price of an article",
        destructive=False,
        idempotent=True,
        open_world=True,
        max_result_chars=1000,
    )
    async def price(ctx: RunContext[None], article: str) -> float:
        """What it costs."""
        return len(article) / 2

    session.tool(partial(add, b=2))
    assert count("a b c") == 3, "it is the function that it was"
    with session, Bridge(session.mcp_config()) as bridge:
        tools = bridge.tools
        assert list(tools) == ["shout", "count", "price", "add"]
        assert "annotations" not in tools["count"]
        assert tools["price"]["title"] == "Price of an article"
        assert tools["price"]["annotations"] == {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": True,
        }
        assert tools["price"]["_meta"]["anthropic/maxResultSizeChars"] == 1000
        assert list(tools["price"]["inputSchema"]["properties"]) == ["article"]
        assert bridge.call("count", text="a b")["content"][0]["text"] == "2"
        assert bridge.call("price", article="book")["content"][0]["text"] == "2.0"
        assert bridge.call("add", a=40)["content"][0]["text"] == "42"
    assert list(short_path.iterdir()) == []


def test_calls_of_parallel_tools_overlap(short_path: Path) -> None:
    session = Session(directory=short_path)
    both = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    @session.tool(parallel=True)
    def meet() -> None:
        """Waits for another call."""
        both.wait()

    with session, Bridge(session.mcp_config()) as bridge:
        assert not bridge.tools["meet"].get("annotations", {}).get("readOnlyHint")
        for number in ("first", "second"):
            bridge.send("tools/call", number, name="meet", arguments={})
        assert not bridge.answer("first").get("isError")
    assert list(short_path.iterdir()) == []


def test_invalid_sessions_are_reported(short_path: Path) -> None:
    def bad() -> None: ...

    bad.__name__ = "no good"
    with pytest.raises(InvalidRequestError, match="no good"), Session(bad, directory=short_path):
        pass
    with (
        Session(add, directory=short_path) as session,
        pytest.raises(InvalidRequestError, match="server name"),
    ):
        session.mcp_config("no good")
    assert all(thread.name != "toolbridge-session" for thread in threading.enumerate())


class Weather(BaseModel):
    degrees: float
    sky: str = "clear"


async def weather() -> Weather:
    return Weather(degrees=21.5)


def table() -> dict[str, int]:
    return {"a": 1}


def untyped() -> Any:
    return {"a": 1}


def lying() -> dict[str, int]:
    return "{no object"  # type: ignore[return-value]


def with_more() -> dict[str, int]:
    return ToolReturn({"a": 1}, content="and more")  # type: ignore[return-value]


def picture() -> BinaryContent:
    return BinaryContent(PICTURE, media_type="image/png")


def surprise() -> Weather:
    return BinaryContent(PICTURE, media_type="image/png")  # type: ignore[return-value]


def whole() -> ToolReturn:
    return ToolReturn({"a": 1}, content=["and more"])


def other_table() -> dict[str, int]:
    return {"a": "not one"}  # type: ignore[dict-item]


def test_objects_are_structured_content_where_the_signature_says_so(short_path: Path) -> None:
    tools: list[Callable[..., Any]] = [weather, table, untyped, lying, with_more, add]
    with Session(*tools, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        told = bridge.call("weather")
        assert told["structuredContent"] == {"degrees": 21.5, "sky": "clear"}
        assert json.loads(told["content"][0]["text"]) == told["structuredContent"]
        assert bridge.call("table")["structuredContent"] == {"a": 1}
        # A value that is no object, or has additional content, is sent as content only.
        assert bridge.call("lying")["content"] == [{"type": "text", "text": "{no object"}]
        assert [block["text"] for block in bridge.call("with_more")["content"]] == ['{"a":1}', "and more"]
        for tool in ("untyped", "lying", "with_more"):
            assert "structuredContent" not in bridge.call(tool)


def test_results_that_differ_from_the_annotation_are_delivered(short_path: Path) -> None:
    tools: list[Callable[..., Any]] = [weather, picture, surprise, whole, lying, other_table]
    with Session(*tools, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        # A client rejects a result that does not match the output schema.
        assert all("outputSchema" not in tool for tool in bridge.tools.values())
        for tool in ("picture", "surprise"):
            result = bridge.call(tool)
            assert [block["type"] for block in result["content"]] == ["image"]
            assert not result.get("isError")
        assert [block["text"] for block in bridge.call("whole")["content"]] == ['{"a":1}', "and more"]
        assert bridge.call("lying")["content"][0]["text"] == "{no object"
        assert bridge.call("other_table")["structuredContent"] == {"a": "not one"}


class Counter:
    """Counts."""

    def __call__(self, step: int = 1) -> int:
        return step

    async def later(self, step: int, *, times: int) -> int:
        """Counts later."""
        return step * times


def test_partials_and_callable_objects_can_be_tools(short_path: Path) -> None:
    tools: list[Callable[..., Any]] = [
        partial(add, b=2),
        Counter(),
        partial(partial(Counter().later, 3), times=2),
    ]
    with Session(*tools, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        listed = bridge.tools
        assert listed["add"]["description"] == "Adds two numbers."
        assert listed["add"]["inputSchema"]["properties"].keys() == {"a"}
        assert bridge.call("add", a=40)["content"][0]["text"] == "42"
        assert bridge.call("Counter", step=3)["content"][0]["text"] == "3"
        assert listed["later"]["inputSchema"]["properties"] == {}
        assert bridge.call("later")["content"][0]["text"] == "6"


def test_values_that_cannot_be_tools_are_refused() -> None:
    async def endless() -> Any:
        yield 1

    for generator in (endless, partial(endless)):
        with pytest.raises(InvalidRequestError, match="`endless` is an async generator") as raised:
            Session(generator)
        assert raised.value.hint is not None
    with pytest.raises(InvalidRequestError, match="a `int` is not a tool"):
        Session(3)  # type: ignore[arg-type]


def test_without_asyncio_the_error_says_so(short_path: Path) -> None:
    # Like trio: steps through coroutines without an asyncio loop.
    entering = Session(add, directory=short_path).__aenter__()
    with pytest.raises(InvalidRequestError, match="needs a running event loop of asyncio"):
        entering.send(None)
    asking = ClaudeCodeModel().request(prompt(), None, ModelRequestParameters())
    with pytest.raises(InvalidRequestError, match="needs a running event loop of asyncio"):
        asking.send(None)


def test_a_session_that_is_never_left_removes_its_files_at_exit(short_path: Path) -> None:
    # One process imports everything, and has a child for each way to end.
    text = """
    import asyncio, gc, os, sys
    from toolbridge import Session

    gc.freeze()  # so that no child looks for cycles in what is imported

    def add(a: int, b: int) -> int:
        return a + b

    async def forget() -> None:
        sessions.append(await Session(add, directory=sys.argv[1]).__aenter__())

    ends = ["pass", "sys.exit(3)", "raise LookupError('no')", "asyncio.run(forget())"]
    sessions = []
    for end in ends:
        if os.fork() == 0:
            sessions.append(Session(add, directory=sys.argv[1]).__enter__())
            Session(add, directory=sys.argv[1]).__enter__()
            assert len(os.listdir(sys.argv[1])) == 4
            print("open", flush=True)
            exec(end)
            break
        print(os.waitstatus_to_exitcode(os.wait()[1]), len(os.listdir(sys.argv[1])), flush=True)
    """
    call = [*PYTHON, "-c", textwrap.dedent(text), str(short_path)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.stdout == "open\n0 0\nopen\n3 0\nopen\n1 0\nopen\n0 0\n", done.stderr
    assert done.returncode == 0
    assert "LookupError: no" in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "never awaited" not in done.stderr


def test_progress_is_reported_to_the_caller(short_path: Path) -> None:
    async def later() -> str:
        report_progress(1, 3)
        await asyncio.sleep(0)
        await asyncio.create_task(of_a_task())
        return "done"

    async def of_a_task() -> None:
        report_progress(2, total=3, message="in a task")

    def in_a_thread() -> str:
        report_progress(0.5, message="half")
        report_progress(float("nan"))
        return "done"

    with (
        Session(later, in_a_thread, directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert bridge.call("later")["content"][0]["text"] == "done"
        assert bridge.call("in_a_thread")["content"][0]["text"] == "done"
        said = [one["params"] for one in bridge.notifications if one["method"] == "notifications/progress"]
        # A newer report may have replaced the first.
        assert [one for one in said if one != {"progressToken": "p", "progress": 1, "total": 3}] == [
            {"progressToken": "p", "progress": 2, "total": 3, "message": "in a task"},
            {"progressToken": "p", "progress": 0.5, "message": "half"},
        ]
        # The caller did not ask for progress.
        assert bridge.ask("tools/call", name="later", arguments={})["content"][0]["text"] == "done"
        assert len(bridge.notifications) == len(said)
    # There is no caller.
    report_progress(1)


def test_progress_after_the_answer_is_dropped(short_path: Path) -> None:
    going_on, reported = threading.Event(), threading.Event()

    def early() -> str:
        context = contextvars.copy_context()

        def late() -> None:
            going_on.wait(PATIENCE_SECONDS)
            context.run(report_progress, 9)
            reported.set()

        threading.Thread(target=late).start()
        return "done"

    with Session(early, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        assert bridge.call("early")["content"][0]["text"] == "done"
        going_on.set()
        assert reported.wait(PATIENCE_SECONDS)
        going_on.clear()
        # A tool whose calls run one at a time: the rest of the first call does not block the second one.
        assert bridge.call("early")["content"][0]["text"] == "done"
        assert bridge.notifications == []
        going_on.set()


def test_native_events_are_logged(short_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolbridge")
    with Session(add, directory=short_path) as session:
        assert called(session, "add", {"a": 41}) == (0, "42")
    soon(lambda: caplog.records)
    record = caplog.records[0]
    assert record.name == "toolbridge"
    assert record.levelname == "DEBUG"
    assert record.pathname.endswith(".rs")
    assert all(one.name == "toolbridge" for one in caplog.records)


def test_disabled_log_levels_are_not_logged(short_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "toolbridge")
    with Session(add, directory=short_path) as session:
        assert called(session, "add", {"a": 41}) == (0, "42")
    assert caplog.records == []


async def test_the_real_cli_calls_a_session(world: MakeWorld) -> None:
    here = world('call add {"a": 40, "b": 2}\ncall math_add {"a": 1}\n---\ntext {results}')
    toolset: FunctionToolset[None] = FunctionToolset([add])
    async with Session(read_only(add), toolset.prefixed("math"), directory=here.sessions) as session:
        assert await cli_answer(here, session.mcp_config("tools")) == "42, 2"


def test_a_long_result_stays_in_the_process_and_is_passed_on_by_its_handle(short_path: Path) -> None:
    text = 'größe "quoted" \\ \n' * 100_000
    stored: list[str] = []

    def give() -> str:
        """Gives a long text."""
        return text

    def store(text: str) -> int:
        """Stores a text."""
        stored.append(text)
        return len(text)

    with (
        Session(give, store, park=True, directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert set(bridge.tools) == {"give", "store", "result_read", "result_find"}
        given = bridge.call("give")
        assert len(json.dumps(given)) < 1000
        note = json.loads(given["content"][0]["text"])
        assert note["bytes"] == len(text.encode())
        assert bridge.call("store", text=note["handle"])["content"][0]["text"] == str(len(text))
        read = bridge.call("result_read", handle=note["handle"], end_line=1)
        assert json.loads(read["content"][0]["text"])["text"] == text.split("\n")[0] + "\n"
    assert stored == [text]
    with pytest.raises(InvalidRequestError, match="result_read"), Session(named_result_read, park=10):
        pass


def named_result_read() -> None:
    """Has a name that is taken."""


named_result_read.__name__ = "result_read"


async def test_models_and_sessions_start_no_bridge_that_a_variable_names(
    world: MakeWorld, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, name = world('call add {"a": 40, "b": 2}\n---\ntext {result}'), "TOOLBRIDGE_BRIDGE"
    monkeypatch.setenv(name, "/bin/false")
    model = here.model("stdio", env={**here.environment, name: "/bin/false"})
    assert (await Agent(model, tools=[add]).run("go")).output == "42"
    with Session(add, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        assert text_of(bridge.call("add", a=1, b=2)) == "3"
