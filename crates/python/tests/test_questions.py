"""Tools ask, and a client of a session answers, or the program whose model calls them."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import pty
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent
from support import PATIENCE_SECONDS, TOOLBRIDGE, Bridge, Transport, World, named

from toolbridge import Answer, AskRequest, ClaudeCodeModelSettings, QuestionError, Session, ask, ask_sync

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Order(BaseModel):
    count: int = Field(ge=1, description="How many")
    colour: Colour | None = None
    gift: bool = False


async def paint() -> str:
    """Paints."""
    answer = await ask("Which colour?", Colour)
    return f"{answer.action} {answer.value}"


def paint_in_a_thread() -> str:
    """Paints."""
    answer = ask_sync("Which colour?", Literal["red", "green"])
    return f"{answer.action} {answer.value}"


async def order() -> str:
    """Orders."""
    answer = await ask("What exactly?", Order)
    return repr(answer.value)


async def odd() -> str:
    """Asks for what cannot be asked for."""
    with pytest.raises(QuestionError, match="lists cannot be asked for; ask for a string"):
        await ask("Which ones?", list[str])
    with pytest.raises(QuestionError, match="use `await ask"):
        ask_sync("Which one?")
    return "refused"


class Asked(Bridge):
    """A client whose user answers."""

    capabilities: ClassVar[dict[str, Any]] = {"elicitation": {}}

    def asked(self, tool: str, answer: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """A tool's question, and its result after the answer."""
        self.send("tools/call", "call", name=tool, arguments={})
        question = self.next_message()
        assert question["method"] == "elicitation/create", question
        self._say({"id": question["id"], "result": answer})
        return question["params"], self.answer("call")["content"][0]["text"]


def accept(content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@pytest.mark.parametrize("tool", ["paint", "paint_in_a_thread"])
def test_a_tool_gets_the_outcome_of_its_question(short_path: Path, tool: str) -> None:
    red = "Colour.RED" if tool == "paint" else "red"
    with (
        Session(paint, paint_in_a_thread, directory=short_path) as session,
        Asked(session.mcp_config()) as client,
    ):
        asked, said = client.asked(tool, accept({"answer": "red"}))
        assert said == f"accept {red}"
        assert asked["message"] == "Which colour?"
        field = asked["requestedSchema"]["properties"]["answer"]
        assert (field["type"], field["enum"]) == ("string", ["red", "green"])
        assert client.asked(tool, {"action": "decline"})[1] == "decline None"
        assert client.asked(tool, {"action": "cancel"})[1] == "cancel None"
        wrong = client.asked(tool, accept({"answer": "blue"}))[1]
        assert wrong.startswith("the answer does not fit the question: at `/answer`")
        assert wrong.endswith("(type: QuestionError)")


def test_a_model_of_fields_is_a_form(short_path: Path) -> None:
    with Session(order, odd, directory=short_path) as session, Asked(session.mcp_config()) as client:
        asked, said = client.asked("order", accept({"count": 2, "colour": "green"}))
        assert said == repr(Order(count=2, colour=Colour.GREEN))
        assert asked["requestedSchema"]["required"] == ["count"]
        assert asked["requestedSchema"]["properties"]["count"]["description"] == "How many"
        assert "at `/count`" in client.asked("order", accept({"count": 0}))[1]
        assert client.call("odd")["content"][0]["text"] == "refused"


async def test_without_a_user_the_outcome_is_nobody(short_path: Path) -> None:
    with (
        Session(paint, paint_in_a_thread, directory=short_path) as session,
        Bridge(session.mcp_config()) as client,
    ):
        for tool in ("paint", "paint_in_a_thread"):
            assert client.call(tool)["content"][0]["text"] == "nobody None"
    assert await ask("Anybody?") == Answer("nobody")
    assert not await asyncio.to_thread(ask_sync, "Anybody?")


ANSWERS: list[tuple[Any, str]] = [
    ("red", "accept Colour.RED"),
    (Answer("accept", {"answer": "green"}), "accept Colour.GREEN"),
    (None, "decline None"),
    (Answer("cancel"), "cancel None"),
    (LookupError("nobody knows"), "cancel None"),
]


async def test_on_ask_answers_questions_of_tools_and_an_exception_in_it_cancels_the_question(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("\n".join(["call paint {}"] * len(ANSWERS)) + "\n---\ntext {results}")
    asked: list[AskRequest] = []

    async def on_ask(question: AskRequest) -> Any:
        asked.append(question)
        answer, _ = ANSWERS[len(asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    agent = Agent(here.model(transport, on_ask=on_ask))
    agent.tool_plain(paint)
    assert (await agent.run("go")).output == ", ".join(want for _, want in ANSWERS)
    assert len(asked) == len(ANSWERS)
    for question in asked:
        assert question.message == "Which colour?"
        assert question.schema["properties"]["answer"]["enum"] == ["red", "green"]


async def test_a_run_has_its_own_answers_and_plain_functions_ask_too(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call paint_in_a_thread {}\n---\ntext {result}")
    agent = Agent(here.model(transport))
    agent.tool_plain(paint_in_a_thread)
    settings = ClaudeCodeModelSettings(claude_code_on_ask=lambda _: "green")
    assert (await agent.run("go", model_settings=settings)).output == "accept green"


def test_a_question_is_cancelled_with_its_call(short_path: Path) -> None:
    cancelled = asyncio.Event()

    async def wait() -> None:
        """Waits for an answer."""
        try:
            await ask("Which colour?", Colour)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with Session(wait, paint, directory=short_path) as session, Asked(session.mcp_config()) as client:
        client.send("tools/call", "call", name="wait", arguments={})
        question = client.next_message()
        client.notify("notifications/cancelled", requestId="call")
        assert client.next_message() == {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": question["id"]},
        }
        # The next call works.
        assert client.asked("paint", {"action": "decline"})[1] == "decline None"
    assert cancelled.is_set()


def typed(text: str, program: list[str], **options: Any) -> tuple[str, str]:
    """What a program prints, and what it shows on a terminal where this text is typed."""
    master, terminal = pty.openpty()
    with subprocess.Popen(
        program, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, text=True, **options
    ) as process:
        os.close(terminal)
        os.write(master, text.encode())
        patience = threading.Timer(PATIENCE_SECONDS, process.kill)
        patience.start()
        assert process.stdout is not None
        printed = process.stdout.read()
        patience.cancel()
    shown = b""
    # The other end is closed, which Linux reports as an I/O error of the terminal.
    with contextlib.suppress(OSError):
        while more := os.read(master, 65536):
            shown += more
    os.close(master)
    return printed.strip(), shown.decode()


def test_the_command_line_asks_at_the_terminal(short_path: Path) -> None:
    with Session(paint, order, directory=short_path) as session:
        call = [TOOLBRIDGE, "call", str(session.socket_path)]
        printed, shown = typed("blue\nGreen\n", [*call, "paint"])
        assert printed == "accept Colour.GREEN"
        assert "the tool asks: Which colour?" in shown
        assert "(red, green; empty: decline): " in shown
        assert "please enter one of red, green" in shown
        assert typed("\n", [*call, "paint"])[0] == "decline None"
        # End of input, as on a terminal.
        assert typed("\x04", [*call, "paint"])[0] == "cancel None"
        assert typed("\n3\nyes\n", [*call, "order"])[0] == repr(Order(count=3, colour=None, gift=True))
        # Without a terminal there is no user to ask.
        done = subprocess.run(
            [*call, "paint"], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
        )
        assert done.stdout.strip() == "nobody None"


def test_toolbridge_ask_shows_questions_of_servers_at_the_terminal(world: MakeWorld) -> None:
    here = world("call mcp__shop__paint {}\n---\ntext {result}")
    with Session(paint, directory=here.sessions) as session:
        [server] = session.mcp_config("shop")["mcpServers"].values()
        (here.home / ".claude.json").write_text(json.dumps({"mcpServers": {"shop": server}}))
        (here.home / ".claude").mkdir()
        rules = {"permissions": {"allow": ["mcp__shop"]}}
        (here.home / ".claude" / "settings.json").write_text(json.dumps(rules))
        ask = [TOOLBRIDGE, "ask", "--claude-code"]
        ask += ["--claude", named("TOOLBRIDGE_TEST_CLAUDE"), "paint it"]
        environment = {**here.environment, "TMPDIR": str(here.sessions)}
        printed, shown = typed("red\n", ask, env=environment, cwd=here.home)
        assert printed == "accept Colour.RED", shown
        assert "shop asks: Which colour?" in shown
