"""Histories of a run, from this model and from others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support import PICTURE, Transport, World

from toolbridge import portable_history
from toolbridge.prompt import native_messages

MakeWorld = Callable[[str], World]

ADD = 'call add {"a": 40, "b": 2}\n---\ntext The sum is {result}.\n---\n'
UNUSED = "text unused\n---\n"


def told(here: World) -> list[tuple[str, list[dict[str, Any]]]]:
    """The messages of the last request, without the CLI's additions."""
    messages = []
    for message in here.requests[-1]["messages"]:
        if message["role"] == "system":
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept = []
        for block in blocks:
            block.pop("cache_control", None)
            if block["type"] != "text" or not block["text"].lstrip().startswith("<system-reminder>"):
                kept.append({**block, "text": block["text"].rstrip()} if block["type"] == "text" else block)
        messages.append((message["role"], kept))
    return messages


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def call(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def returned(call_id: str, content: Any, *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}


def sums(here: World, transport: Transport | None = None) -> Agent[None, str]:
    agent = Agent(here.model(transport))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    return agent


@pytest.mark.oldest
async def test_tool_calls_are_sent_as_messages_and_survive_another_model(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(ADD + "text And 42 again.\n---\n" + UNUSED + "text It was a dot.")
    agent = sums(here, transport)

    @agent.tool_plain
    def look() -> list[str | BinaryContent]:
        return ["a dot", BinaryContent(PICTURE, media_type="image/png")]

    seen: list[list[ModelMessage]] = []

    def other(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(list(messages))
        if len(seen) == 1:
            return ModelResponse([ThinkingPart("hm"), ToolCallPart("look", "{}", "call|look")])
        return ModelResponse([TextPart("I have looked.")])

    first = await agent.run("What is 40 + 2?")
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
    assert (await agent.run("And again?", message_history=history)).output == "And 42 again."
    assert told(here) == [
        ("user", [said("What is 40 + 2?")]),
        ("assistant", [call("toolu_0_0", "mcp__tools__add", a=40, b=2)]),
        ("user", [returned("toolu_0_0", "42")]),
        ("assistant", [said("The sum is 42.")]),
        ("user", [said("And again?")]),
    ]

    asked = portable_history(first.all_messages())
    with agent.override(model=FunctionModel(other)):
        second = await agent.run("Look.", message_history=asked)

    # The other model has seen our tools' calls as ordinary tool calls.
    parts = [part for message in seen[0] for part in message.parts]
    kinds = [type(part) for part in parts]
    assert kinds == [UserPromptPart, ToolCallPart, ToolReturnPart, TextPart, UserPromptPart]
    assert isinstance(parts[1], ToolCallPart)
    assert parts[1].args_as_dict() == {"a": 40, "b": 2}
    assert isinstance(parts[2], ToolReturnPart)
    assert parts[2].content == 42
    usages = [message.usage.output_tokens for message in asked if isinstance(message, ModelResponse)]
    assert sum(usages) == first.usage.output_tokens

    # And ours sees the calls of the other model's tools, with the picture.
    third = await agent.run("What was it?", message_history=second.all_messages())
    assert third.output == "It was a dot."
    messages = told(here)
    assert [role for role, _ in messages] == ["user", "assistant"] * 4 + ["user"]
    assert messages[1][1] == [call("toolu_0_0", "mcp__tools__add", a=40, b=2)]
    assert messages[2][1] == [returned("toolu_0_0", "42")]
    assert messages[5][1] == [call("call_look", "mcp__tools__look")]
    [result] = messages[6][1]
    shown = [block["type"] for block in result["content"]]
    assert (result["tool_use_id"], shown) == ("call_look", ["text", "image"])
    assert messages[7:] == [("assistant", [said("I have looked.")]), ("user", [said("What was it?")])]


async def test_all_parts_of_other_models_are_sent(world: MakeWorld) -> None:
    here = world(UNUSED * 2 + "text ok")
    model = here.model()
    model.set_agent_toolsets([len], server_name="tools")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, but its replacement is not in all versions
        retry = RetryPromptPart("too few", tool_name="n", tool_call_id="1")
    messages: list[ModelMessage] = [
        ModelRequest(
            [
                SystemPromptPart("zebra system"),
                UserPromptPart(["See.", BinaryContent(PICTURE, media_type="image/png")]),
            ]
        ),
        ModelResponse(
            [ThinkingPart("hm", signature="x", provider_name="other"), ToolCallPart("n", "{}", "1")]
        ),
        ModelRequest([retry, UserPromptPart("Again.")]),
        ModelResponse([TextPart("So?"), ToolCallPart("n", "{}", "1")]),
        ModelRequest([ToolReturnPart("n", {"a": [1]}, "1")]),
    ]
    await model.request(messages, None, ModelRequestParameters())
    assert "zebra system" in str(here.requests[-1]["system"])
    first, *others = told(here)
    assert [block["type"] for block in first[1]] == ["text", "image"]
    [refused, again] = others[1][1]
    assert (refused["is_error"], "too few" in refused["content"], again) == (True, True, said("Again."))
    assert others[2][1] == [said("So?"), call("again2-1", "n")]
    assert others[3][1] == [returned("again2-1", '{"a":[1]}'), said("Go on.")]
    assert "hm" not in [block.get("text") for _, blocks in others for block in blocks]


class Output(BaseModel):
    a: int


async def test_submitted_output_is_sent_once(world: MakeWorld) -> None:
    here = world('call StructuredOutput {"a": 1}\n---\ntext done\n---\ntext unused\n---\ntext ok')
    first = await Agent(here.model(), output_type=Output).run("a?")
    history = first.all_messages()
    assert any(isinstance(part, NativeToolCallPart) for one in history for part in one.parts)
    assert not any(
        isinstance(part, NativeToolCallPart) for one in portable_history(history) for part in one.parts
    )
    sent = (await native_messages(history, ModelRequestParameters())).messages
    kinds = [piece["type"] for message in sent for pieces in message.values() for piece in pieces]
    assert kinds.count("tool_call") == kinds.count("tool_result") <= 1
    assert str(sent).count('"a":1') == 1
