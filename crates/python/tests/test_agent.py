"""Agents on the model: answers, tools, output, history, usage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, RunContext, ToolOutput
from pydantic_ai.messages import (
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
)
from support import Transport, World

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

ADD = 'call add {"a": 40, "b": 2}\n---\ntext The sum is {result}.'


async def test_an_answer_is_the_output_of_a_run(world: MakeWorld) -> None:
    model = world("text Hello | there.").model()
    result = await Agent(model).run("hi")
    assert result.output == "Hello there."


async def test_the_agents_own_tools_are_called_without_registration(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(f"think Add them.\ntext Let me see.\n{ADD}")
    agent = Agent(here.model(transport), deps_type=list[str])

    @agent.tool
    async def add(ctx: RunContext[list[str]], a: int, b: int) -> int:
        """Adds two numbers.

        Args:
            ctx: Not for the model.
            a: One.
            b: The other.
        """
        ctx.deps.append(f"{ctx.tool_name} {ctx.tool_call_id} {ctx.retry}")
        return a + b

    calls: list[str] = []
    result = await agent.run("What is 40 + 2?", deps=calls)
    assert result.output == "The sum is 42."
    [call] = calls
    assert call.startswith("add toolu_")
    assert call.endswith(" 0")
    assert here.offered == ["mcp__tools__add"]
    [tool] = [tool for tool in here.requests[0]["tools"] if tool["name"] == "mcp__tools__add"]
    assert tool["description"] == "Adds two numbers."
    assert tool["input_schema"]["properties"]["a"]["description"] == "One."

    response = result.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    kinds = [type(part) for part in response.parts]
    assert kinds == [ThinkingPart, TextPart, NativeToolCallPart, NativeToolReturnPart, TextPart]
    used, returned = response.parts[2:4]
    assert isinstance(used, NativeToolCallPart)
    assert isinstance(returned, NativeToolReturnPart)
    assert used.tool_name == returned.tool_name == "add"
    assert used.args_as_dict() == {"a": 40, "b": 2}
    assert returned.content == "42"
    assert returned.tool_call_id == used.tool_call_id
    assert len(result.all_messages()) == 2
