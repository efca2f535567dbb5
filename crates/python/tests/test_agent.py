"""Agents on the model: answers, tools, output, history, usage."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, RunContext, Tool, ToolOutput
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    AudioUrl,
    BinaryContent,
    CachePoint,
    DocumentUrl,
    ImageUrl,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import CombinedToolset, FunctionToolset
from support import PATIENCE_SECONDS, PICTURE, Transport, World, hanging, prompt

from toolbridge import ClaudeCodeModelSettings, CLIExecutionError, _executable
from toolbridge.output import output_spec

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

ADD = 'call add {"a": 40, "b": 2}\n---\ntext The sum is {result}.'


@pytest.mark.oldest
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
    assert returned.content == 42
    assert returned.tool_call_id == used.tool_call_id
    assert len(result.all_messages()) == 2


@pytest.fixture
def own_loop() -> Iterator[None]:
    """`run_sync` leaves its loop open; here it gets one that is closed after the test."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.oldest
@pytest.mark.usefixtures("own_loop")
def test_run_sync_works(world: MakeWorld, transport: Transport) -> None:
    agent = Agent(world(ADD).model(transport))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    assert agent.run_sync("go").output == "The sum is 42."
    assert agent.run_sync("again").output == "The sum is 42."


@pytest.mark.oldest
async def test_a_stream_comes_in_pieces(world: MakeWorld, transport: Transport) -> None:
    here = world("think Hm | hm.\ntext One, | two.\n" + ADD.replace("The sum", "The | sum"))
    agent = Agent(here.model(transport))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    events: list[AgentStreamEvent] = []

    async def watch(_: RunContext[object], stream: AsyncIterable[AgentStreamEvent]) -> None:
        events.extend([event async for event in stream])

    result = await agent.run("go", event_stream_handler=watch)
    assert result.output == "The sum is 42."
    starts = [event.part for event in events if isinstance(event, PartStartEvent)]
    kinds = [type(part) for part in starts]
    assert kinds == [ThinkingPart, TextPart, NativeToolCallPart, NativeToolReturnPart, TextPart]
    deltas = [event.delta for event in events if isinstance(event, PartDeltaEvent)]
    texts = [delta.content_delta for delta in deltas if isinstance(delta, TextPartDelta)]
    assert texts == ["two.", "sum is 42."]
    assert any(isinstance(delta, ThinkingPartDelta) for delta in deltas)
    response = result.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert response.usage.output_tokens > 0
    assert response.provider_details is not None
    assert response.provider_details["session_id"]
    assert response.finish_reason == "stop"


@pytest.mark.oldest
async def test_run_stream_yields_text_as_it_arrives_and_ends_with_the_answer(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(f"text One, | two, | three.\n{ADD}")
    agent = Agent(here.model(transport))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    pieces: list[str] = []
    async with agent.run_stream("go") as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            pieces.append(piece)
        assert await result.get_output() == "The sum is 42."
    assert "".join(pieces).startswith("One, two, three.")
    assert len(pieces) > 1


async def test_a_stream_that_is_left_early_ends_its_request(world: MakeWorld, transport: Transport) -> None:
    here = world("text One, | two.\ncall hang {}\n---\ntext done")
    model = here.model(transport)
    agent = Agent(model)
    hang, started, cancelled = hanging()
    agent.tool_plain(hang)
    async with agent.run_stream("go") as result:
        async for _ in result.stream_text(delta=True, debounce_by=None):
            break
        await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
        await result.cancel() if hasattr(result, "cancel") else None
    # Immediately: a stream that was left has ended, with its tools and its files.
    assert cancelled.is_set()
    assert model.interrupt() == 0
    assert here.files == []
    here.nothing_is_left()


class City(BaseModel):
    name: str
    people: int


class Nothing(BaseModel):
    reason: str


TOKYO = 'call StructuredOutput {"name": "Tokyo", "people": 14}\n---\ntext That was it.'


@pytest.mark.oldest
@pytest.mark.sampled
@pytest.mark.parametrize("output_type", [City, NativeOutput(City), ToolOutput(City)])
@pytest.mark.parametrize(
    "before", ["", "text Let me see.\n", 'call people {"city": "Tokyo"}\n---\n'], ids=["", "text", "tool"]
)
async def test_output_fits_its_type(world: MakeWorld, output_type: Any, before: str) -> None:
    here = world(before + TOKYO)
    agent: Agent[None, City] = Agent(here.model(), output_type=output_type)

    @agent.tool_plain
    def people(city: str) -> int:
        return len(city)

    result = await agent.run("Tokyo?")
    assert result.output == City(name="Tokyo", people=14)
    [tool] = [tool for tool in here.requests[0]["tools"] if tool["name"] == "StructuredOutput"]
    assert set(tool["input_schema"]["properties"]) == {"name", "people"}


OSLO: dict[str, Any] = {"name": "Oslo", "people": 1}


@pytest.mark.parametrize(
    ("kinds", "handed_in", "output"),
    [
        (
            [ToolOutput(City), ToolOutput(Nothing), str],
            {"kind": "final_result_Nothing", "value": {"reason": "no"}},
            Nothing(reason="no"),
        ),
        *(
            pytest.param(kinds, handed_in, output, marks=pytest.mark.thorough)
            for kinds, handed_in, output in [
                ([ToolOutput(City, name="text"), str], {"kind": "text", "value": OSLO}, City(**OSLO)),
                (
                    [ToolOutput(City), ToolOutput(Nothing), str],
                    {"kind": "final_result_City", "value": OSLO},
                    City(**OSLO),
                ),
                (
                    [ToolOutput(City), ToolOutput(Nothing), str],
                    {"kind": "text", "value": "I do not know."},
                    "I do not know.",
                ),
                (
                    [ToolOutput(City, name="text"), str],
                    {"kind": "plain_text", "value": "I do not know."},
                    "I do not know.",
                ),
            ]
        ),
    ],
)
async def test_output_may_be_one_of_several(
    world: MakeWorld, kinds: list[Any], handed_in: dict[str, Any], output: Any
) -> None:
    here = world(f"call StructuredOutput {json.dumps({'output': handed_in})}\n---\ntext done")
    assert (await Agent(here.model(), output_type=kinds).run("go")).output == output


@pytest.mark.oldest
def test_output_of_several_kinds_is_text_or_a_call_of_the_tool_that_it_names() -> None:
    city, nothing = ToolDefinition(name="final_result_City"), ToolDefinition(name="final_result_Nothing")
    spec = output_spec(ModelRequestParameters(output_mode="tool", output_tools=[city, nothing]))
    for tool, value in ((city, OSLO), (nothing, {"reason": "no"})):
        part = spec.part(json.dumps({"output": {"kind": tool.name, "value": value}}))
        assert isinstance(part, ToolCallPart)
        assert (part.tool_name, part.args_as_dict()) == (tool.name, value)
    said = spec.part('{"output": {"kind": "text", "value": "I do not know."}}')
    assert isinstance(said, TextPart)
    assert said.content == "I do not know."
    # An output tool may be called `text`.
    text = ToolDefinition(name="text")
    spec = output_spec(ModelRequestParameters(output_mode="tool", output_tools=[text]))
    called = spec.part(json.dumps({"output": {"kind": "text", "value": OSLO}}))
    assert isinstance(called, ToolCallPart)
    assert (called.tool_name, called.args_as_dict()) == ("text", OSLO)
    said = spec.part('{"output": {"kind": "plain_text", "value": "I do not know."}}')
    assert isinstance(said, TextPart)
    assert said.content == "I do not know."


CHOSEN = [
    ('{"kind": "final_result", "value": {"name": "Oslo", "people": 1}}', City(name="Oslo", people=1)),
    ('{"kind": "text", "value": "I do not know."}', "I do not know."),
]


@pytest.mark.parametrize(
    ("before", "handed_in", "output", "is_streamed"),
    [
        ("text Let me | see.\n", *CHOSEN[1], True),
        *(  # `test_partial.py` has both kinds, streamed
            pytest.param(before, *chosen, is_streamed, marks=pytest.mark.thorough)
            for before in ("text Let me | see.\n", "")
            for chosen in CHOSEN
            for is_streamed in (True, False)
        ),
    ],
)
async def test_output_that_may_be_text_may_be_streamed(
    world: MakeWorld, before: str, handed_in: str, output: Any, is_streamed: bool
) -> None:
    here = world(f'{before}call StructuredOutput {{"output": {handed_in}}}\n---\ntext done')
    agent = Agent(here.model(), output_type=[City, str])
    if is_streamed:
        async with agent.run_stream("go") as result:
            assert await result.get_output() == output
    else:
        assert (await agent.run("go")).output == output


@pytest.mark.oldest
async def test_output_that_is_not_accepted_is_asked_for_again(world: MakeWorld) -> None:
    call = 'call StructuredOutput {"name": "Tokyo", "people": 14}'
    here = world(f"{call}\n---\n{call}\n---\ntext done")
    agent = Agent(here.model(), output_type=ToolOutput(City))
    refused: list[City] = []

    @agent.output_validator
    def once(city: City) -> City:
        if not refused:
            refused.append(city)
            raise ModelRetry("that is too few")
        return city

    result = await agent.run("Tokyo?")
    assert result.output == refused[0]
    asked = str(here.requests[-1]["messages"])
    assert "that is too few" in asked
    assert "Tokyo?" in asked


PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"

FILES = {
    "/dot.png": ("image/png", PICTURE),
    "/paper.pdf": ("application/pdf", PDF),
    "/notes.txt": ("text/plain", b"zebra notes"),
    "/noise.bin": ("application/zip", b"PK"),
}


@pytest.fixture
def site() -> Iterator[str]:
    """The address of a web server with those files."""

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, data = FILES[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.oldest
async def test_system_prompts_pictures_and_downloaded_urls_reach_the_model(
    world: MakeWorld, site: str
) -> None:
    here = world("text ok")
    model = here.model(append_system_prompt="zebra model")
    agent = Agent(model, system_prompt="zebra system", instructions="zebra instructions")
    await agent.run(
        [
            "What is all this?",
            BinaryContent(PICTURE, media_type="image/png"),
            ImageUrl(f"{site}/dot.png", force_download="allow-local"),
            DocumentUrl(f"{site}/paper.pdf", force_download="allow-local"),
            DocumentUrl(f"{site}/notes.txt", force_download="allow-local"),
            BinaryContent(b'{"zebra": "json"}', media_type="application/json"),
            CachePoint(),
        ]
    )
    system = str(here.requests[-1]["system"])
    places = [system.index(words) for words in ("zebra model", "zebra system", "zebra instructions")]
    assert places == sorted(places)
    content = here.requests[-1]["messages"][0]["content"]
    images = [block for block in content if block["type"] == "image"]
    assert [image["source"]["media_type"] for image in images] == ["image/png"] * 2
    [document] = [block for block in content if block["type"] == "document"]
    assert document["source"]["media_type"] == "application/pdf"
    told = str(content)
    assert "zebra notes" in told
    assert '{"zebra": "json"}' in told


@pytest.mark.oldest
async def test_unsupported_content_is_an_error(world: MakeWorld, site: str) -> None:
    here = world("text ok")
    agent = Agent(here.model())
    noise = DocumentUrl(f"{site}/noise.bin", media_type="application/zip", force_download="allow-local")
    things: list[tuple[Any, str]] = [
        (BinaryContent(b"la la", media_type="audio/wav"), "not `audio/wav`"),
        (AudioUrl("https://example.com/a.mp3"), "not a `AudioUrl`"),
        (VideoUrl("https://example.com/a.mp4"), "not a `VideoUrl`"),
        (noise, "not `application/zip`"),
        (BinaryContent(b"\xff\xfe", media_type="text/plain"), "`text/plain` is not in UTF-8"),
    ]
    for thing, message in things:
        with pytest.raises(UserError, match=message):
            await agent.run(["What is it?", thing])
    assert here.requests == []


async def test_the_settings_of_a_run_take_precedence(world: MakeWorld) -> None:
    here = world(f"{ADD}\n---\ntext more")
    agent = Agent(here.model(max_turns=5), model_settings=ClaudeCodeModelSettings(claude_code_max_turns=1))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(CLIExecutionError) as raised:
        await agent.run("go")
    assert raised.value.error_type == "max_turns"
    assert raised.value.hint
    assert raised.value.result is not None
    more = ClaudeCodeModelSettings(claude_code_max_turns=5)
    async with here.model(max_turns=1)._prepared(prompt(), more, ModelRequestParameters()) as ready:
        assert json.loads(ready.host.request)["settings"]["max_turns"] == 5


@pytest.mark.oldest
async def test_tools_can_be_registered_in_every_way(world: MakeWorld, transport: Transport) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    def subtract(a: int, b: int) -> int:
        return a - b

    one: FunctionToolset[None] = FunctionToolset([add])
    two: FunctionToolset[None] = FunctionToolset([subtract])
    ways: list[tuple[Any, set[str]]] = [
        ([Tool(add)], {"add"}),
        ([add, subtract], {"add", "subtract"}),
        (one, {"add"}),
        ([one, two], {"add", "subtract"}),
        (CombinedToolset([one, two]), {"add", "subtract"}),
        (one.prefixed("my"), {"my_add"}),
        (CombinedToolset([one, two]).filtered(lambda _, tool: tool.name != "add"), {"subtract"}),
        (one.renamed({"plus": "add"}), {"plus"}),
        ([one.prefixed("my"), Tool(subtract)], {"my_add", "subtract"}),
    ]
    model = world("text unused").model()
    for toolsets, names in ways:
        model.set_agent_toolsets(toolsets, transport=transport)
        async with model._prepared(prompt(), None, ModelRequestParameters()) as ready:
            assert ready.host.names == names


async def test_the_agents_toolset_can_be_registered_by_hand(world: MakeWorld, transport: Transport) -> None:
    here = world('call mcp__pydantic_tools__add {"a": 40, "b": 2}\n---\ntext The sum is {result}.')
    model = here.model()
    agent = Agent(model, deps_type=int)

    @agent.tool
    def add(ctx: RunContext[int], a: int, b: int) -> int:
        return a + b + ctx.deps

    model.set_agent_toolsets(agent.toolsets[0], transport=transport)
    assert (await agent.run("go", deps=1)).output == "The sum is 43."
    assert here.offered == ["mcp__pydantic_tools__add"]
    # Without an agent the dependencies are those registered with the tools.
    model.set_agent_toolsets(agent.toolsets[0], transport=transport, deps=2)
    response = await model.request(prompt(), None, ModelRequestParameters())
    assert response.text == "The sum is 44."
    stdio = {"type": "stdio", "command": str(_executable.BRIDGE), "args": ["bridge"]}
    sdk = {"type": "sdk", "name": "pydantic_tools"}
    assert model.get_mcp_servers() == {"pydantic_tools": stdio if transport == "stdio" else sdk}
