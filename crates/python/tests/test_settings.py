"""Settings by name: this model's own, those of other models, and unknown ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings, merge_model_settings
from support import World, has_no_word_of_rust

from toolbridge import ClaudeCodeModel, ClaudeCodeModelSettings, InvalidRequestError, McpServer

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


class ElsewhereSettings(ModelSettings, total=False):
    """The settings of a model in another package."""

    elsewhere_mood: str


class ElsewhereModel(TestModel):
    pass


@pytest.mark.oldest
def test_all_former_names_are_refused() -> None:
    of_all = set(ModelSettings.__annotations__)
    own = set(ClaudeCodeModelSettings.__annotations__) - of_all - {"claude_code"}
    for name in own:
        former = name.removeprefix("claude_code_")
        if former in of_all:
            continue  # every model has a setting of that name, such as `thinking`
        with pytest.raises(InvalidRequestError, match=f"no setting `{former}`") as raised:
            ClaudeCodeModel(settings=cast(ModelSettings, {former: None}))
        assert raised.value.hint == f"did you mean `{name}`?"


@pytest.mark.oldest
def test_all_settings_have_the_prefix() -> None:
    own = set(ClaudeCodeModelSettings.__annotations__) - set(ModelSettings.__annotations__)
    assert len(own) > 20
    # The setting that is the prefix itself has nothing after it.
    assert {name for name in own if not name.startswith("claude_code_")} == {"claude_code"}


async def test_settings_of_other_models_are_ignored(world: MakeWorld) -> None:
    here = world("text ok")
    others: dict[str, Any] = {
        "openai_reasoning_effort": "low",
        "anthropic_metadata": {"user_id": "1"},
        "mcp_model_preferences": {},
        "elsewhere_mood": "good",
        "tool_choice": None,
    }
    own = ClaudeCodeModelSettings(claude_code_append_system_prompt="zebra", timeout=60)
    settings = merge_model_settings(cast(ModelSettings, others), own)
    assert (await Agent(here.model(), model_settings=settings).run("go")).output == "ok"
    assert "zebra" in str(here.requests[0]["system"])
    # And in the other direction.
    assert (await Agent(ElsewhereModel(), model_settings=settings).run("go")).output


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_turns", "claude_code_max_turns"),
        ("can_use_tool", "claude_code_can_use_tool"),
        ("mcp_servers", "claude_code_mcp_servers"),
        ("mcp_server", "claude_code_mcp_servers"),
        ("claude_code_max_turn", "claude_code_max_turns"),
        ("claude_code_timeout", "timeout"),
        ("claude_code_temprature", "temperature"),
        ("timeuot", "timeout"),
        ("wroking_directory", "claude_code_working_directory"),
        ("claude_code_zebra", None),
        ("zebra", None),
        ("zebra_stripes", None),
    ],
)
async def test_an_unknown_setting_is_an_error(world: MakeWorld, name: str, meant: str | None) -> None:
    here = world("error 500 nobody was to be asked")
    model = here.model()
    settings = cast(ModelSettings, {name: 1})
    asked: list[Callable[[], Any]] = [
        lambda: Agent(model, model_settings=settings).run("go"),
        lambda: Agent(model).run("go", model_settings=settings),
        lambda: Agent(FallbackModel(model, TestModel())).run("go", model_settings=settings),
    ]
    for ask in asked:
        with pytest.raises(InvalidRequestError) as raised:
            await ask()
        assert raised.value.message == f"there is no setting `{name}`"
        says = f"did you mean `{meant}`?" if meant else "`ClaudeCodeModelSettings` has those of this model"
        assert raised.value.hint == says
    with pytest.raises(InvalidRequestError, match=f"there is no setting `{name}`"):
        ClaudeCodeModel(settings=settings)
    assert here.requests == []


class Odd:
    """A value that no setting takes."""

    def __repr__(self) -> str:
        return "odd"


ARGUMENTS = [
    name
    for name in inspect.signature(ClaudeCodeModel).parameters
    if name not in ("settings", "profile")  # of pydantic-ai
]

OWN = [*(set(ClaudeCodeModelSettings.__annotations__) - set(ModelSettings.__annotations__)), "timeout"]


def said(**arguments: Any) -> str:
    """The error about the arguments of a model."""
    with pytest.raises(InvalidRequestError) as raised:
        ClaudeCodeModel(**arguments)
    has_no_word_of_rust(raised.value)
    return raised.value.message


TEXTS = {
    *("model_name", "working_directory", "cli_path", "session_dir", "system_prompt", "append_system_prompt"),
    *("session_id", "resume", "resume_session_at", "resume_drops_turn", "fallback_model", "client_app"),
}
"""The arguments that take any text."""


@pytest.mark.oldest
@pytest.mark.parametrize(
    "wrong", [Odd(), [Odd()], {"a": Odd()}, "wrong"], ids=lambda wrong: type(wrong).__name__
)
def test_a_value_of_a_wrong_type_is_an_error_that_names_the_setting(wrong: Any) -> None:
    for argument in ARGUMENTS:
        if not (isinstance(wrong, str) and argument in TEXTS):
            named = argument.replace("permission_mode", "permission mode") if wrong == "wrong" else argument
            assert named in said(**{argument: wrong}), argument
    if isinstance(wrong, Odd | list):
        for name in OWN:
            assert f"`{name}`" in said(settings={name: wrong}), name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_turns": "5"}, "`max_turns` takes `int`, not a `str`"),
        ({"max_turns": True}, "`max_turns` takes `int`, not a `bool`"),
        ({"max_turns": 2**32}, "`max_turns` should be less than or equal to 4294967295"),
        ({"task_budget": 1.5}, "`task_budget` takes `int`, not a `float`"),
        ({"builtin_tools": "Read"}, "`builtin_tools` takes `Sequence[BuiltinTool]`, not a `str`"),
        (
            {"builtin_tools": ["Read", 3]},
            "`builtin_tools` takes `Sequence[BuiltinTool]`, and has a `int` at `1`",
        ),
        ({"env": {"PORT": 1}}, "`env` takes `Mapping[str, str]`, and has a `int` at `PORT`"),
        (
            {"add_dirs": ["/tmp", 5]},
            "`add_dirs` takes `Sequence[str | os.PathLike[str]]`, and has a `int` at `1`",
        ),
        (
            {"agents": {"a": {"description": "d", "prompt": "p", "maxTurns": "x"}}},
            "`agents` takes `Mapping[str, Subagent]`, and has a `str` at `a.maxTurns`",
        ),
        (
            {"agents": {"a": {"description": "d", "prompt": "p", "maxTurns": -1}}},
            "`agents.a.maxTurns` should be greater than or equal to 0",
        ),
        ({"timeout": "5"}, "`timeout` takes `float`, not a `str`"),
        ({"effort": "hihg"}, "a setting is invalid: there is no effort `hihg`; did you mean `high`?"),
        ({"tool_errors": "hid"}, "`tool_errors` should be 'tell', 'hide' or 'raise'"),
        (
            {"mcp_servers": {"t": McpServer(command="true")}},
            "`mcp_servers` takes entries of the CLI's `mcpServers`, not an `McpServer` or `NatsTools`",
        ),
    ],
)
def test_errors_about_types_name_what_python_knows(given: dict[str, Any], message: str) -> None:
    assert said(**given) == message


def test_a_server_in_the_wrong_setting_is_told_where_it_belongs() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        ClaudeCodeModel(mcp_servers={"t": McpServer(command="true")})  # type: ignore[dict-item]
    assert raised.value.hint is not None
    assert "`set_agent_toolsets`" in raised.value.hint
    assert "`claude_code_tool_servers`" in raised.value.hint


async def test_values_of_other_types_with_the_same_meaning_are_taken(world: MakeWorld) -> None:
    here = world("text ok")
    model = here.model(
        env=MappingProxyType(here.environment), betas=(), add_dirs=(here.root,), max_budget_usd=1
    )
    assert (await Agent(model).run("go", model_settings={"timeout": 60})).output == "ok"
    with pytest.raises(InvalidRequestError, match="`claude_code_max_turns` takes `int`, not a `str`"):
        await Agent(model).run("go", model_settings=cast(ModelSettings, {"claude_code_max_turns": "5"}))
    assert len(here.requests) == 1
