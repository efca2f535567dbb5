"""Which calls of a model run in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.tool_manager import ToolManager
from support import PATIENCE_SECONDS, Transport, World

from toolbridge import PermissionRequest

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


class Meeting:
    """A tool whose two calls wait for each other, with a time limit."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._met = asyncio.Event()
        self._calls = 0

    async def work(self) -> str:
        self._calls += 1
        if self._calls == 2:
            self._met.set()
        try:
            await asyncio.wait_for(self._met.wait(), self._patience)
        except TimeoutError:
            self._calls -= 1
            return "alone"
        return "together"


async def twice(
    world: MakeWorld, transport: Transport, all_options: list[tuple[float, dict[str, Any]]]
) -> list[str]:
    """The results of two calls each of tools with this patience and these options, all in one turn."""
    tools = [f"work_{number}" for number in range(len(all_options))]
    calls = "\n".join(f"call {name} {{}}" for name in tools for _ in "12")
    here = world(f"{calls}\n---\ntext {{results}}")
    agent = Agent(here.model(transport))
    for name, (patience, options) in zip(tools, all_options, strict=True):
        agent.tool_plain(name=name, **options)(Meeting(patience).work)
    return (await agent.run("go")).output.split(", ")


MAY: list[dict[str, Any]] = [
    {"metadata": {"read_only": True}},
    {"metadata": {"annotations": {"readOnlyHint": True}}},
]

# The CLI sends calls of tools that are not read-only one after another.
MAY_NOT: list[dict[str, Any]] = [
    {},
    {"metadata": {"parallel": True}},
    {"metadata": {"parallel": False}},
    {"metadata": {"parallel": True}, "sequential": True},
    {"metadata": {"read_only": True}, "sequential": True},
]


async def test_calls_of_read_only_tools_of_an_agent_overlap_and_others_take_turns(
    world: MakeWorld, transport: Transport
) -> None:
    both = [*((PATIENCE_SECONDS, options) for options in MAY), *((0.3, options) for options in MAY_NOT)]
    expected = ["together"] * 2 * len(MAY) + ["alone"] * 2 * len(MAY_NOT)
    assert await twice(world, transport, both) == expected


@pytest.mark.oldest
async def test_a_run_may_have_all_calls_take_turns(world: MakeWorld, transport: Transport) -> None:
    with ToolManager.parallel_execution_mode("sequential"):
        assert await twice(world, transport, [(0.3, options) for options in MAY]) == ["alone"] * 2 * len(MAY)


@pytest.mark.parametrize("name", ["look", "pay"])
async def test_in_plan_mode_only_read_only_tools_run(world: MakeWorld, name: str) -> None:
    here, ran = world(f"call {name} {{}}\n---\ntext done"), list[str]()
    agent = Agent(here.model(permission_mode="plan"))

    @agent.tool_plain(metadata={"parallel": True})
    def pay() -> str:
        ran.append("pay")
        return "paid"

    @agent.tool_plain(metadata={"read_only": True})
    def look() -> str:
        ran.append("look")
        return "seen"

    await agent.run("go")
    assert ran == (["look"] if name == "look" else [])


async def test_can_use_tool_decides_about_parallel_tools(world: MakeWorld) -> None:
    asked: list[str] = []

    def decide(request: PermissionRequest) -> bool:
        asked.append(request.tool_name)
        return False

    agent = Agent(world("call change {}\n---\ntext {result}").model(can_use_tool=decide))
    changed: list[int] = []

    @agent.tool_plain(metadata={"parallel": True})
    def change() -> None:
        changed.append(1)

    assert "may not be used" in (await agent.run("go")).output
    assert asked == ["mcp__tools__change"]
    assert changed == []
