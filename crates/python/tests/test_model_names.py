"""Models by name: `Agent("claude-code:sonnet")`."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable, Iterator

import pydantic_ai.models
import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from support import PATIENCE_SECONDS, PYTHON, World, shown

from toolbridge import ClaudeCodeModel, model_names

MakeWorld = Callable[[str], World]


@pytest.fixture
def registered() -> Iterator[None]:
    """Registers the names again after the test."""
    try:
        yield
    finally:
        model_names.register()


def inferred(name: object) -> Model:
    model: Model = pydantic_ai.models.infer_model(name)  # type: ignore[arg-type]
    return model


def test_an_agent_asks_a_model_by_its_name(world: MakeWorld) -> None:
    here = world('call mcp__pydantic_tools__add {"a": 40, "b": 2}\n---\ntext It is {result}.')
    program = """
    import toolbridge
    from pydantic_ai import Agent

    agent = Agent("claude-code:claude-opus-4-5", model_settings={"claude_code_max_turns": 5})

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    print(agent.run_sync("What is 40 + 2?").output)
    later = Agent("claude-code:sonnet", defer_model_check=True)
    print(later.run_sync("go", model="claude-code:claude-haiku-4-5").output)
    with agent.override(model="claude-code:default"):
        print(agent.run_sync("go").output)
    """
    assert shown(here, "-c", textwrap.dedent(program)).split("\n")[0] == "It is 42."
    asked = [request["model"] for request in here.requests]
    assert asked[0] == "claude-opus-4-5"
    assert "claude-haiku-4-5" in asked


@pytest.mark.oldest
def test_names_are_known_wherever_pydantic_ai_takes_them() -> None:
    assert inferred("claude-code:sonnet").model_name == "sonnet"
    assert inferred("claude-code:sonnet[1m]").model_name == "sonnet[1m]"
    # A model's own name leads to a model of the same kind.
    for model in (ClaudeCodeModel(), ClaudeCodeModel("opus")):
        again = inferred(f"{model.system}:{model.model_name}")
        assert isinstance(again, ClaudeCodeModel)
        assert again.model_name == model.model_name
    one, other = FallbackModel("claude-code:sonnet", "test").models
    assert isinstance(one, ClaudeCodeModel)
    assert isinstance(other, TestModel)


@pytest.mark.oldest
def test_other_names_are_left_to_pydantic_ai() -> None:
    model = TestModel()
    assert inferred(model) is model
    assert isinstance(inferred("test"), TestModel)
    for name in ("sonnet", "claude-code"):
        with pytest.raises(UserError, match="Unknown model"):
            inferred(name)
    with pytest.raises((UserError, ValueError), match="Unknown"):
        inferred("claude-codes:sonnet")
    with pytest.raises(UserError, match="names no model"):
        inferred("claude-code:")

    class FactoryError(Exception):
        pass

    def factory(name: str) -> object:
        raise FactoryError(name)

    with pytest.raises(FactoryError, match="openai"):
        pydantic_ai.models.infer_model("openai:gpt-5", provider_factory=factory)  # type: ignore[arg-type]
    with pytest.raises(FactoryError, match="openai"):
        pydantic_ai.models.infer_model("openai:gpt-5", factory)  # type: ignore[arg-type]


@pytest.mark.oldest
def test_registration_can_be_reverted(registered: None) -> None:
    ours = pydantic_ai.models.infer_model
    model_names.register()
    assert pydantic_ai.models.infer_model is ours, "a second time changes nothing"
    model_names.unregister()
    assert pydantic_ai.models.infer_model is ours.__wrapped__  # type: ignore[attr-defined]
    for infer in (inferred, FallbackModel, Agent, ours):
        with pytest.raises((UserError, ValueError), match="Unknown"):
            infer("claude-code:sonnet")
    model_names.unregister()
    model_names.register()
    assert isinstance(FallbackModel("claude-code:sonnet").models[0], ClaudeCodeModel)


def test_other_packages_may_wrap_the_function_too(registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = pydantic_ai.models.infer_model

    def theirs(model: object) -> Model:
        return TestModel() if model == "theirs:one" else ours(model)  # type: ignore[arg-type]

    monkeypatch.setattr(pydantic_ai.models, "infer_model", theirs)
    assert isinstance(inferred("theirs:one"), TestModel)
    assert isinstance(inferred("claude-code:sonnet"), ClaudeCodeModel)
    model_names.unregister()
    assert pydantic_ai.models.infer_model is theirs, "theirs stays"
    with pytest.raises((UserError, ValueError), match="Unknown"):
        inferred("claude-code:sonnet")


@pytest.mark.parametrize(
    "first",
    [
        "pydantic_ai.models.fallback, pydantic_ai.models.wrapper",
        *(
            pytest.param(first, marks=pytest.mark.thorough)
            for first in ("toolbridge", "pydantic_ai.models.fallback", "pydantic_ai.models.wrapper")
        ),
    ],
)
def test_the_order_of_imports_does_not_matter(first: str) -> None:
    program = f"""
    import {first}
    import toolbridge
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.wrapper import WrapperModel

    print(FallbackModel("claude-code:sonnet").models[0].model_name)
    print(WrapperModel("claude-code:opus").model_name)
    """
    done = subprocess.run(
        [*PYTHON, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", "sonnet\nopus\n")
