"""Offline tests of agents: the real CLI without an account, and a scripted model.

`ScriptedModel` replaces the model. There is also a pytest fixture; enable it in a `conftest.py` with
`pytest_plugins = ["toolbridge.testing"]`.

PYTEST_DONT_REWRITE: there are no assertions here, and an early import must not cause a warning.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from pydantic_ai.settings import ModelSettings

from . import _native
from .model import ClaudeCodeModel

__all__ = ["RecordedRequest", "RecordedResult", "ScriptedModel"]

_CLI = "TOOLBRIDGE_TEST_CLAUDE"
"""The variable with the CLI to test with, instead of the one that is found."""


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
    """The text of all text blocks, without what the CLI may append."""


@dataclass(frozen=True)
class RecordedRequest:
    """A request as the model saw it."""

    prompt: str
    """The last user prompt, without tool results and the CLI's reminders."""
    system: str
    """The system prompt, with an agent's instructions and the lines that the CLI adds."""
    tools: list[str]
    """The names of the tools that were offered, such as `mcp__pydantic_tools__add`."""
    tool_results: list[RecordedResult]
    """The tool results of the last message that has any."""
    turn: int
    """The turn of its conversation that this requested, from 0."""
    body: dict[str, Any]
    """The whole body, in the format of the Messages API."""


_Script: TypeAlias = str | Callable[[RecordedRequest], str]


def _request(recorded: dict[str, Any]) -> RecordedRequest:
    results = [RecordedResult(**result) for result in recorded.pop("tool_results")]
    return RecordedRequest(tool_results=results, **recorded)


class _OfflineModel(ClaudeCodeModel):
    """A model without a provider, so that pydantic-ai's `ALLOW_MODEL_REQUESTS` does not apply to it."""

    def _check_allowed(self) -> None:
        pass


class ScriptedModel:
    """A scripted model server on loopback that records its requests.

    Each turn of the script is an answer; turns are separated by `---`. A line is a part of the answer: `text
    The sum is {result}.` is text that includes the tool's result; `call add {"a": 1, "b": 2}` calls a tool by
    its own name. docs/TESTING.md describes the whole syntax.

    The turn is determined by each request alone, from the number of answers that it contains. So several
    conversations can share a model. A request after the end of the script fails with a clear error.
    """

    def __init__(self, script: _Script) -> None:
        """Starts the server. Leaving its context, or `close`, stops it.

        Args:
            script: The script, or a function that returns the answer to each request: one turn of a script.
                It runs in a thread of the server; its exception is an error of the model.

        Raises:
            InvalidRequestError: If the script is invalid. The error has the line.
        """

        def answer(request: bytes) -> str:
            assert not isinstance(script, str)
            return script(_request(json.loads(request)))

        self._native = _native.Scripted(script if isinstance(script, str) else answer)
        # At the latest when the process ends, also of a model that is never closed.
        weakref.finalize(self, self._native.close)
        self._last: tuple[list[RecordedRequest], int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections, ends the CLI, and removes its home. The recorded requests stay."""
        self._last = (self.requests, self.overruns)
        self._native.close()

    def model(
        self, model_name: str | None = None, *, settings: ModelSettings | None = None, **arguments: Any
    ) -> ClaudeCodeModel:
        """A model that runs in the real CLI and gets its answers from this script.

        The CLI has only `environment` as its environment. The variable `TOOLBRIDGE_TEST_CLAUDE` selects the
        CLI; the default is the one that every `ClaudeCodeModel` finds.

        Args:
            model_name: The model to request.
            settings: Settings of the model; `claude_code_env` is added to `environment`.
            arguments: Other arguments of `ClaudeCodeModel`.
        """
        own: Any = dict(settings or {})
        own["claude_code_env"] = {**self.environment, **own.get("claude_code_env", {})}
        if path := os.environ.get(_CLI):
            arguments.setdefault("cli_path", path)
        return _OfflineModel(model_name, **{"settings": own, "inherit_env": False, **arguments})

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests so far, in order."""
        if self._last is not None:
            return self._last[0]
        return [_request(recorded) for recorded in json.loads(self._native.requests())]

    @property
    def overruns(self) -> int:
        """How many requests arrived after the end of the script."""
        return self._native.overruns() if self._last is None else self._last[1]

    @property
    def url(self) -> str:
        """Its URL, on loopback only."""
        return self._native.url

    @property
    def environment(self) -> dict[str, str]:
        """The complete environment for a CLI, or for a program that starts one.

        It has an initially empty home, this process's PATH, `url`, and a dummy key. To test a whole program
        from outside, use `subprocess.run(…, env=scripted.environment)`.
        """
        return self._native.environment


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture
    def scripted_model() -> Iterator[Callable[[_Script], ScriptedModel]]:
        """Creates scripted models; they are closed with the test."""
        with ExitStack() as stack:
            yield lambda script: stack.enter_context(ScriptedModel(script))

    __all__ += ["scripted_model"]
