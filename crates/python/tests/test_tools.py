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
from pydantic_ai.messages import BinaryContent, DocumentUrl, NativeToolReturnPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from support import PATIENCE_SECONDS, PICTURE, Transport, World, prompt

from toolbridge import ClaudeCodeModel, read_only, report_progress

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


@pytest.mark.both_transports
async def test_values_reach_the_model_as_text_or_json(world: MakeWorld, transport: Transport) -> None:
    calls = "\n".join(f'call give {{"n": {n}}}' for n in range(len(VALUES)))
    here = world(f"{calls}\n---\ntext ok")

    def give(n: int) -> Any:
        return VALUES[n][0]

    await asked(here.model(), give, transport=transport)
    assert here.result_texts == [seen for _, seen in VALUES]
    assert not any(result.get("is_error") for result in here.results)


@pytest.mark.both_transports
async def test_pictures_and_files_reach_the_model(world: MakeWorld, transport: Transport) -> None:
    here = world("call show {}\n---\ntext ok")

    def show() -> list[Any]:
        return ["a dot", BinaryContent(PICTURE, media_type="image/png"), {"n": 1}]

    await asked(here.model(), show, transport=transport)
    text, image, *_, more = here.results[0]["content"]
    assert text["text"] == "a dot"
    assert base64.b64decode(image["source"]["data"]).startswith(b"\x89PNG")
    assert more["text"] == '{"n":1}'


async def test_other_content_is_passed_in_mcps_format(world: MakeWorld) -> None:
    here = world("call show {}\n---\ntext ok")

    def show() -> list[Any]:
        return [DocumentUrl("https://example.com/a.pdf"), BinaryContent(b"a,b", media_type="text/csv")]

    await asked(here.model(), show)
    assert "https://example.com/a.pdf" in here.result_texts[0]
    assert not here.results[0].get("is_error")


async def test_arguments_are_read_by_pydantics_rules(world: MakeWorld, transport: Transport) -> None:
    here = world('call add {"a": "40", "b": 2.0}\n---\ntext {result}')

    def add(a: int, b: int = 1) -> int:
        assert isinstance(a, int)
        assert isinstance(b, int)
        return a + b

    assert await asked(here.model(), add, transport=transport) == "42"


async def test_invalid_arguments_are_explained_to_the_model(world: MakeWorld, transport: Transport) -> None:
    here = world('call add {"a": "forty"}\n---\ntext ok')

    def add(a: int, b: int) -> int:
        return a + b

    await asked(here.model(), add, transport=transport)
    [text] = here.result_texts
    assert text == (
        "invalid arguments for tool `add`: at `/a`: Input should be a valid integer, unable to parse string "
        "as an integer; at `/b`: Field required (type: ValidationError)"
    )
    assert here.results[0]["is_error"] is True


class QuotaError(Exception):
    pass


ERRORS: list[tuple[Exception, str]] = [
    (QuotaError("used up"), "used up (type: QuotaError)"),
    (ModelRetry("give a number above 3"), "give a number above 3"),
    (KeyError("x"), "'x' (type: KeyError)"),
    (RuntimeError(), "no message (type: RuntimeError)"),
    (TimeoutError("slow"), "slow (type: TimeoutError)"),
]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.both_transports
async def test_an_exception_reaches_the_model(world: MakeWorld, transport: Transport, is_async: bool) -> None:
    calls = "\n".join(f'call fail {{"n": {n}}}' for n in range(len(ERRORS)))
    here = world(f"{calls}\n---\ntext ok")

    async def fail_async(n: int) -> None:
        raise ERRORS[n][0]

    def fail_sync(n: int) -> None:
        raise ERRORS[n][0]

    tool: Tool[Any] = Tool(fail_async if is_async else fail_sync, name="fail")
    assert await asked(here.model(), tool, transport=transport) == "ok"
    assert here.result_texts == [seen for _, seen in ERRORS]
    assert all(result["is_error"] for result in here.results)


async def test_a_failed_call_is_a_failed_part(world: MakeWorld) -> None:
    here = world("call fail {}\n---\ntext ok")
    agent = Agent(here.model())

    @agent.tool_plain
    def fail() -> None:
        raise QuotaError("used up")

    result = await agent.run("go")
    [part] = [part for part in result.all_messages()[-1].parts if isinstance(part, NativeToolReturnPart)]
    assert part.outcome == "failed"
    assert "QuotaError" in str(part.content)


async def test_values_without_a_json_form_are_errors(world: MakeWorld, transport: Transport) -> None:
    here = world("call give {}\n---\ntext ok")

    def give() -> Any:
        return {"lock": threading.Lock()}

    await asked(here.model(), give, transport=transport)
    [text] = here.result_texts
    assert "Unable to serialize unknown type" in text
    assert "PydanticSerializationError" in text
    assert "0x" not in text


async def test_a_tool_that_needs_an_approval_is_an_error_without_an_agent(world: MakeWorld) -> None:
    here = world("call delete {}\n---\ntext ok")
    ran = []

    def delete() -> None:
        ran.append(True)

    await asked(here.model(), Tool(delete, requires_approval=True))
    assert "needs an approval" in here.result_texts[0]
    assert not ran


@pytest.mark.parametrize("approved", [True, False])
async def test_a_capability_can_approve(world: MakeWorld, approved: bool) -> None:
    here = world("call delete {}\n---\ntext ok")

    async def decide(_: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults(approvals={part.tool_call_id: approved for part in requests.approvals})

    agent = Agent(here.model(), capabilities=[HandleDeferredToolCalls(handler=decide)])

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return "deleted"

    await agent.run("go")
    assert (here.result_texts[0] == "deleted") is approved
    assert bool(here.results[0].get("is_error")) is not approved


async def test_tools_run_on_the_callers_loop_or_in_a_worker_thread(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call on_loop {}\ncall in_thread {}\n---\ntext ok")
    loop, main = asyncio.get_running_loop(), threading.get_ident()
    seen = []

    async def on_loop() -> None:
        seen.append((asyncio.get_running_loop() is loop, threading.get_ident() == main))

    def in_thread() -> None:
        seen.append((False, threading.get_ident() == main))

    await asked(here.model(), on_loop, in_thread, transport=transport)
    assert seen == [(True, True), (False, False)]


request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id")


async def test_context_variables_are_kept(world: MakeWorld, transport: Transport) -> None:
    here = world("call who {}\ncall who_else {}\n---\ntext {results}")
    model = here.model()

    async def who() -> str:
        return request_id.get()

    def who_else() -> str:
        return request_id.get()

    async def run(name: str) -> str | None:
        request_id.set(name)
        return await asked(model, who, who_else, transport=transport)

    answers = await asyncio.gather(*(asyncio.create_task(run(name)) for name in "abc"))
    assert answers == ["a, a", "b, b", "c, c"]


@pytest.mark.parametrize(
    "metadata",
    [{"read_only": True}, {"annotations": {"readOnlyHint": True}}, {"annotations": {"read_only_hint": True}}],
)
async def test_read_only_tools_run_side_by_side(
    world: MakeWorld, transport: Transport, metadata: dict[str, Any]
) -> None:
    here = world("call look {}\ncall look {}\ncall look {}\ncall look {}\n---\ntext ok")
    running, most = 0, 0
    all_there = asyncio.Event()

    async def look() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 4:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), PATIENCE_SECONDS / 2)
        running -= 1

    await asked(here.model(), Tool(look, metadata=metadata), transport=transport)
    assert most == 4


async def test_other_tools_take_turns(world: MakeWorld, transport: Transport) -> None:
    here = world("call change {}\ncall change {}\n---\ntext ok")
    running, most = 0, 0

    def change() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.1)
        running -= 1

    await asked(here.model(), change, transport=transport)
    assert most == 1


async def test_a_function_can_be_marked_read_only() -> None:
    def look() -> None:
        """Looks."""

    tool = read_only(look)
    assert tool.metadata == {"read_only": True}
    assert tool.description == "Looks."


async def test_dependencies_are_given(world: MakeWorld, transport: Transport) -> None:
    here = world("call who {}\n---\ntext {result}")

    def who(ctx: RunContext[str]) -> str:
        return ctx.deps

    assert await asked(here.model(), who, transport=transport, deps="ada") == "ada"


async def test_the_context_of_a_call_is_known_without_an_agent(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call who {} as toolu_mine\n---\ntext {result}")
    contexts: list[RunContext[str]] = []

    async def who(ctx: RunContext[str]) -> str:
        contexts.append(ctx)
        return "me"

    model = here.model()
    assert await asked(model, who, transport=transport, deps="ada") == "me"
    [ctx] = contexts
    assert (ctx.deps, ctx.tool_name, ctx.tool_call_id, ctx.retry) == ("ada", "who", "toolu_mine", 0)
    assert ctx.model is model


async def test_progress_of_an_agents_tool_is_harmless(world: MakeWorld, transport: Transport) -> None:
    here = world("call slow {}\n---\ntext {result}")
    agent = Agent(here.model(transport))

    @agent.tool_plain
    async def slow() -> str:
        for step in range(100):
            report_progress(step, 100, "going on")
        return "done"

    assert (await agent.run("go")).output == "done"


async def test_large_results_reach_the_model_whole(world: MakeWorld, transport: Transport) -> None:
    here = world("call give {}\n---\ntext ok")

    def give() -> str:
        return "x" * 400_000

    tool: Tool[Any] = Tool(give, metadata={"max_result_chars": 500_000})
    await asked(here.model(), tool, transport=transport)
    assert here.result_texts[0] == "x" * 400_000
