"""Tools of other machines, over a real NATS server: for a session, and for a model."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models import ModelRequestParameters
from support import TOOLBRIDGE, Bridge, Transport, World, named, prompt, soon, text_of

from toolbridge import (
    ClaudeCodeModelSettings,
    InvalidRequestError,
    NatsError,
    NatsTools,
    Session,
)

pytestmark = pytest.mark.anyio

MakeWorld = Callable[[str], World]


def add_one(number: int) -> int:
    """Adds one."""
    return number + 1


@pytest.fixture
def url() -> Iterator[str]:
    """A NATS server for this test."""
    program = Path(named("TOOLBRIDGE_SCRIPTED_MODEL")).parents[1] / "nats/bin/nats-server"
    assert program.exists(), f"there is no {program}; run `cargo xtask test` once: it installs it"
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
    with ExitStack() as stack:
        server = subprocess.Popen(
            [program, "-a", "127.0.0.1", "-p", str(port)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(server.wait)
        stack.callback(server.kill)
        soon(lambda: listens(port))
        yield f"nats://127.0.0.1:{port}"


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture
def host(url: str) -> Iterator[str]:
    """A host of the demo's tools, called `gpu`; returns its address."""
    command = [TOOLBRIDGE, "serve", "--demo", "--nats", url, "--name", "gpu"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["name"] == "gpu"
        yield f"{url}/gpu"
        process.kill()


async def test_a_session_offers_the_tools_of_other_machines(short_path: Path, host: str) -> None:
    gpu = NatsTools(host, prefix="gpu")
    assert repr(gpu) == "NatsTools(name='gpu')"
    async with Session([add_one, gpu], directory=short_path) as session:
        with Bridge(session.mcp_config()) as bridge:
            assert {"add_one", "gpu_echo", "gpu_add"} <= set(bridge.tools)
            assert text_of(bridge.call("gpu_add", a=40, b=2)) == "42"
            assert text_of(bridge.call("add_one", number=1)) == "2"


async def test_a_model_calls_nats_tools_beside_the_agents_own(
    world: MakeWorld, transport: Transport, host: str
) -> None:
    here = world('call gpu_add {"a": 40, "b": 2}\n---\ncall add_one {"number": 1}\n---\ntext done')
    model = here.model()
    model.set_agent_toolsets(None, server_name="tools", transport=transport)
    settings = ClaudeCodeModelSettings(claude_code_nats_tools=NatsTools(host, prefix="gpu"))
    result = await Agent(model, tools=[add_one], model_settings=settings).run("go")
    assert result.output == "done"
    assert {"mcp__tools__add_one", "mcp__tools__gpu_echo"} <= set(here.offered)
    assert '"42"' in result.all_messages_json().decode()


async def test_a_request_without_an_agent_gets_what_is_registered(world: MakeWorld, host: str) -> None:
    here = world('call add {"a": 40, "b": 2}\n---\ntext done')
    model = here.model()
    model.set_agent_toolsets([add_one, NatsTools(host)], server_name="tools")
    response = await model.request(prompt(), None, ModelRequestParameters())
    assert response.text == "done"
    assert {"mcp__tools__add_one", "mcp__tools__echo"} <= set(here.offered)


async def test_an_unreachable_server_is_explained(short_path: Path, url: str) -> None:
    with pytest.raises(InvalidRequestError, match="it has no name at its end"):
        NatsTools(url)
    with pytest.raises(NatsError, match="no host offers `gpu`") as found:
        async with Session(NatsTools(f"{url}/gpu"), directory=short_path):
            pass
    assert found.value.hint is not None
    missing = short_path / "missing.creds"
    with pytest.raises(InvalidRequestError, match=r"missing\.creds"):
        async with Session(NatsTools(f"{url}/gpu", credentials_file=missing), directory=short_path):
            pass
