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
from support import World, arguments, has_no_word_of_rust

from toolbridge import ClaudeCodeModel, ClaudeCodeModelSettings, InvalidRequestError

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


async def test_settings_of_other_models_are_ignored(world: MakeWorld) -> None:
    here = world("text ok")
    others: dict[str, Any] = {
        "openai_reasoning_effort": "low",
        "anthropic_metadata": {"user_id": "1"},
        "mcp_model_preferences": {},
        "elsewhere_mood": "good",
        "zebra": 1,
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
        ("claude_code_mcp_server", "claude_code_mcp_servers"),
        ("claude_code_max_turn", "claude_code_max_turns"),
        ("claude_code_timeout", "timeout"),
        ("claude_code_wroking_directory", "claude_code_working_directory"),
        ("claude_code_zebra", None),
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


def test_what_can_be_a_setting_is_no_argument() -> None:
    assert len(inspect.signature(ClaudeCodeModel).parameters) <= 20


class Odd:
    """A value that no setting takes."""

    def __repr__(self) -> str:
        return "odd"


OWN = [*(set(ClaudeCodeModelSettings.__annotations__) - set(ModelSettings.__annotations__)), "timeout"]


def said(**settings: Any) -> str:
    """The error about the settings of a model."""
    with pytest.raises(InvalidRequestError) as raised:
        ClaudeCodeModel(**arguments(settings))
    has_no_word_of_rust(raised.value)
    assert "secret" not in str(raised.value)
    return raised.value.message


@pytest.mark.oldest
@pytest.mark.parametrize("wrong", [Odd(), [Odd()], {"a": Odd()}], ids=lambda wrong: type(wrong).__name__)
def test_a_value_of_a_wrong_type_is_an_error_that_names_the_setting(wrong: Any) -> None:
    for name in OWN:
        assert f"`{name}" in said(settings={name: wrong}), name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_turns": "secret"}, "`claude_code_max_turns`: Input should be a valid integer"),
        ({"max_turns": True}, "`claude_code_max_turns`: Input should be a valid integer"),
        (
            {"max_turns": 2**32},
            "`claude_code_max_turns`: Input should be less than or equal to 4294967295",
        ),
        ({"task_budget": 1.5}, "`claude_code_task_budget`: Input should be a valid integer"),
        (
            {"builtin_tools": "Read"},
            "`claude_code_builtin_tools`: 'str' instances are not allowed as a Sequence value",
        ),
        ({"env": {"PORT": 1}}, "`claude_code_env.PORT`: Input should be a valid string"),
        ({"env": {"KEY": ["secret"]}}, "`claude_code_env.KEY`: Input should be a valid string"),
        (
            {"agents": {"a": {"description": "d", "prompt": "p", "maxTurns": "x"}}},
            "`claude_code_agents.a.maxTurns`: Input should be a valid integer",
        ),
        ({"timeout": "secret"}, "`timeout`: Input should be a valid number"),
        (
            {"tool_errors": "secret"},
            "`claude_code_tool_errors`: Input should be 'tell', 'hide' or 'raise'",
        ),
    ],
)
def test_errors_about_types_name_the_setting_and_never_its_value(given: dict[str, Any], message: str) -> None:
    assert said(**given) == message


async def test_values_of_other_types_with_the_same_meaning_are_taken(world: MakeWorld) -> None:
    here = world("text ok")
    model = here.model(
        env=MappingProxyType(here.environment), betas=(), add_dirs=(here.root,), max_budget_usd=1
    )
    assert (await Agent(model).run("go", model_settings={"timeout": 60})).output == "ok"
    with pytest.raises(InvalidRequestError, match="`claude_code_max_turns`: Input should be a valid integer"):
        await Agent(model).run("go", model_settings=cast(ModelSettings, {"claude_code_max_turns": "5"}))
    assert len(here.requests) == 1
