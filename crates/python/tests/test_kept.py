"""Conversations that the CLI stores, and permissions that stay in effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from pydantic_ai import Agent
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


TWICE = 'call add {"a": 1, "b": 1}\n---\ncall add {"a": 2, "b": 2}\n---\ntext {result}'

RULE: PermissionUpdate = {
    "type": "addRules",
    "behavior": "allow",
    "rules": [{"toolName": "mcp__tools__add"}],
}


@pytest.mark.parametrize(("updates", "times"), [([], 2), ([RULE], 1), (None, 1)])
async def test_a_permission_update_applies_to_later_calls(
    world: MakeWorld, transport: Transport, updates: Sequence[PermissionUpdate] | None, times: int
) -> None:
    asked: list[PermissionRequest] = []

    def decide(request: PermissionRequest) -> Allow:
        asked.append(request)
        for_now: list[PermissionUpdate] = [{**one, "destination": "session"} for one in request.suggestions]
        return Allow(updates=for_now if updates is None else updates)

    here = world(TWICE)
    agent = Agent(here.model(transport, can_use_tool=decide), tools=[add])
    assert (await agent.run("go")).output == "4"
    assert len(asked) == times
    assert (asked[0].tool_name, asked[0].tool_input) == ("mcp__tools__add", {"a": 1, "b": 1})
    assert asked[0].suggestions


async def test_an_invalid_update_denies(world: MakeWorld) -> None:
    called: list[int] = []

    def count() -> int:
        called.append(1)
        return 1

    wrong: list[PermissionUpdate] = [{"type": "addRule"}]  # type: ignore[typeddict-item]
    here = world("call count {}\n---\ntext {result}")
    agent = Agent(here.model(can_use_tool=lambda _: Allow(updates=wrong)), tools=[count])
    assert "one of its updates is unknown" in (await agent.run("go")).output
    assert called == []
