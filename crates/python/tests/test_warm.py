"""CLIs that are started in advance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from pydantic_ai import Agent, RunContext
from support import PATIENCE_SECONDS, Transport, World

from toolbridge import InvalidRequestError

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


def clis(here: World) -> set[int]:
    processes = here.processes.items()
    return {pid for pid, line in processes if "--output-format" in line and "toolbridge-guard" not in line}


async def there_are(here: World, count: int) -> set[int]:
    until = time.monotonic() + PATIENCE_SECONDS
    while len(found := clis(here)) != count:
        assert time.monotonic() < until, here.processes
        await asyncio.sleep(0.01)
    return found


async def test_a_run_uses_a_waiting_cli_with_its_own_tools(world: MakeWorld, transport: Transport) -> None:
    here = world("call who {}\n---\ntext {result}")
    model = here.model(transport)
    agent: Agent[str, str] = Agent(model, deps_type=str)

    @agent.tool
    async def who(ctx: RunContext[str]) -> str:
        return ctx.deps

    await model.keep_warm(1)
    first = await there_are(here, 1)
    # The waiting CLI has no tools, so this run starts its own, and one like it is started in advance.
    assert (await agent.run("who?", deps="Ada")).output == "Ada"
    second = await there_are(here, 1)
    assert first.isdisjoint(second)
    assert (await agent.run("who?", deps="Grace")).output == "Grace"
    assert second.isdisjoint(await there_are(here, 1)), "it was taken"
    await model.keep_warm(0)


async def test_a_wrong_number_is_refused(world: MakeWorld) -> None:
    with pytest.raises(InvalidRequestError, match="0 or more, not -1"):
        await world("text unused").model().keep_warm(-1)
