"""`cli_settings.py` and the table of settings in docs/OPTIONS.md are made from the table in Rust.

With TOOLBRIDGE_BLESS=1 they are written, otherwise compared.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic_ai.settings import ModelSettings

from toolbridge import ClaudeCodeModelSettings, _native

ROOT = Path(__file__).parent.parent.parent.parent

MODULE = ROOT / "crates/python/python/toolbridge/cli_settings.py"

PAGE = ROOT / "docs/OPTIONS.md"

TYPES = {
    "bool": "bool",
    "u32": "Count",
    "u64": "Count",
    "f64": "float",
    "String": "str",
    "PathBuf": "str | os.PathLike[str]",
    "Vec<String>": "Sequence[str]",
    "Vec<PathBuf>": "Sequence[str | os.PathLike[str]]",
    "Value": "Mapping[str, Any]",
    "BTreeMap<String, String>": "Mapping[str, str]",
    "Map<String, Value>": "Mapping[str, Mapping[str, Any]]",
    "BTreeMap<String, Subagent>": "Mapping[str, Subagent]",
    "Skills": 'Sequence[str] | Literal["all"]',
    "Duration": "float",
    "Effort": "Effort",
    "PermissionMode": "PermissionMode",
    "Sandbox": "Sandbox",
    "Thinking": "Thinking",
}
"""The types of settings in Rust, and in Python."""

ELSEWHERE = {"builtin_tools": "Sequence[BuiltinTool | str]", "model": None, "timeout": None}
"""Types that say more than in Rust, and settings that are arguments or settings of every model."""

HEAD = '''"""Settings of the CLI: tests/test_cli_settings.py makes this file from the table in Rust."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

# pydantic, which checks the settings, needs this one before Python 3.12.
from typing_extensions import TypedDict

from .setting_types import Count, Sandbox, Subagent, Thinking
'''


def python_name(name: str) -> str:
    return name if name == "claude_code" else f"claude_code_{name}"


def plain(text: str) -> str:
    """A text without the links of Rust's documentation, which are to names that Python has, too."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    return re.sub(r"\[(`[^`]*`)\]", r"\1", text)


def rows() -> list[tuple[str, str, str]]:
    """Name, type and description of each setting of the CLI."""
    found = []
    for name, kind, text in _native.SETTINGS:
        annotation = ELSEWHERE.get(name, TYPES[" ".join(kind.split()).replace(" <", "<").replace("< ", "<")])
        if annotation is not None:
            found.append((python_name(name), annotation, plain(text)))
    return found


def literal(name: str, values: Sequence[str], text: str) -> str:
    inside = textwrap.fill(", ".join(f'"{value}"' for value in values), 104, break_long_words=False)
    return f'{name}: TypeAlias = Literal[\n{textwrap.indent(inside, "    ")},\n]\n"""{text}"""\n'


def module() -> str:
    tools = "A tool of the CLI's own; `default` is its usual set."
    parts = [
        HEAD,
        literal("Effort", _native.EFFORTS, "How much effort a model spends on its answer."),
        literal("PermissionMode", _native.PERMISSION_MODES, "How the CLI handles tools that no rule allows."),
        literal("HookEvent", _native.HOOK_EVENTS, "An event in the CLI that a hook can be called for."),
        literal("BuiltinTool", ["default", *_native.BUILTIN_TOOLS], tools),
    ]
    fields = ['class CLISettings(TypedDict, total=False):\n    """Settings of the CLI."""\n']
    for name, annotation, text in rows():
        inside = textwrap.fill(f'"""{text}"""', 106, break_long_words=False, break_on_hyphens=False)
        fields.append(f"    {name}: {annotation}\n{textwrap.indent(inside, '    ')}")
    return "\n".join(parts) + "\n\n" + "\n".join(fields) + "\n"


def table() -> str:
    lines = ["| setting | type | |", "|---|---|---|"]
    for name, annotation, text in rows():
        lines.append(f"| `{name}` | `{annotation.replace('|', chr(92) + '|')}` | {text} |")
    return "\n".join(lines) + "\n"


def check(path: Path, made: str) -> None:
    if os.environ.get("TOOLBRIDGE_BLESS"):
        path.write_text(made)
    assert path.read_text() == made, "run this test with TOOLBRIDGE_BLESS=1"


@pytest.mark.oldest
def test_the_settings_in_python_are_those_in_rust() -> None:
    check(MODULE, module())


@pytest.mark.oldest
def test_the_page_has_all_settings() -> None:
    before, begin, rest = PAGE.read_text().partition("<!-- settings -->\n")
    _, end, after = rest.partition("<!-- end of settings -->")
    assert begin
    assert end
    check(PAGE, before + begin + table() + end + after)


@pytest.mark.oldest
def test_all_settings_have_the_prefix() -> None:
    own = set(ClaudeCodeModelSettings.__annotations__) - set(ModelSettings.__annotations__)
    # The setting that is the prefix itself has nothing after it.
    assert {name for name in own if not name.startswith("claude_code_")} == {"claude_code"}
    assert own >= {name for name, _, _ in rows()}
