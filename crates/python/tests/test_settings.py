"""Settings by name: this model's own, those of other models, and unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings, merge_model_settings
from support import World

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
