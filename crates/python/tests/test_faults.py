"""However a request ends, nothing of it is left; the fixture `world` checks that."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, exceptions
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.models import ModelRequestParameters
from support import PATIENCE_SECONDS, SUM, Transport, World, prompt

from toolbridge import (
    BridgeStartupError,
    ClaudeCodeError,
    ClaudeCodeModel,
    CLIExecutionError,
    CLINotFoundError,
    CLIResponseParseError,
    StructuredOutputError,
)

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

HANG = "call hang {}\n---\ntext done"


class Hanging:
    """A tool that does not return, and records how it ended."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def hang(self) -> None:
        self.started.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS * 10)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def agent(self, model: ClaudeCodeModel) -> Agent[None, str]:
        agent = Agent(model)
        agent.tool_plain(self.hang)
        return agent


async def told(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), PATIENCE_SECONDS)


async def test_a_cancelled_run_ends_its_tools_and_the_cli(world: MakeWorld, transport: Transport) -> None:
    here, hanging = world(HANG), Hanging()
    run = asyncio.create_task(hanging.agent(here.model(transport)).run("go"))
    await told(hanging.started)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    # Immediately: when the run has ended, so have its tools, and the files are gone.
    assert hanging.cancelled.is_set()
    assert here.files == []


async def test_a_run_cancelled_at_any_moment_leaves_nothing(
    world: MakeWorld, transport: Transport, pytestconfig: pytest.Config
) -> None:
    here, hanging = world(HANG), Hanging()
    model = here.model(transport)
    agent = hanging.agent(model)
    every = 1 if pytestconfig.getoption("thorough") else 2
    for seconds in (0, 0.001, 0.02, 0.1, 0.25, 0.4, 0.6)[::every]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.run("go"), seconds)
        assert model.interrupt() == 0
        assert here.files == []


async def test_a_cancelled_stream_ends_its_tools_and_the_cli(world: MakeWorld, transport: Transport) -> None:
    here, hanging = world("text Let me see.\n" + HANG), Hanging()
    model = here.model(transport)
    agent = hanging.agent(model)

    async def read() -> None:
        async with agent.run_stream("go") as result:
            async for _ in result.stream_text():
                pass

    run = asyncio.create_task(read())
    await told(hanging.started)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert hanging.cancelled.is_set()
    assert model.interrupt() == 0
    assert here.files == []


async def test_a_request_that_takes_too_long_is_ended_with_its_tools_by_a_pydantic_ai_error(
    world: MakeWorld, transport: Transport
) -> None:
    kind = getattr(exceptions, "ModelTimeoutError", ModelAPIError)
    # On a busy machine the tool may not have been called by then.
    for limit in (3, 15, 75):
        here, hanging = world(HANG), Hanging()
        model = here.model(transport, timeout=float(limit), timeout_counts_tools=True)
        with pytest.raises(kind, match=f"no result within {limit} s") as raised:
            await hanging.agent(model).run("go")
        if hanging.started.is_set():
            break
    assert isinstance(raised.value, CLIExecutionError)
    assert raised.value.error_type == "timeout"
    assert raised.value.recoverable
    assert raised.value.hint == "give the request a longer time-out, or ask for less"
    assert hanging.cancelled.is_set()


async def test_the_time_of_tools_does_not_count(world: MakeWorld, transport: Transport) -> None:
    # On a busy machine everything but the tool may take as long.
    for limit in (4, 20, 80):
        here, took = world("call work {}\n---\ntext {result}"), limit + 1
        agent = Agent(here.model(transport, timeout=float(limit)))

        @agent.tool_plain
        async def work(took: int = took) -> str:
            await asyncio.sleep(took)
            return "worked"

        try:
            result = await agent.run("go")
        except CLIExecutionError as error:
            assert error.error_type == "timeout"  # noqa: PT017
            continue
        assert result.output == "worked"
        return
    raise AssertionError("no request came to its end")


async def test_a_killed_cli_is_an_error(world: MakeWorld, transport: Transport) -> None:
    here, hanging = world(HANG), Hanging()
    run = asyncio.create_task(hanging.agent(here.model(transport)).run("go"))
    await told(hanging.started)
    # The command line of its guardian ends with the CLI's.
    commands = here.processes.items()
    [cli] = [pid for pid, text in commands if "--output-format" in text and "toolbridge-guard" not in text]
    os.kill(cli, signal.SIGKILL)
    with pytest.raises(CLIExecutionError, match="signal: 9"):
        await run
    assert hanging.cancelled.is_set()


async def test_a_killed_bridge_ends_its_call_and_not_the_request(world: MakeWorld) -> None:
    here, hanging = world(HANG), Hanging()
    run = asyncio.create_task(hanging.agent(here.model("stdio")).run("go"))
    await told(hanging.started)
    [bridge] = [pid for pid, command in here.processes.items() if " bridge " in command]
    os.kill(bridge, signal.SIGKILL)
    assert (await run).output == "done"
    assert here.results[0]["is_error"] is True
    assert hanging.cancelled.is_set()


@pytest.mark.parametrize(
    "seconds",
    [0, pytest.param(0.3, marks=pytest.mark.thorough), pytest.param(3, marks=pytest.mark.thorough), 1],
)
async def test_a_time_limit_of_asyncios_ends_a_request(
    world: MakeWorld, transport: Transport, seconds: float
) -> None:
    here, hanging = world(HANG), Hanging()
    model = here.model()
    model.set_agent_toolsets([hanging.hang], server_name="tools", transport=transport)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await model.request(prompt(), None, ModelRequestParameters())
    assert here.files == []
    assert hanging.cancelled.is_set() is hanging.started.is_set()
    assert model.interrupt() == 0


async def test_an_unread_stream_ends_with_its_context(world: MakeWorld, transport: Transport) -> None:
    here, hanging = world(HANG), Hanging()
    model = here.model()
    model.set_agent_toolsets([hanging.hang], server_name="tools", transport=transport)
    async with model.request_stream(prompt(), None, ModelRequestParameters()):
        await told(hanging.started)
    assert hanging.cancelled.is_set()
    assert model.interrupt() == 0
    assert here.files == []
    hanging.started.clear()
    hanging.cancelled.clear()

    async def read() -> None:
        async with model.request_stream(prompt(), None, ModelRequestParameters()) as stream:
            async for _ in stream:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read()
    assert hanging.cancelled.is_set() is hanging.started.is_set()
    assert model.interrupt() == 0
    assert here.files == []


async def test_a_stream_ends_with_an_error(world: MakeWorld) -> None:
    model = world("text One, | two.\n---\ntext three").model(extra_args=["--no-such-option"])

    async def read() -> None:
        async with model.request_stream(prompt(), None, ModelRequestParameters()) as stream:
            async for _ in stream:
                pass

    with pytest.raises(CLIExecutionError, match="no-such-option"):
        await read()


async def test_a_callback_gets_every_message_even_if_it_is_slow_and_raises_exceptions(
    world: MakeWorld,
) -> None:
    heard: list[str] = []
    later: list[str] = []

    def fail(message: dict[str, Any]) -> None:
        heard.append(message["type"])
        raise ValueError("not now")

    async def fail_later(message: dict[str, Any]) -> None:
        await asyncio.sleep(0.2)
        later.append(message["type"])
        raise ValueError("not then")

    here = world("text ok")
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reported.append(str(what["exception"])))
    try:
        for callback in (fail, fail_later):
            model = here.model(message_callback=callback)
            assert (await model.request(prompt(), None, ModelRequestParameters())).text == "ok"
    finally:
        loop.set_exception_handler(None)
    # The requests went on, and each exception was reported.
    assert reported == ["not now"] * len(heard) + ["not then"] * len(later)
    for kinds in (heard, later):
        assert (kinds[0], kinds[-1]) == ("system", "result")
        assert "assistant" in kinds


class Deps:
    pass


async def test_a_request_keeps_no_reference_to_its_caller(world: MakeWorld) -> None:
    model = world(SUM).model()

    async def add(ctx: RunContext[Deps], a: int, b: int) -> int:
        assert isinstance(ctx.deps, Deps)
        return a + b

    async def ask() -> weakref.ref[Deps]:
        deps = Deps()
        model.set_agent_toolsets([add], server_name="tools", transport="sdk", deps=deps)
        assert (await model.request(prompt(), None, ModelRequestParameters())).text == "The sum is 42."
        async with model.request_stream(prompt(), None, ModelRequestParameters()) as stream:
            async for _ in stream:
                pass
        model.set_agent_toolsets(None)
        return weakref.ref(deps)

    kept = await ask()
    until = time.monotonic() + PATIENCE_SECONDS
    while gc.collect() >= 0 and kept() is not None:
        assert time.monotonic() < until, gc.get_referrers(kept())
        await asyncio.sleep(0.05)


async def test_a_blocking_tool_does_not_delay_a_cancellation(world: MakeWorld, transport: Transport) -> None:
    here = world(HANG)
    agent = Agent(here.model(transport))
    started, go_on = threading.Event(), threading.Event()

    @agent.tool_plain
    def hang() -> None:
        started.set()
        go_on.wait(PATIENCE_SECONDS)

    run = asyncio.create_task(agent.run("go"))
    await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
    before = time.monotonic()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert time.monotonic() - before < PATIENCE_SECONDS / 2
    go_on.set()


class HeldUp(asyncio.SelectorEventLoop):
    """A loop on which another thread delivers only when it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.delivering, self.go_on = asyncio.Event(), threading.Event()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        if not self.is_running() or asyncio._get_running_loop() is not self:
            super().call_soon_threadsafe(self.delivering.set)
            assert self.go_on.wait(PATIENCE_SECONDS)
        return super().call_soon_threadsafe(callback, *args, context=context)


def test_the_loop_goes_on_while_a_cancelled_request_ends(world: MakeWorld) -> None:
    model, loop = world("text ok").model(), HeldUp()
    cancelling = threading.Event()
    ticks = 0
    ticks_until_end: list[int] = []

    def hold_up() -> None:
        assert cancelling.wait(PATIENCE_SECONDS)
        # As many short pauses as the loop's: however busy the machine is, both get their share of it.
        for _ in range(200):
            time.sleep(0.001)
        ticks_until_end.append(ticks)
        loop.go_on.set()

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    async def cancel() -> None:
        nonlocal ticks
        request = asyncio.ensure_future(model.request(prompt(), None, ModelRequestParameters()))
        ticking = asyncio.ensure_future(tick())
        # A thread is at work for the request, and cannot end it.
        await loop.delivering.wait()
        ticks = 0
        cancelling.set()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        ticking.cancel()

    holding = threading.Thread(target=hold_up)
    holding.start()
    try:
        loop.run_until_complete(asyncio.wait_for(cancel(), PATIENCE_SECONDS))
    finally:
        cancelling.set()
        holding.join()
        loop.close()
    assert ticks_until_end[0] > 5
    assert model.interrupt() == 0


def blob() -> str:
    return "x" * 11_000_000


def add(a: int, b: int) -> int:
    return a + b


BLOB = 'call blob {}\ncall add {"a": 1, "b": 1}\n---\ntext done'


async def test_a_result_over_the_message_limit_is_an_error(world: MakeWorld, transport: Transport) -> None:
    here = world(BLOB)
    # With that tool the model could read a long result from a file, so it is sent unchanged.
    model = here.model(transport, builtin_tools=["Read"])
    assert (await Agent(model, tools=[blob, add]).run("go")).output == "done"
    blob_text, sum_text = here.result_texts
    assert sum_text == "2"
    if transport == "stdio":
        assert "IPCMessageSizeError" in blob_text
    else:
        assert len(blob_text) < 100_000


async def test_eleven_megabytes_are_kept_in_the_process(world: MakeWorld, transport: Transport) -> None:
    here = world(BLOB)
    assert (await Agent(here.model(transport), tools=[blob, add]).run("go")).output == "done"
    blob_text, sum_text = here.result_texts
    assert sum_text == "2"
    kept = json.loads(blob_text)
    assert kept["handle"].startswith("parked:")
    assert kept["bytes"] == 11_000_000
    assert len(blob_text) < 1000


async def test_a_missing_cli_is_an_error(world: MakeWorld) -> None:
    model = world("text ok").model(cli_path="/no/claude")
    with pytest.raises(CLINotFoundError, match="/no/claude") as raised:
        await model.request(prompt(), None, ModelRequestParameters())
    assert raised.value.hint is not None
    assert any(note.startswith("hint: install it") for note in raised.value.__notes__)
    assert isinstance(raised.value, ClaudeCodeError)


async def test_an_invalid_cli_is_an_error(world: MakeWorld) -> None:
    here = world("text ok")
    cli = here.root / "claude"
    cli.write_text("#!/bin/sh\necho '{\"type\":'; exit 0\n")
    cli.chmod(0o755)
    with pytest.raises(CLIResponseParseError):
        await here.model(cli_path=cli).request(prompt(), None, ModelRequestParameters())


async def test_a_bridge_that_does_not_start_is_an_error(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world("text ok")
    monkeypatch.setattr("toolbridge._executable.BRIDGE", here.root / "nothing")
    with pytest.raises(BridgeStartupError, match="nothing"):
        await Hanging().agent(here.model("stdio")).run("go")


async def test_text_instead_of_output_is_an_error(world: MakeWorld) -> None:
    model = world("text I would rather not.\n---\ntext No.\n---\ntext No.\n---\ntext No.").model()
    with pytest.raises(StructuredOutputError) as raised:
        await Agent(model, output_type=dict[str, int]).run("go")
    assert raised.value.text
