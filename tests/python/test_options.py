"""Each option of the vendor's SDK is a setting here, or is refused with a reason: docs/OPTIONS.md says which."""

import ast
import dataclasses
import re
from pathlib import Path

import claude_agent_sdk
from claude_agent_sdk import types

ROOT = Path(__file__).parents[2]

RUST = "\n".join(path.read_text() for path in (ROOT / "crates/claude/src").rglob("*.rs"))


def rows() -> dict[str, tuple[str, str, str]]:
    """The table: for each option the cells for Rust, for Python and for remarks."""
    found = {}
    for line in (ROOT / "docs/OPTIONS.md").read_text().splitlines():
        if match := re.fullmatch(r"\| `(\w+)` \| (.+?) \| (.+?) \| (.*?) ?\|", line):
            option, *cells = match.groups()
            assert option not in found, f"`{option}` is in the table twice"
            found[option] = tuple(cells)
    return found


def python_class(file: str, name: str) -> ast.ClassDef:
    tree = ast.parse((ROOT / "crates/python/python/toolbridge" / file).read_text())
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def keys(*names: str, file: str = "setting_types.py") -> set[str]:
    """The keys of typed dictionaries of ours."""
    found = set()
    for name in names:
        body = python_class(file, name).body
        found |= {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    return found


def test_every_option_of_the_installed_sdk_is_in_the_table() -> None:
    options = {field.name for field in dataclasses.fields(claude_agent_sdk.ClaudeAgentOptions)}
    assert rows().keys() == options


def test_refused_options_have_a_reason() -> None:
    for option, (rust, python, said) in rows().items():
        assert (rust == "refused") == (python == "refused"), option
        if rust == "refused" or python == "not yet":
            assert len(said) > 10, f"`{option}` is refused without a reason"


def test_the_settings_in_the_table_exist() -> None:
    methods = set(re.findall(r"\bfn (\w+)", RUST)) | set(re.findall(r"^ +\w+ (\w+)\(\w+\): ", RUST, re.MULTILINE))
    model = python_class("model.py", "ClaudeCodeModel")
    # Some are for conversations alone.
    bodies = model.body + python_class("conversation.py", "Conversation").body
    functions = [node for node in bodies if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    init = next(node for node in functions if node.name == "__init__")
    arguments = {argument.arg for argument in init.args.args + init.args.kwonlyargs}
    settings = keys("CLISettings", file="cli_settings.py") | keys("_OwnSettings", file="settings.py")
    known = {name.removeprefix("claude_code_") for name in settings}
    known |= arguments | {node.name for node in functions} | {"output_type"}
    for option, (rust, python, _) in rows().items():
        if rust == "refused":
            continue
        in_rust = re.findall(r"`(\w+)`", rust)
        in_python = in_rust if python in ("the same", "not yet") else re.findall(r"`(\w+)`", python)
        assert in_rust, option
        assert in_python, option
        assert methods.issuperset(in_rust), option
        assert python == "not yet" or known.issuperset(in_python), option


def test_the_parts_of_options_are_known_too() -> None:
    agent = {field.name for field in dataclasses.fields(types.AgentDefinition)}
    assert keys("_SubagentOptions", "Subagent") == agent
    # The CLI has one more key, which the SDK leaves out.
    assert keys("Sandbox") - {"failIfUnavailable"} == types.SandboxSettings.__annotations__.keys()
    events = {event for each in types.HookEvent.__args__ for event in each.__args__}
    known_events = re.search(r"pub enum HookEvent, of \"hook event\" \{(.*?)\n    \}", RUST, re.DOTALL)
    assert known_events is not None
    # The CLI has more events, which the SDK leaves out.
    assert events <= set(re.findall(r"^        (\w+) = ", known_events[1], re.MULTILINE))
    assert keys("SandboxNetwork") == types.SandboxNetworkConfig.__annotations__.keys()
    thinking = types.ThinkingConfigAdaptive.__annotations__ | types.ThinkingConfigEnabled.__annotations__
    assert keys("_Budget", "Thinking") == thinking.keys()
