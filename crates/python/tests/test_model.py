"""The model without an agent, and its settings."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_origin, get_type_hints

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from support import PATIENCE_SECONDS, Transport, World, arguments, hanging, has_no_word_of_rust, named, prompt

import toolbridge
from toolbridge import (
    DEFAULT_TRANSPORT,
    Allow,
    ClaudeCodeModel,
    ClaudeCodeModelSettings,
    CLIExecutionError,
    CLINotFoundError,
    Deny,
    Hook,
    InvalidRequestError,
    McpServerError,
    PermissionMode,
    PermissionRequest,
    PermissionUpdate,
    Subagent,
    ToolNotFoundError,
    ToolsetNotRegisteredError,
)

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


def add(a: int, b: int) -> int:
    return a + b


def subtract(a: int, b: int) -> int:
    return a - b


async def test_metadata_comes_with_the_answer_and_a_history_is_sent(world: MakeWorld) -> None:
    here = world("text unused\n---\ntext Hello.")
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("My name is Ada.")], instructions="zebra"),
        ModelResponse(parts=[TextPart("Hello Ada!")]),
        ModelRequest(parts=[UserPromptPart("What is my name?")]),
    ]
    answer = await here.model().request_with_metadata(messages, None, ModelRequestParameters())
    roles = [one["role"] for one in here.requests[-1]["messages"] if one["role"] != "system"]
    assert roles == ["user", "assistant", "user"]
    assert "zebra" in str(here.requests[-1]["system"])
    assert answer.response.text == "Hello."
    said = answer.cli_response
    assert said.num_turns == 1
    assert said.session_id
    assert (said.total_cost_usd or 0) > 0
    assert (said.duration_ms or 0) > 0
    assert said.usage.output_tokens > 0
    assert said.raw["type"] == "result"


async def test_messages_of_the_cli_are_streamed(world: MakeWorld, transport: Transport) -> None:
    model = world('call add {"a": 1, "b": 1}\n---\ntext {result}').model()
    model.set_agent_toolsets([add], server_name="tools", transport=transport)
    messages = [m async for m in model.stream_messages(prompt(), None, ModelRequestParameters())]
    kinds = [message["type"] for message in messages]
    assert kinds.index("system") < kinds.index("assistant") < kinds.index("user") < kinds.index("result")
    assert messages[-1]["result"] == "2"


async def test_leaving_stream_messages_ends_the_request(world: MakeWorld, transport: Transport) -> None:
    here = world("call hang {}\n---\ntext done")
    model = here.model()
    hang, started, cancelled = hanging()
    model.set_agent_toolsets([hang], server_name="tools", transport=transport)
    stream = model.stream_messages(prompt(), None, ModelRequestParameters())
    async for _ in stream:
        break
    await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
    await stream.aclose()
    assert cancelled.is_set()
    assert model.interrupt() == 0
    assert here.files == []


async def test_a_request_chooses_from_the_registered_tools(world: MakeWorld, transport: Transport) -> None:
    here = world("text ok")
    model = here.model()
    chosen = ModelRequestParameters(function_tools=[ToolDefinition(name="add")])
    with pytest.raises(ToolsetNotRegisteredError):
        await ClaudeCodeModel(**here.options).request(prompt(), None, chosen)
    model.set_agent_toolsets([add, subtract], transport=transport)
    async with model._prepared(prompt(), None, chosen) as ready:
        assert json.loads(ready.host.request)["request"]["only"] == ["add"]
    other = ModelRequestParameters(function_tools=[ToolDefinition(name="divide")])
    with pytest.raises(ToolNotFoundError, match="there is no tool `divide`"):
        await model.request(prompt(), None, other)


DECISIONS: list[tuple[Any, bool]] = [
    (True, True),
    (Allow(), True),
    (False, False),
    (Deny("this is a reading room"), False),
]


@pytest.mark.parametrize("is_async", [True, pytest.param(False, marks=pytest.mark.thorough)])
async def test_can_use_tool_decides(world: MakeWorld, is_async: bool) -> None:
    asked: list[PermissionRequest] = []

    def decide(request: PermissionRequest) -> Any:
        asked.append(request)
        return DECISIONS[len(asked) - 1][0]

    async def decide_async(request: PermissionRequest) -> Any:
        return decide(request)

    home = world("text placeholder").home
    places = [f"{home}/note-{n}" for n in range(len(DECISIONS))]
    write = "call Write " + json.dumps({"file_path": "PLACE", "content": "hi"})
    here = world("\n---\n".join([*(write.replace("PLACE", place) for place in places), "text ok"]))
    model = here.model(
        can_use_tool=decide_async if is_async else decide, builtin_tools=["Write"], add_dirs=[home]
    )
    await model.request(prompt(), None, ModelRequestParameters())
    assert [request.tool_name for request in asked] == ["Write"] * len(DECISIONS)
    assert [request.tool_input["file_path"] for request in asked] == places
    assert {request.tool_input["content"] for request in asked} == {"hi"}
    assert [Path(place).exists() for place in places] == [written for _, written in DECISIONS]
    # The last decision was `Deny`.
    assert here.results[0]["is_error"] is True
    assert "this is a reading room" in here.result_texts[0]


async def test_parameters_of_tools_can_be_restricted(world: MakeWorld) -> None:
    here = world('call Bash {"command": "rm -r x"}\n---\ntext ok')
    restrictions = {"Bash": {"command": {"pattern": "^git "}}}
    model = here.model(
        tool_parameter_restrictions=restrictions, builtin_tools=["Bash"], allowed_tools=["Bash"]
    )
    await model.request(prompt(), None, ModelRequestParameters())
    assert "restricted" in here.result_texts[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"continue_conversation": True, "resume": "x"}, "exclude each other"),
        ({"fork_session": True}, "needs a conversation"),
        ({"session_id": "x", "resume": "y"}, "names a new conversation"),
        ({"session_id": "x", "continue_conversation": True}, "names a new conversation"),
        ({"session_id": "x"}, "the session id `x` is not a UUID"),
        ({"cli_settings": [1]}, "`claude_code_cli_settings`: Input should be a valid dictionary"),
        ({"max_concurrent_requests": 0}, "`max_concurrent_requests` is 0"),
        ({"max_concurrent_requests": -1}, "`max_concurrent_requests` is `-1`"),
        ({"timeout": 0}, "`timeout` is 0"),
        ({"timeout": -1}, "`timeout` is -1"),
        ({"max_turns": 0}, "`max_turns` is 0"),
        ({"max_turns": -1}, "`claude_code_max_turns`: Input should be greater than or equal to 0"),
        (
            {"effort": "hihg"},
            "`claude_code_effort`: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'",
        ),
        ({"permission_mode": "acceptEdit"}, "`claude_code_permission_mode`: Input should be 'default', 'acc"),
        ({"builtin_tools": ["Raed"]}, "there is no built-in tool `Raed`; did you mean `Read`\\?"),
        ({"disallowed_tools": ["bash(rm *)"]}, "there is no built-in tool `bash`; did you mean `Bash`\\?"),
        ({"setting_sources": ["usr"]}, "did you mean `user`\\?"),
        ({"max_budget_usd": 0}, "`max_budget_usd` is 0"),
        ({"agents": {"a": {"prompt": "x"}}}, "`claude_code_agents.a.description`: Field required"),
        ({"agents": {"a": {"description": "d", "prompt": "x", "tool": []}}}, "unknown field `tool`"),
        ({"skills": ["a),Bash"]}, "is not a valid skill name"),
        ({"thinking": {"type": "enabled"}}, "missing field `budget_tokens`"),
        ({"sandbox": {"enable": True}}, "unknown field `enable`"),
        ({"betas": ["a,b"]}, "`a,b` is not a valid beta name"),
        ({"client_app": "a\nb"}, "cannot be in an HTTP header"),
        ({"resume_session_at": "x"}, "a conversation that is resumed"),
        ({"env": {"A=B": "x"}}, "the environment variable `A=B` has an invalid name or value"),
        ({"tool_parameter_restrictions": {"Bash": {"command": {"pattern": "("}}}}, "is not a JSON Schema"),
    ],
)
def test_invalid_settings_are_reported_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as raised:
        ClaudeCodeModel(**arguments(options))
    has_no_word_of_rust(raised.value)
    with pytest.raises(ValueError, match=message):
        ClaudeCodeModel(**arguments(options))


def test_literals_are_literal() -> None:
    assert get_type_hints(PermissionUpdate)["mode"] is PermissionMode
    for name in ("claude_code_effort", "claude_code_permission_mode"):
        assert get_origin(get_type_hints(ClaudeCodeModelSettings)[name]) is Literal, "no other text"
    assert get_origin(get_type_hints(Hook)["event"]) is Literal


async def test_a_server_that_fails_is_an_error_that_names_it(world: MakeWorld) -> None:
    here = world("text an answer without its tools")
    model = here.model(mcp_servers={"shop": {"command": "/does/not/exist"}})
    with pytest.raises(McpServerError, match="MCP server `shop` are not available") as raised:
        await model.request(prompt(), None, ModelRequestParameters())
    assert raised.value.hint is not None
    assert "`mcp_servers`" in raised.value.hint


async def test_a_rule_for_a_tool_that_nothing_offers_is_a_warning(
    world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world("text ok")
    model = here.model(allowed_tools=["Read", "mcp__tools__add", "mcp__tools__sub"])
    model.set_agent_toolsets([add], server_name="tools")
    with caplog.at_level(logging.WARNING, "toolbridge"):
        assert (await model.request(prompt(), None, ModelRequestParameters())).text == "ok"
    said = [record.getMessage() for record in caplog.records if "allowed_tools" in record.getMessage()]
    assert [message.split("`")[1] for message in said] == ["Read", "mcp__tools__sub"]


async def test_an_agent_has_only_the_tools_it_is_given(world: MakeWorld) -> None:
    start = '{"description": "x", "prompt": "look", "subagent_type": "sums"}'
    here = world(f"call Task {start}\n---\ntext ok")
    agents = {"sums": Subagent(description="Does sums", prompt="You are a zebra.", tools=["add"])}
    model = here.model(agents=agents)
    model.set_agent_toolsets([add])
    await model.request(prompt(), None, ModelRequestParameters())
    of_agent = [request for request in here.requests if "zebra" in str(request["system"])]
    assert [tool["name"] for tool in of_agent[0]["tools"]] == ["mcp__pydantic_tools__add"]


async def test_stderr_lines_reach_the_callback(world: MakeWorld) -> None:
    here = world("text ok")
    lines: list[str] = []
    cli = here.root / "claude"
    cli.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo 2.1.326; exit; }\necho zebra >&2; exit 3\n')
    cli.chmod(0o755)
    model = here.model(cli_path=cli, stderr_callback=lines.append)
    with pytest.raises(CLIExecutionError, match="zebra"):
        await model.request(prompt(), None, ModelRequestParameters())
    assert lines == ["zebra"]


async def test_names_that_the_cli_would_reject_are_errors(world: MakeWorld) -> None:
    model = world("text ok").model()
    with pytest.raises(InvalidRequestError, match="there is no transport `http`"):
        model.set_agent_toolsets([add], transport="http")  # type: ignore[arg-type]
    model.set_agent_toolsets([add], server_name="no good")
    with pytest.raises(InvalidRequestError, match="server name `no good`") as raised:
        await model.request(prompt(), None, ModelRequestParameters())
    assert raised.value.hint


@pytest.mark.skipif(
    any(Path(folder, "claude").exists() for folder in ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")),
    reason="a CLI is installed for all users",
)
async def test_the_cli_of_a_python_package_is_found(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world("text ok")
    packages = here.packages
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HOME", str(here.home))
    model = ClaudeCodeModel(**{**here.options, "cli_path": None})
    assert (await model.request(prompt(), None, ModelRequestParameters())).text == "ok"
    bundled = packages / "claude_agent_sdk/_bundled/claude"
    assert toolbridge.find_cli() == bundled
    # One on the PATH is preferred.
    on_path = here.root / "claude"
    on_path.symlink_to(named("TOOLBRIDGE_TEST_CLAUDE"))
    monkeypatch.setenv("PATH", str(here.root))
    assert toolbridge.find_cli() == on_path
    on_path.unlink()
    bundled.unlink()
    with pytest.raises(CLINotFoundError) as raised:
        toolbridge.find_cli()
    assert raised.value.hint


def test_the_constants_have_the_names_and_values_of_the_specification() -> None:
    assert toolbridge.MAX_MESSAGE_SIZE == 10_485_760
    assert toolbridge.LENGTH_PREFIX_SIZE == 4
    assert toolbridge.SOCKET_PERMISSIONS == 0o600
    assert toolbridge.SOCKET_FILE_PREFIX == "claudecode_ipc_"
    assert toolbridge.SOCKET_FILE_SUFFIX == ".sock"
    assert toolbridge.SCHEMA_FILE_PREFIX == "claudecode_ipc_schema_"
    assert toolbridge.DEFAULT_TRANSPORT == "auto"


def test_defaults() -> None:
    model = ClaudeCodeModel()
    assert model.model_name == "default"
    assert model.system == "claude-code"
    assert DEFAULT_TRANSPORT == "auto"
    assert model.get_mcp_servers() == {}
    assert Agent(model).model is model
    assert model.profile.get("supports_json_schema_output") is True
    assert ClaudeCodeModel(profile={"supports_tools": False}).profile.get("supports_tools") is False
