"""The program that fails in `test_inject.py`: `inject_player.py SCENARIO SOCKET`.

It has imported everything, and forks for each run: an actor, whose system calls fail, and a watcher for it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pydantic_ai import Agent

from toolbridge import ClaudeCodeModel, Session

FAILED = "The tool has failed.\n"

ANSWERS = {"The sum is 42.\n", FAILED}

STAND_IN = Path(__file__).parents[2] / "scripted/src/stand_in.sh"

# Longer than a run takes on a busy machine, and shorter than the timeout of the test.
PATIENCE_SECONDS = 60.0


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def serve(folder: Path, _: Path) -> None:
    """Runs a session until stdin is closed."""
    with Session(add, directory=folder) as session:
        toolbridge = Path(sys.executable).with_name("toolbridge")
        print(json.dumps([str(toolbridge), "call", str(session.socket_path)]), flush=True)
        sys.stdin.read()


def ask(folder: Path, cli: Path) -> None:
    """Sends a request to a stand-in for the CLI, which calls a tool."""
    model = ClaudeCodeModel(cli_path=cli, session_dir=folder, working_directory=cli.parent, timeout=20.0)
    model.set_agent_toolsets(None, server_name="tools", transport="stdio")
    agent = Agent(model)
    agent.tool_plain(add)
    print(agent.run_sync("What is 40 + 2?").output)


SCENARIOS = {"session": serve, "request": ask}


class Actor:
    """The process whose calls fail, from its watcher's view."""

    def __init__(self, pid: int, home: Path) -> None:
        self.pid = pid
        self.home = home
        self.status: int | None = None
        self.until = time.monotonic() + PATIENCE_SECONDS

    def said(self, where: str) -> str:
        return (self.home / where).read_text(errors="replace")

    def has_ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def wait(self, is_so: Callable[[], bool] = lambda: False) -> None:
        while not self.has_ended() and not is_so():
            assert time.monotonic() < self.until, f"it hangs: {self.said('stdout')!r}: {self.said('stderr')}"
            time.sleep(0.005)

    def call(self) -> None:
        """Calls the session's tool until it succeeds or the session is gone."""
        self.wait(lambda: self.said("stdout").endswith("\n"))
        for _ in range(5):
            if self.has_ended():
                return
            command = [*json.loads(self.said("stdout")), "add", '{"a": 40, "b": 2}']
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
            )
            if done.returncode == 0:
                assert done.stdout == "42\n", done.stdout
                return
            assert "error" in done.stderr, f"{done.returncode}: {done.stdout} {done.stderr}"
        self.wait()

    def judge(self) -> None:
        """Checks that it exited by itself, successfully or with a traceback."""
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        stdout, stderr = self.said("stdout"), self.said("stderr")
        said = f"{code}, {stdout!r}: {stderr}"
        assert code in (0, 1), said
        assert "panic" not in stderr.lower(), said
        assert "Fatal Python error" not in stderr, said
        assert "no result within" not in stderr, f"it hangs: {said}"
        assert code == 0 or "Error" in stderr, said


def act(name: str, wanted: dict[str, str], home: Path, stdin: int) -> None:
    """Runs the scenario in this process, whose calls fail from here on."""
    outputs = [os.open(home / where, os.O_CREAT | os.O_WRONLY) for where in ("stdout", "stderr")]
    for number, end in enumerate([stdin, *outputs]):
        os.dup2(end, number)
    os.environ.update(TMPDIR=wanted["dir"], RUST_BACKTRACE="0")
    library = ctypes.CDLL(wanted["library"])
    library.trace_me(wanted["strace"].encode(), wanted["done"].encode())
    SCENARIOS[name](Path(wanted["dir"]), home / "claude")


def watch(name: str, actor: Actor, stdin: int) -> str:
    """Returns what was wrong with a run."""
    try:
        if name == "session":
            actor.call()
        os.close(stdin)
        actor.wait()
        actor.judge()
        if name != "session" and actor.status == 0:
            assert actor.said("stdout") in ANSWERS, actor.said("stdout")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if not actor.has_ended():
            os.kill(actor.pid, signal.SIGKILL)
    return "" if actor.status == 0 and actor.said("stdout") != FAILED else "error"


def main(name: str, path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    watchers: set[int] = set()
    # Otherwise each actor, when it exits, would look for cycles in everything that was imported here.
    gc.freeze()
    while True:
        connection, _ = listener.accept()
        if pid := os.fork():
            connection.close()
            watchers = {one for one in {*watchers, pid} if os.waitpid(one, os.WNOHANG) == (0, 0)}
            continue
        listener.close()
        wanted = json.loads(connection.makefile().readline())
        home = Path(tempfile.mkdtemp(prefix="toolbridge-inject-"))
        shutil.copy(STAND_IN, home / "claude")
        (home / "stdout").touch()
        (home / "stderr").touch()
        inside, outside = os.pipe()
        if pid := os.fork():
            os.close(inside)
            wrong = watch(name, Actor(pid, home), outside)
            shutil.rmtree(home)
            connection.sendall(json.dumps(wrong).encode()[1:-1] + b"\n")
            os._exit(0)
        os.close(outside)
        connection.close()
        # From here on it exits like any program, with a traceback if there is one.
        return act(name, wanted, home, inside)


main(*sys.argv[1:])
