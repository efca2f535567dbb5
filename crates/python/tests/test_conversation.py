"""Conversations with several prompts, with the real CLI."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, RunContext, Tool
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    NativeToolReturnPart,
    PartDeltaEvent,
    TextPart,
    TextPartDelta,
    ToolReturn,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.toolsets import FunctionToolset
from support import PATIENCE_SECONDS, PICTURE, Transport, World, hanging, named, prompt

from toolbridge import (
    ClaudeCodeModelSettings,
    CLIExecutionError,
    CLIInterruptedError,
    Hook,
    HookCall,
    InvalidRequestError,
    Subagent,
)
from toolbridge.conversation import Output
from toolbridge.prompt import native_messages

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


def clis(here: World) -> list[int]:
    return [pid for pid, command in here.processes.items() if "claude" in command.split()[0]]


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def test_prompts_and_tool_calls_follow_each_other_on_one_process(
    world: MakeWorld, transport: Transport
) -> None:
    here = world('text Hello.\n---\ncall add {"a": 1, "b": 2}\n---\ntext It is {result}.\n---\ntext Bye.')
    async with here.model(transport).conversation(toolsets=[add], instructions="zebra rule") as chat:
        before = clis(here)
        assert here.requests == []
        assert chat.session_id is None
        first = await chat.send("My name is Ada.")
        assert first.output == "Hello."
        assert first.cli_response.session_id == chat.session_id is not None
        second = await chat.send("What is 1 + 2?")
        assert second.output == "It is 3."
        assert (await chat.send(["bye", BinaryContent(PICTURE, media_type="image/png")])).output == "Bye."
        assert clis(here) == before
        assert before
    here.nothing_is_left()
    told = here.requests[-1]
    assert "My name is Ada." in str(told["messages"])
    assert "zebra rule" in str(told["system"])
    assert '"image"' in str(told["messages"]).replace("'", '"')
    kinds = [type(message) for message in chat.messages]
    assert kinds == [ModelRequest, ModelResponse] * 3
    # An agent can continue from there: it sends them all.
    sent = (await native_messages([*chat.messages, *prompt("Who am I?")], ModelRequestParameters())).messages
    assert "My name is Ada." in str(sent[0])
    assert [who for message in sent for who in message] == ["user", "assistant"] * 3 + ["user"]


async def test_a_conversation_without_tools_streams_answers_in_pieces_and_gets_no_tools_later(
    world: MakeWorld,
) -> None:
    here = world("text one | two\n---\ntext three | four")
    async with here.model().conversation(toolsets=[]) as chat:
        with pytest.raises(InvalidRequestError, match="began without tools"):
            chat.add(add)
        with pytest.raises(InvalidRequestError, match="the prompt is empty"):
            await chat.send("  ")
        for want in (["one ", "two"], ["three ", "four"]):
            async with chat.stream("go") as stream:
                events = [event async for event in stream]
            deltas = [event.delta for event in events if isinstance(event, PartDeltaEvent)]
            pieces = [delta.content_delta for delta in deltas if isinstance(delta, TextPartDelta)]
            assert want[0].strip() in str(events)
            assert pieces[-1] == want[-1]
            assert stream.get().text == "".join(want)
            assert stream.cli_response is not None
    with pytest.raises(InvalidRequestError, match="the conversation was closed"):
        await chat.send("more")
    with pytest.raises(InvalidRequestError, match="the conversation was closed"):
        await chat.mcp_servers()
    assert chat.session_id is None


async def test_after_an_interrupted_answer_the_conversation_continues(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call hang {}\n---\ntext first\n---\ncall hang {}\n---\ntext second\n---\ntext third")
    hang, started, cancelled = hanging()

    async def again() -> None:
        await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
        started.clear()

    async with here.model(transport).conversation(toolsets=[hang]) as chat:
        sending = asyncio.ensure_future(chat.send("wait"))
        await again()
        chat.interrupt()
        with pytest.raises(CLIInterruptedError):
            await sending
        await asyncio.wait_for(cancelled.wait(), PATIENCE_SECONDS)
        assert (await chat.send("go on")).output == "first"
        # Because the waiting task is cancelled.
        sending = asyncio.ensure_future(chat.send("wait"))
        await again()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await chat.send("go on")).output == "second"
        # Because the reader has left the stream.
        async with chat.stream("quick") as stream:
            async for _ in stream:
                break
        assert len(chat.messages) == 4


async def test_tools_come_and_go_between_prompts_and_have_the_dependencies(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(
        "\n---\n".join(
            [f"text {number}" for number in range(12)]
            + ['call add {"a": 1, "b": 2}', "text sum: {result}", "call greet {}", "text {result}"]
        )
    )
    shelf: FunctionToolset[str] = FunctionToolset()

    @shelf.tool
    def look(ctx: RunContext[str]) -> str:
        return f"{ctx.deps} looks"

    async with here.model(transport).conversation(toolsets=[shelf, add], deps="ada") as chat:

        async def offered(*names: str) -> None:
            # The CLI updates its list with some delay.
            pause = 0.05
            while not {f"mcp__tools__{name}" for name in names} <= set(here.offered):
                await asyncio.sleep(pause)
                pause *= 2
                await chat.send("who is there?")

        await chat.send("hello")
        assert sorted(here.offered) == ["mcp__tools__add", "mcp__tools__look"]

        @shelf.tool
        def greet(ctx: RunContext[str]) -> str:
            return f"hello {ctx.deps}"

        await offered("greet")
        chat.add(Tool(lambda: "bye", name="leave"))
        assert chat.remove("add")
        assert not chat.remove("nothing")
        await offered("leave")
        # The CLI may still offer it, but the tool is gone.
        while (output := (await chat.send("go on")).output).isdigit():
            pass
        assert "no such tool" in output.lower() or "there is no tool `add`" in output
        assert (await chat.send("greet me")).output == "hello ada"
        with pytest.raises(InvalidRequestError, match="two tools are called `look`"):
            chat.add(Tool(lambda: "", name="look"))


async def test_a_conversation_keeps_no_results_but_those_of_its_history(
    world: MakeWorld, transport: Transport
) -> None:
    # The subagent has the first two turns, too. What its tools return is not in the history.
    start = '{"description": "x", "prompt": "look", "subagent_type": "reader"}'
    here = world(f"call look {{}}\n---\ntext one\n---\ncall Agent {start}\n---\ntext two")
    reader = Subagent(description="x", prompt="You read.", tools=["look"])
    returned: list[weakref.ref[ToolReturn]] = []

    async def look() -> ToolReturn:
        result = ToolReturn("seen", metadata="a page")
        returned.append(weakref.ref(result))
        return result

    model = here.model(transport, agents={"reader": reader})
    async with model.conversation(toolsets=[look]) as chat:
        assert (await chat.send("go")).output == "one"
        assert (await chat.send("go on")).output == "two"
        gc.collect()
        assert [result() for result in returned] == [None, None]
        [seen] = [part for part in chat.messages[1].parts if isinstance(part, NativeToolReturnPart)]
        assert (seen.content, seen.metadata) == ("seen", "a page")


async def test_a_function_that_is_added_again_replaces_itself(world: MakeWorld, transport: Transport) -> None:
    here = world("call again {}\n---\ntext {result}\n---\ncall again {}\n---\ntext {result}")

    def cell(version: int) -> Callable[..., Any]:
        defined: dict[str, Any] = {"__name__": "__main__"}
        exec(f"def again() -> str: return 'version {version}'", defined)
        function: Callable[..., Any] = defined["again"]
        return function

    async with here.model(transport).conversation(toolsets=[cell(1)]) as chat:
        assert (await chat.send("go")).output == "version 1"
        chat.add(cell(2))
        assert (await chat.send("go on")).output == "version 2"


@pytest.mark.parametrize("is_old", [False, True])
async def test_a_turn_that_the_cli_starts_by_itself_is_not_an_answer(world: MakeWorld, is_old: bool) -> None:
    # The subagent has the first two turns, too; it waits in the first until the prompt is answered.
    start = '{"description": "x", "prompt": "look", "subagent_type": "sums"}'
    turns = [
        f"call Agent {start}\ncall wait {{}}",
        "text first",
        "call hold {}",
        "text own",
        "text second",
        "text third",
    ]
    here = world("\n---\n".join(turns))
    answered, held, leave = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def until_answered(call: HookCall) -> None:
        if "agent_id" in call.input:
            await asyncio.wait_for(answered.wait(), PATIENCE_SECONDS)

    def wait() -> None: ...

    async def hold() -> None:
        held.set()
        await asyncio.wait_for(leave.wait(), PATIENCE_SECONDS)

    agent = Subagent(description="x", prompt="You wait.", tools=["wait"], background=True)
    # Before 2.1.248 the CLI does not say when it starts on a prompt.
    left_out = '"command_lifecycle"' if is_old else "nothing is left out"
    cli = here.root / "cli"
    given = f'{named("TOOLBRIDGE_TEST_CLAUDE")} "$@"'
    cli.write_text(f"#!/bin/sh\n{given} | grep --line-buffered -v '{left_out}'\n")
    cli.chmod(0o755)
    hook = Hook("PreToolUse", until_answered, matcher="mcp__.*")
    model = here.model(cli_path=cli, agents={"sums": agent}, hooks=[hook])
    async with model.conversation(toolsets=[wait, hold]) as chat:
        assert (await chat.send("one")).output == "first"
        answered.set()
        await asyncio.wait_for(held.wait(), PATIENCE_SECONDS)
        async with chat.stream("two") as stream:
            leave.set()
            async for _ in stream:
                pass
        assert stream.get().parts == chat.messages[-1].parts == [TextPart("second")]
        assert (await chat.send("three")).output == "third"


class City(BaseModel):
    name: str
    people: int


@pytest.mark.oldest
async def test_answers_are_converted_to_the_output_type(world: MakeWorld) -> None:
    tokyo = 'call StructuredOutput {"name": "Tokyo", "people": 14}'
    here = world(f"{tokyo}\n---\n{tokyo.replace('Tokyo', 'Kyoto')}")
    async with here.model().conversation(output_type=City) as chat:
        assert (await chat.send("go")).output == City(name="Tokyo", people=14)
        assert (await chat.send("go")).output.name == "Kyoto"
    # The CLI takes only objects, so that other types are wrapped.
    numbers = Output(list[int])
    assert numbers.spec.schema is not None
    assert (numbers.spec.schema["type"], [*numbers.spec.schema["properties"]]) == ("object", ["response"])
    assert numbers.of(ModelResponse([TextPart('{"response": [1, 2]}')])) == [1, 2]


async def test_model_and_permissions_change_between_prompts(world: MakeWorld, transport: Transport) -> None:
    here = world("text one\n---\ntext two")
    async with here.model(transport).conversation(toolsets=[add]) as chat:
        await chat.send("first")
        await chat.set_model("claude-opus-4-5")
        await chat.set_permission_mode("plan")
        with pytest.raises(InvalidRequestError, match="there is no permission mode `nonsense`; there are: "):
            await chat.set_permission_mode("nonsense")  # type: ignore[arg-type]
        await chat.send("second")
        models = [request["model"] for request in here.requests]
        assert models[0] != "claude-opus-4-5" == models[1]
        [server] = await chat.mcp_servers()
        assert (server.name, server.status, server.error) == ("tools", "connected", None)
        assert (await chat.context_usage())["totalTokens"] > 0


async def test_files_are_restored(world: MakeWorld) -> None:
    here = world("text unused")
    path = here.home / "new.txt"
    here = world(
        f'call Write {{"file_path": "{path}", "content": "changed"}}\n---\ntext {{result}}\n---\ntext no'
    )
    prompts: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        if message["type"] == "user" and isinstance(message["message"]["content"], str):
            prompts.append(message["uuid"])

    settings = ClaudeCodeModelSettings(
        claude_code_builtin_tools=["Read", "Write"],
        claude_code_allowed_tools=["Write"],
        claude_code_permission_mode="acceptEdits",
        claude_code_add_dirs=[path.parent],
        claude_code_keep_session=True,
        claude_code_enable_file_checkpointing=True,
        claude_code_message_callback=hear,
    )
    async with here.model().conversation(model_settings=settings) as chat:
        await chat.send("write it")
        assert path.read_text() == "changed"
        await chat.rewind_files(prompts[0])
        assert not path.exists()
        with pytest.raises(CLIExecutionError):
            await chat.rewind_files("0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50")


async def test_a_killed_cli_is_an_error_and_the_conversation_can_be_resumed(world: MakeWorld) -> None:
    here = world("text one\n---\ntext two\n---\ntext three")
    model = here.model()
    async with model.conversation(keep_session=True) as chat:
        await chat.send("zebra first")
        for pid in clis(here):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(CLIExecutionError):
            await chat.send("are you there?")
        with pytest.raises(CLIExecutionError, match="the CLI has ended"):
            await chat.set_model(None)
        session = chat.session_id
    assert session is not None
    async with model.conversation(resume=session) as chat:
        await chat.send("zebra second")
    assert "zebra first" in str(here.requests[-1]["messages"])


async def test_a_cli_that_does_not_start_is_an_error(world: MakeWorld) -> None:
    here = world("text ok")
    broken = here.root / "broken"
    broken.write_text("#!/bin/sh\necho 'no licence' >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(CLIExecutionError, match="no licence"):
        async with here.model(cli_path=Path(broken)).conversation():
            pass


async def test_a_conversation_in_a_tool_of_an_agent_has_its_own_tools(world: MakeWorld) -> None:
    inner = world('call add {"a": 2, "b": 2}\n---\ntext {result}')
    agent = Agent(world("call ask {}\n---\ntext It says {result}").model())

    @agent.tool_plain
    async def ask() -> str:
        async with inner.model().conversation(toolsets=[add]) as chat:
            return (await chat.send("go")).output

    assert (await agent.run("go")).output == "It says 4"
