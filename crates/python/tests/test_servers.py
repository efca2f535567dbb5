"""Other MCP servers with Python's own tools: started, restarted and stopped with the session."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models import ModelRequestParameters
from support import PATIENCE_SECONDS, TOOLBRIDGE, Bridge, Transport, World, prompt, text_of

from toolbridge import (
    ClaudeCodeModelSettings,
    InvalidRequestError,
    McpServer,
    McpServerError,
    Session,
)

pytestmark = pytest.mark.anyio

SCRIPT = textwrap.dedent("""
    import json, os, sys
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message["method"], message.get("params", {})
        if "id" not in message:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "script", "version": "1"}}
        elif method == "tools/list":
            answer["result"] = {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            text = f"{os.getpid()} {os.environ.get('GIVEN')} {json.dumps(params['arguments'])}"
            answer["result"] = {"content": [{"type": "text", "text": text}]}
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
""")


@pytest.fixture
def script(short_path: Path) -> Path:
    path = short_path / "server.py"
    path.write_text(SCRIPT)
    return path


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it goes while it is read
        return False


async def gone(pid: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while is_alive(pid):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_the_tools_of_a_server_are_offered_beside_pythons(short_path: Path, script: Path) -> None:
    server = McpServer(command=sys.executable, args=[script], env={"GIVEN": "yes"}, name="script")
    assert repr(server) == "McpServer(name='script')"
    async with Session([add, server], directory=short_path) as session:
        with Bridge(session.mcp_config()) as bridge:
            assert list(bridge.tools) == ["add", "pid"]
            assert text_of(bridge.call("add", a=40, b=2)) == "42"
            pid, given, arguments = text_of(bridge.call("pid", x=[1, 2])).split(" ", 2)
            assert (given, json.loads(arguments)) == ("yes", {"x": [1, 2]})
            os.kill(int(pid), signal.SIGKILL)
            # Until then it may still read the call from its pipe, and the call would be lost.
            await gone(int(pid))
            again = text_of(bridge.call("pid")).split()[0]
            assert again != pid
            with pytest.raises(InvalidRequestError, match="two tools are called `pid`"):
                session.add(pid_tool, title="another")
        assert is_alive(int(again))
    await gone(int(again))


def pid_tool() -> None:
    """Nothing."""


pid_tool.__name__ = "pid"


def test_a_name_that_a_server_had_first_is_not_given_to_a_function(short_path: Path) -> None:
    server = McpServer(command=TOOLBRIDGE, args=["serve", "--session", "late"])
    with (
        Session(add, pid_tool, name="late", directory=short_path) as late,
        Session(server, directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert list(bridge.tools) == ["add", "pid"]
        late.remove("pid")
        end = time.monotonic() + PATIENCE_SECONDS
        while "pid" in bridge.tools:
            assert time.monotonic() < end
        with pytest.raises(InvalidRequestError, match="two tools are called `pid`"):
            session.add(pid_tool)


def test_servers_of_a_file_have_their_names_as_prefixes(short_path: Path, script: Path) -> None:
    docs = ["docs", "--init", "--workspace", str(short_path)]
    os.spawnv(os.P_WAIT, TOOLBRIDGE, [TOOLBRIDGE, *docs])
    config = {
        "mcpServers": {
            "notes": {"command": TOOLBRIDGE, "args": ["docs", "--workspace", str(short_path)]},
            "script": {"command": f"${{TEST_PYTHON:-{sys.executable}}}", "args": [str(script)]},
        }
    }
    file = short_path / ".mcp.json"
    file.write_text(json.dumps(config))
    servers = McpServer.from_config(file)
    assert [server.name for server in servers] == ["notes", "script"]
    other = McpServer(command=sys.executable, args=[script])
    with (
        Session(add, *servers, other, directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert {"add", "pid", "script_pid", "notes_manual_list"} <= set(bridge.tools)
        assert "getting-started" in text_of(bridge.call("notes_manual_list"))


async def test_a_server_that_does_not_start_stops_the_others(short_path: Path, script: Path) -> None:
    file = short_path / "pid"
    note = f"import os; open({str(file)!r}, 'w').write(str(os.getpid()))\n"
    script.write_text(note + SCRIPT)
    good = McpServer(command=sys.executable, args=[script])
    bad = McpServer(command="no-such-command-1", name="bad")
    with pytest.raises(McpServerError, match="there is no command `no-such-command-1` on the PATH") as failed:
        async with Session(good, bad, directory=short_path):
            pass
    assert failed.value.hint == "install it, or give its path"
    await gone(int(file.read_text()))
    assert not list(short_path.glob("claudecode_ipc_*"))


def test_invalid_servers_are_refused(short_path: Path) -> None:
    for wrong in (
        {},
        {"command": "a", "url": "http://b"},
        {"command": "a", "bearer": "c"},
        {"url": "http://b", "args": ["d"]},
    ):
        with pytest.raises(InvalidRequestError, match="either a `command`"):
            McpServer(**wrong)
    with pytest.raises(InvalidRequestError, match="`start_timeout`"):
        McpServer(command="a", start_timeout=-1)
    file = short_path / ".mcp.json"
    file.write_text('{"mcpServers": {"a": {"type": "sse", "url": "http://b"}}}')
    with pytest.raises(InvalidRequestError, match="Streamable HTTP is supported"):
        McpServer.from_config(file)


async def test_an_unreachable_url_is_an_error(short_path: Path) -> None:
    server = McpServer(url="http://127.0.0.1:9/mcp?key=secret", headers={"X": "secret"}, bearer="secret")
    with pytest.raises(McpServerError, match=r"`http://127\.0\.0\.1:9/mcp` cannot be used") as failed:
        async with Session(server, directory=short_path):
            pass
    assert "secret" not in str(failed.value) + repr(server)


async def test_a_model_has_the_tools_of_a_server(
    world: Callable[[str], World], script: Path, transport: Transport
) -> None:
    server = McpServer(command=sys.executable, args=[script], env={"GIVEN": "yes"}, prefix="other")
    use = 'call other_pid {"x": 1}\n---\ntext {result}'
    # With an agent's tools, in one run.
    here = world(use)
    settings = ClaudeCodeModelSettings(claude_code_tool_servers=server)
    agent = Agent(here.model(transport), tools=[add])
    pid, given, arguments = (await agent.run("go", model_settings=settings)).output.split(" ", 2)
    assert (given, json.loads(arguments)) == ("yes", {"x": 1})
    assert sorted(here.offered) == ["mcp__tools__add", "mcp__tools__other_pid"]
    await gone(int(pid))
    # Registered, for requests without an agent and for runs.
    here = world(f"{use}\n---\n{use}")
    model = here.model()
    model.set_agent_toolsets([server, add], transport=transport)
    answer = await model.request(prompt(), None, ModelRequestParameters())
    await gone(int((answer.text or "").split()[0]))
    await gone(int((await Agent(model).run("go")).output.split()[0]))
    # For a whole conversation; it starts once, even if it is also registered.
    here = world(f"{use}\n---\n{use}")
    model = here.model()
    model.set_agent_toolsets([server, add], server_name="tools", transport=transport)
    async with model.conversation(toolsets=server) as chat:
        first, second = [(await chat.send("go")).output.split()[0] for _ in range(2)]
        assert first == second
    assert sorted(here.offered) == ["mcp__tools__add", "mcp__tools__other_pid"]
    await gone(int(first))
    broken = ClaudeCodeModelSettings(claude_code_tool_servers=[McpServer(command="no-such-command-1")])
    with pytest.raises(McpServerError, match="no-such-command-1"):
        await agent.run("go", model_settings=broken)
