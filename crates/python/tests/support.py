"""Shared by the tests: the real CLI with a scripted model, and checks for leftovers."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from toolbridge import ClaudeCodeError, ClaudeCodeModel

# Longer than anything here takes on a busy machine. A test that reaches it has failed.
PATIENCE_SECONDS = 120.0

# The executable of the wheel.
TOOLBRIDGE = str(Path(sys.executable).with_name("toolbridge"))

Transport = Literal["stdio", "sdk"]

TRANSPORTS: tuple[Transport, ...] = ("stdio", "sdk")

# The model adds two numbers with a tool, and says the sum.
SUM = 'call add {"a": 40, "b": 2}\n---\ntext The sum is {result}.'

# A picture of one red pixel.
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


# An interpreter that turns every warning into an error, except for that of pydantic-ai's own `run_sync`,
# which creates the loop that Python 3.12 warns about.
PYTHON = [sys.executable, "-W", "error", "-W", "ignore:There is no current event loop:DeprecationWarning"]

# Words of Rust: paths, types, and calls such as `expand_prompts(true)`.
RUST = re.compile(
    r"::|&str|\b[ui](8|16|32|64|size)\b|\bf64\b|\b(struct|enum|variant|Vec|HashMap)\b|\bSome\(|\((true|false)\)"
)

REMINDER = re.compile(r"\n*<system-reminder>.*?</system-reminder>\n*", re.DOTALL)


def named(variable: str) -> str:
    """A path that `cargo xtask test` sets."""
    path = os.environ.get(variable)
    if not path or not os.access(path, os.X_OK):
        raise RuntimeError(f"{variable} must name an executable; `cargo xtask test` sets it")
    return str(Path(path).absolute())


ARGUMENTS = set(inspect.signature(ClaudeCodeModel).parameters)


def arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a model, from arguments and from settings without their prefix."""
    settings = dict(options.get("settings") or {})
    for name in options.keys() - ARGUMENTS:
        settings["claude_code" if name == "claude_code" else f"claude_code_{name}"] = options[name]
    own = {name: value for name, value in options.items() if name in ARGUMENTS}
    return {**own, "settings": settings}


def prompt(text: str = "go") -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text)])]


def soon(is_so: Callable[[], object]) -> None:
    """Waits until a condition is true."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, "the condition is still false"
        time.sleep(0.01)


def hanging() -> tuple[Callable[[], Coroutine[Any, Any, None]], asyncio.Event, asyncio.Event]:
    """A tool that hangs, with events for its start and its cancellation."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            cancelled.set()

    return hang, started, cancelled


class World:
    """A scripted model, a home for the CLI and a directory for sessions, all empty."""

    def __init__(self, script: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="toolbridge-test-"))
        self.home = self.root / "home"
        self.sessions = self.root / "sessions"
        self.home.mkdir()
        self.sessions.mkdir()
        (self.root / "script").write_text(script)
        self._log = self.root / "log"
        self._model = subprocess.Popen(
            [named("TOOLBRIDGE_SCRIPTED_MODEL"), "--log", str(self._log), str(self.root / "script")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._model.stdout is not None
        self.url: str = json.loads(self._model.stdout.readline())["url"]

    @property
    def environment(self) -> dict[str, str]:
        """The CLI's complete environment."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
        }

    @property
    def options(self) -> dict[str, Any]:
        return {
            "cli_path": named("TOOLBRIDGE_TEST_CLAUDE"),
            "session_dir": self.sessions,
            "inherit_env": False,
            "working_directory": self.home,
            "timeout": PATIENCE_SECONDS,
            "settings": {"claude_code_env": self.environment},
        }

    @property
    def packages(self) -> Path:
        """A folder with the package `claude-agent-sdk`, which contains the CLI."""
        folder = self.root / "packages"
        bundled = folder / "claude_agent_sdk" / "_bundled"
        bundled.mkdir(parents=True)
        (bundled.parent / "__init__.py").touch()
        (bundled / "claude").symlink_to(named("TOOLBRIDGE_TEST_CLAUDE"))
        return folder

    def model(self, transport: Transport | None = None, **options: Any) -> ClaudeCodeModel:
        """A model that only has access to this world; the server of agents' tools is called `tools`.

        Its options are arguments, and settings without their prefix.
        """
        model = ClaudeCodeModel(**arguments({**self.options, **options}))
        model.set_agent_toolsets(None, server_name="tools", transport=transport or "auto")
        return model

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The requests to the model, without the CLI's own small requests."""
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text().split("\n") if line]

    @property
    def offered(self) -> list[str]:
        """The tools of MCP servers in the last request to the model."""
        return [tool["name"] for tool in self.requests[-1]["tools"] if tool["name"].startswith("mcp__")]

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tool results in the last request to the model, in the order of the calls.

        Their content is a list of blocks, without the CLI's reminders to the model.
        """
        *_, asked, answered = self.requests[-1]["messages"]
        ids = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
        results = [block for block in answered["content"] if block["type"] == "tool_result"]
        for result in results:
            content = result["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks:
                if "text" in block:
                    block["text"] = REMINDER.sub("", block["text"]).rstrip("\n")
            result["content"] = [block for block in blocks if block.get("text") != ""] or blocks[:1]
        return sorted(results, key=lambda result: ids.index(result["tool_use_id"]))

    @property
    def result_texts(self) -> list[str]:
        return ["".join(block.get("text", "") for block in result["content"]) for result in self.results]

    @property
    def processes(self) -> dict[int, str]:
        """Processes whose environment contains this home: the CLI and its children."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if str(self.home).encode() in (path / "environ").read_bytes():
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it ended in the meantime
        return {pid: command for pid, command in found.items() if command}

    @property
    def files(self) -> list[Path]:
        """The files of sessions."""
        return list(self.sessions.glob("claudecode_ipc_*"))

    def nothing_is_left(self) -> None:
        """Waits until there is no file of a session and no process of this world."""
        until, pause = time.monotonic() + PATIENCE_SECONDS, 0.01
        while left := [*self.processes.values(), *map(str, self.files)]:
            assert time.monotonic() < until, f"left behind: {left}"
            # Looking at all processes is work, and a CLI takes a while to end.
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def close(self) -> None:
        self._model.communicate(timeout=PATIENCE_SECONDS)
        shutil.rmtree(self.root, ignore_errors=True)


class Bridge:
    """The executable in a session's config, used like an MCP client would."""

    capabilities: ClassVar[dict[str, Any]] = {}
    """The client's capabilities."""

    def __init__(self, config: dict[str, Any]) -> None:
        [server] = config["mcpServers"].values()
        self._process = subprocess.Popen(
            [server["command"], *server["args"]],
            env={**os.environ, **server.get("env", {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # A call that is never answered fails its test.
        self._patience = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        self._patience.daemon = True
        self._patience.start()
        self._ids = 0
        self.notifications: list[dict[str, Any]] = []
        """The notifications received."""
        client = {"name": "test", "version": "1"}
        self.introduction = self.ask(
            "initialize", protocolVersion="2025-06-18", capabilities=self.capabilities, clientInfo=client
        )
        """The server's answer to `initialize`."""
        self._say({"method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE_SECONDS)
        self._patience.cancel()

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def notify(self, method: str, /, **params: Any) -> None:
        self._say({"method": method, "params": params})

    def send(self, method: str, request_id: int | str, /, **params: Any) -> None:
        """Sends a request without waiting for its answer."""
        self._say({"id": request_id, "method": method, "params": params})

    def answer(self, request_id: int | str) -> dict[str, Any]:
        """Waits for the result of a request."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == request_id:
                result: dict[str, Any] = message["result"]
                return result
            self.notifications.append(message)
        raise AssertionError(f"the bridge ended with {self._process.wait()}")

    def next_message(self) -> dict[str, Any]:
        """The next message of any kind."""
        assert self._process.stdout is not None
        message: dict[str, Any] = json.loads(self._process.stdout.readline())
        return message

    def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Sends a request and returns its result."""
        self._ids += 1
        self.send(method, self._ids, **params)
        return self.answer(self._ids)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self.ask("tools/list")["tools"]}

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Calls a tool, asks for progress, and returns the result."""
        return self.ask("tools/call", name=tool, arguments=arguments, _meta={"progressToken": "p"})


def has_no_word_of_rust(error: ClaudeCodeError) -> None:
    """Checks that the message and the hint of an error are for users of Python."""
    assert not RUST.search(f"{error} {error.hint}"), f"{error} {error.hint}"


def text_of(result: dict[str, Any]) -> str:
    """The text of a tool's result."""
    assert not result.get("isError"), result
    text: str = result["content"][0]["text"]
    return text


def error_of(result: dict[str, Any]) -> str:
    """The text of a tool's error."""
    assert result["isError"] is True, result
    text: str = result["content"][0]["text"]
    return text


def shown(here: World, *program: str | Path, warning: str = "", **variables: str) -> str:
    """What a program prints, given as Python's arguments; it must print no more than the warning to stderr.

    It finds the CLI like users do: on the PATH.
    """
    folder = here.root / "bin"
    folder.mkdir()
    (folder / "claude").symlink_to(named("TOOLBRIDGE_TEST_CLAUDE"))
    environment = {
        **here.environment,
        **variables,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "TMPDIR": str(here.sessions),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [*PYTHON, *program],
        env=environment,
        cwd=here.home,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, warning)
    return done.stdout


async def cli_answer(world: World, config: dict[str, Any]) -> str:
    """The answer of the real CLI, started with these MCP servers."""
    cli = await asyncio.create_subprocess_exec(
        named("TOOLBRIDGE_TEST_CLAUDE"),
        "-p",
        "go",
        "--mcp-config",
        json.dumps(config),
        "--strict-mcp-config",
        "--allowedTools=mcp__tools",
        env=world.environment,
        cwd=world.home,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    stdout, _ = await asyncio.wait_for(cli.communicate(), PATIENCE_SECONDS)
    return stdout.decode().strip()
