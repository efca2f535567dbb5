"""Tools that need an approval, or run elsewhere: the run ends, and another one continues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import Agent, AgentRunResult, RunContext, Tool
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartStartEvent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import ExternalToolset
from support import PATIENCE_SECONDS, Transport, World, prompt

from toolbridge.prompt import native_messages

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

DELETE = 'text Let me see.\ncall delete {"path": "a.txt"} as toolu_delete\n---\ntext {result}'

LATER = "\n---\n".join(["text It is done."] * 3)
"""The model's text after the result."""

Output = str | DeferredToolRequests


def deleter(here: World, transport: Transport, **options: Any) -> tuple[Agent[None, Output], list[str]]:
    """An agent with a tool that needs an approval, and the list of what it has deleted."""
    deleted: list[str] = []

    def delete(path: str) -> str:
        deleted.append(path)
        return f"{path} is gone"

    tool: Tool[None] = Tool(delete, requires_approval=True, **options)
    return Agent(here.model(transport), tools=[tool], output_type=[str, DeferredToolRequests]), deleted


async def go_on(
    agent: Agent[None, Output], first: AgentRunResult[Output], results: DeferredToolResults
) -> str:
    """Continues after a run that has ended; returns what the CLI would be told."""
    told: list[str] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told.append(str((await native_messages(messages, info.model_request_parameters)).messages))
        return ModelResponse([TextPart("It is done.")])

    history = first.all_messages()
    second = await agent.run(
        message_history=history, deferred_tool_results=results, model=FunctionModel(answer)
    )
    assert second.output == "It is done."
    return told[-1]


@pytest.mark.oldest
async def test_an_approved_call_is_made_once_and_the_model_continues(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(DELETE)
    agent, deleted = deleter(here, transport)
    first = await agent.run("delete a.txt")
    requests = first.output
    assert isinstance(requests, DeferredToolRequests)
    [call] = requests.approvals
    assert (call.tool_name, call.args_as_dict(), call.tool_call_id) == (
        "delete",
        {"path": "a.txt"},
        "toolu_delete",
    )
    assert deleted == []
    assert len(here.requests) == 1
    here.nothing_is_left()
    response = first.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert [type(part) for part in response.parts] == [TextPart, ToolCallPart]
    assert response.usage.output_tokens > 0
    assert first.usage.requests == 1

    # Serialised, as if it came back much later.
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
    results = DeferredToolResults(approvals={"toolu_delete": True})
    later = world(LATER)
    second = await agent.run(
        message_history=history, deferred_tool_results=results, model=later.model(transport)
    )
    assert second.output == "It is done."
    assert deleted == ["a.txt"]
    # The model gets it as the result of its call.
    blocks = [block for message in later.requests[-1]["messages"] for block in message["content"]]
    [used] = [block for block in blocks if isinstance(block, dict) and block["type"] == "tool_use"]
    assert (used["id"], used["name"]) == ("toolu_delete", "mcp__tools__delete")
    [result] = [block for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]
    assert result["tool_use_id"] == "toolu_delete"
    assert "a.txt is gone" in str(result["content"])


async def test_a_denied_call_is_not_made_and_the_model_gets_the_reason(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(DELETE)
    agent, deleted = deleter(here, transport)
    first = await agent.run("delete a.txt")
    results = DeferredToolResults(approvals={"toolu_delete": ToolDenied("not on a Sunday")})
    assert "not on a Sunday" in await go_on(agent, first, results)
    assert deleted == []
    results = DeferredToolResults(approvals={"toolu_delete": ToolApproved(override_args={"path": "b.txt"})})
    await go_on(agent, first, results)
    assert deleted == ["b.txt"]


@pytest.mark.oldest
async def test_a_tool_may_ask_for_an_approval_itself(world: MakeWorld, transport: Transport) -> None:
    here = world(DELETE)
    agent: Agent[None, Output] = Agent(here.model(transport), output_type=[str, DeferredToolRequests])
    deleted: list[str] = []

    @agent.tool
    def delete(ctx: RunContext[None], path: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "it is there"})
        deleted.append(path)
        return f"{path} is gone"

    first = await agent.run("go")
    assert isinstance(first.output, DeferredToolRequests)
    assert first.output.metadata == {"toolu_delete": {"why": "it is there"}}
    results = DeferredToolResults(approvals={"toolu_delete": True})
    assert "a.txt is gone" in await go_on(agent, first, results)
    assert deleted == ["a.txt"]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_call_that_is_made_elsewhere_gets_its_result_later(
    world: MakeWorld, transport: Transport, declared: bool
) -> None:
    here = world(DELETE)

    def delete(path: str) -> str:
        raise CallDeferred(metadata={"job": path})

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    external = ExternalToolset[None]([ToolDefinition(name="delete", parameters_json_schema=schema)])
    agent = Agent(
        here.model(transport),
        output_type=[str, DeferredToolRequests],
        toolsets=[external] if declared else (),
        tools=[] if declared else [delete],
    )
    first = await agent.run("go")
    assert isinstance(first.output, DeferredToolRequests)
    [call] = first.output.calls
    assert call.args_as_dict() == {"path": "a.txt"}
    results = DeferredToolResults(calls={call.tool_call_id: "done by night"})
    assert "done by night" in await go_on(agent, first, results)


TWO = (
    'call look {"at": "a"} as toolu_look\n'
    'call delete {"path": "a.txt"} as toolu_a\n'
    'call note {"text": "x"} as toolu_note\n'
    'call delete {"path": "b.txt"} as toolu_b\n---\ntext {results}'
)


async def test_calls_parallel_to_a_deferred_one_are_made_once(world: MakeWorld, transport: Transport) -> None:
    here = world(TWO)
    agent, deleted = deleter(here, transport)
    done: list[str] = []

    @agent.tool_plain
    def note(text: str) -> str:
        done.append(text)
        return f"noted {text}"

    @agent.tool_plain
    def look(at: str) -> str:
        done.append(at)
        return f"looked at {at}"

    first = await agent.run("go")
    assert isinstance(first.output, DeferredToolRequests)
    assert [call.tool_call_id for call in first.output.approvals] == ["toolu_a", "toolu_b"]
    # The CLI made one call before, the agent the other one, which the CLI had not started.
    assert sorted(done) == ["a", "x"]
    response = first.all_messages()[1]
    assert isinstance(response, ModelResponse)
    kinds = [type(part) for part in response.parts]
    assert kinds == [NativeToolCallPart, NativeToolReturnPart, ToolCallPart, ToolCallPart, ToolCallPart]
    results = DeferredToolResults(approvals={"toolu_a": True, "toolu_b": ToolDenied("keep that")})
    told = await go_on(agent, first, results)
    assert deleted == ["a.txt"]
    assert sorted(done) == ["a", "x"]
    for text in ("looked at a", "noted x", "a.txt is gone", "keep that"):
        assert text in told


async def test_a_running_call_parallel_to_a_deferred_one_finishes(
    world: MakeWorld, transport: Transport
) -> None:
    here = world('call slow {} as toolu_slow\ncall delete {"path": "a.txt"} as toolu_a\n---\ntext {results}')
    agent, _ = deleter(here, transport, metadata={"read_only": True})
    asked = asyncio.Event()
    runs: list[str] = []

    @agent.tool_plain(metadata={"read_only": True})
    async def slow() -> str:
        runs.append("slow")
        await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
        return "slow is done"

    def ask(requests: DeferredToolRequests) -> None:
        asked.set()

    first = await agent.run(
        "go", capabilities=[HandleDeferredToolCalls(handler=lambda _, requests: ask(requests))]
    )
    assert isinstance(first.output, DeferredToolRequests)
    assert runs == ["slow"]
    response = first.all_messages()[1]
    assert isinstance(response, ModelResponse)
    returned = [part.content for part in response.parts if isinstance(part, NativeToolReturnPart)]
    assert returned == ["slow is done"]


async def test_a_stream_ends_with_the_requests(world: MakeWorld, transport: Transport) -> None:
    here = world(DELETE)
    agent, deleted = deleter(here, transport)
    events: list[AgentStreamEvent] = []

    async def watch(_: RunContext[None], stream: AsyncIterable[AgentStreamEvent]) -> None:
        events.extend([event async for event in stream])

    first = await agent.run("go", event_stream_handler=watch)
    assert isinstance(first.output, DeferredToolRequests)
    starts = [type(event.part) for event in events if isinstance(event, PartStartEvent)]
    assert starts == [TextPart, ToolCallPart]
    response = first.all_messages()[1]
    assert isinstance(response, ModelResponse)
    assert [type(part) for part in response.parts] == [TextPart, ToolCallPart]
    results = DeferredToolResults(approvals={"toolu_delete": True})
    later = world(LATER)
    async with agent.run_stream(
        message_history=first.all_messages(), deferred_tool_results=results, model=later.model()
    ) as streamed:
        assert await streamed.get_output() == "It is done."
    assert deleted == ["a.txt"]
    assert "a.txt is gone" in str(later.requests[-1]["messages"])


async def test_calls_beside_a_deferred_one_are_streamed_once(world: MakeWorld, transport: Transport) -> None:
    agent, _ = deleter(world(TWO), transport)

    @agent.tool_plain
    def note(text: str) -> str:
        return f"noted {text}"

    @agent.tool_plain
    def look(at: str) -> str:
        return f"looked at {at}"

    called: list[tuple[str, type]] = []

    async def watch(_: RunContext[None], stream: AsyncIterable[AgentStreamEvent]) -> None:
        parts = [event.part async for event in stream if isinstance(event, PartStartEvent)]
        calls = [part for part in parts if isinstance(part, ToolCallPart | NativeToolCallPart)]
        called.extend((call.tool_call_id, type(call)) for call in calls)

    first = await agent.run("go", event_stream_handler=watch)
    assert isinstance(first.output, DeferredToolRequests)
    left = [("toolu_a", ToolCallPart), ("toolu_note", ToolCallPart), ("toolu_b", ToolCallPart)]
    assert sorted(called) == sorted([("toolu_look", NativeToolCallPart), *left])


async def test_the_events_of_a_call_come_from_the_one_who_makes_it(world: MakeWorld) -> None:
    from pydantic_ai.messages import CustomEvent  # not in the oldest pydantic-ai

    @dataclass(kw_only=True)
    class Looking(CustomEvent):
        at: str

    agent, _ = deleter(world(TWO), "sdk")

    @agent.tool_plain
    def note(text: str) -> str:
        return f"noted {text}"

    @agent.tool
    async def look(ctx: RunContext[None], at: str) -> str:
        await ctx.emit(Looking(at=at))
        return f"looked at {at}"

    seen: list[tuple[type, str]] = []

    async def watch(_: RunContext[None], stream: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in stream:
            if isinstance(event, PartStartEvent) and isinstance(
                event.part, NativeToolCallPart | NativeToolReturnPart
            ):
                seen.append((type(event.part), event.part.tool_call_id))
            elif isinstance(event, FunctionToolCallEvent | FunctionToolResultEvent | Looking):
                seen.append((type(event), event.tool_call_id or ""))

    await agent.run("go", event_stream_handler=watch)
    of_look = [kind for kind, call in seen if call == "toolu_look"]
    # What the tool itself tells may come before the CLI's line with the call has been read.
    assert sorted(of_look, key=str) == sorted([NativeToolCallPart, Looking, NativeToolReturnPart], key=str)
    assert [kind for kind, call in seen if call == "toolu_note"] == [
        FunctionToolCallEvent,
        FunctionToolResultEvent,
    ]


async def test_a_call_that_a_capability_handles_is_streamed_with_its_result(world: MakeWorld) -> None:
    agent, deleted = deleter(world(DELETE), "stdio")
    kinds: list[type] = []

    async def watch(_: RunContext[None], stream: AsyncIterable[AgentStreamEvent]) -> None:
        kinds.extend([type(event.part) async for event in stream if isinstance(event, PartStartEvent)])

    approve = HandleDeferredToolCalls(handler=lambda _, requests: requests.build_results(approve_all=True))
    first = await agent.run("go", event_stream_handler=watch, capabilities=[approve])
    assert first.output == "a.txt is gone"
    assert deleted == ["a.txt"]
    assert kinds == [TextPart, NativeToolCallPart, NativeToolReturnPart, TextPart]


@pytest.mark.parametrize("by", ["definition", "function", "client"])
async def test_a_client_of_ag_ui_sees_a_deferred_call_once(
    world: MakeWorld, transport: Transport, by: str
) -> None:
    from ag_ui import core  # not installed with the oldest pydantic-ai
    from pydantic_ai.ui.ag_ui import AGUIAdapter

    here = world(DELETE)
    agent, _ = deleter(here, transport)
    tools = []
    if by == "function":
        agent = Agent(here.model(transport), output_type=[str, DeferredToolRequests])

        @agent.tool
        def delete(ctx: RunContext[None], path: str) -> str:
            raise ApprovalRequired

    elif by == "client":
        agent = Agent(here.model(transport))
        tools = [core.Tool(name="delete", description="Deletes a file.", parameters={"type": "object"})]
    asked = core.RunAgentInput(
        thread_id="thread",
        run_id="run",
        state={},
        messages=[core.UserMessage(id="prompt", content="go")],
        tools=tools,
        context=[],
        forwarded_props={},
    )
    events = [event async for event in AGUIAdapter(agent=agent, run_input=asked).run_stream()]
    started = [event for event in events if isinstance(event, core.ToolCallStartEvent)]
    assert [(event.tool_call_id, event.tool_call_name) for event in started] == [("toolu_delete", "delete")]
    arguments = [event.delta for event in events if isinstance(event, core.ToolCallArgsEvent)]
    assert [json.loads(delta) for delta in arguments] == [{"path": "a.txt"}]
    assert isinstance(events[-1], core.RunFinishedEvent)


async def test_a_run_that_takes_no_requests_says_so(world: MakeWorld) -> None:
    agent = Agent(world(DELETE).model())

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        raise AssertionError(path)

    with pytest.raises(UserError, match="`DeferredToolRequests` is not among output types"):
        await agent.run("go")


async def test_without_an_agent_such_a_call_is_refused(world: MakeWorld) -> None:
    here = world(DELETE)
    model = here.model()

    def delete(path: str) -> str:
        raise AssertionError(path)

    model.set_agent_toolsets([Tool(delete, requires_approval=True)], server_name="tools")
    answer = await model.request(prompt(), None, ModelRequestParameters())
    assert "needs an approval" in (answer.text or "")
