"""A session: functions of this process for an MCP client that somebody else starts."""

from __future__ import annotations

import asyncio
import doctest
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset
from support import PATIENCE_SECONDS, World, named

import toolbridge.session
from toolbridge import InvalidRequestError, Session, read_only

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


async def shout(text: str) -> str:
    """Says it louder."""
    await asyncio.sleep(0)
    return text.upper()


def called(session: Session, tool: str, arguments: dict[str, Any]) -> tuple[int, str]:
    """What a tool says to a bridge, here played by the executable of the wheel."""
    command = session.mcp_config("tools")["mcpServers"]["tools"]["command"]
    call = [command, "call", str(session.socket_path), tool, json.dumps(arguments)]
    ended = subprocess.run(call, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    return ended.returncode, (ended.stdout or ended.stderr).strip()


def test_functions_are_offered_from_a_program_without_a_loop(short_path: Path) -> None:
    with Session(add, shout, directory=short_path) as session:
        assert called(session, "add", {"a": 41}) == (0, "42")
        assert called(session, "shout", {"text": "hey"}) == (0, "HEY")
        code, said = called(session, "add", {"a": "many"})
        assert code != 0
        assert "ValidationError" in said
        schemas = {schema["name"]: schema for schema in json.loads(session.schema_path.read_text())}
        assert schemas["add"]["description"] == "Adds two numbers."
        assert schemas["add"]["input_schema"]["properties"]["b"]["description"] == "The other."
        assert schemas["add"]["input_schema"]["required"] == ["a"]
    assert list(short_path.iterdir()) == []
    with pytest.raises(InvalidRequestError, match="does not run"):
        session.mcp_config()


def test_the_example_in_the_documentation_is_true() -> None:
    assert doctest.testmod(toolbridge.session).failed == 0


async def test_functions_run_on_the_loop_of_the_session(short_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def here(ctx: RunContext[str]) -> str:
        assert asyncio.get_running_loop() is loop
        return ctx.deps

    async with Session(here, deps="mine", directory=short_path) as session:
        assert await asyncio.to_thread(called, session, "here", {}) == (0, "mine")
    assert list(short_path.iterdir()) == []


async def test_a_session_can_be_left_while_a_call_runs(short_path: Path) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            cancelled.set()

    async with Session(hang, directory=short_path) as session:
        call = asyncio.create_task(asyncio.to_thread(called, session, "hang", {}))
        await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
    assert cancelled.is_set()
    code, _ = await call
    assert code != 0
    assert list(short_path.iterdir()) == []


def test_what_cannot_be_a_session_is_said(short_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="at least one tool"), Session(directory=short_path):
        pass

    def bad() -> None: ...

    bad.__name__ = "no good"
    with pytest.raises(InvalidRequestError, match="no good"), Session(bad, directory=short_path):
        pass
    with (
        Session(add, directory=short_path) as session,
        pytest.raises(InvalidRequestError, match="server name"),
    ):
        session.mcp_config("no good")
    assert all(thread.name != "toolbridge-session" for thread in threading.enumerate())


async def test_the_real_cli_calls_a_session(world: MakeWorld) -> None:
    here = world('call add {"a": 40, "b": 2}\ncall math_add {"a": 1}\n---\ntext {results}')
    toolset: FunctionToolset[None] = FunctionToolset([add])
    async with Session(read_only(add), toolset.prefixed("math"), directory=here.sessions) as session:
        cli = await asyncio.create_subprocess_exec(
            named("TOOLBRIDGE_TEST_CLAUDE"),
            "-p",
            "go",
            "--mcp-config",
            json.dumps(session.mcp_config("tools")),
            "--strict-mcp-config",
            "--allowedTools=mcp__tools",
            env=here.environment,
            cwd=here.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        stdout, _ = await asyncio.wait_for(cli.communicate(), PATIENCE_SECONDS)
    assert stdout.decode().strip() == "42, 2"
