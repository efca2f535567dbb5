"""The examples run as they are, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support import PATIENCE_SECONDS, World, shown

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


def test_the_programs_of_the_readme_are_programs(short_path: Path) -> None:
    text = (EXAMPLES.parent / "README.md").read_text()
    programs = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert len(programs) == 7
    for number, program in enumerate(programs):
        compile(program, f"program {number}", "exec")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", next(program for program in programs if "input(" in program)],
        env={"TMPDIR": str(short_path)},
        input="\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "'mcpServers': {'tools': {" in done.stdout
    assert list(short_path.iterdir()) == []
