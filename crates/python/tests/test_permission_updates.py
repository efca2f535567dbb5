"""Permissions that stay in effect."""

from __future__ import annotations

from collections.abc import Callable

from pydantic_ai import Agent, RunContext, Tool
from support import Transport, World

from toolbridge import Allow, PermissionRequest, PermissionUpdate

MakeWorld = Callable[[str], World]


class Deciding:
    """Allows each tool with its own updates, and counts the questions."""

    def __init__(self) -> None:
        self.asked: list[PermissionRequest] = []

    def __call__(self, request: PermissionRequest) -> Allow:
        self.asked.append(request)
        for_now: list[PermissionUpdate] = [{**one, "destination": "session"} for one in request.suggestions]
        rule: PermissionUpdate = {
            "type": "addRules",
            "behavior": "allow",
            "rules": [{"toolName": request.tool_name}],
        }
        wrong: PermissionUpdate = {"type": "addRule"}  # type: ignore[typeddict-item]
        updates: dict[str, list[PermissionUpdate]] = {
            "each_time": [],
            "once": [rule],
            "suggested": for_now,
            "wrong": [wrong],
        }
        return Allow(updates=updates[request.tool_name.removeprefix("mcp__tools__")])


async def test_a_permission_update_applies_to_later_calls_and_an_invalid_one_denies(
    world: MakeWorld, transport: Transport
) -> None:
    names = ["each_time", "once", "suggested", "wrong"]
    turn = "\n".join(f'call {name} {{"a": 1, "b": 1}}' for name in names)
    here = world(f"{turn}\n---\n{turn}\n---\ntext ok")
    called: list[str] = []

    def count(ctx: RunContext[None], a: int, b: int) -> int:
        called.append(ctx.tool_name or "")
        return a + b

    deciding = Deciding()
    tools: list[Tool[None]] = [Tool(count, name=name) for name in names]
    agent = Agent(here.model(transport, can_use_tool=deciding), tools=tools)
    assert (await agent.run("go")).output == "ok"
    asked = [request.tool_name.removeprefix("mcp__tools__") for request in deciding.asked]
    assert {name: asked.count(name) for name in names[:3]} == {"each_time": 2, "once": 1, "suggested": 1}
    assert sorted(called) == sorted(names[:3] * 2)
    assert here.result_texts[:3] == ["2"] * 3
    assert "one of its updates is unknown" in here.result_texts[3]
    first = deciding.asked[0]
    assert (first.tool_name, first.tool_input) == ("mcp__tools__each_time", {"a": 1, "b": 1})
    assert first.suggestions
