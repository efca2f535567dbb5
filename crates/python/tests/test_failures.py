"""Whatever a function raises or returns, its call is answered, and so is the next one."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError, model_serializer
from pydantic_ai import Agent, ModelRetry, Tool
from support import PATIENCE_SECONDS, PYTHON, TOOLBRIDGE, Bridge, World, error_of, soon, text_of

from toolbridge import (
    Allow,
    ClaudeCodeModel,
    ClaudeCodeModelSettings,
    PermissionRequest,
    Session,
    ToolErrors,
    report_progress,
)

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

NO_TEXT = os.fsdecode(b"\xff")
"""A lone surrogate, which cannot be encoded as UTF-8."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Odd(Exception):
    message = property(lambda self: {}[self])


class Masked(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise ZeroDivisionError


class NamelessKind(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ZeroDivisionError


class Nameless(Exception, metaclass=NamelessKind):
    pass


class Own(BaseException):
    pass


# What is raised, and what the answer contains.
FAILURES: list[tuple[Callable[[], BaseException], list[str]]] = [
    (lambda: OSError(NO_TEXT), [r"\udcff", "OSError"]),
    (lambda: ModelRetry(f"not {NO_TEXT}"), [r"not \udcff"]),
    (lambda: SystemExit(7), ["tried to end the program", "SystemExit"]),
    (lambda: KeyboardInterrupt(), ["tried to end the program", "KeyboardInterrupt"]),
    (lambda: GeneratorExit(), ["GeneratorExit"]),
    (lambda: Own("mine"), ["mine", "Own"]),
    (lambda: Mute(), ["no message", "Mute"]),
    (lambda: Leaving(), ["no message", "Leaving"]),
    (lambda: Odd("odd"), ["no message", "Odd"]),
    (lambda: Masked("masked"), ["Masked"]),
    (lambda: Nameless("nameless"), ["nameless", "Nameless"]),
    (lambda: ValueError(1, b"\xff", NO_TEXT), [r"(1, b'\xff', '\udcff')", "ValueError"]),
    (lambda: ValueError(), ["no message", "ValueError"]),
    (lambda: ExceptionGroup("both", [ValueError(NO_TEXT), Mute()]), ["both", "ExceptionGroup"]),
    (lambda: BaseExceptionGroup("all", [SystemExit(1), Mute()]), ["all", "BaseExceptionGroup"]),
    (lambda: asyncio.CancelledError(), ["was cancelled", "CancelledError"]),
    (lambda: MemoryError(), ["no message", "MemoryError"]),
]


class Unwilling(BaseModel):
    error: Any

    @model_serializer
    def serialize(self) -> str:
        raise self.error


def circle() -> list[Any]:
    one: list[Any] = []
    one.append({"one": one})
    return one


def deep() -> list[Any]:
    one: list[Any] = []
    for _ in range(10_000):
        one = [one]
    return one


# What is returned, and what the answer contains about the fault.
VALUES: list[tuple[Any, str]] = [
    (NO_TEXT, "surrogates not allowed"),
    ({"a": [NO_TEXT]}, "surrogates not allowed"),
    ({NO_TEXT: 1}, "surrogates not allowed"),
    (float("nan"), "JSON has no number `nan`"),
    ({"a": [None, float("-inf")]}, "JSON has no number `-inf`"),
    (b"abc", "`bytes` is not text; return a `BinaryContent`"),
    (bytearray(b"\xff"), "`bytearray` is not text"),
    (circle(), "Circular reference"),
    (deep(), "depth"),
    (object(), "unknown type"),
    (Unwilling(error=ValueError("no way")), "no way"),
    (Unwilling(error=ValueError(NO_TEXT)), "serialize"),
    (Unwilling(error=SystemExit(3)), "serialize"),
]


def fail(n: int) -> Any:
    raise FAILURES[n][0]()


async def fail_later(n: int) -> Any:
    await asyncio.sleep(0)
    raise FAILURES[n][0]()


def give(n: int) -> Any:
    return VALUES[n][0]


async def give_later(n: int) -> Any:
    await asyncio.sleep(0)
    return VALUES[n][0]


def good() -> str:
    return "good"


async def good_later() -> str:
    return "good later"


TOOLS: list[Callable[..., Any]] = [fail, fail_later, give, give_later, good, good_later]

# All calls, and what the answers contain.
CALLS: list[tuple[str, int, list[str]]] = [
    *((tool, n, want) for tool in ("fail", "fail_later") for n, (_, want) in enumerate(FAILURES)),
    *((tool, n, [want]) for tool in ("give", "give_later") for n, (_, want) in enumerate(VALUES)),
]


def check(tool: str, n: int, want: list[str], text: str) -> None:
    assert all(one in text for one in want), (tool, n, text)
    if tool.startswith("give"):
        assert text.startswith(f"the result of tool `{tool}` cannot be sent: ")


def test_every_outcome_of_a_session_function_is_an_answer(short_path: Path) -> None:
    with Session(*TOOLS, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        for tool, n, want in CALLS:
            check(tool, n, want, error_of(bridge.call(tool, n=n)))
            assert text_of(bridge.call("good")) == "good"
            assert text_of(bridge.call("good_later")) == "good later"
    assert list(short_path.iterdir()) == []


async def test_every_outcome_of_an_agents_tool_is_an_answer(world: MakeWorld) -> None:
    # Older versions of pydantic-ai run functions with anyio, which reads an error's `__class__`.
    rows = [row for row in CALLS if "Masked" not in row[2]]
    calls = "\n".join(f'call {tool} {{"n": {n}}}' for tool, n, _ in rows)
    here = world(f"{calls}\ncall good {{}}\ncall good_later {{}}\n---\ntext ok")
    agent = Agent(here.model(), tools=TOOLS, retries=1000)
    # In the main thread `KeyboardInterrupt` would be the user's.
    result = await asyncio.to_thread(lambda: asyncio.run(agent.run("go")))
    assert result.output == "ok"
    *texts, good_text, good_later_text = here.result_texts
    assert (good_text, good_later_text) == ("good", "good later")
    for (tool, n, want), answer, text in zip(rows, here.results, texts, strict=False):
        assert answer.get("is_error") is True, (tool, n, text)
        check(tool, n, want, text)


@pytest.mark.sampled
@pytest.mark.parametrize("tool", ["fail", "fail_later"])
@pytest.mark.parametrize("n", [0, 2])
def test_three_hundred_failures_leak_no_thread_and_no_turn(short_path: Path, tool: str, n: int) -> None:
    with Session(*TOOLS, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        for _ in range(300):
            assert bridge.call(tool, n=n)["isError"] is True
        assert text_of(bridge.call("good")) == "good"
        assert text_of(bridge.call("good_later")) == "good later"


def test_an_exception_from_outside_ends_no_thread(short_path: Path) -> None:
    # In a process of its own: the exception may be raised later, anywhere in that thread.
    text = """
    import ctypes, sys, threading
    from support import Bridge, text_of
    from toolbridge import Session

    threads = set()

    def who() -> str:
        threads.add(threading.get_ident())
        return "me"

    with Session(who, directory=sys.argv[1]) as session, Bridge(session.mcp_config()) as bridge:
        for _ in range(300):
            assert text_of(bridge.call("who")) == "me"
            # As programs do that stop functions that take too long.
            raise_there = ctypes.pythonapi.PyThreadState_SetAsyncExc
            assert raise_there(ctypes.c_ulong(threads.pop()), ctypes.py_object(SystemExit)) == 1
            assert "content" in bridge.call("who")
            threads.clear()
    print("every call was answered")
    """
    call = [*PYTHON, "-c", textwrap.dedent(text), str(short_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    program = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert program.stdout == "every call was answered\n", program.stderr


def test_progress_messages_may_be_invalid_text(short_path: Path) -> None:
    def report() -> str:
        report_progress(1, 2, f"reading {NO_TEXT}")
        return "done"

    with Session(report, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        assert text_of(bridge.call("report")) == "done"
        assert bridge.notifications[0]["params"]["message"] == r"reading \udcff"


def test_ctrl_c_ends_a_program_whose_tool_is_at_work(short_path: Path) -> None:
    text = """
    import asyncio, subprocess, sys
    from toolbridge import Session

    async def busy() -> None:
        print("busy", flush=True)
        while True:
            pass

    async def main() -> None:
        async with Session(busy, directory=sys.argv[1]) as session:
            command = [sys.argv[2], "call", str(session.socket_path), "busy", "{}"]
            await (await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)).wait()

    loop = asyncio.new_event_loop()  # not `asyncio.run`, which has Ctrl-C wait for the loop
    loop.run_until_complete(main())
    """
    call = [*PYTHON, "-c", textwrap.dedent(text), str(short_path), TOOLBRIDGE]
    program = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "busy\n"
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=PATIENCE_SECONDS)
    assert program.returncode != 0
    assert "KeyboardInterrupt" in said


def test_exceptions_of_tools_are_logged_with_their_traceback(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(secret: str) -> None:
        raise LookupError("no such order")

    def strict(secret: int) -> None: ...

    def picky(secret: str) -> None:
        raise ModelRetry("another one")

    caplog.set_level(logging.WARNING, "toolbridge")
    with (
        Session(broken, strict, picky, directory=short_path) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        for tool in ("broken", "strict", "picky"):
            assert bridge.call(tool, secret="hunter2")["isError"] is True
    soon(lambda: len(caplog.records) == 2)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "`broken` failed" in caplog.text
    assert 'raise LookupError("no such order")' in caplog.text
    assert "test_failures.py" in caplog.text
    assert "`strict` failed" in caplog.text
    assert "at `/secret`: Input should be a valid integer" in caplog.text
    assert "hunter2" not in caplog.text


async def test_an_exception_in_can_use_tool_is_logged_and_denies(
    world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    here = world("call good {}\ncall good_later {}\n---\ntext ok")

    def decide(request: PermissionRequest) -> Allow:
        if request.tool_name == "mcp__tools__good_later":
            raise RuntimeError("no idea")
        raise LookupError(f"nobody knows {NO_TEXT}")

    caplog.set_level(logging.WARNING, "toolbridge")
    agent = Agent(here.model(can_use_tool=decide), tools=[Tool(good), good_later])
    assert (await agent.run("go")).output == "ok"
    assert r"nobody knows \udcff" in here.result_texts[0]
    assert "`can_use_tool` failed: no idea (type: RuntimeError)" in here.result_texts[1]
    assert "raise LookupError" in caplog.text


class Secret(Exception):
    pass


def leak() -> None:
    raise Secret("password=hunter2")


def leak_of_a_check() -> None:
    """Its own check fails, not that of its arguments."""
    TypeAdapter(Annotated[str, AfterValidator(_refuse)]).validate_python("password=hunter2")


def _refuse(value: str) -> str:
    raise ValueError(f"cannot use {value}")


def ask_again() -> None:
    raise ModelRetry("give a number")


def of_agent(model: ClaudeCodeModel) -> Agent[None, str]:
    return Agent(model, tools=[leak, leak_of_a_check, ask_again], retries=3)


def of_model(model: ClaudeCodeModel) -> Agent[None, str]:
    model.set_agent_toolsets([leak, leak_of_a_check, ask_again], server_name="tools")
    return Agent(model)


LEAK = "call leak {}\n---\ntext {result}"


@pytest.mark.parametrize("make", [of_agent, of_model])
@pytest.mark.parametrize(
    ("errors", "told"),
    [
        (None, "password=hunter2 (type: Secret)"),
        ("tell", "password=hunter2 (type: Secret)"),
        ("hide", "the tool failed (type: Secret)"),
    ],
)
async def test_tool_errors_decide_what_the_model_is_told_of_an_exception(
    world: MakeWorld,
    make: Callable[[ClaudeCodeModel], Agent[None, str]],
    errors: ToolErrors | None,
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = world(LEAK)
    options: dict[str, Any] = {} if errors is None else {"tool_errors": errors}
    agent = make(here.model(**options))
    assert (await agent.run("go")).output == told
    assert ("hunter2" in str(here.requests)) is (errors != "hide")
    assert "Secret: password=hunter2" in caplog.text, "the author is told all of it"


@pytest.mark.parametrize("make", [of_agent, of_model])
async def test_an_exception_of_a_tool_ends_the_run(
    world: MakeWorld, make: Callable[[ClaudeCodeModel], Agent[None, str]]
) -> None:
    here = world(LEAK)
    agent = make(here.model())
    settings = ClaudeCodeModelSettings(claude_code_tool_errors="raise")
    with pytest.raises(Secret, match="password=hunter2"):
        await agent.run("go", model_settings=settings)
    with pytest.raises(Secret, match="password=hunter2"):
        async with agent.run_stream("go", model_settings=settings) as stream:
            await stream.get_output()
    assert "hunter2" not in str(here.requests)


async def test_a_check_that_fails_in_a_tool_is_an_exception_of_the_tool(world: MakeWorld) -> None:
    script = "call leak_of_a_check {}\n---\ntext {result}"
    here = world(script)
    answer = await of_agent(here.model(tool_errors="hide")).run("go")
    assert answer.output == "the tool failed (type: ValidationError)"
    assert "hunter2" not in str(here.requests)
    with pytest.raises(ValidationError, match="cannot use password=hunter2"):
        await of_agent(world(script).model(tool_errors="raise")).run("go")


@pytest.mark.parametrize("errors", ["hide", "raise"])
async def test_a_tool_may_speak_to_the_model_in_any_case(world: MakeWorld, errors: ToolErrors) -> None:
    here = world("call ask_again {}\n---\ntext {result}")
    assert "give a number" in (await of_agent(here.model(tool_errors=errors)).run("go")).output


async def test_an_exception_of_a_tool_ends_the_conversation(world: MakeWorld) -> None:
    here = world(LEAK)
    async with here.model(tool_errors="raise").conversation(toolsets=[leak]) as chat:
        with pytest.raises(Secret):
            await chat.send("go")
    assert "hunter2" not in str(here.requests)
