"""Conversations that the CLI stores, and permissions that stay in effect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
)
from support import Transport, World

from toolbridge import (
    Allow,
    ClaudeCodeError,
    InvalidRequestError,
    PermissionRequest,
    PermissionUpdate,
    portable_history,
)

MakeWorld = Callable[[str], World]

ADD = 'call add {"a": 40, "b": 2}\n---\ntext The sum is {result}.\n---\ntext And again {result}.'


def add(a: int, b: int) -> int:
    return a + b


async def test_kept_conversations_are_read_and_changed(world: MakeWorld, transport: Transport) -> None:
    here = world(ADD)
    model = here.model(transport, keep_session=True)
    agent = Agent(model, tools=[add])
    sessions = model.sessions()
    assert sessions.list() == []
    result = await agent.run("40 + 2?")
    [info] = sessions.list()
    assert info == sessions.get(info.session_id)
    assert (info.first_prompt, info.title, info.tag) == ("40 + 2?", None, None)
    assert info.created is not None
    assert info.created <= info.modified <= datetime.now(UTC)

    sessions.rename(info.session_id, "Sums")
    sessions.tag(info.session_id, "school")
    named = sessions.get(info.session_id)
    assert (named.title, named.tag) == ("Sums", "school")
    sessions.tag(info.session_id, None)
    assert sessions.get(info.session_id).tag is None

    [asked, answer] = sessions.history(info.session_id)
    assert isinstance(asked, ModelRequest)
    assert isinstance(answer, ModelResponse)
    kinds = [type(part) for part in answer.parts]
    assert kinds == [NativeToolCallPart, NativeToolReturnPart, TextPart]
    assert [type(part) for part in result.all_messages()[-1].parts] == kinds
    assert len(portable_history([asked, answer])) == 4
    again = await Agent(here.model(transport), tools=[add]).run("Again?", message_history=[asked, answer])
    assert again.output == "And again 42."

    ids = [message.id for message in sessions.messages(info.session_id)]
    copy = sessions.fork(info.session_id, up_to=ids[0], title="Half")
    assert [len(sessions.history(one)) for one in (info.session_id, copy)] == [2, 1]
    everywhere = model.sessions(everywhere=True)
    assert {one.title for one in everywhere.list()} == {"Sums", "Half"}
    everywhere.delete(copy)
    with pytest.raises(ClaudeCodeError, match="the CLI has not stored this conversation"):
        sessions.messages(copy)
    with pytest.raises(InvalidRequestError, match="which is a UUID"):
        sessions.delete("../x")
    with pytest.raises(InvalidRequestError, match="the title is empty"):
        sessions.rename(info.session_id, " ")


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
