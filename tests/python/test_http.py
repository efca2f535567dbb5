"""The official Python client and FastMCP's list and call tools over HTTP."""

import os
import subprocess
from collections.abc import Iterator

import anyio
import fastmcp
import pytest
from mcp import Client, MCPError
from mcp.types import ElicitResult

from conftest import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> Iterator[str]:
    program = os.environ.get("TOOLBRIDGE_HTTP_SERVER")
    if not program:
        pytest.fail("TOOLBRIDGE_HTTP_SERVER is not set: give it the path of the example `conformance` of toolbridge-core")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
            process.stdin.close()
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()


# "auto" starts with `server/discover`, as the newest clients do; "legacy" starts with `initialize`.
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_calls_tools_over_http(url, mode):
    with anyio.fail_after(PATIENCE_SECONDS):
        async with Client(url, mode=mode) as client:
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            tools = await client.list_tools()
            assert "test_simple_text" in [tool.name for tool in tools.tools]
            result = await client.call_tool("test_simple_text", {})
            assert result.content[0].text == "This is a simple text response for testing."
            result = await client.call_tool("test_error_handling", {})
            assert result.is_error
            result = await client.call_tool("test_multiple_content_types", {})
            assert [block.type for block in result.content] == ["text", "image", "resource"]

            steps = []

            async def progress(done: float, total: float | None, message: str | None) -> None:
                steps.append((done, total))

            await client.call_tool("test_tool_with_progress", {}, progress_callback=progress)
            assert steps == [(0, 100), (50, 100), (100, 100)]
            with pytest.raises(MCPError, match="there is no tool `nobody`"):
                await client.call_tool("nobody", {})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_is_asked_over_http(url, mode):
    asked = []

    def answering(*answers):
        left = iter(answers)

        async def answer(_, params) -> ElicitResult:
            asked.append((params.message, list(params.requested_schema["properties"])))
            return next(left)

        return answer

    def accepted(value) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": value})

    rows = [
        ([accepted("red"), accepted(True)], "Accepted(Red) Accepted(true)"),
        ([ElicitResult(action="decline"), ElicitResult(action="cancel")], "Declined Cancelled"),
        ([accepted("blue")], "the answer does not fit the question: at `/answer`"),
        (None, "Nobody Nobody"),
    ]
    with anyio.fail_after(PATIENCE_SECONDS):
        for answers, want in rows:
            callback = None if answers is None else answering(*answers)
            async with Client(url, mode=mode, elicitation_callback=callback) as client:
                result = await client.call_tool("paint", {})
                assert want in result.content[0].text
    assert asked[:2] == [("Which colour?", ["answer"]), ("Sure?", ["answer"])]


async def test_fastmcps_client_calls_tools_over_http(url):
    with anyio.fail_after(PATIENCE_SECONDS):
        async with fastmcp.Client(url) as client:
            assert "test_simple_text" in [tool.name for tool in await client.list_tools()]
            result = await client.call_tool("test_simple_text", {})
            assert result.content[0].text == "This is a simple text response for testing."
            with pytest.raises(fastmcp.exceptions.ToolError, match="This tool intentionally returns an error"):
                await client.call_tool("test_error_handling", {})
