"""Streamed structured output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.messages import (
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from support import World

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


class Report(BaseModel):
    cities: list[str] = []
    title: str = ""


CITIES = [f"city number {number}" for number in range(9)]

WRITTEN = '{"cities": ["' + '", "'.join(CITIES) + '"], "title": "All of them"}'

WHOLE = Report(cities=CITIES, title="All of them")


async def outputs(agent: Agent[None, Any]) -> tuple[list[Any], ModelResponse]:
    """All outputs of a stream, and the response of the run."""
    async with agent.run_stream("go") as run:
        seen = [output async for output in run.stream_output(debounce_by=None)]
    response = run.all_messages()[1]
    assert isinstance(response, ModelResponse)
    return seen, response


def grows(seen: list[Any]) -> None:
    """The output came in several steps, each including the one before."""
    assert seen[-1] == WHOLE
    counts = [len(report.cities) for report in seen if isinstance(report, Report)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
    assert 0 < min(count for count in counts if count) < len(CITIES)


@pytest.mark.sampled
@pytest.mark.parametrize("before", ["", "think Hm.\ntext Let me see.\n"])
@pytest.mark.parametrize(
    "output_type",
    # An output type alone is a native output.
    [Report, pytest.param(NativeOutput(Report), marks=pytest.mark.thorough), ToolOutput(Report)],
)
async def test_an_output_is_streamed_in_pieces(world: MakeWorld, output_type: Any, before: str) -> None:
    here = world(f"{before}call StructuredOutput {WRITTEN}")
    agent: Agent[None, Any] = Agent(here.model(), output_type=output_type)
    seen, response = await outputs(agent)
    grows([report for report in seen if report])
    if before:
        # The final response is the same as without streaming.
        whole = (await agent.run("go")).all_messages()[1]
        assert [type(part) for part in response.parts] == [type(part) for part in whole.parts]
    said: list[type[Any]] = [ThinkingPart, TextPart] if before else []
    last: type[Any] = ToolCallPart if isinstance(output_type, ToolOutput) else TextPart
    kinds = [*said, NativeToolCallPart, NativeToolReturnPart, last]
    assert [type(part) for part in response.parts] == kinds


async def test_an_output_of_several_kinds_is_streamed_in_pieces(world: MakeWorld) -> None:
    class Nothing(BaseModel):
        reason: str

    kinds: list[Any] = [ToolOutput(Report), ToolOutput(Nothing), str]
    handed_in = f'{{"kind": "final_result_Report", "value": {WRITTEN}}}'
    here = world(f'text Well.\ncall StructuredOutput {{"output": {handed_in}}}')
    seen, response = await outputs(Agent(here.model(), output_type=kinds))
    grows(seen)
    assert isinstance(response.parts[-1], ToolCallPart)
    text = "It is " + "long " * 30 + '"quoted" {end}'
    handed_in = f'{{"kind": "text", "value": "{text}"}}'.replace('"quoted"', '\\"quoted\\"')
    here = world(f'text Let me | see.\ncall StructuredOutput {{"output": {handed_in}}}')
    seen, response = await outputs(Agent(here.model(), output_type=[Report, str]))
    assert seen[-1] == text
    assert len(set(seen)) > 1
    assert all(text.startswith(piece) for piece in seen)


@pytest.mark.oldest
@pytest.mark.parametrize(
    "output_type", [ToolOutput(Report), pytest.param(NativeOutput(Report), marks=pytest.mark.thorough)]
)
async def test_an_output_that_does_not_fit_is_written_again(world: MakeWorld, output_type: Any) -> None:
    here = world(f'call StructuredOutput {{"cities": 5}}\n---\ncall StructuredOutput {WRITTEN}')
    agent: Agent[None, Any] = Agent(here.model(), output_type=output_type)
    seen, response = await outputs(agent)
    assert seen[-1] == WHOLE
    assert sum(isinstance(part, NativeToolCallPart) for part in response.parts) == 2
    assert sum(isinstance(part, TextPart | ToolCallPart) for part in response.parts) == 1
