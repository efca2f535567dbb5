"""A test of an agent, offline: the real CLI, no account, and a script in place of the model.

python -m pytest test_sums.py
"""

from pydantic_ai import Agent

from toolbridge import ClaudeCodeModel
from toolbridge.testing import ScriptedModel

agent = Agent(ClaudeCodeModel(), instructions="Use the tools for every calculation.")


@agent.tool_plain
def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


SCRIPT = """
    call add {"a": 40, "b": 2}
    ---
    text 40 + 2 is {result}.
"""


def test_sums() -> None:
    with ScriptedModel(SCRIPT) as scripted, agent.override(model=scripted.model()):
        assert agent.run_sync("What is 40 + 2?").output == "40 + 2 is 42.0."

    # The model was asked twice: with the question, and with what the tool answered.
    first, second = scripted.requests
    assert first.prompt == "What is 40 + 2?"
    assert first.tools == ["mcp__pydantic_tools__add"]
    assert "Use the tools" in first.system
    assert [result.text for result in second.tool_results] == ["42.0"]
