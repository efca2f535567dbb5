"""Pages with Python programs: each command is run again, with the installed wheel.

Covered here: every program and every `console` block of docs/first-steps/python.md and
docs/first-steps/from-claudecode-model.md, and the Python ones of the README and docs/TESTING.md. A block that
starts with ```` ```python NAME ```` is a file of that name. In shown output, `…` matches anything.
`<!-- model: … -->` before a block has the script of the model, as in `crates/scripted/src/page.rs`.

With TOOLBRIDGE_BLESS=1, wrong output in a page is replaced by the real one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support import PATIENCE_SECONDS, World, soon

MakeWorld = Callable[[str], World]

ROOT = Path(__file__).parent.parent.parent.parent

README = ROOT / "README.md"

ANYTHING = "…"

# Every warning is an error, except for that of pydantic-ai's own `run_sync`.
WARNINGS = "error,ignore:There is no current event loop:DeprecationWarning"


@dataclass
class Step:
    command: str
    line: int = field(compare=False)
    """The first line of the shown output, from 0."""
    shown: list[str] = field(default_factory=list)


@dataclass
class Block:
    script: str | None
    steps: list[Step]


def read(text: str) -> tuple[dict[str, str], list[Block]]:
    """The programs of a page, by name, and its `console` blocks."""
    programs: dict[str, str] = {}
    blocks: list[Block] = []
    script: str | None = None
    lines = iter(enumerate(text.split("\n"), 1))
    for _, line in lines:
        if line.startswith("<!-- model:"):
            script = "\n".join(said for _, said in until(lines, "-->"))
        elif name := re.fullmatch(r"```python (\S+)", line):
            programs[name[1]] = "\n".join(code for _, code in until(lines, "```")) + "\n"
        elif line == "```console":
            block, script = Block(script, []), None
            for number, inside in until(lines, "```"):
                if inside.startswith("$ "):
                    block.steps.append(Step(inside[2:], number))
                else:
                    block.steps[-1].shown.append(inside)
            blocks.append(block)
    return programs, blocks


def until(lines: Iterator[tuple[int, str]], end: str) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if line == end:
            return
        yield number, line
    raise AssertionError(f"there is no `{end}`")


def shows(shown: list[str], printed: list[str]) -> bool:
    """Whether the shown lines, with gaps, match what was printed."""
    gap = re.escape(ANYTHING)
    pattern = "".join(
        "(?:.*\n)*" if line == ANYTHING else re.escape(line).replace(gap, ".*") + "\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def run(here: World, packages: Path, command: str, where: Path) -> tuple[list[str], bool]:
    """What a command prints, with the paths that a reader would see, and whether it succeeded.

    There is no CLI but that of the package `claude-agent-sdk`: no `claude` is on the PATH.
    """
    folders = os.environ["PATH"].split(os.pathsep)
    # Not resolved: a virtual environment's interpreter is a link.
    path = [str(Path(sys.executable).parent), *(one for one in folders if not Path(one, "claude").exists())]
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec 2>&1; {command}"],
        env={
            **here.environment,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(packages),
            "TMPDIR": str(here.sessions),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": WARNINGS,
        },
        cwd=where,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    text = done.stdout.replace(str(here.home), "/home/you").replace(str(here.sessions), "/tmp")
    return [line.rstrip() for line in text.splitlines()], done.returncode == 0


def repeat(
    page: Path, world: MakeWorld, changed: Callable[[str], str] = str, where: Path | None = None
) -> int:
    """Runs the Python commands of a page with changed programs, at home or elsewhere; returns their number.

    What the README shows too, with the same program and output, is only run there.
    """
    text = page.read_text()
    programs, blocks = read(text)
    known, known_blocks = ({}, []) if page == README else read(README.read_text())
    count = 0
    wrong: list[tuple[Step, list[str]]] = []
    for block in blocks:
        if not block.steps[0].command.startswith("python "):
            continue
        count += len(block.steps)
        used = [name for name in programs if any(name in step.command for step in block.steps)]
        if used and block in known_blocks and all(programs[name] == known.get(name) for name in used):
            continue
        here = world(block.script or "error 500 nobody was to be asked")
        packages = here.packages
        for name, program in programs.items():
            ((where or here.home) / name).write_text(changed(program))
        for step in block.steps:
            printed, well = run(here, packages, step.command, where or here.home)
            if not shows(step.shown, printed):
                wrong.append((step, printed))
            says_so = any(re.match(r"(\w+\.)*\w*Error: ", line) for line in printed)
            assert well != says_so, "\n".join(printed)
        assert block.script is not None or here.requests == []
    if wrong and os.environ.get("TOOLBRIDGE_BLESS"):
        lines = text.split("\n")
        for step, printed in reversed(wrong):
            lines[step.line : step.line + len(step.shown)] = printed
        page.write_text("\n".join(lines))
    assert not wrong, "\n".join(
        f"{page.name}:{step.line} shows {step.shown}, printed was {printed}" for step, printed in wrong
    )
    return count


def test_first_steps_in_python(world: MakeWorld) -> None:
    assert repeat(ROOT / "docs/first-steps/python.md", world) >= 5


def test_testing_an_agent(world: MakeWorld) -> None:
    assert repeat(ROOT / "docs/TESTING.md", world) == 1


def test_the_program_of_the_readme_offers_its_function_and_nothing_else(
    world: MakeWorld, short_path: Path
) -> None:
    """Runs it like a reader would, where the user and the project configure many other things."""
    project = short_path / "project"
    traps = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {project}/ran"}]}]}}
    worlds: list[tuple[World, set[Path]]] = []

    def with_traps(script: str) -> World:
        here = world(script)
        for claude in (here.home / ".claude", project / ".claude"):
            (claude / "skills" / "zebra").mkdir(parents=True)
            skill = "---\nname: zebra\ndescription: zebra\n---\n"
            (claude / "skills" / "zebra" / "SKILL.md").write_text(skill)
            (claude / "settings.json").write_text(json.dumps(traps))
            (claude / "CLAUDE.md").write_text("zebra memory")
        (project / "CLAUDE.md").write_text("zebra memory")
        worlds.append((here, set(here.home.rglob("*"))))
        return here

    assert repeat(README, with_traps, where=project) == 1
    [(here, before)] = worlds
    assert [tool["name"] for tool in here.requests[0]["tools"]] == ["mcp__pydantic_tools__add"]
    sent = json.dumps(here.requests)
    assert "zebra" not in sent
    assert str(project) not in sent
    assert not (project / "ran").exists()
    # Only the CLI's own state is left: no transcript, no log.
    left = {str(path.relative_to(here.home)) for path in set(here.home.rglob("*")) - before if path.is_file()}
    own = (".claude.json", ".claude/backups/", ".claude/plugins/store/")
    assert {name for name in left if not name.startswith(own)} == set()
    soon(lambda: not list(here.sessions.iterdir()))


def with_our_import(program: str) -> str:
    """A program for `claudecode-model`, with one line changed."""
    theirs = [line for line in program.split("\n") if "claudecode_model" in line]
    assert len(theirs) == 1, program
    assert theirs[0].startswith("from claudecode_model import ")
    assert "toolbridge" not in program
    return program.replace("from claudecode_model import ", "from toolbridge import ")


def test_coming_from_claudecode_model_changes_one_line(world: MakeWorld) -> None:
    assert repeat(ROOT / "docs/first-steps/from-claudecode-model.md", world, with_our_import) == 5


def test_only_gaps_match_any_text() -> None:
    for shown, printed, want in [
        ("a", "a", True),
        ("a", "a b", False),
        ("a", "a\nb", False),
        ("took … ms", "took 1.5 ms", True),
        ("took … ms", "took 1.5 s", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nb\nc", False),
        ("a.c", "abc", False),
    ]:
        assert shows(shown.split("\n"), printed.split("\n")) == want, (shown, printed)
