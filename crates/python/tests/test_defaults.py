"""What a model can see and do by default: its author's prompts and tools, and nothing of the CLI's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from support import World, has_no_word_of_rust, prompt

from toolbridge import (
    ClaudeCodeModel,
    ClaudeCodeModelSettings,
    CLIExecutionError,
    InvalidRequestError,
    RequestWithMetadata,
)

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

SECRET = "the zebra sleeps at noon"


@pytest.fixture
def secret(short_path: Path) -> Path:
    path = short_path / "secret.txt"
    path.write_text(SECRET)
    return path


def tools(here: World) -> list[str]:
    """The tools in the last request to the model, without the CLI's tool for those that load later."""
    names = [tool["name"] for tool in here.requests[-1].get("tools", [])]
    return [name for name in names if name != "DeferredToolPlaceholder"]


def transcripts(here: World) -> list[Path]:
    return list(here.home.rglob("*.jsonl"))


def told(here: World) -> str:
    """The user messages in the last request to the model."""
    blocks: list[Any] = []
    for message in here.requests[-1]["messages"]:
        content = message["content"]
        blocks += [{"text": content}] if isinstance(content, str) else content
    return "\n".join(block.get("text", "") for block in blocks)


@pytest.mark.sampled
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("has_history", [False, True])  # without, the prompt is the whole message
@pytest.mark.parametrize(
    "text", ["/cost", "see @SECRET", pytest.param("/help @SECRET", marks=pytest.mark.thorough)]
)
async def test_prompts_and_history_are_text(
    world: MakeWorld, secret: Path, text: str, has_history: bool, is_streamed: bool
) -> None:
    here = world("text ok\n---\ntext ok")
    agent = Agent(here.model())
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(f"first @{secret}")]),
        ModelResponse(parts=[TextPart(f"I saw @{secret}")]),
    ]
    before = history if has_history else []
    text = text.replace("SECRET", str(secret))
    if is_streamed:
        async with agent.run_stream(text, message_history=before) as result:
            assert await result.get_output() == "ok"
    else:
        assert (await agent.run(text, message_history=before)).output == "ok"
    for piece in (text, f"first @{secret}", f"I saw @{secret}") if has_history else (text,):
        assert piece in told(here)
    assert len(here.requests) == 1
    assert SECRET not in json.dumps(here.requests)


async def test_prompts_are_expanded_if_enabled(world: MakeWorld, secret: Path) -> None:
    here = world("text ok")
    await Agent(here.model(expand_prompts=True)).run(f"see @{secret}")
    assert SECRET in json.dumps(here.requests[-1])
    # The CLI runs the command itself, and does not ask the model.
    expand = ClaudeCodeModelSettings(claude_code_expand_prompts=True)
    assert (await Agent(here.model()).run("/cost", model_settings=expand)).output != "ok"
    assert len(here.requests) == 1


async def test_a_cli_that_would_expand_a_prompt_does_not_get_it(world: MakeWorld) -> None:
    here = world("text ok")
    cli = here.root / "claude"
    cli.write_text("#!/bin/sh\necho '2.1.100 (Claude Code)'\n")
    cli.chmod(0o755)
    with pytest.raises(InvalidRequestError, match="would expand `@/etc/hosts` in the prompt") as raised:
        await Agent(here.model(cli_path=cli)).run("see @/etc/hosts")
    assert raised.value.hint is not None
    assert raised.value.hint.endswith("or allow it with `claude_code_expand_prompts`")
    has_no_word_of_rust(raised.value)


@pytest.mark.parametrize("is_a_setting", [True, pytest.param(False, marks=pytest.mark.thorough)])
async def test_claude_code_enables_everything(world: MakeWorld, is_a_setting: bool) -> None:
    here = world("text ok")
    (here.home / "CLAUDE.md").write_text("zebra memory")
    if is_a_setting:
        whole = Agent(here.model(), model_settings=ClaudeCodeModelSettings(claude_code=True))
    else:
        whole = Agent(here.model(claude_code=True))
    await whole.run("go")
    assert {"Bash", "Read", "Write"} <= set(tools(here))
    assert "zebra memory" in json.dumps(here.requests[-1])
    assert len(str(here.requests[-1]["system"])) > 1000
    assert len(transcripts(here)) == 1


async def test_single_parts_of_claude_code(world: MakeWorld) -> None:
    here = world("text ok")
    (here.home / "CLAUDE.md").write_text("zebra memory")
    # The model of the CLI's settings is visible in the request.
    own = {"model": "claude-haiku-4-5"}
    await Agent(here.model(builtin_tools=["Read"], setting_sources=[], cli_settings=own)).run("go")
    assert tools(here) == ["Read"]
    assert len(str(here.requests[-1]["system"])) < 1000
    assert "zebra memory" not in json.dumps(here.requests[-1])
    assert here.requests[-1]["model"] == "claude-haiku-4-5"
    await Agent(here.model(coding_prompt=True, setting_sources=["project"])).run("go")
    assert tools(here) == []
    assert len(str(here.requests[-1]["system"])) > 1000
    assert "zebra memory" in json.dumps(here.requests[-1])
    assert transcripts(here) == []
    await Agent(here.model(claude_code=True, builtin_tools=[], coding_prompt=False)).run("go")
    assert tools(here) == []
    assert len(str(here.requests[-1]["system"])) < 1000
    assert len(transcripts(here)) == 1  # that of the whole one


@pytest.mark.sampled
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", ["default", "claude-opus-4-5"])
async def test_by_default_only_the_model_is_the_clis_and_it_is_named_in_the_answer(
    world: MakeWorld, name: str, is_streamed: bool
) -> None:
    here = world("text ok")
    (here.home / "CLAUDE.md").write_text("zebra memory")
    model = here.model() if name == "default" else here.model(model_name=name)
    assert model.model_name == name
    if is_streamed:
        async with model.request_stream(prompt(), None, ModelRequestParameters()) as stream:
            async for _ in stream:
                pass
        response = stream.get()
    else:
        response = await model.request(prompt(), None, ModelRequestParameters())
    assert response.model_name == here.requests[-1]["model"]
    assert response.model_name != "default"
    assert name in ("default", response.model_name)
    # No feature of the CLI is enabled.
    assert tools(here) == []
    assert "zebra memory" not in json.dumps(here.requests[-1])
    assert len(str(here.requests[-1]["system"])) < 1000
    assert transcripts(here) == []


async def test_a_stored_conversation_is_continued_by_its_id_and_others_are_not_stored(
    world: MakeWorld,
) -> None:
    here = world("text one\n---\ntext two\n---\ntext three")
    model = here.model(keep_session=True)
    name = str(uuid.uuid4())

    async def ask(text: str, **settings: Any) -> RequestWithMetadata:
        own = ClaudeCodeModelSettings(**{f"claude_code_{key}": value for key, value in settings.items()})  # type: ignore[typeddict-item]
        return await model.request_with_metadata(prompt(text), own, ModelRequestParameters())

    assert (await ask("zebra first", session_id=name)).cli_response.session_id == name
    [transcript] = transcripts(here)
    assert transcript.stem == name
    second = await ask("zebra second", continue_conversation=True)
    assert second.response.text == "two"
    assert "zebra first" in told(here)
    third = await ask("zebra third", resume=name)
    assert third.response.text == "three"
    assert "zebra second" in told(here)
    assert third.cli_response.session_id == name
    # The request's settings take precedence.
    not_kept = await ask("zebra fourth", keep_session=False)
    assert transcripts(here) == [transcript]
    with pytest.raises(CLIExecutionError) as raised:
        await ask("zebra fifth", resume=not_kept.cli_response.session_id)
    assert raised.value.error_type == "no_conversation"
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("keep a conversation when it begins (`claude_code_keep_session`)")
    has_no_word_of_rust(raised.value)


@pytest.mark.parametrize("tool", ["Bash", "mcp__tools__add", "add"])
async def test_a_restriction_of_a_missing_tool_is_an_error(world: MakeWorld, tool: str) -> None:
    here = world("text ok")
    model = here.model(tool_parameter_restrictions={tool: {"command": {"pattern": "^git "}}})
    with pytest.raises(
        InvalidRequestError, match=f"`{tool}` are restricted, but the request has no such tool"
    ):
        await Agent(model).run("go")
    assert here.requests == []


def test_a_model_needs_no_name() -> None:
    assert ClaudeCodeModel().model_name == "default"
    assert ClaudeCodeModel("claude-opus-4-5").model_name == "claude-opus-4-5"
