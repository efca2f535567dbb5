"""The arguments of tools, and the handling of their results and exceptions."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import dataclasses
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import BaseToolReturnPart, BinaryContent, DocumentUrl, NativeToolReturnPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from support import PATIENCE_SECONDS, PICTURE, Transport, World, prompt

from toolbridge import ClaudeCodeModel, portable_history, read_only, report_progress

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


async def asked(model: ClaudeCodeModel, *tools: Callable[..., Any] | Tool[Any], **options: Any) -> str | None:
    """The model's answer, with these tools and no agent."""
    model.set_agent_toolsets(list(tools), server_name="tools", **options)
    return (await model.request(prompt(), None, ModelRequestParameters())).text


class Weather(BaseModel):
    degrees: Decimal
    sky: str = "clear"


@dataclasses.dataclass
class Point:
    x: int
    y: int


VALUES: list[tuple[Any, str]] = [
    ("plain text", "plain text"),
    (42, "42"),
    (True, "true"),
    ({"a": [1, None]}, '{"a":[1,null]}'),
    ([1, 2], "[1,2]"),
    (Weather(degrees=Decimal("21.5")), '{"degrees":"21.5","sky":"clear"}'),
    ([Point(1, 2)], '[{"x":1,"y":2}]'),
    ("日本語 \N{GRINNING FACE} \u2028", "日本語 \N{GRINNING FACE} \u2028"),
    (ToolReturn({"a": 1}, content="and more"), '{"a":1}and more'),
]


class QuotaError(Exception):
    pass


ERRORS: list[tuple[Exception, str]] = [
    (QuotaError("used up"), "used up (type: QuotaError)"),
    (ModelRetry("give a number above 3"), "give a number above 3"),
    (KeyError("x"), "'x' (type: KeyError)"),
    (RuntimeError(), "no message (type: RuntimeError)"),
    (TimeoutError("slow"), "slow (type: TimeoutError)"),
]


@pytest.mark.both_transports
async def test_values_reach_the_model_as_text_or_json_and_exceptions_as_errors(
    world: MakeWorld, transport: Transport
) -> None:
    calls = [f'call give {{"n": {n}}}' for n in range(len(VALUES))]
    calls += [f'call {tool} {{"n": {n}}}' for tool in ("fail", "fail_later") for n in range(len(ERRORS))]
    here = world("\n".join([*calls, "call give_a_lock {}"]) + "\n---\ntext ok")

    def give(n: int) -> Any:
        return VALUES[n][0]

    def give_a_lock() -> Any:
        return {"lock": threading.Lock()}

    def fail(n: int) -> None:
        raise ERRORS[n][0]

    async def fail_later(n: int) -> None:
        raise ERRORS[n][0]

    assert await asked(here.model(), give, give_a_lock, fail, fail_later, transport=transport) == "ok"
    *texts, no_json = here.result_texts
    assert texts == [seen for _, seen in [*VALUES, *ERRORS, *ERRORS]]
    is_error = [bool(result.get("is_error")) for result in here.results]
    assert is_error == [False] * len(VALUES) + [True] * (2 * len(ERRORS) + 1)
    # A value without a JSON form.
    assert "Unable to serialize unknown type" in no_json
    assert "PydanticSerializationError" in no_json
    assert "0x" not in no_json


async def test_pictures_files_and_large_results_reach_the_model(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call show {}\ncall show_more {}\ncall give {}\n---\ntext ok")

    def show() -> list[Any]:
        return ["a dot", BinaryContent(PICTURE, media_type="image/png"), {"n": 1}]

    def show_more() -> list[Any]:
        return [DocumentUrl("https://example.com/a.pdf"), BinaryContent(b"a,b", media_type="text/csv")]

    def give() -> str:
        return "x" * 400_000

    large: Tool[Any] = Tool(give, metadata={"max_result_chars": 500_000})
    await asked(here.model(), show, show_more, large, transport=transport)
    text, image, *_, more = here.results[0]["content"]
    assert text["text"] == "a dot"
    assert base64.b64decode(image["source"]["data"]).startswith(b"\x89PNG")
    assert more["text"] == '{"n":1}'
    # Other content is passed in MCP's format.
    assert "https://example.com/a.pdf" in here.result_texts[1]
    assert not here.results[1].get("is_error")
    assert here.result_texts[2] == "x" * 400_000


async def test_a_failed_call_is_a_failed_part_and_progress_is_harmless(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call fail {}\n---\ncall slow {}\n---\ntext {result}")
    agent = Agent(here.model(transport))

    @agent.tool_plain
    async def slow() -> str:
        for step in range(100):
            report_progress(step, 100, "going on")
        return "done"

    @agent.tool_plain
    def fail() -> None:
        raise QuotaError("used up")

    result = await agent.run("go")
    assert result.output == "done"
    parts = [part for part in result.all_messages()[-1].parts if isinstance(part, NativeToolReturnPart)]
    assert [part.outcome for part in parts] == ["failed", "success"]
    assert "QuotaError" in str(parts[0].content)


@pytest.mark.oldest
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_what_a_tool_returns_is_in_the_history_as_it_is(
    world: MakeWorld, transport: Transport, is_streamed: bool
) -> None:
    calls = [
        f"call {name} {{}}" for name in ("plain", "listed", "weather", "told", "both", "nothing", "seen")
    ]
    here = world("\n".join(calls) + "\n---\ntext ok\n---\ntext And ok.\n---\ntext And ok.")
    agent = Agent(here.model(transport))

    @agent.tool_plain
    def plain() -> dict[str, int]:
        return {"a": 1}

    @agent.tool_plain
    async def listed() -> list[Any]:
        return [1, {"type": "text", "text": "no block"}]

    @agent.tool_plain
    def weather() -> Weather:
        return Weather(degrees=Decimal(21))

    @agent.tool_plain
    def told() -> ToolReturn:
        return ToolReturn({"a": [1]}, metadata={"row": 7})

    @agent.tool_plain
    def both() -> ToolReturn:
        return ToolReturn(5, content="out of ten", metadata="rated")

    @agent.tool_plain
    def nothing() -> None: ...

    @agent.tool_plain
    def seen() -> ToolReturn:
        return ToolReturn(BinaryContent(PICTURE, media_type="image/png"), metadata={"at": "noon"})

    if is_streamed:
        async with agent.run_stream("go") as streamed:
            await streamed.get_output()
        messages = streamed.all_messages()
    else:
        messages = (await agent.run("go")).all_messages()
    parts = [part for part in messages[-1].parts if isinstance(part, NativeToolReturnPart)]
    values = {part.tool_name: (part.content, part.metadata) for part in parts}
    assert len(values) == len(calls)
    content, about = values.pop("seen")
    assert isinstance(content, list)
    [picture] = content
    assert isinstance(picture, BinaryContent)
    assert (picture.media_type, about) == ("image/png", {"at": "noon"})
    values.pop("nothing")
    assert values == {
        "plain": ({"a": 1}, None),
        "listed": ([1, {"type": "text", "text": "no block"}], None),
        "weather": (Weather(degrees=Decimal(21)), None),
        "told": ({"a": [1]}, {"row": 7}),
        "both": ([5, "out of ten"], "rated"),
    }
    shown = here.results

    # The model is told the same again, without the metadata, also by a history in other models' form.
    for history in (messages, portable_history(messages)):
        returned = [part for one in history for part in one.parts if isinstance(part, BaseToolReturnPart)]
        assert [part.metadata for part in returned] == [part.metadata for part in parts]
        assert (await agent.run("And?", message_history=history)).output == "And ok."
        blocks = [block for one in here.requests[-1]["messages"] for block in one["content"]]
        again = {
            block["tool_use_id"]: block["content"]
            for block in blocks
            if isinstance(block, dict) and block["type"] == "tool_result"
        }
        for result in shown[:4]:
            told_again = again[result["tool_use_id"]]
            texts = [told_again] if isinstance(told_again, str) else [block["text"] for block in told_again]
            assert texts == [block["text"] for block in result["content"]]
        assert "noon" not in str(blocks)
        assert "image" in str(again[shown[-1]["tool_use_id"]])


@pytest.mark.oldest
async def test_a_capability_can_approve(world: MakeWorld) -> None:
    here = world("call delete {}\ncall format {}\n---\ntext ok")

    async def decide(_: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
        approvals = {part.tool_call_id: part.tool_name == "delete" for part in requests.approvals}
        return DeferredToolResults(approvals={**approvals})

    agent = Agent(here.model(), capabilities=[HandleDeferredToolCalls(handler=decide)])

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return "deleted"

    @agent.tool_plain(requires_approval=True, name="format")
    def format_it() -> str:
        return "formatted"

    await agent.run("go")
    deleted, formatted = here.result_texts
    assert deleted == "deleted"
    assert formatted != "formatted"
    assert [bool(result.get("is_error")) for result in here.results] == [False, True]


request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id")


async def test_tools_run_on_the_callers_loop_or_in_a_worker_thread_with_its_context_variables(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call on_loop {}\ncall in_thread {}\n---\ntext {results}")
    model = here.model()
    loop, main = asyncio.get_running_loop(), threading.get_ident()
    seen = set()

    async def on_loop() -> str:
        seen.add(("on_loop", asyncio.get_running_loop() is loop, threading.get_ident() == main))
        return request_id.get()

    def in_thread() -> str:
        seen.add(("in_thread", False, threading.get_ident() == main))
        return request_id.get()

    async def run(name: str) -> str | None:
        request_id.set(name)
        return await asked(model, on_loop, in_thread, transport=transport)

    answers = await asyncio.gather(*(asyncio.create_task(run(name)) for name in "ab"))
    assert answers == ["a, a", "b, b"]
    assert seen == {("on_loop", True, True), ("in_thread", False, False)}


READ_ONLY: list[dict[str, Any]] = [
    {"read_only": True},
    {"annotations": {"readOnlyHint": True}},
    {"annotations": {"read_only_hint": True}},
]


async def test_read_only_tools_run_side_by_side_and_others_take_turns(
    world: MakeWorld, transport: Transport
) -> None:
    names = [f"look_{n}" for n in range(len(READ_ONLY))]
    calls = "\n".join(f"call {name} {{}}" for name in names for _ in range(3))
    here = world(f"{calls}\ncall change {{}}\ncall change {{}}\n---\ntext ok")
    running, most = dict.fromkeys([*names, "change"], 0), dict.fromkeys([*names, "change"], 0)
    all_there = {name: asyncio.Event() for name in names}

    async def look(ctx: RunContext[Any]) -> None:
        name = ctx.tool_name or ""
        running[name] += 1
        most[name] = max(most[name], running[name])
        if most[name] == 3:
            all_there[name].set()
        await asyncio.wait_for(all_there[name].wait(), PATIENCE_SECONDS / 2)
        running[name] -= 1

    def change() -> None:
        running["change"] += 1
        most["change"] = max(most["change"], running["change"])
        time.sleep(0.1)
        running["change"] -= 1

    tools: list[Tool[Any]] = [
        Tool(look, name=name, metadata=metadata) for name, metadata in zip(names, READ_ONLY, strict=True)
    ]
    await asked(here.model(), *tools, change, transport=transport)
    assert most == {**dict.fromkeys(names, 3), "change": 1}


@pytest.mark.oldest
async def test_a_function_can_be_marked_read_only() -> None:
    def look() -> None:
        """Looks."""

    tool = read_only(look)
    assert tool.metadata == {"read_only": True}
    assert tool.description == "Looks."


@pytest.mark.oldest
async def test_calls_without_an_agent_have_a_context_with_dependencies_and_checked_arguments(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(
        "call who {} as toolu_mine\n"
        'call add {"a": "40", "b": 2.0}\n'
        'call add {"a": "forty"}\n'
        "---\n"
        "text {result}"
    )
    contexts: list[RunContext[str]] = []

    async def who(ctx: RunContext[str]) -> str:
        contexts.append(ctx)
        return "me"

    def add(a: int, b: int) -> int:
        assert isinstance(a, int)
        assert isinstance(b, int)
        return a + b

    model = here.model()
    assert await asked(model, who, add, transport=transport, deps="ada") == "me"
    [ctx] = contexts
    assert (ctx.deps, ctx.tool_name, ctx.tool_call_id, ctx.retry) == ("ada", "who", "toolu_mine", 0)
    assert ctx.model is model
    # Arguments are read by pydantic's rules; those that do not fit are explained to the model.
    assert here.result_texts[1] == "42"
    assert here.result_texts[2] == (
        "invalid arguments for tool `add`: at `/a`: Input should be a valid integer, unable to parse string "
        "as an integer; at `/b`: Field required (type: ValidationError)"
    )
    assert here.results[2]["is_error"] is True
