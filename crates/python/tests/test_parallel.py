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

TWICE = "call work {}\ncall work {}\n---\ntext {results}"


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


async def both(here: World, transport: Transport, patience: float, **options: Any) -> str:
    agent = Agent(here.model(transport))
    agent.tool_plain(**options)(Meeting(patience).work)
    return (await agent.run("go")).output


MAY = [{"metadata": {"parallel": True}}, {"metadata": {"read_only": True}}]

MAY_NOT = [
    {},
    {"metadata": {"parallel": False}},
    {"metadata": {"parallel": True}, "sequential": True},
    {"metadata": {"read_only": True}, "sequential": True},
]


@pytest.mark.both_transports
@pytest.mark.parametrize("options", MAY, ids=str)
async def test_calls_of_parallel_tools_of_an_agent_overlap(
    world: MakeWorld, transport: Transport, options: dict[str, Any]
) -> None:
    assert await both(world(TWICE), transport, PATIENCE_SECONDS, **options) == "together, together"


@pytest.mark.parametrize("options", MAY_NOT, ids=str)
async def test_calls_of_other_tools_take_turns(
    world: MakeWorld, transport: Transport, options: dict[str, Any]
) -> None:
    assert await both(world(TWICE), transport, 0.5, **options) == "alone, alone"


@pytest.mark.parametrize("options", MAY, ids=str)
async def test_a_run_may_have_all_calls_take_turns(
    world: MakeWorld, transport: Transport, options: dict[str, Any]
) -> None:
    here = world(TWICE)
    with ToolManager.parallel_execution_mode("sequential"):
        assert await both(here, transport, 0.5, **options) == "alone, alone"


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
