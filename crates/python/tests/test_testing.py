"""The testing tools for users."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai import Agent, models
from support import PATIENCE_SECONDS

from toolbridge import ClaudeCodeModelSettings, CLIExecutionError, CLINotFoundError, InvalidRequestError
from toolbridge.testing import RecordedRequest, ScriptedModel

pytest_plugins = ["toolbridge.testing"]

MakeScripted = Callable[[str], ScriptedModel]

pytestmark = pytest.mark.anyio

ADD = 'call add {"a": 40, "b": 2}'


def agent_of(scripted: ScriptedModel) -> Agent[None, str]:
    agent = Agent(scripted.model(timeout=PATIENCE_SECONDS), instructions="Use the tools.")

    @agent.tool_plain
    def add(a: float, b: float) -> float:
        return a + b

    return agent


async def test_requests_are_recorded_and_only_they_remain_and_no_provider_is_asked() -> None:
    with (
        ScriptedModel(f"{ADD}\n---\ntext It is {{result}}.") as scripted,
        models.override_allow_model_requests(False),
    ):
        assert scripted.requests == []
        home = Path(scripted.environment["HOME"])
        assert home.is_dir()
        assert (await agent_of(scripted).run("What is 40 + 2?")).output == "It is 42.0."
        assert [request.turn for request in scripted.requests] == [0, 1]
        assert scripted.overruns == 0
    assert not home.exists()
    first, second = scripted.requests
    assert (first.prompt, first.turn, first.tool_results) == ("What is 40 + 2?", 0, [])
    assert first.tools == ["mcp__pydantic_tools__add"]
    assert "Use the tools." in first.system
    [result] = second.tool_results
    assert (second.turn, result.text, result.is_error) == (1, "42.0", False)
    assert (result.tool_use_id, second.body["stream"]) == ("toolu_0_0", True)
    scripted.close()


async def test_a_request_past_the_scripts_end_is_reported(scripted_model: MakeScripted) -> None:
    scripted = scripted_model(ADD)
    with pytest.raises(CLIExecutionError, match="the script has ended: it has no turn 2"):
        await agent_of(scripted).run("go")
    # The CLI may retry.
    assert scripted.overruns >= 1
    assert len(scripted.requests) == 1 + scripted.overruns


async def test_the_cli_sees_nothing_of_this_machine(
    scripted_model: MakeScripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_MODEL", "of-the-user")
    scripted = scripted_model('call Bash {"command": "env"}\n---\ntext {result}')
    home = scripted.environment["HOME"]
    model = scripted.model(
        settings=ClaudeCodeModelSettings(claude_code_builtin_tools=["Bash"], claude_code_env={"OWN": "1"}),
        allowed_tools=["Bash"],
        working_directory=home,
    )
    seen = (await Agent(model).run("go")).output.split("\n")
    assert f"HOME={home}" in seen
    assert "OWN=1" in seen
    assert not [line for line in seen if line.startswith("ANTHROPIC_MODEL")]


async def test_a_function_answers_each_request_and_its_error_is_one_of_the_model() -> None:
    def answer(request: RecordedRequest) -> str:
        if request.prompt == "fail":
            raise LookupError("nothing to say")
        results = [result.text for result in request.tool_results]
        return f"text The sum is {results[0]}." if results else ADD

    def add(a: int, b: int) -> int:
        return a + b

    with ScriptedModel(answer) as scripted:
        agent = Agent(scripted.model(), tools=[add])
        assert (await agent.run("go")).output == "The sum is 42."
        assert (await agent.run("go on")).output == "The sum is 42."
        with pytest.raises(CLIExecutionError, match="nothing to say"):
            await agent.run("fail")


def test_a_script_with_a_mistake_names_the_line() -> None:
    with pytest.raises(
        InvalidRequestError, match="line 2 of the script: `say` is not a keyword; a line starts"
    ):
        ScriptedModel("text hello\nsay goodbye")


async def test_a_missing_cli_has_a_hint(scripted_model: MakeScripted) -> None:
    model = scripted_model("text hello").model(cli_path="/nowhere/claude")
    with pytest.raises(CLINotFoundError) as error:
        await Agent(model).run("hi")
    assert error.value.hint is not None
    assert "install it with" in error.value.hint


def test_pytest_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text("raise ImportError")
    program = "from toolbridge.testing import *; print(ScriptedModel('text hi').url)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("http://127.0.0.1:")


LEAVES_EARLY = """
import asyncio
from pydantic_ai import Agent
from toolbridge.testing import RecordedRequest, ScriptedModel

async def leave() -> None:
    with ScriptedModel("text one | two | three") as scripted:
        async with Agent(scripted.model()).run_stream("go") as answer:
            async for _ in answer.stream_text(delta=True, debounce_by=None):
                break

async def main() -> None:
    await asyncio.gather(*[leave() for _ in range(8)])

asyncio.run(main())
never_closed = ScriptedModel("text hi")
print("left")
"""


def test_streams_that_are_left_early_leave_no_folder(short_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_EARLY],
        env={**os.environ, "TMPDIR": str(short_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")
    assert list(short_path.glob("toolbridge-testing-*")) == []
