"""The official Python MCP client lists and calls the demo tools through the bridge."""

import base64
import json
import os
import time

import anyio
import pytest
from mcp import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

pytestmark = pytest.mark.anyio

# "auto" starts with `server/discover`, as the newest clients do; "legacy" starts with `initialize`.
MODES = ["auto", "legacy"]

READ_ONLY = {"echo", "add", "wait", "blob", "picture"}
WRITING = {"write_note", "fail", "panic", "countdown"}


def text_of(result) -> str:
    assert [block.type for block in result.content] == ["text"]
    return result.content[0].text


@pytest.fixture(params=MODES)
def mode(request) -> str:
    return request.param


async def test_the_protocol_version_is_one_that_the_client_knows(host, mode):
    async with host.client(mode=mode) as client:
        print(f"mode {mode}: protocol version {client.protocol_version}, server {client.server_info}")
        if mode == "legacy":
            assert client.protocol_version == LATEST_HANDSHAKE_VERSION == "2025-11-25"
        else:
            assert client.protocol_version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)
        assert client.server_info.name
        assert client.server_info.version
        assert client.server_capabilities.tools is not None


async def test_the_list_is_the_schema_file(host, mode):
    async with host.client(mode=mode) as client:
        listed = await client.list_tools()
    assert listed.next_cursor is None
    tools = {tool.name: tool for tool in listed.tools}
    assert set(tools) == READ_ONLY | WRITING
    assert len(listed.tools) == len(tools)
    for name, tool in tools.items():
        read_only = tool.annotations is not None and tool.annotations.read_only_hint is True
        assert read_only == (name in READ_ONLY), name
    for name in ("echo", "blob"):
        assert tools[name].meta["anthropic/maxResultSizeChars"] == 500_000

    with open(host.schema) as file:
        schemas = json.load(file)
    assert os.stat(host.schema).st_mode & 0o777 == 0o600
    assert [tool.name for tool in listed.tools] == [schema["name"] for schema in schemas]
    for schema in schemas:
        tool = tools[schema["name"]]
        assert tool.description == schema["description"]
        assert tool.input_schema == schema["input_schema"]


@pytest.mark.parametrize("text", ["hello", "", "日本語 😀", 'line\nline\r\n\t"\\ \u2028 \0', "x" * 1_000_000])
async def test_text_comes_back_as_it_was(host, mode, text):
    async with host.client(mode=mode) as client:
        result = await client.call_tool("echo", {"text": text})
    assert not result.is_error
    assert text_of(result) == text


@pytest.mark.parametrize(("a", "b", "total"), [(40, 2, "42"), (1.25, 1.25, "2.5"), (-1, 1, "0")])
async def test_numbers_are_added(host, mode, a, b, total):
    async with host.client(mode=mode) as client:
        result = await client.call_tool("add", {"a": a, "b": b})
    assert not result.is_error
    assert text_of(result) == total


async def test_a_picture_is_an_image_block(host, mode):
    async with host.client(mode=mode) as client:
        result = await client.call_tool("picture", {})
    assert not result.is_error
    [image] = [block for block in result.content if block.type == "image"]
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data, validate=True).startswith(b"\x89PNG\r\n\x1a\n")


async def test_a_big_result_comes_whole(host, mode):
    async with host.client(mode=mode) as client:
        result = await client.call_tool("blob", {"bytes": 5_000_000})
    assert not result.is_error
    assert len(text_of(result)) == 5_000_000


@pytest.mark.parametrize(
    ("tool", "arguments", "type_name"),
    [
        ("fail", {"message": "boom"}, "DemoError"),
        ("panic", {}, "ToolPanicError"),
        ("add", {"a": 1, "b": "two"}, "ToolArgumentsError"),
        ("echo", {}, "ToolArgumentsError"),
        ("blob", {"bytes": 10_485_760}, "IPCMessageSizeError"),
        ("echo", {"text": "x" * 10_485_760}, "IPCMessageSizeError"),
    ],
)
async def test_a_failed_call_is_a_result_with_message_and_type(host, mode, tool, arguments, type_name):
    async with host.client(mode=mode) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error is True
        message, separator, rest = text_of(result).rpartition(" (type: ")
        assert (separator, rest) == (" (type: ", f"{type_name})")
        assert message
        if tool == "fail":
            assert message == "boom"
        after = await client.call_tool("echo", {"text": "alive"})
        assert text_of(after) == "alive"


async def test_an_unknown_tool_is_invalid_params(host, mode):
    async with host.client(mode=mode) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("no_such_tool", {})
        assert raised.value.code == -32602
        assert "no_such_tool" in raised.value.message
        assert text_of(await client.call_tool("echo", {"text": "alive"})) == "alive"


async def test_progress_is_reported_in_order_before_the_answer(host, mode):
    steps = []
    answered = False

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert not answered
        steps.append(progress)

    async with host.client(mode=mode) as client:
        result = await client.call_tool("countdown", {"from": 3}, progress_callback=on_progress)
        answered = True
        assert not result.is_error
        assert len(steps) >= 3
        assert steps == sorted(set(steps))
        assert text_of(await client.call_tool("echo", {"text": "alive"})) == "alive"


async def test_parallel_calls_get_their_own_answers(host, mode):
    answers: dict[int, str] = {}

    async with host.client(mode=mode) as client:

        async def call(n: int) -> None:
            answers[n] = text_of(await client.call_tool("echo", {"text": f"caller {n}"}))

        async with anyio.create_task_group() as group:
            for n in range(64):
                group.start_soon(call, n)
    assert answers == {n: f"caller {n}" for n in range(64)}


async def test_reading_calls_run_together(host, mode):
    async with host.client(mode=mode) as client:
        await client.call_tool("echo", {"text": "warm"})
        started = time.monotonic()
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(client.call_tool, "wait", {"ms": 3_000})
        # One after the other, they would take longer on any machine.
        assert 3 <= time.monotonic() - started < 24


async def test_a_cancelled_call_frees_what_it_held(host, mode):
    """The client cancels an abandoned call, and its handler ends."""
    started = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async with host.client(mode=mode) as client:
        # It would block the exclusive lane for 100 s.
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "countdown", {"from": 1_000}, None, on_progress)
            await started.wait()
            group.cancel_scope.cancel()
        result = await client.call_tool("write_note", {"text": "next"}, read_timeout_seconds=60)
        assert not result.is_error


async def test_a_call_that_times_out_in_the_client_frees_what_it_held(host, mode):
    async with host.client(mode=mode) as client:
        with pytest.raises(MCPError, match="(?i)timed? ?out"):
            await client.call_tool("write_note", {"text": "long", "ms": 600_000}, read_timeout_seconds=0.5)
        result = await client.call_tool("write_note", {"text": "next"}, read_timeout_seconds=60)
        assert not result.is_error


async def test_two_clients_share_one_host(host, mode):
    async with host.client(mode=mode) as one, host.client(mode=mode) as two:
        for n in range(10):
            assert text_of(await one.call_tool("echo", {"text": f"one {n}"})) == f"one {n}"
            assert text_of(await two.call_tool("echo", {"text": f"two {n}"})) == f"two {n}"
