"""Behaviour that users of pydantic-ai rely on: its errors, limits, retries and settings."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, exceptions
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage, UsageLimits
from support import PATIENCE_SECONDS, World, prompt

from toolbridge import (
    BridgeStartupError,
    ClaudeCodeModel,
    CLIExecutionError,
    CLIInterruptedError,
    CLINotFoundError,
    IPCConnectionError,
    StructuredOutputError,
)

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

ENDLESS = "\n---\n".join(['call note {"text": "again"}'] * 40)
"""A model that keeps calling a tool."""

# The oldest pydantic-ai does not expose the limits of a run.
knows_limits = pytest.mark.skipif(
    "usage_limits" not in RunContext.__dataclass_fields__, reason="pydantic-ai does not tell models of limits"
)


def note(text: str) -> str:
    return f"noted: {text}"


@pytest.mark.oldest
async def test_an_error_of_the_api_is_a_pydantic_ai_error(world: MakeWorld) -> None:
    model = world("error 529 we are overloaded").model("stdio", model_name="claude-opus-4-5")
    with pytest.raises(ModelHTTPError) as raised:
        await model.request(prompt(), None, ModelRequestParameters())
    error = raised.value
    assert isinstance(error, CLIExecutionError)
    assert type(error).__name__ == "CLIExecutionError"
    assert (error.status_code, error.model_name) == (529, "claude-opus-4-5")
    assert error.body == error.result
    assert error.error_type == "api"
    assert "overloaded" in str(error)
    assert error.recoverable
    category = getattr(exceptions, "ModelOverloadedError", ModelHTTPError)
    assert isinstance(error, category)
    for same in (pickle.loads(pickle.dumps(error)),):
        assert type(same) is type(error)
        assert str(same) == str(error)
        assert vars(same) == vars(error)


@pytest.mark.oldest
@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "ModelRequestRejectedError"),
        (401, "ModelAuthenticationError"),
        (404, "ModelNotFoundError"),
        (429, "ModelRateLimitError"),
        (500, "ModelServerError"),
    ],
)
def test_a_status_has_the_class_that_pydantic_ai_has_for_it(status: int, name: str) -> None:
    error = CLIExecutionError("no", hint="wait", result=f'{{"api_error_status": {status}}}')
    assert isinstance(error, ModelHTTPError)
    assert isinstance(error, getattr(exceptions, name, ModelHTTPError))
    assert (str(error), error.hint, error.status_code) == ("no", "wait", status)
    assert error.__notes__ == ["hint: wait"]


async def test_without_a_login_the_hint_says_how_to_log_in(world: MakeWorld) -> None:
    here = world("text never asked")
    environment = {name: value for name, value in here.environment.items() if name != "ANTHROPIC_API_KEY"}
    with pytest.raises(CLIExecutionError, match="Not logged in") as raised:
        await Agent(here.model(env=environment)).run("go")
    assert raised.value.error_type == "authentication"
    assert "set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN" in (raised.value.hint or "")


@pytest.mark.oldest
def test_failures_of_a_model_are_distinct_from_invalid_requests() -> None:
    failures = (CLINotFoundError, CLIExecutionError, BridgeStartupError, IPCConnectionError)
    for kind in failures:
        error = kind("no", hint="do")
        assert isinstance(error, ModelAPIError)
        assert (str(error), error.message, error.hint) == ("no", "no", "do")
        assert str(pickle.loads(pickle.dumps(error))) == "no"
    # After an interrupt no fallback model must be tried.
    assert not issubclass(CLIInterruptedError, ModelAPIError)
    assert isinstance(StructuredOutputError("no", text="x"), UnexpectedModelBehavior)


# Each is a world's script and the settings with which a request to it fails before the model writes anything.
FAILING: list[tuple[str, dict[str, Any]]] = [
    ("error 529 we are overloaded", {}),
    ("error 500 try again", {}),
    ("error 401 who are you", {}),
    ("hang", {"timeout": 2.0}),
    ("text ok", {"cli_path": "/no/claude"}),
    ("text ok", {"extra_args": ["--no-such-option"]}),
    ("text ok", {"env": {}}),  # not logged in
]


def failing(here: World, options: dict[str, Any]) -> ClaudeCodeModel:
    if options.get("env") == {}:
        left = {name: value for name, value in here.environment.items() if name != "ANTHROPIC_API_KEY"}
        options = {**options, "env": left}
    return here.model(**options)


@pytest.mark.oldest
@pytest.mark.sampled
@pytest.mark.parametrize(("script", "options"), FAILING)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_fallback_model_continues_after_a_failure(
    world: MakeWorld, script: str, options: dict[str, Any], is_streamed: bool
) -> None:
    model = FallbackModel(failing(world(script), options), TestModel(custom_output_text="the other"))
    agent, usage = Agent(model), RunUsage()
    if is_streamed:
        async with agent.run_stream("go", usage=usage) as result:
            texts = [text async for text in result.stream_text(debounce_by=None)]
        # No word of the error is taken for the model's.
        assert texts == ["the ", "the other"]
    else:
        assert (await agent.run("go", usage=usage)).output == "the other"
    assert usage.requests == 1


@pytest.mark.oldest
@pytest.mark.parametrize(("script", "options"), [FAILING[0], FAILING[4]])
async def test_a_stream_is_handed_out_with_the_first_words_of_the_model(
    world: MakeWorld, script: str, options: dict[str, Any]
) -> None:
    handed_out = []
    with pytest.raises(ModelAPIError):
        async with failing(world(script), options).request_stream(
            prompt(), None, ModelRequestParameters()
        ) as stream:
            handed_out.append(stream)
    assert handed_out == []


TWICE = 'text One.\ncall look {"n": 1} as toolu_1\n---\ncall look {"n": 2} as toolu_2\n---\ntext Done.'
"""A model that calls a tool in each of two turns."""


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_tool_knows_how_far_the_run_is(world: MakeWorld, is_streamed: bool) -> None:
    seen: list[tuple[int, int, int]] = []
    last: list[list[tuple[type, str]]] = []

    def look(ctx: RunContext[None], n: int) -> dict[str, int]:
        seen.append((n, ctx.run_step, ctx.usage.requests))
        parts = ctx.messages[-1].parts
        last.append([(type(part), getattr(part, "tool_call_id", "")) for part in parts])
        return {"n": n}

    async def told(model: Model) -> list[tuple[int, int, int]]:
        """What the tool has seen, and the requests of the whole run."""
        agent, usage = Agent(model, tools=[look]), RunUsage()
        if is_streamed:
            async with agent.run_stream("go", usage=usage) as result:
                assert await result.get_output() == "Done."
        else:
            assert (await agent.run("go", usage=usage)).output == "Done."
        of_run, seen[:] = [*seen, (0, 0, usage.requests)], []
        return of_run

    async def streamed(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        turn = len(messages) // 2 + 1
        if turn == 3:
            yield "Done."
        else:
            yield {0: DeltaToolCall("look", f'{{"n": {turn}}}', tool_call_id=f"toolu_{turn}")}

    async def whole(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        turn = len(messages) // 2 + 1
        call = ToolCallPart("look", {"n": turn}, f"toolu_{turn}")
        return ModelResponse([TextPart("Done.") if turn == 3 else call])

    # The order of the CLI's lines and its calls is certain where they come through the same pipe.
    of_ours = await told(world(TWICE).model("sdk"))
    first = [(TextPart, ""), (NativeToolCallPart, "toolu_1")]
    assert last[:2] == [first, [*first, (NativeToolReturnPart, "toolu_1"), (NativeToolCallPart, "toolu_2")]]
    assert of_ours == await told(FunctionModel(whole, stream_function=streamed))


@knows_limits
@pytest.mark.sampled
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("limits", "match", "calls"),
    [
        (UsageLimits(tool_calls_limit=2), "tool_calls_limit of 2", 2),
        (UsageLimits(request_limit=3), "request_limit of 3", 3),
        (UsageLimits(output_tokens_limit=1), "output_tokens_limit of 1", None),
        pytest.param(
            UsageLimits(total_tokens_limit=1),
            "total_tokens_limit of 1",
            None,
            marks=pytest.mark.thorough,
        ),
    ],
)
async def test_limits_hold_while_the_cli_runs(
    world: MakeWorld, limits: UsageLimits, match: str, calls: int | None, is_streamed: bool
) -> None:
    here, called, usage = world(ENDLESS), [], RunUsage()
    agent = Agent(here.model())

    @agent.tool_plain
    def note(text: str) -> str:
        called.append(text)
        return text

    async def run() -> None:
        if is_streamed:
            async with agent.run_stream("go", usage_limits=limits, usage=usage) as result:
                await result.get_output()
        else:
            await agent.run("go", usage_limits=limits, usage=usage)

    before = time.monotonic()
    with pytest.raises(UsageLimitExceeded, match=match):
        await run()
    assert time.monotonic() - before < PATIENCE_SECONDS
    here.nothing_is_left()
    if calls is None:
        assert len(called) < 5
    else:
        assert (len(called), usage.tool_calls) == (calls, calls)
        assert calls <= usage.requests <= calls + 1
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0


TYPE_LAST = """#!{python}
import json, subprocess, sys
cli = subprocess.Popen([{cli!r}, *sys.argv[1:]], stdout=subprocess.PIPE)
for line in cli.stdout:
    if line.startswith(b"{{"):
        message = json.loads(line)
        message["type"] = message.pop("type")
        line = json.dumps(message).encode() + b"\\n"
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.exit(cli.wait())
"""
"""The real CLI, whose messages have their type as the last member."""


@knows_limits
async def test_limits_hold_whatever_the_order_of_a_messages_members(world: MakeWorld) -> None:
    here, usage = world(ENDLESS), RunUsage()
    cli = here.root / "claude"
    cli.write_text(TYPE_LAST.format(python=sys.executable, cli=str(here.options["cli_path"])))
    cli.chmod(0o700)
    agent = Agent(here.model(cli_path=cli))
    called = []

    @agent.tool_plain
    def note(text: str) -> str:
        called.append(text)
        return text

    with pytest.raises(UsageLimitExceeded, match="request_limit of 3"):
        await agent.run("go", usage_limits=UsageLimits(request_limit=3), usage=usage)
    assert len(called) == 3
    assert usage.output_tokens > 0


@pytest.mark.oldest
async def test_an_answer_is_the_output_of_a_run_and_its_turns_usage_and_cost_are_counted(
    world: MakeWorld,
) -> None:
    here = world(
        'call note {"text": "a"}\ncall note {"text": "b"}\n---\n'
        'call note {"text": "c"}\n---\ntext Hello | there.'
    )
    result = await Agent(here.model(), tools=[note]).run("go")
    assert result.output == "Hello there."
    usage = result.usage
    assert (usage.requests, usage.tool_calls) == (3, 3)
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    response = result.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert response.provider_name == "claude-code"
    details = response.provider_details
    assert details is not None
    assert details["num_turns"] == 4  # the CLI counts each of the calls
    assert details["total_cost_usd"] > 0
    if hasattr(usage, "cost"):
        assert float(usage.cost or 0) == pytest.approx(details["total_cost_usd"])


@pytest.mark.oldest
@pytest.mark.parametrize("retries", [2, pytest.param(0, marks=pytest.mark.thorough)])
async def test_retries_of_a_tool_are_limited_and_a_success_resets_them(
    world: MakeWorld, retries: int
) -> None:
    here = world(ENDLESS)
    agent = Agent(here.model(), retries=retries)
    seen: list[tuple[int, bool]] = []
    good = [2, 4] if retries else []

    @agent.tool
    def note(ctx: RunContext[object], text: str) -> str:
        seen.append((ctx.retry, ctx.last_attempt))
        if len(seen) in good:
            return "good"
        raise ModelRetry("another one")

    with pytest.raises(UnexpectedModelBehavior, match=f"'note' exceeded max retries count of {retries}"):
        await agent.run("go")
    assert seen == [(n, False) for _ in good for n in (0, 1)] + [
        (n, n == retries) for n in range(retries + 1)
    ]


async def test_invalid_arguments_count_as_retries(world: MakeWorld) -> None:
    here = world("\n---\n".join(["call note {}"] * 9))
    with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries count of 1"):
        await Agent(here.model(), tools=[note], retries=1).run("go")
    assert len(here.requests) <= 3
