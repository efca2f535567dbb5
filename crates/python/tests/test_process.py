"""Processes, threads and event loops: in all cases the program exits, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

from pydantic_ai import Agent, RunContext
from support import PATIENCE_SECONDS, PYTHON, SUM, Bridge, Transport, World, named, soon

import toolbridge
from toolbridge import Session

MakeWorld = Callable[[str], World]

HANG = "call hang {}\n---\ntext done"

PROGRAM = """
import asyncio, os, signal, sys
from pydantic_ai import Agent
from toolbridge import ClaudeCodeModel

model = ClaudeCodeModel(
    cli_path=os.environ["TOOLBRIDGE_TEST_CLAUDE"], session_dir=os.environ["SESSIONS"], timeout=60
)
model.set_agent_toolsets(None, server_name="tools", transport=os.environ["TRANSPORT"])
agent = Agent(model)

def files():
    return [name for name in os.listdir(os.environ["SESSIONS"]) if name.startswith("claudecode_ipc_")]

@agent.tool_plain
async def hang() -> None:
    print("hanging", flush=True)
    await asyncio.sleep(600)

@agent.tool_plain
def add(a: int, b: int) -> int:
    return a + b

"""


def program(here: World, transport: Transport, text: str) -> subprocess.Popen[str]:
    """A separate program with the model and its agent."""
    environment = {
        **here.environment,
        "TOOLBRIDGE_TEST_CLAUDE": named("TOOLBRIDGE_TEST_CLAUDE"),
        "SESSIONS": str(here.sessions),
        "TRANSPORT": transport,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.Popen(
        [*PYTHON, "-c", PROGRAM + textwrap.dedent(text)],
        env=environment,
        cwd=here.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(running: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = running.communicate(timeout=PATIENCE_SECONDS)
    return running.returncode, stdout, stderr


def hanging(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    assert running.stdout.readline() == "hanging\n"


def test_ctrl_c_leaves_nothing(world: MakeWorld, transport: Transport) -> None:
    here = world(HANG)
    running = program(
        here,
        transport,
        """
        try:
            asyncio.run(agent.run("go"))
        except KeyboardInterrupt:
            print(files(), flush=True)
        agent.run_sync("go")
        """,
    )
    hanging(running)
    running.send_signal(signal.SIGINT)
    assert running.stdout is not None
    assert running.stdout.readline() == "[]\n"
    hanging(running)
    running.send_signal(signal.SIGINT)
    code, _, stderr = ended(running)
    assert code in (130, -signal.SIGINT)
    assert "KeyboardInterrupt" in stderr
    assert "never awaited" not in stderr
    assert here.files == []
    here.nothing_is_left()


def test_unfinished_requests_do_not_delay_the_exit(world: MakeWorld, transport: Transport) -> None:
    here = world(HANG)
    running = program(
        here,
        transport,
        """
        from pydantic_ai.messages import ModelRequest, UserPromptPart
        from pydantic_ai.models import ModelRequestParameters

        async def dropped_streams():
            started = asyncio.Event()

            async def hang() -> None:
                started.set()
                await asyncio.sleep(600)

            model.set_agent_toolsets([hang], server_name="tools", transport=os.environ["TRANSPORT"])
            messages = [ModelRequest(parts=[UserPromptPart("go")])]
            stream = await model.request_stream(messages, None, ModelRequestParameters()).__aenter__()
            messages = model.stream_messages(messages, None, ModelRequestParameters())
            await anext(messages)
            await started.wait()

        async def unfinished_task():
            global task
            model.set_agent_toolsets(None, server_name="tools", transport=os.environ["TRANSPORT"])
            task = asyncio.create_task(agent.run("go"))
            await asyncio.sleep(2)

        asyncio.run(dropped_streams())
        print(files())
        asyncio.run(unfinished_task())
        print(files())
        print("closing the loop", file=sys.stderr, flush=True)
        loop = asyncio.new_event_loop()
        task = loop.create_task(agent.run("go"))
        loop.run_until_complete(asyncio.sleep(2))
        loop.close()
        print("end", flush=True)
        """,
    )
    code, stdout, stderr = ended(running)
    assert code == 0, stderr
    assert stdout.replace("hanging\n", "") == "[]\n[]\nend\n"
    # Nothing is printed before, and about the task of a closed loop only by asyncio.
    assert stderr.partition("closing the loop\n")[0] == ""
    assert here.files == []


def test_a_tool_that_exits_ends_its_call_and_ctrl_c_in_a_tool_the_program(
    world: MakeWorld, transport: Transport
) -> None:
    here = world("call leave {}\n---\ntext done")
    running = program(
        here,
        transport,
        """
        how = SystemExit(7)

        @agent.tool_plain
        async def leave() -> None:
            raise how

        print(asyncio.run(agent.run("go")).output, flush=True)
        how = KeyboardInterrupt()
        asyncio.run(agent.run("go"))
        """,
    )
    code, stdout, stderr = ended(running)
    assert (code, stdout) == (-signal.SIGINT, "done\n"), stderr
    assert "SystemExit" in json.dumps(here.requests[1]["messages"][-1])
    assert "never" not in stderr
    assert here.files == []


def test_a_thousand_calls_leave_no_file_and_no_thread_open(short_path: Path) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    def counts() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    def calls(count: int) -> None:
        with Session(add, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
            for n in range(count):
                assert bridge.call("add", a=n, b=1)["content"][0]["text"] == str(n + 1)

    calls(1)
    gc.collect()
    before = counts()
    calls(1000)
    for _ in range(20):
        calls(1)
    gc.collect()
    soon(lambda: counts() <= before)
    assert counts() <= before


def test_the_cli_ends_with_a_killed_process_and_its_files_are_removed_by_the_next(world: MakeWorld) -> None:
    here = world(HANG)
    running = program(here, "stdio", "asyncio.run(agent.run('go'))")
    hanging(running)
    [bridge] = [pid for pid, command in here.processes.items() if " bridge " in command]
    executable = Path(f"/proc/{bridge}/exe").readlink()
    assert executable == Path(toolbridge.__file__).parent / "_bin" / "toolbridge-bridge", "that of the wheel"
    running.kill()
    ended(running)
    assert len(here.files) == 2
    soon(lambda: not here.processes)
    next_one = world('call add {"a": 1, "b": 1}\n---\ntext {result}')
    next_one.sessions = here.sessions
    agent = Agent(next_one.model("stdio"))

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    assert asyncio.run(agent.run("go")).output == "2"
    assert here.files == []


def test_every_thread_can_have_a_loop_of_its_own_and_requests_leave_no_file_open(world: MakeWorld) -> None:
    agent = Agent(world(SUM).model("sdk"), deps_type=str)
    seen: list[tuple[str, str]] = []

    @agent.tool
    async def add(ctx: RunContext[str], a: int, b: int) -> int:
        seen.append((ctx.deps, threading.current_thread().name))
        return a + b

    def work() -> None:
        name = threading.current_thread().name
        assert asyncio.run(agent.run("go", deps=name)).output == "The sum is 42."

    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    work()
    assert seen.pop() == (threading.current_thread().name,) * 2
    gc.collect()
    before = count()
    # With several loops, one after the other and at once.
    threads = [threading.Thread(target=work, name=f"thread-{n}") for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(seen) == [(thread.name, thread.name) for thread in threads]
    gc.collect()
    soon(lambda: count() <= before)


def test_a_child_of_a_fork_can_ask_and_does_not_disturb_its_parent(world: MakeWorld) -> None:
    running = program(
        world(SUM),
        "sdk",
        """
        import warnings
        warnings.simplefilter("ignore")  # 3.12 warns of threads and forks
        from pydantic_ai.messages import ModelRequest, UserPromptPart
        from pydantic_ai.models import ModelRequestParameters
        from toolbridge import ClaudeCodeError, Session

        async def read(stream):
            async for _ in stream:
                pass

        async def stream_of_the_parent():
            async def add(a: int, b: int) -> None:
                await asyncio.sleep(600)

            model.set_agent_toolsets([add], server_name="tools", transport=os.environ["TRANSPORT"])
            messages = [ModelRequest(parts=[UserPromptPart("go")])]
            async with model.request_stream(messages, None, ModelRequestParameters()) as stream:
                child = os.fork()
                if child == 0:
                    asyncio._set_running_loop(None)
                    said = "nothing"
                    try:
                        asyncio.run(read(stream))
                    except ClaudeCodeError as error:
                        said = str(error)
                    print(said, model.interrupt(), flush=True)
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                assert model.interrupt() == 1

        def session_of_the_parent():
            with Session(add, directory=os.environ["SESSIONS"]) as session:
                child = os.fork()
                if child == 0:
                    try:
                        session.mcp_config()
                    except ValueError:
                        session._session = None
                        sys.exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
                assert session.socket_path.exists()
            print(files(), flush=True)

        asyncio.run(stream_of_the_parent())
        model.set_agent_toolsets(None, server_name="tools", transport=os.environ["TRANSPORT"])
        session_of_the_parent()
        child = os.fork()
        print(asyncio.run(agent.run("go")).output, flush=True)
        if child:
            _, status = os.waitpid(child, 0)
            print("child", os.waitstatus_to_exitcode(status))
        """,
    )
    code, stdout, stderr = ended(running)
    assert (code, stderr) == (0, "")
    assert stdout.splitlines() == [
        "the request belongs to the process that this one was forked from 0",
        "[]",
        "The sum is 42.",
        "The sum is 42.",
        "child 0",
    ]


def test_the_package_brings_the_executable_as_a_command() -> None:
    command = Path(sys.executable).parent / "toolbridge"
    assert command.read_bytes()[:4] == b"\x7fELF" or sys.platform != "linux", "Python is not started for it"
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"toolbridge {toolbridge.__version__}\n"
