"""The tools of an agent's run: those that the agent leaves, and registered ones that it does not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.capabilities import PrepareTools
from pydantic_ai.messages import ModelMessage, ModelResponse, NativeToolReturnPart, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset
from pydantic_ai.toolsets._dynamic import DynamicToolset
from support import Transport, World, prompt

import toolbridge.model
from toolbridge import ClaudeCodeModel, ClaudeCodeModelSettings, Documents
from toolbridge.tools import Host

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

WIPE = "call wipe {}\n---\ntext done"


class Disk:
    """Something that must not be wiped."""

    def __init__(self) -> None:
        self.wiped = 0

    def wipe(self) -> str:
        """Wipes everything."""
        self.wiped += 1
        return "wiped"


async def none_left(_: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
    return []


async def not_now(_: RunContext[Any], tool: ToolDefinition) -> ToolDefinition | None:
    return None


def by_prepare(model: ClaudeCodeModel, disk: Disk) -> Agent[None, str]:
    return Agent(model, tools=[Tool(disk.wipe, prepare=not_now)])


def by_filter(model: ClaudeCodeModel, disk: Disk) -> Agent[None, str]:
    tools: FunctionToolset[None] = FunctionToolset([disk.wipe])
    return Agent(model, toolsets=[tools.filtered(lambda _, tool: False)])


def by_prepared_toolset(model: ClaudeCodeModel, disk: Disk) -> Agent[None, str]:
    tools: FunctionToolset[None] = FunctionToolset([disk.wipe])
    return Agent(model, toolsets=[tools.prepared(none_left)])


def by_prepare_tools(model: ClaudeCodeModel, disk: Disk) -> Agent[None, str]:
    return Agent(model, tools=[disk.wipe], capabilities=[PrepareTools(none_left)])


async def answer(agent: Agent[Any, str], *, is_streamed: bool, deps: Any = None) -> str:
    if not is_streamed:
        return (await agent.run("go", deps=deps)).output
    async with agent.run_stream("go", deps=deps) as result:
        return await result.get_output()


def nothing_was_offered(here: World) -> None:
    assert here.requests
    assert [tool["name"] for request in here.requests for tool in request.get("tools", [])] == []


class Asked(Exception):
    """Instead of the start of a CLI."""


@contextmanager
def without_cli() -> Iterator[list[tuple[set[str], list[str] | None]]]:
    """The tools of each request, and the names that it may use; requests end with `Asked`."""
    seen: list[tuple[set[str], list[str] | None]] = []

    async def instead(_: object, host: Host, **options: Any) -> None:
        seen.append((host.names, json.loads(host.request)["request"]["only"]))
        raise Asked

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(toolbridge.model, "completed", instead)
        yield seen


@pytest.fixture
def asked() -> Iterator[list[tuple[set[str], list[str] | None]]]:
    with without_cli() as seen:
        yield seen


WITHOUT = [by_prepare, by_filter, by_prepared_toolset, by_prepare_tools]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("registers_its_own", [False, True])
@pytest.mark.parametrize("made", WITHOUT)
async def test_a_run_without_tools_asks_with_none(
    world: MakeWorld,
    asked: list[tuple[set[str], list[str] | None]],
    made: Callable[[ClaudeCodeModel, Disk], Agent[None, str]],
    registers_its_own: bool,
    is_streamed: bool,
) -> None:
    disk = Disk()
    model = world("text unused").model()
    agent = made(model, disk)
    model.set_agent_toolsets(agent.toolsets[0] if registers_its_own else [disk.wipe], server_name="tools")
    with pytest.raises(Asked):
        await answer(agent, is_streamed=is_streamed)
    assert asked == [(set(), [])]


@pytest.mark.parametrize(
    ("made", "registers_its_own", "is_streamed"),
    [
        (by_prepare_tools, True, True),
        *(
            pytest.param(made, registers_its_own, is_streamed, marks=pytest.mark.thorough)
            for made in WITHOUT
            for registers_its_own in (False, True)
            for is_streamed in (False, True)
        ),
    ],
)
async def test_without_tools_nothing_is_offered_and_nothing_runs(
    world: MakeWorld,
    transport: Transport,
    made: Callable[[ClaudeCodeModel, Disk], Agent[None, str]],
    registers_its_own: bool,
    is_streamed: bool,
) -> None:
    here, disk = world(WIPE), Disk()
    model = here.model()
    agent = made(model, disk)
    # Not even if the tool is registered, alone or in the agent's own toolset.
    registered = agent.toolsets[0] if registers_its_own else [disk.wipe]
    model.set_agent_toolsets(registered, server_name="tools", transport=transport)
    assert await answer(agent, is_streamed=is_streamed) == "done"
    nothing_was_offered(here)
    assert here.results[0]["is_error"] is True
    assert disk.wiped == 0


BOTH = "call mcp__tools__keep {}\ncall mcp__tools__wipe {}\n---\ntext done"


def keep() -> str:
    """Keeps everything."""
    return "kept"


async def no_wipe(_: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
    return [tool for tool in tools if tool.name != "wipe"]


def both(disk: Disk) -> FunctionToolset[None]:
    return FunctionToolset([disk.wipe, keep])


# Each leaves `keep`, but not `wipe`.
FILTERS: dict[str, Callable[[ClaudeCodeModel, Disk], Agent[None, str]]] = {
    "filtered": lambda model, disk: Agent(
        model, toolsets=[both(disk).filtered(lambda _, tool: tool.name != "wipe")]
    ),
    "prepared": lambda model, disk: Agent(model, toolsets=[both(disk).prepared(no_wipe)]),
    "prepare": lambda model, disk: Agent(model, tools=[keep, Tool(disk.wipe, prepare=not_now)]),
    "PrepareTools": lambda model, disk: Agent(
        model, tools=[keep, disk.wipe], capabilities=[PrepareTools(no_wipe)]
    ),
    "disallowed_tools": lambda model, disk: Agent(
        model,
        toolsets=[both(disk)],
        model_settings=ClaudeCodeModelSettings(claude_code_disallowed_tools=["mcp__tools__wipe"]),
    ),
}


def only_keep_was_offered_and_ran(here: World, disk: Disk) -> None:
    assert here.offered == ["mcp__tools__keep"]
    kept, refused = here.results
    assert (kept.get("is_error", False), here.result_texts[0]) == (False, "kept")
    assert refused["is_error"] is True
    assert "No such tool available: mcp__tools__wipe" in here.result_texts[1]
    assert disk.wiped == 0


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", [name for name in FILTERS if name != "disallowed_tools"])
async def test_a_run_asks_with_the_remaining_tools(
    world: MakeWorld, asked: list[tuple[set[str], list[str] | None]], name: str, is_streamed: bool
) -> None:
    disk = Disk()
    model = world("text unused").model()
    model.set_agent_toolsets([disk.wipe, keep], server_name="tools")
    with pytest.raises(Asked):
        await answer(FILTERS[name](model, disk), is_streamed=is_streamed)
    assert asked == [({"keep"}, ["keep"])]


@pytest.mark.parametrize(
    ("name", "is_streamed"),
    [
        ("prepared", True),
        ("disallowed_tools", False),  # that one the CLI leaves out
        *(
            pytest.param(name, is_streamed, marks=pytest.mark.thorough)
            for name in FILTERS
            for is_streamed in (False, True)
        ),
    ],
)
async def test_only_the_remaining_tools_are_offered(
    world: MakeWorld, transport: Transport, name: str, is_streamed: bool
) -> None:
    here, disk = world(BOTH), Disk()
    model = here.model()
    # Registering more makes no difference.
    model.set_agent_toolsets([disk.wipe, keep], server_name="tools", transport=transport)
    assert await answer(FILTERS[name](model, disk), is_streamed=is_streamed) == "done"
    only_keep_was_offered_and_ran(here, disk)


async def test_tools_that_a_request_does_not_name_are_not_offered(
    world: MakeWorld, transport: Transport
) -> None:
    here, disk = world(BOTH), Disk()
    model = here.model()
    named = ModelRequestParameters(function_tools=[ToolDefinition(name="keep")])
    model.set_agent_toolsets([disk.wipe, keep], server_name="tools", transport=transport)
    assert (await model.request(prompt(), None, named)).text == "done"
    only_keep_was_offered_and_ran(here, disk)
    # Nor does what the registered toolset itself leaves out.
    left = both(disk).filtered(lambda _, tool: tool.name != "wipe")
    model.set_agent_toolsets(left, server_name="tools", transport=transport)
    async with model._prepared(prompt(), None, ModelRequestParameters()) as ready:
        assert ready.host.names == {"keep"}


async def test_a_tool_that_is_offered_and_not_allowed_does_not_run(
    world: MakeWorld, transport: Transport
) -> None:
    here, disk = world(BOTH), Disk()
    model = here.model(transport, allow_own_tools=False, allowed_tools=["mcp__tools__keep"])
    assert (await Agent(model, toolsets=[both(disk)]).run("go")).output == "done"
    assert set(here.offered) == {"mcp__tools__keep", "mcp__tools__wipe"}
    assert here.result_texts[0] == "kept"
    assert here.results[1]["is_error"] is True
    assert disk.wiped == 0


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_registered_tools_are_offered_in_a_run(
    world: MakeWorld, transport: Transport, is_streamed: bool
) -> None:
    here, disk = world(BOTH), Disk()
    model = here.model()
    model.set_agent_toolsets([disk.wipe], server_name="tools", transport=transport)
    assert await answer(Agent(model, tools=[keep]), is_streamed=is_streamed) == "done"
    assert set(here.offered) == {"mcp__tools__keep", "mcp__tools__wipe"}
    assert here.result_texts == ["kept", "wiped"]
    assert disk.wiped == 1


async def test_registered_tools_are_all_that_an_agent_without_tools_has(world: MakeWorld) -> None:
    here, disk = world(WIPE), Disk()
    model = here.model()
    model.set_agent_toolsets([disk.wipe], server_name="tools")
    result = await Agent(model).run("go")
    assert (result.output, disk.wiped, result.usage.tool_calls) == ("done", 1, 1)


def later(disk: Disk) -> Callable[[RunContext[None]], AbstractToolset[None]]:
    return lambda _: both(disk).filtered(lambda _, tool: False)


# Each has `wipe` and `keep`, and leaves neither.
HIDING: dict[str, Callable[[Disk], AbstractToolset[None]]] = {
    "filtered": lambda disk: both(disk).filtered(lambda _, tool: False),
    "filtered in a combination": lambda disk: CombinedToolset(
        [both(disk).filtered(lambda _, tool: False), FunctionToolset()]
    ),
    "renamed to these": lambda disk: (
        FunctionToolset([Tool(keep, name="a"), Tool(disk.wipe, name="b")])
        .renamed({"keep": "a", "wipe": "b"})
        .filtered(lambda _, tool: False)
    ),
    "prepared": lambda disk: both(disk).prepared(none_left),
    "prepare of each": lambda disk: FunctionToolset(
        [Tool(keep, prepare=not_now), Tool(disk.wipe, prepare=not_now)]
    ),
}


@pytest.mark.parametrize("name", [*HIDING, "dynamic"])
async def test_an_agent_alone_decides_about_the_names_that_it_has(
    world: MakeWorld, asked: list[tuple[set[str], list[str] | None]], name: str
) -> None:
    disk = Disk()
    model = world("text unused").model()
    model.set_agent_toolsets([disk.wipe, keep, Tool(keep, name="more")], server_name="tools")
    agent: Agent[None, str] = Agent(
        model, toolsets=[later(disk) if name == "dynamic" else HIDING[name](disk)]
    )
    with pytest.raises(Asked):
        await agent.run("go")
    assert asked == [({"more"}, ["more"])]


@pytest.mark.parametrize("name", [*HIDING, "dynamic"])
async def test_a_conversation_alone_decides_about_the_names_that_it_has(
    world: MakeWorld, asked: list[tuple[set[str], list[str] | None]], name: str
) -> None:
    disk = Disk()
    model = world("text unused").model()
    model.set_agent_toolsets([disk.wipe, keep, Tool(keep, name="more")], server_name="tools")
    toolset = DynamicToolset(later(disk)) if name == "dynamic" else HIDING[name](disk)
    with pytest.raises(Asked):
        async with model.conversation(toolsets=toolset):
            pass
    assert asked == [({"more"}, None)]


async def test_registered_tools_are_offered_in_a_conversation_beside_its_own(
    world: MakeWorld, transport: Transport, tmp_path: Path
) -> None:
    here = world(
        "call mcp__tools__keep {}\ncall mcp__tools__who {}\n---\ntext done\n---\n"
        "call mcp__tools__who {}\n---\ntext {result}"
    )

    def who(ctx: RunContext[str]) -> str:
        return f"registered, {ctx.deps}"

    def who_else(ctx: RunContext[str]) -> str:
        return f"its own, {ctx.deps}"

    model = here.model()
    registered: list[Any] = [who, Documents(tmp_path / "registered", init=True)]
    model.set_agent_toolsets(registered, server_name="tools", transport=transport)
    own: FunctionToolset[str] = FunctionToolset([keep])
    # Of documents that both have, the conversation's own are taken.
    given: list[Any] = [own, Documents(tmp_path / "own", init=True)]
    async with model.conversation(toolsets=given, deps="ada") as chat:
        assert (await chat.send("go")).output == "done"
        assert {"mcp__tools__keep", "mcp__tools__who", "mcp__tools__manual_find"} <= set(here.offered)
        assert here.result_texts == ["kept", "registered, ada"]
        own.add_function(who_else, name="who")
        assert (await chat.send("go on")).output == "its own, ada"
    async with model.conversation(deps="bob") as chat:
        assert chat.remove("who") is False
        assert (await chat.send("go")).output == "done"
        assert here.result_texts[1] == "registered, bob"


async def test_a_prefixed_tool_does_not_hide_a_registered_one(
    world: MakeWorld, asked: list[tuple[set[str], list[str] | None]]
) -> None:
    model = world("text unused").model()
    model.set_agent_toolsets([keep], server_name="tools")
    with pytest.raises(Asked):
        await Agent(model, toolsets=[FunctionToolset([keep]).prefixed("my")]).run("go")
    assert asked == [({"my_keep", "keep"}, ["my_keep", "keep"])]


async def test_registered_documents_are_offered_in_a_run(world: MakeWorld, tmp_path: Path) -> None:
    here = world("text done")
    model = here.model()
    model.set_agent_toolsets([Documents(tmp_path, init=True)], server_name="tools")
    assert (await Agent(model, tools=[keep]).run("go")).output == "done"
    assert {"mcp__tools__keep", "mcp__tools__manual_find"} <= set(here.offered)


def test_without_registered_tools_there_is_no_server_of_them(world: MakeWorld) -> None:
    model = world("text unused").model()
    model.set_agent_toolsets([keep], server_name="tools")
    assert set(model.get_mcp_servers()) == {"tools"}
    model.set_agent_toolsets(None)
    assert model.get_mcp_servers() == {}


@pytest.mark.parametrize("is_streamed", [True, pytest.param(False, marks=pytest.mark.thorough)])
async def test_each_run_has_its_own_dependencies_and_its_own_tool_of_a_registered_name(
    world: MakeWorld, transport: Transport, is_streamed: bool
) -> None:
    here = world("call who {}\n---\ntext {result}")
    model = here.model()
    ada: Agent[str, str] = Agent(model, deps_type=str)

    @ada.tool
    def who(ctx: RunContext[str]) -> str:
        return f"ada's, {ctx.deps}"

    model.set_agent_toolsets(ada.toolsets[0], server_name="tools", transport=transport)
    bob: Agent[str, str] = Agent(model, deps_type=str)
    eve: Agent[str, str] = Agent(model, deps_type=str)

    @eve.tool(name="who")
    def who_else(ctx: RunContext[str]) -> str:
        return f"eve's, {ctx.deps}"

    assert await answer(eve, is_streamed=not is_streamed, deps="eve") == "eve's, eve"
    assert await answer(ada, is_streamed=is_streamed, deps="ada") == "ada's, ada"
    assert await answer(bob, is_streamed=is_streamed, deps="bob") == "ada's, bob"
    model.set_agent_toolsets(ada.toolsets[0], server_name="tools", transport=transport, deps="theirs")
    assert await answer(bob, is_streamed=is_streamed, deps="bob") == "ada's, theirs"


async def test_a_request_inside_of_a_run_gets_what_it_names_or_all(
    world: MakeWorld, transport: Transport
) -> None:
    inner, disk = world(WIPE), Disk()
    model = inner.model()
    model.set_agent_toolsets([disk.wipe, keep], server_name="tools", transport=transport)
    agent = Agent(world("call ask {}\n---\ncall ask_again {}\n---\ntext {result}").model())

    @agent.tool_plain
    async def ask() -> str | None:
        async with model._prepared(prompt(), None, ModelRequestParameters()) as ready:
            assert ready.host.names == {"wipe", "keep"}
        return "done"

    @agent.tool_plain
    async def ask_again() -> str | None:
        named = ModelRequestParameters(function_tools=[ToolDefinition(name="wipe")])
        return (await model.request(prompt(), None, named)).text

    parts = (await agent.run("go")).all_messages()[-1].parts
    assert [part.content for part in parts if isinstance(part, NativeToolReturnPart)] == ["done", "done"]
    assert inner.offered == ["mcp__tools__wipe"]
    assert disk.wiped == 1


async def test_a_request_of_a_tool_is_none_of_the_run_that_calls_the_tool(
    world: MakeWorld, transport: Transport
) -> None:
    inner, disk, runs_own = world(WIPE), Disk(), Disk()
    model, other = world("call ask {}\n---\ntext {result}").model(), inner.model()
    for one in (model, other):
        one.set_agent_toolsets([disk.wipe, keep], server_name="tools", transport=transport)
    agent = Agent(model, tools=[runs_own.wipe])
    offered: list[set[str]] = []

    @agent.tool_plain
    async def ask() -> str | None:
        for one in (model, other):
            async with one._prepared(prompt(), None, ModelRequestParameters()) as ready:
                offered.append(ready.host.names)
        named = ModelRequestParameters(function_tools=[ToolDefinition(name="wipe")])
        return (await other.request(prompt(), None, named)).text

    result = await agent.run("go")
    assert offered == [{"wipe", "keep"}] * 2
    assert (result.output, result.usage.tool_calls) == ("done", 1)
    assert inner.offered == ["mcp__tools__wipe"]
    assert (disk.wiped, runs_own.wiped) == (1, 0)


async def test_a_run_inside_of_a_tool_decides_about_its_own_names(
    world: MakeWorld, transport: Transport
) -> None:
    inner, disk = world(BOTH), Disk()
    other = inner.model()
    other.set_agent_toolsets([disk.wipe, keep], server_name="tools", transport=transport)
    agent = Agent(world("call ask {}\n---\ntext {result}").model(), tools=[keep])

    @agent.tool_plain
    async def ask() -> str:
        return (await by_filter(other, disk).run("go")).output

    assert (await agent.run("go")).output == "done"
    only_keep_was_offered_and_ran(inner, disk)


async def test_a_request_inside_of_another_models_run_gets_all_registered_tools(
    world: MakeWorld, transport: Transport
) -> None:
    here, disk = world(BOTH), Disk()
    model = here.model()
    model.set_agent_toolsets(both(disk), server_name="tools", transport=transport)

    def call_ask(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart("ask", {}) if len(messages) == 1 else TextPart("over")])

    agent = Agent(FunctionModel(call_ask))

    @agent.tool_plain
    async def ask() -> str | None:
        return (await model.request(prompt(), None, ModelRequestParameters())).text

    result = await agent.run("go")
    assert (result.output, result.usage.requests) == ("over", 2)
    assert set(here.offered) == {"mcp__tools__keep", "mcp__tools__wipe"}
    assert disk.wiped == 1


async def test_without_an_agent_all_registered_tools_are_offered(
    world: MakeWorld, transport: Transport
) -> None:
    here, disk = world(BOTH), Disk()
    model = here.model()
    model.set_agent_toolsets(both(disk), server_name="tools", transport=transport)
    async with model.request_stream(prompt(), None, ModelRequestParameters()) as stream:
        async for _ in stream:
            pass
    assert stream.get().text == "done"
    assert set(here.offered) == {"mcp__tools__keep", "mcp__tools__wipe"}
    assert here.result_texts == ["kept", "wiped"]
    assert disk.wiped == 1
