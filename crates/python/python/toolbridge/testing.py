"""Tests of agents, offline: the real CLI, no account, and a script in place of the model.

`ScriptedModel` plays the model. With pytest there is a fixture, too; a `conftest.py` that says
`pytest_plugins = ["toolbridge.testing"]` has it.

PYTEST_DONT_REWRITE: there is no assertion here, and whoever imports this first is not to be warned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from . import _native
from .model import ClaudeCodeModel

__all__ = ["RecordedRequest", "RecordedResult", "ScriptedModel"]

_CLI = "TOOLBRIDGE_TEST_CLAUDE"
"""Names the CLI to test with, instead of the one that is found."""


@dataclass(frozen=True)
class RecordedResult:
    """A tool's result as the model saw it."""

    tool_use_id: str
    """The call that this answers."""
    is_error: bool
    """Whether the call failed."""
    content: Any
    """The content as it was sent: a string, or a list of blocks."""
    text: str
    """The text of all text blocks, without what the CLI may put behind it."""


@dataclass(frozen=True)
class RecordedRequest:
    """A request as the model saw it."""

    prompt: str
    """What the user said last, without tool results and without reminders of the CLI's."""
    system: str
    """The system prompt, with an agent's instructions and the few lines that the CLI adds."""
    tools: list[str]
    """The names of the tools that were offered, such as `mcp__pydantic_tools__add`."""
    tool_results: list[RecordedResult]
    """The tool results of the last message that has any."""
    turn: int
    """Which turn of its conversation this asked for, from 0."""
    body: dict[str, Any]
    """All of it, as the Messages API has it."""


def _request(said: dict[str, Any]) -> RecordedRequest:
    results = [RecordedResult(**result) for result in said.pop("tool_results")]
    return RecordedRequest(tool_results=results, **said)


class _OfflineModel(ClaudeCodeModel):
    """A model that no provider is behind, so that pydantic-ai's `ALLOW_MODEL_REQUESTS` is not about it."""

    def _check_allowed(self) -> None:
        pass


class ScriptedModel:
    """A model on loopback that answers by a script, and records what it was sent.

    Each turn of the script is an answer, and `---` stands between two turns. A line is a part of the answer:
    `text The sum is {result}.` says something, with what the tool answered; `call add {"a": 1, "b": 2}` calls
    a tool by its own name. docs/TESTING.md has all there is.

    The turn is chosen by each request alone, by the number of answers that it holds. So several conversations
    can share a model. A request past the script's end fails with an error that says so.
    """

    def __init__(self, script: str) -> None:
        """Starts it. Leaving its context, or `close`, ends it.

        Raises:
            InvalidRequestError: When the text is no script. It names the line.
        """
        self._native = _native.Scripted(script)
        self._last: tuple[list[RecordedRequest], int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections, and removes the CLI's home. What was recorded stays."""
        self._last = (self.requests, self.overruns)
        self._native.close()

    def model(self, model_name: str | None = None, **settings: Any) -> ClaudeCodeModel:
        """A model that runs in the real CLI and is answered by this script.

        All that the CLI sees of this machine is `environment`. It is the one that the variable
        `TOOLBRIDGE_TEST_CLAUDE` names, else the one that every `ClaudeCodeModel` finds.

        Args:
            model_name: The model to ask for.
            settings: Settings of `ClaudeCodeModel`; `env` comes on top of `environment`.
        """
        env = {**self.environment, **(settings.pop("env", None) or {})}
        if path := os.environ.get(_CLI):
            settings.setdefault("cli_path", path)
        return _OfflineModel(model_name, **{"inherit_env": False, **settings, "env": env})

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests so far, in the order in which they came."""
        if self._last is not None:
            return self._last[0]
        return [_request(said) for said in json.loads(self._native.requests())]

    @property
    def overruns(self) -> int:
        """How many requests came past the script's end."""
        return self._native.overruns() if self._last is None else self._last[1]

    @property
    def url(self) -> str:
        """Where it listens, on this machine only."""
        return self._native.url

    @property
    def environment(self) -> dict[str, str]:
        """All that a CLI, or a program that starts one, is to see of this machine.

        That is a home which is empty at first, this process's PATH, `url`, and a key that is none. A whole
        program is tested from outside with `subprocess.run(…, env=scripted.environment)`.
        """
        return self._native.environment


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture
    def scripted_model() -> Iterator[Callable[[str], ScriptedModel]]:
        """Makes scripted models; they end with the test."""
        with ExitStack() as stack:
            yield lambda script: stack.enter_context(ScriptedModel(script))

    __all__ += ["scripted_model"]
