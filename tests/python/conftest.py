"""A process that hosts the demo tools, and the official MCP client connected to it through the bridge."""

import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

# Longer than anything here takes on a busy machine. A test that reaches it has failed.
PATIENCE_SECONDS = 120


@pytest.fixture(scope="session")
def exe() -> str:
    path = os.environ.get("TOOLBRIDGE_EXE")
    if not path:
        pytest.fail("TOOLBRIDGE_EXE is not set: give it the path of the toolbridge executable")
    if not os.access(path, os.X_OK):
        pytest.fail(f"TOOLBRIDGE_EXE is not an executable: {path}")
    return os.path.abspath(path)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Host:
    """`toolbridge demo --serve`, and its first line."""

    def __init__(self, hello: dict) -> None:
        self.socket = hello["socket"]
        self.schema = hello["schema"]
        self.mcp_config = hello["mcp_config"]

    @asynccontextmanager
    async def client(self, **options) -> AsyncIterator[Client]:
        """The official client, connected through a bridge of its own."""
        server = self.mcp_config["mcpServers"]["tools"]
        parameters = StdioServerParameters(command=server["command"], args=server["args"], env=server.get("env"))
        with anyio.fail_after(PATIENCE_SECONDS):
            async with Client(parameters, **options) as client:
                yield client


def bridges_of(socket: str) -> list[str]:
    """The command lines of the bridges to this socket that are still running."""
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended meanwhile
        if "bridge" in arguments and socket in arguments:
            running.append(" ".join(arguments))
    return running


@pytest.fixture
def host(exe: str) -> Iterator[Host]:
    with tempfile.TemporaryDirectory() as tmp:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TOOLBRIDGE_")}
        environment["TMPDIR"] = tmp
        with subprocess.Popen(
            [exe, "demo", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        ) as process:
            try:
                line = process.stdout.readline()
                assert line, f"the host printed nothing and ended with {process.wait(PATIENCE_SECONDS)}"
                host = Host(json.loads(line))
                yield host
                assert bridges_of(host.socket) == [], "a bridge outlived its client"
                process.stdin.close()
                assert process.wait(PATIENCE_SECONDS) == 0
                assert process.stdout.read() == "", "more than one line on the host's stdout"
                assert os.listdir(tmp) == []
            finally:
                process.kill()
