"""Copies of a model, and models that are sent to another process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from support import SUM, World, prompt

from toolbridge import ClaudeCodeModel

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def hear(self, message: dict[str, Any]) -> None:
        self.heard.append(message["type"])


class Named(ClaudeCodeModel):
    """A model with an additional attribute."""

    def __init__(self, nickname: str, **options: Any) -> None:
        super().__init__(**options)
        self.nickname = nickname


def hear(_: dict[str, Any]) -> None:
    """At module level, so that another process can import it."""


def add(a: int, b: int) -> int:
    return a + b


def travelled(model: ClaudeCodeModel) -> ClaudeCodeModel:
    there: ClaudeCodeModel = pickle.loads(pickle.dumps(model))
    return there


def copied_twice(model: ClaudeCodeModel) -> ClaudeCodeModel:
    return copy.copy(copy.deepcopy(model))


@pytest.mark.parametrize("copied", [copied_twice, travelled])
async def test_a_copy_has_the_settings_of_its_model_and_shares_its_callbacks(
    world: MakeWorld, copied: Callable[[ClaudeCodeModel], ClaudeCodeModel]
) -> None:
    options = world(SUM).options
    listener = Listener()
    model = Named("mine", **options, settings=ModelSettings(timeout=50), message_callback=listener.hear)
    model.set_agent_toolsets([add], server_name="tools", transport="sdk")
    if copied is travelled:
        model.set_agent_toolsets(None)
        model = Named("mine", **options, message_callback=hear)
    other = copied(model)
    assert other is not model
    assert isinstance(other, Named)
    assert other.nickname == "mine"
    assert (other.model_name, other.settings) == (model.model_name, model.settings)
    assert other.get_mcp_servers() == model.get_mcp_servers()
    other.set_agent_toolsets([add], server_name="tools", transport="sdk")
    assert (await other.request(prompt(), None, ModelRequestParameters())).text == "The sum is 42."
    assert ("result" in listener.heard) is (copied is not travelled)


def test_arguments_that_cannot_be_pickled_are_named() -> None:
    model = ClaudeCodeModel(can_use_tool=lambda _: True)
    with pytest.raises(pickle.PicklingError, match="`can_use_tool` of the model cannot be pickled"):
        pickle.dumps(model)
    assert isinstance(copy.deepcopy(model), ClaudeCodeModel)
