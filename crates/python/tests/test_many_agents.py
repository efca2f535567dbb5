"""One model for many users at once: each run has its own tools and settings, and waits if it has to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.toolsets import FunctionToolset
from support import PATIENCE_SECONDS, Transport, World, hanging

import toolbridge.model
from toolbridge import ClaudeCodeModelSettings, CLIInterruptedError, Deny, PermissionRequest
from toolbridge._waiting import completed

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

USERS = 3


def said(request: dict[str, Any]) -> str:
    """The user's prompt in a request to the model."""
    content = request["messages"][0]["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def clis(here: World) -> list[str]:
    """The command lines of the running CLIs."""
    # Without their guardians, whose command lines end with those of the CLIs.
    commands = here.processes.values()
    return [text for text in commands if "--output-format" in text and "toolbridge-guard" not in text]


async def test_tools_deps_and_decisions_are_separate_per_run_and_two_run_where_two_are_allowed(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call who {}\n---\ntext {result}")
    model = here.model(transport, max_concurrent_requests=2)
    agent: Agent[str, str] = Agent(model, deps_type=str)
    asked: dict[str, list[str]] = {}
    heard: dict[str, int] = {}
    both, running, most = asyncio.Event(), 0, 0

    async def ask(n: int) -> str:
        name = f"user-{n}"

        async def who(ctx: RunContext[str]) -> str:
            return f"{name} is {ctx.deps}"

        async def decide(request: PermissionRequest) -> bool | Deny:
            nonlocal running, most
            asked.setdefault(name, []).append(request.tool_name)
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
            # Until two of them run at the same time.
            await asyncio.wait_for(both.wait(), PATIENCE_SECONDS)
            running -= 1
            return Deny(f"not for {name}") if n % 2 else True

        def hear(message: dict[str, Any]) -> None:
            heard[name] = heard.get(name, 0) + (message["type"] == "result")

        own: FunctionToolset[str] = FunctionToolset()
        own.add_function(who)
        own.add_function(who, name=f"only_for_{n}")
        settings = ClaudeCodeModelSettings(claude_code_can_use_tool=decide, claude_code_message_callback=hear)
        words, deps = f"I am {name}", f"deps-{n}"
        if n < USERS / 2:
            return (await agent.run(words, deps=deps, toolsets=[own], model_settings=settings)).output
        async with agent.run_stream(words, deps=deps, toolsets=[own], model_settings=settings) as result:
            return await result.get_output()

    answers = await asyncio.gather(*map(ask, range(USERS)))
    names = [f"user-{n}" for n in range(USERS)]
    for n, text in enumerate(answers):
        assert (f"not for user-{n}" in text) if n % 2 else (text == f"user-{n} is deps-{n}")
    assert asked == {name: ["mcp__tools__who"] for name in names}
    assert heard == dict.fromkeys(names, 1)
    for request in here.requests:
        [n] = [n for n, name in enumerate(names) if name in said(request)]
        tools = {tool["name"] for tool in request["tools"] if tool["name"].startswith("mcp__")}
        assert tools == {"mcp__tools__who", f"mcp__tools__only_for_{n}"}
    assert len(here.requests) == 2 * USERS
    assert most == 2


async def test_excess_runs_wait_in_order_and_can_be_cancelled(
    world: MakeWorld, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world("call work {}\n---\ntext {result}")
    agent: Agent[int, str] = Agent(here.model(transport, max_concurrent_requests=1), deps_type=int)
    begun, go_on = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    @agent.tool
    async def work(ctx: RunContext[int]) -> int:
        order.append(f"{ctx.deps} begins")
        begun.set()
        await asyncio.wait_for(go_on.wait(), PATIENCE_SECONDS)
        await asyncio.sleep(0.1)
        order.append(f"{ctx.deps} ends with {len(clis(here))} CLI")
        return ctx.deps

    async def wait_in_line(*, is_streamed: bool) -> None:
        if not is_streamed:
            await agent.run("cancelled", deps=-1)
            return
        async with agent.run_stream("cancelled", deps=-1) as result:
            await result.get_output()

    runs = [asyncio.create_task(agent.run("run-0", deps=0))]
    await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
    files = here.files
    for is_streamed in (False, True):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait_in_line(is_streamed=is_streamed), 0.5)
    assert len(clis(here)) == 1
    assert here.files == files

    handed_over = asyncio.Semaphore(0)

    async def watched(*arguments: Any, **options: Any) -> Any:
        handed_over.release()
        return await completed(*arguments, **options)

    monkeypatch.setattr(toolbridge.model, "completed", watched)
    for n in (1, 2):
        runs.append(asyncio.create_task(agent.run(f"run-{n}", deps=n)))
        await asyncio.wait_for(handed_over.acquire(), PATIENCE_SECONDS)
    go_on.set()
    assert [run.output for run in await asyncio.gather(*runs)] == ["0", "1", "2"]
    assert order == [step for n in range(3) for step in (f"{n} begins", f"{n} ends with 1 CLI")]
    assert [said(request)[:5] for request in here.requests] == [f"run-{n}" for n in range(3) for _ in "12"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_in_a_tool_does_not_wait_for_the_run_that_calls_it(
    world: MakeWorld, transport: Transport, *, is_async: bool
) -> None:
    here = world("call ask {}\n---\ntext {result}")
    model = here.model(transport, max_concurrent_requests=1)
    inner, outer = Agent(model), Agent(model)

    async def ask() -> str:
        # It has no tool `ask`, so its model is told that there is none.
        return f"the inner run says {(await inner.run('inner')).output}"

    def ask_in_thread() -> str:
        return asyncio.run(ask())

    outer.tool_plain(name="ask")(ask if is_async else ask_in_thread)
    result = await asyncio.wait_for(outer.run("outer"), PATIENCE_SECONDS)
    assert result.output.startswith("the inner run says "), result.output


async def test_an_interrupt_ends_running_and_waiting_requests(world: MakeWorld, transport: Transport) -> None:
    here = world("call hang {}\n---\ntext done")
    model = here.model(transport, max_concurrent_requests=1)
    agent = Agent(model)
    hang, started, cancelled = hanging()
    agent.tool_plain(hang)
    runs = [asyncio.create_task(agent.run("go")) for _ in range(3)]
    await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
    assert model.interrupt() == 3
    for run in runs:
        with pytest.raises(CLIInterruptedError):
            await run
    assert cancelled.is_set()
    assert model.interrupt() == 0
    assert len(here.requests) == 1


async def test_the_time_limit_begins_with_the_turn_and_the_interpreter_is_free_meanwhile(
    world: MakeWorld,
) -> None:
    # All together take longer than the limit on any machine; on a busy one, a single one may, too.
    for seconds in (3, 12, 48):
        here = world(f"sleep {seconds}000\ntext ok")
        agent: Agent[None, str] = Agent(here.model(max_concurrent_requests=1, timeout=2 * seconds - 1))
        running = asyncio.gather(*(agent.run("go") for _ in range(2)), return_exceptions=True)
        ticks = 0
        while not running.done():
            await asyncio.sleep(0.02)
            ticks += 1
        results = await running
        outputs = [result if isinstance(result, BaseException) else result.output for result in results]
        if outputs == ["ok"] * 2:
            break
    assert outputs == ["ok"] * 2
    assert ticks > 150
