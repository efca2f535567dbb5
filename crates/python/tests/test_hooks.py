"""Functions that the CLI calls on events."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, Tool
from support import PATIENCE_SECONDS, Transport, World

from toolbridge import (
    ClaudeCodeModel,
    ClaudeCodeModelSettings,
    CLIInterruptedError,
    Hook,
    HookAnswer,
    HookCall,
    HookEvent,
    HookOutput,
    InvalidRequestError,
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


class Wrong(Exception):
    pass


def wrong(_: HookCall) -> HookAnswer:
    raise Wrong("the hook's own")


async def wrong_later(_: HookCall) -> HookAnswer:
    raise Wrong("the hook's own")


async def test_hooks_are_called_in_the_order_of_events_and_one_that_decides_nothing_may_fail(
    world: MakeWorld, transport: Transport
) -> None:
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
    hooks += [Hook("PostToolUse", see_later, matcher="mcp__tools__.*")]
    failing = [Hook("PostToolUse", wrong), Hook("Stop", wrong_later)]
    agent, calls = adder(world(ADD), transport, *hooks, *failing)
    # Hooks of a run are added to those of the model.
    settings = ClaudeCodeModelSettings(claude_code_hooks=[Hook("Stop", see), Hook("PreToolUse", see, "Bash")])
    assert (await agent.run("go", model_settings=settings)).output == "2"
    assert calls == [(1, 1)]
    tool = "mcp__tools__add ada"
    assert seen == ["UserPromptSubmit go ada", f"PreToolUse {tool}", f"PostToolUse {tool}", "Stop  ada"]


def returns_a_number(_: HookCall) -> Any:
    return 1


FAILED = "a hook for PreToolUse failed: the hook's own (type: Wrong)"

# In the CLI's own format.
RAW = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "raw no"}

# The hooks of some tools, each with what the model is told, and the arguments of the call that was made.
DECIDING: list[tuple[Callable[[HookCall], Any], str, tuple[int, int] | None]] = [
    (lambda _: HookOutput.deny("not on a Sunday"), "not on a Sunday", None),
    (lambda _: HookOutput.allow(tool_input={"a": 40, "b": 2}), "42", (40, 2)),
    (lambda _: {"hookSpecificOutput": RAW}, "raw no", None),
    (wrong, FAILED, None),
    (wrong_later, FAILED, None),
    (returns_a_number, "a hook must return `None`, a `HookOutput` or a mapping, not a `int`", None),
]


async def test_a_hook_denies_and_changes_and_a_tool_whose_hook_fails_is_not_used(
    world: MakeWorld, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    calls = "\n".join(f'call add_{n} {{"a": 1, "b": 1}}' for n in range(len(DECIDING)))
    here = world(f"{calls}\n---\ntext ok")
    hooks = [
        Hook("PreToolUse", function, matcher=f"mcp__tools__add_{n}")
        for n, (function, _, _) in enumerate(DECIDING)
    ]
    agent = Agent(here.model(transport, hooks=hooks))
    made: dict[str, tuple[int, int]] = {}

    def add(ctx: RunContext[object], a: int, b: int) -> int:
        made[ctx.tool_name or ""] = (a, b)
        return a + b

    for n in range(len(DECIDING)):
        agent.tool(name=f"add_{n}")(add)
    with caplog.at_level(logging.WARNING, "toolbridge"):
        assert (await agent.run("go")).output == "ok"
    for (_, why, _), text in zip(DECIDING, here.result_texts, strict=True):
        assert why in text
    assert made == {f"add_{n}": given for n, (_, _, given) in enumerate(DECIDING) if given is not None}
    assert caplog.text.count("`PreToolUse` failed") == 3
    for name in ("in wrong\n", "in wrong_later\n", "TypeError"):
        assert name in caplog.text


async def test_a_hook_adds_context_and_blocks_prompts(world: MakeWorld) -> None:
    here = world("text ok")

    def decide(call: HookCall) -> HookOutput:
        match call.input["prompt"]:
            case "wrong secret":
                raise Wrong("the hook's own")
            case "secret":
                return HookOutput.block("not this")
        return HookOutput(context="zebra-context")

    async with here.model(hooks=[Hook("UserPromptSubmit", decide)]).conversation() as chat:
        for text in ("secret", "wrong secret"):
            await chat.send(text)
            assert here.requests == []
        assert (await chat.send("go")).output == "ok"
    assert "zebra-context" in str(here.requests[0])


async def test_a_hook_makes_the_model_continue_and_ends_a_request(world: MakeWorld) -> None:
    here = world(f"text first\n---\ntext second\n---\n{ADD}")
    asked: list[bool] = []

    def once(call: HookCall) -> HookOutput | None:
        asked.append(call.input["stop_hook_active"])
        return HookOutput.block("you have forgotten the tests") if len(asked) == 1 else None

    hooks = [Hook("Stop", once), Hook("PreToolUse", lambda _: HookOutput.stop("that is enough"))]
    tool: Tool[None] = Tool(lambda a, b: a + b, name="add")
    async with here.model(hooks=hooks).conversation(toolsets=[tool]) as chat:
        assert (await chat.send("go")).output.endswith("second")
        assert asked == [False, True]
        assert "you have forgotten the tests" in str(here.requests[-1]["messages"])
        assert len(here.requests) == 2
        await chat.send("go on")
    assert len(here.requests) == 3


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("PreTooluse", "there is no hook event `PreTooluse`; did you mean `PreToolUse`?"),
        ("zebra", "there is no hook event `zebra`; there are: PreToolUse, "),
        ("SessionStart", "the CLI calls hooks for `SessionStart` only after `/clear` and compactions, not "),
        ("Setup", "the CLI never calls hooks for `Setup` when a program runs it"),
    ],
)
def test_a_hook_for_an_event_for_which_none_is_called_is_an_error(event: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        Hook(event, lambda _: HookOutput.deny("no"))
    assert raised.value.message.startswith(message)


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
