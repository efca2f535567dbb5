"""The examples run unchanged, each in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support import PATIENCE_SECONDS, PYTHON, Bridge, World, shown, soon

MakeWorld = Callable[[str], World]

EXAMPLES = Path(__file__).parent.parent / "examples"

SERVER = "mcp__pydantic_tools__"


def printed(here: World, name: str) -> str:
    """What an example prints."""
    return shown(here, EXAMPLES / name)


def test_basic_tool(world: MakeWorld) -> None:
    here = world(f'call {SERVER}add {{"a": 40, "b": 2}}\n---\ntext 40 + 2 is {{result}}.')
    first, second, _ = printed(here, "basic_tool.py").split("\n")
    assert first == "40 + 2 is 42.0."
    assert second.endswith(" out")


def test_database(world: MakeWorld) -> None:
    here = world(
        f'call {SERVER}find_order {{"number": 17}}\n---\n'
        f'call {SERVER}set_total {{"number": 17, "total": 19}}\n---\n'
        "text Done: {result}."
    )
    assert printed(here, "database.py") == "Done: 1 order changed.\nin the database: [(17, 'Ada', 19.0)]\n"


def test_streaming(world: MakeWorld) -> None:
    here = world(f'text Let me | wait.\ncall {SERVER}wait {{"seconds": 0.1}}\n---\ntext Hel|lo.')
    assert printed(here, "streaming.py") == (
        'Let me wait.\n→ wait {"seconds":0.1}\n← waited for 0.1 seconds\nHello.\n6 characters in the answer\n'
    )


def test_sums() -> None:
    """`test_first_steps.py` runs it, as a part of that page."""
    program = (EXAMPLES / "test_sums.py").read_text().split('"""\n\n', 1)[1]
    page = (EXAMPLES.parent.parent.parent / "docs/TESTING.md").read_text()
    assert f"```python test_sums.py\n{program}```\n" in page


SHOUT = """
import os

def shout(text: str) -> str:
    "Says it louder."
    return _upper(text)

def _upper(text: str) -> str:
    return text.upper()
"""


def test_plugins(short_path: Path) -> None:
    plugins, sessions = short_path / "plugins", short_path / "sessions"
    plugins.mkdir()
    sessions.mkdir()
    (plugins / "loud.py").write_text(SHOUT)
    (plugins / "bad.py").write_text("def load_plugin() -> None: ...")
    with subprocess.Popen(
        [*PYTHON, EXAMPLES / "plugins.py", plugins],
        env={"TMPDIR": str(sessions), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        with Bridge(json.loads(host.stdout.readline())) as bridge:
            own = ["load_plugin", "unload_plugin"]
            assert list(bridge.tools) == own
            assert bridge.introduction["instructions"].startswith("More functions are in plugins.")

            def said(tool: str, **arguments: str) -> str:
                text: str = bridge.call(tool, **arguments)["content"][0]["text"]
                return text

            for wrong in ("nothing", "../plugins/loud"):
                assert said("load_plugin", name=wrong).startswith(
                    f"`{wrong}` cannot be loaded; there are ['bad', "
                )
            assert said("load_plugin", name="loud") == "loaded: shout"
            soon(lambda: list(bridge.tools) == [*own, "shout"])
            assert said("shout", text="hey") == "HEY"
            assert "loaded are ['loud']" in said("load_plugin", name="loud")
            assert "two tools are called `load_plugin`" in said("load_plugin", name="bad")
            assert said("unload_plugin", name="bad") == "unloaded: "
            assert said("unload_plugin", name="loud") == "unloaded: shout"
            soon(lambda: list(bridge.tools) == own)
            assert said("load_plugin", name="loud") == "loaded: shout"
        host.stdin.close()
        assert host.wait(PATIENCE_SECONDS) == 0
    assert list(sessions.iterdir()) == []


def test_the_programs_of_the_readme_are_programs(short_path: Path) -> None:
    text = (EXAMPLES.parent / "README.md").read_text()
    programs = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert len(programs) == 10
    for number, program in enumerate(programs):
        compile(program, f"program {number}", "exec")
    names, sessions = short_path / "names", short_path / "sessions"
    names.mkdir()
    sessions.mkdir()
    run = [program for part in ("input(", "session.remove(") for program in programs if part in program]
    assert len(run) == 2
    # One after the other: importing everything takes longer than they do.
    each = "import sys\nfor program in sys.argv[1:]:\n    exec(program, {'__name__': '__main__'})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", each, *run],
        env={"TMPDIR": str(sessions), "XDG_RUNTIME_DIR": str(names)},
        input="\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "'mcpServers': {'tools': {" in done.stdout
    assert list((names / "toolbridge").iterdir()) == []
    assert list(sessions.iterdir()) == []
