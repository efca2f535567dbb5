"""Functions that the CLI calls on events."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, Tool
from pydantic_ai.models import ModelRequestParameters
from support import PATIENCE_SECONDS, Transport, World, prompt

from toolbridge import (
    ClaudeCodeModel,
    ClaudeCodeModelSettings,
    CLIInterruptedError,
    Hook,
    HookAnswer,
    HookCall,
    HookEvent,
    HookOutput,
)

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

ADD = 'call add {"a": 1, "b": 1}\n---\ntext {result}'


def adder(here: World, transport: Transport, *hooks: Hook) -> tuple[Agent[None, str], list[tuple[int, int]]]:
    """An agent with a tool `add` and those hooks, and the calls of the tool."""
    agent = Agent(here.model(transport, hooks=hooks))
    calls: list[tuple[int, int]] = []

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        calls.append((a, b))
        return a + b

    return agent, calls


@pytest.mark.both_transports
async def test_hooks_are_called_in_the_order_of_events(world: MakeWorld, transport: Transport) -> None:
    seen: list[str] = []
    user = contextvars.ContextVar("user", default="nobody")
    user.set("ada")

    def see(call: HookCall) -> None:
        seen.append(f"{call.event} {call.tool_name or call.input.get('prompt', '')} {user.get()}")

    async def see_later(call: HookCall) -> None:
        await asyncio.sleep(0)
        see(call)

    events: list[HookEvent] = ["UserPromptSubmit", "PreToolUse"]
    hooks = [Hook(event, see) for event in events]
    agent, _ = adder(world(ADD), transport, *hooks, Hook("PostToolUse", see_later, matcher="mcp__tools__.*"))
    # Hooks of a run are added to those of the model.
    settings = ClaudeCodeModelSettings(claude_code_hooks=[Hook("Stop", see), Hook("PreToolUse", see, "Bash")])
    assert (await agent.run("go", model_settings=settings)).output == "2"
    tool = "mcp__tools__add ada"
    assert seen == ["UserPromptSubmit go ada", f"PreToolUse {tool}", f"PostToolUse {tool}", "Stop  ada"]


def answering(answer: HookAnswer) -> Hook:
    return Hook("PreToolUse", lambda _: answer)


async def test_a_hook_denies_and_changes(world: MakeWorld, transport: Transport) -> None:
    agent, calls = adder(world(ADD), transport, answering(HookOutput.deny("not on a Sunday")))
    assert "not on a Sunday" in (await agent.run("go")).output
    assert calls == []
    agent, calls = adder(world(ADD), transport, answering(HookOutput.allow(tool_input={"a": 40, "b": 2})))
    assert (await agent.run("go")).output == "42"
    assert calls == [(40, 2)]
    # In the CLI's own format.
    specific = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "raw no",
    }
    agent, calls = adder(world(ADD), transport, answering({"hookSpecificOutput": specific}))
    assert "raw no" in (await agent.run("go")).output
    assert calls == []


class Wrong(Exception):
    pass


def wrong(_: HookCall) -> HookAnswer:
    raise Wrong("the hook's own")


async def wrong_later(_: HookCall) -> HookAnswer:
    raise Wrong("the hook's own")


def returns_a_number(_: HookCall) -> Any:
    return 1


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (wrong, "a hook for PreToolUse failed: the hook's own (type: Wrong)"),
        (wrong_later, "a hook for PreToolUse failed: the hook's own (type: Wrong)"),
        (returns_a_number, "a hook must return `None`, a `HookOutput` or a mapping, not a `int`"),
    ],
)
async def test_a_tool_whose_hook_fails_is_not_used(
    world: MakeWorld,
    transport: Transport,
    caplog: pytest.LogCaptureFixture,
    function: Callable[[HookCall], HookAnswer],
    why: str,
) -> None:
    with caplog.at_level(logging.WARNING, "toolbridge"):
        agent, calls = adder(world(ADD), transport, Hook("PreToolUse", function))
        assert why in (await agent.run("go")).output
    assert calls == []
    assert "`PreToolUse` failed" in caplog.text
    assert function.__name__ in caplog.text or "TypeError" in caplog.text


async def test_a_failing_hook_that_decides_nothing_changes_nothing(world: MakeWorld) -> None:
    agent, calls = adder(world(ADD), "sdk", Hook("PostToolUse", wrong), Hook("Stop", wrong_later))
    assert (await agent.run("go")).output == "2"
    assert calls == [(1, 1)]


async def test_a_hook_adds_context_and_blocks_prompts(world: MakeWorld) -> None:
    here = world("text ok")
    tell = Hook("UserPromptSubmit", lambda _: HookOutput(context="zebra-context"))
    await here.model(hooks=[tell]).request(prompt(), None, ModelRequestParameters())
    assert "zebra-context" in str(here.requests[0])
    for hook in (
        Hook("UserPromptSubmit", lambda _: HookOutput.block("not this")),
        Hook("UserPromptSubmit", wrong),
    ):
        here = world("text ok")
        await here.model(hooks=[hook]).request(prompt("secret"), None, ModelRequestParameters())
        assert here.requests == []


async def test_a_hook_makes_the_model_continue_and_ends_a_request(world: MakeWorld) -> None:
    here = world("text first\n---\ntext second")
    asked: list[bool] = []

    def once(call: HookCall) -> HookOutput | None:
        asked.append(call.input["stop_hook_active"])
        return HookOutput.block("you have forgotten the tests") if len(asked) == 1 else None

    result = await here.model(hooks=[Hook("Stop", once)]).request(prompt(), None, ModelRequestParameters())
    assert result.text is not None
    assert result.text.endswith("second")
    assert asked == [False, True]
    assert "you have forgotten the tests" in str(here.requests[-1]["messages"])
    here = world(ADD)
    model = here.model(hooks=[answering(HookOutput.stop("that is enough"))])
    model.set_agent_toolsets([Tool(lambda a, b: a + b, name="add")])
    await model.request(prompt(), None, ModelRequestParameters())
    assert len(here.requests) == 1


async def test_a_running_hook_ends_with_its_request(world: MakeWorld, transport: Transport) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(_: HookCall) -> None:
        started.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            cancelled.set()

    agent, calls = adder(world(ADD), transport, Hook("PreToolUse", hang))
    run = asyncio.ensure_future(agent.run("go"))
    await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
    assert isinstance(agent.model, ClaudeCodeModel)
    assert agent.model.interrupt() == 1
    with pytest.raises(CLIInterruptedError):
        await run
    assert cancelled.is_set()
    assert calls == []
