"""The document tools with Python: text is copied, and neither the model nor Python sees it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import NativeToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from support import PATIENCE_SECONDS, REMINDER, Bridge, Transport, World, prompt, soon

import toolbridge.tools
from toolbridge import ClaudeCodeModelSettings, Documents, InvalidRequestError, Session
from toolbridge._native import Call

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

SECRET = "Rinse the boiler with the zebra's own soap."
SECTION = f"## Descaling\n\nMix acid and water.\n{SECRET}\n\n"
REF = {"target": "manual", "manual_id": "machine", "path": "guide.md", "start_line": 5}
COPY = {"from_ref": REF, "to_path": "notes/descale.md", "mode": "overwrite"}

READING = {
    *("manual_list", "manual_ls", "manual_toc", "manual_find", "manual_read"),
    *("vault_ls", "vault_find", "vault_read"),
}
WRITING = {
    *("vault_create", "vault_write", "vault_replace", "vault_undo"),
    *("bridge_copy_section", "bridge_copy_file"),
}

FIND_AND_COPY = (
    'call manual_find {"query": "Descaling"}\n---\n'
    f"call bridge_copy_section {json.dumps(COPY)}\n---\n"
    'call add {"a": 40, "b": 2}\n---\n'
    "text Copied; the sum is {result}."
)


@pytest.fixture
def workspace(short_path: Path) -> Path:
    manual = short_path / "manuals" / "machine"
    manual.mkdir(parents=True)
    (manual / "guide.md").write_text(f"# Guide\n\nRead me.\n\n{SECTION}## Cleaning\n\nWipe it.\n")
    (short_path / "vault").mkdir()
    return short_path


@pytest.fixture
def python_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that reach Python."""
    seen: list[str] = []

    def watched(call: Callable[[toolbridge.tools.Host, Call], Any]) -> Any:
        def watch(host: toolbridge.tools.Host, one: Call) -> Any:
            seen.append(one.name)
            return call(host, one)

        return watch

    for way in ("call", "_call_directly"):
        monkeypatch.setattr(toolbridge.tools.Host, way, watched(getattr(toolbridge.tools.Host, way)))
    return seen


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def checked(here: World, workspace: Path) -> None:
    """Checks that the section was found and copied, and that no request to the model contains its text."""
    assert (workspace / "vault/notes/descale.md").read_text() == SECTION
    requests = [json.dumps(request) for request in here.requests]
    assert len(requests) == 4
    assert not any(SECRET in request for request in requests)
    found = json.loads(told(here, 1))
    place = f"{REF['manual_id']}/{REF['path']}#L{REF['start_line']}~"
    assert found["items"][0]["ref"].startswith(place)
    copied = json.loads(told(here, 2))
    assert copied["written_bytes"] == len(SECTION)
    assert copied["written_path"] == "notes/descale.md"


def told(here: World, turn: int) -> str:
    """The tool result before that turn of the model."""
    [block] = [b for b in here.requests[turn]["messages"][-1]["content"] if b["type"] == "tool_result"]
    content = block["content"]
    return REMINDER.sub("", content if isinstance(content, str) else content[0]["text"])


async def test_an_agent_finds_and_copies_beside_its_own_tools(
    world: MakeWorld, transport: Transport, workspace: Path, python_calls: list[str]
) -> None:
    here = world(FIND_AND_COPY)
    model = here.model()
    model.set_agent_toolsets(None, server_name="tools", transport=transport)
    settings = ClaudeCodeModelSettings(claude_code_documents=Documents(workspace))
    agent = Agent(model, tools=[add], model_settings=settings)
    result = await agent.run("go")
    assert result.output == "Copied; the sum is 42."
    checked(here, workspace)
    assert set(here.offered) == {f"mcp__tools__{name}" for name in READING | WRITING | {"add"}}
    assert python_calls == ["add"]
    used = [part for part in result.all_messages()[-1].parts if isinstance(part, NativeToolCallPart)]
    assert [part.tool_name for part in used] == ["manual_find", "bridge_copy_section", "add"]
    assert SECRET not in result.all_messages_json().decode()


async def test_a_request_without_an_agent_finds_and_copies_with_the_tools_that_it_chooses(
    world: MakeWorld, transport: Transport, workspace: Path, python_calls: list[str]
) -> None:
    here = world(FIND_AND_COPY)
    model = here.model()
    model.set_agent_toolsets([add, Documents(workspace)], server_name="tools", transport=transport)
    names = ["manual_find", "bridge_copy_section", "add"]
    chosen = ModelRequestParameters(function_tools=[ToolDefinition(name=name) for name in names])
    response = await model.request(prompt(), None, chosen)
    assert response.text == "Copied; the sum is 42."
    checked(here, workspace)
    assert python_calls == ["add"]
    assert set(here.offered) == {f"mcp__tools__{name}" for name in names}


def test_documents_that_only_read_do_not_offer_to_write(workspace: Path) -> None:
    documents = Documents(workspace, read_only=True)
    assert set(documents.tool_names) == READING
    with Session(documents, directory=workspace) as session, Bridge(session.mcp_config()) as bridge:
        assert set(bridge.tools) == READING


async def test_an_agent_has_the_registered_documents_except_for_names_of_its_own(
    world: MakeWorld, transport: Transport, workspace: Path
) -> None:
    here = world(f"call bridge_copy_section {json.dumps(COPY)}\n---\ntext ok")
    model = here.model()
    documents = Documents(workspace)
    model.set_agent_toolsets([add, documents], server_name="tools", transport=transport)

    def manual_find() -> str:
        return "mine"

    hidden: FunctionToolset[None] = FunctionToolset([add, *(Tool(add, name=name) for name in WRITING)])
    async with Agent(model, toolsets=[hidden.filtered(lambda _, tool: False)]).run_stream("go") as result:
        await result.get_output()
    assert set(here.offered) == {f"mcp__tools__{name}" for name in READING}
    await Agent(model, tools=[manual_find, *(Tool(add, name=name) for name in WRITING)]).run("go")
    assert set(here.offered) == {f"mcp__tools__{name}" for name in READING | WRITING | {"add"}}
    [listed] = [tool for tool in here.requests[-1]["tools"] if tool["name"] == "mcp__tools__manual_find"]
    assert listed["input_schema"].get("properties", {}) == {}
    assert not (workspace / "vault/notes").exists()
    # A single run may have other ones.
    model.set_agent_toolsets(None, server_name="tools", transport=transport)
    given = ClaudeCodeModelSettings(claude_code_documents=documents)
    await Agent(model).run("go", model_settings=given)
    assert set(here.offered) == {f"mcp__tools__{name}" for name in READING | WRITING}
    assert (workspace / "vault/notes/descale.md").read_text() == SECTION


async def test_a_request_gets_the_documents_of_its_settings_in_addition_to_its_tools(
    world: MakeWorld, workspace: Path
) -> None:
    model = world("text ok").model()
    documents = Documents(workspace)
    model.set_agent_toolsets([add, documents], server_name="tools")
    given = ClaudeCodeModelSettings(claude_code_documents=documents)
    chosen = ModelRequestParameters(function_tools=[ToolDefinition(name="add")])
    for parameters, only in ((chosen, READING | WRITING | {"add"}), (ModelRequestParameters(), None)):
        async with model._prepared(prompt(), given, parameters) as ready:
            assert ready.host.names == {"add"}
            assert ready.host.documents == [documents]
            names = json.loads(ready.host.request)["request"]["only"]
            assert (names and set(names)) == only


async def test_a_duplicate_tool_name_is_an_error(
    world: MakeWorld, transport: Transport, workspace: Path
) -> None:
    def manual_find() -> None: ...

    model = world("text ok").model()
    model.set_agent_toolsets([manual_find, Documents(workspace)], transport=transport)
    with pytest.raises(InvalidRequestError, match="manual_find"):
        await model.request(prompt(), None, ModelRequestParameters())
    model.set_agent_toolsets([Documents(workspace), Documents(workspace)], transport=transport)
    with pytest.raises(InvalidRequestError, match="manual_"):
        await model.request(prompt(), None, ModelRequestParameters())


def test_a_session_offers_documents_to_any_client(workspace: Path, python_calls: list[str]) -> None:
    with (
        Session(add, Documents(workspace), directory=workspace) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert set(bridge.tools) == READING | WRITING | {"add"}
        assert bridge.tools["manual_find"]["annotations"]["readOnlyHint"] is True
        found = bridge.call("manual_find", query="Descaling")["structuredContent"]
        reference = found["items"][0]["ref"]
        copy = {**COPY, "from_ref": reference}
        copied = bridge.call("bridge_copy_section", **copy)
        assert copied["structuredContent"]["written_bytes"] == len(SECTION)
        assert SECRET not in str(copied)
        refused = bridge.call("bridge_copy_section", **{**copy, "to_path": "../out.md"})
        assert refused["isError"] is True
        assert bridge.call("add", a=40, b=2)["content"][0]["text"] == "42"
    assert (workspace / "vault/notes/descale.md").read_text() == SECTION
    assert python_calls == ["add"]
    assert sorted(path.name for path in workspace.iterdir()) == ["manuals", "vault"]


async def test_a_session_can_have_nothing_but_documents(workspace: Path) -> None:
    async with Session(Documents(workspace), directory=workspace) as session:
        with Bridge(session.mcp_config()) as bridge:
            assert set(bridge.tools) == READING | WRITING
            copied = await asyncio.to_thread(bridge.call, "bridge_copy_section", **COPY)
            assert not copied.get("isError")
    assert (workspace / "vault/notes/descale.md").read_text() == SECTION


def test_a_folder_without_manuals_is_read_and_written(short_path: Path) -> None:
    (short_path / "Garden").mkdir()
    (short_path / "Garden/Pests.md").write_text("# Pests\n\nAphids.\n")
    (short_path / "Home.md").write_text("# Home\n")
    documents = Documents(short_path)
    assert (documents.manuals, documents.vault) == (short_path, short_path)
    with Session(documents, directory=short_path) as session, Bridge(session.mcp_config()) as bridge:
        listed = bridge.call("manual_list")["structuredContent"]
        assert [manual["manual_id"] for manual in listed["items"]] == [".", "Garden"]
        [found] = bridge.call("manual_find", query="aphids")["structuredContent"]["items"]
        copy = {"from_ref": found["ref"], "to_path": "Home.md", "mode": "append"}
        assert not bridge.call("bridge_copy_section", **copy).get("isError")
    assert (short_path / "Home.md").read_text() == "# Home\n# Pests\n\nAphids.\n"


def test_the_folder_of_daily_notes_is_an_option(workspace: Path) -> None:
    note = {"path": "daily/plan.md", "content": "x"}
    for daily, refused in ((None, True), ("journal", False), ("off", False)):
        documents = Documents(workspace, daily=daily)
        with Session(documents, directory=workspace) as session, Bridge(session.mcp_config()) as bridge:
            assert bridge.call("vault_create", **note).get("isError", False) is refused
        (workspace / "vault/daily/plan.md").unlink(missing_ok=True)
    with pytest.raises(
        InvalidRequestError, match="`daily` is `/daily`, which is not `off` or a relative path"
    ):
        Documents(workspace, daily="/daily")


def test_limits_hold(workspace: Path) -> None:
    documents = Documents(workspace, hard_max_chars=10, hard_max_sections=1, allow_file_scope=True)
    with Session(documents, directory=workspace) as session, Bridge(session.mcp_config()) as bridge:
        copied = bridge.call("bridge_copy_section", **COPY)["structuredContent"]
        assert copied["truncated"] is True
        whole = {"from_path": "guide.md", "manual_id": "machine", "to_path": "all.md", "mode": "append"}
        allowed = bridge.call("bridge_copy_file", **whole, limits={"allow_file": True})
        assert not allowed.get("isError")
    assert (workspace / "vault/notes/descale.md").read_text() == SECTION[:10]
    documents = Documents(workspace, hard_max_chars=10, hard_max_copy_chars=100_000)
    with Session(documents, directory=workspace) as session, Bridge(session.mcp_config()) as bridge:
        assert bridge.call("bridge_copy_section", **COPY)["structuredContent"]["truncated"] is False
        assert bridge.call("manual_read", ref=REF)["structuredContent"]["truncated"] is True
        undone = bridge.call("vault_undo", path="notes/descale.md")["structuredContent"]
        assert undone == {"written_path": "notes/descale.md"}
    assert (workspace / "vault/notes/descale.md").read_text() == SECTION[:10]
    with (
        Session(Documents(workspace), directory=workspace) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        assert bridge.call("bridge_copy_file", **whole, limits={"allow_file": True})["isError"] is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workspace": "/no/such"}, "the notes folder `/no/such` does not exist"),
        ({"manuals": "/no/such"}, "the manuals folder `/no/such` does not exist"),
        ({"vault": "manuals"}, "overlap"),
        ({"manuals": "manuals/machine/guide.md"}, "cannot be opened"),
        ({"hard_max_chars": 0}, "`hard_max_chars` is `0`, which is not a whole number from 1 upwards"),
        ({"hard_max_sections": -1}, "`hard_max_sections` is `-1`, which is not a whole number"),
        ({"hard_max_copy_chars": 0}, "`hard_max_copy_chars` is `0`, which is not a whole number"),
        ({"log_level": "loud"}, "`log_level`: `loud` is not `error`, `warn` or `info`"),
    ],
)
def test_invalid_folders_and_limits_are_reported_at_once(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(workspace)
    with pytest.raises(InvalidRequestError, match=message) as raised:
        Documents(**options)
    if "does not exist" in message:
        assert raised.value.hint is not None
        assert "`init=True`" in raised.value.hint


def test_an_unknown_setting_is_a_type_error(workspace: Path) -> None:
    with pytest.raises(TypeError, match="hard_max_chars"):
        Documents(workspace, hard_max_chars="many")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="colour"):
        Documents(workspace, colour="red")  # type: ignore[call-arg]


def test_missing_folders_can_be_created(short_path: Path) -> None:
    documents = Documents(workspace=short_path / "new", init=True)
    assert documents.manuals == short_path / "new/manuals"
    assert list(documents.manuals.glob("*/*.md"))
    assert documents.vault.is_dir()
    assert repr(documents) == f"Documents(manuals='{documents.manuals}', vault='{documents.vault}')"


def test_each_call_is_a_line_of_the_log_without_any_text(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolbridge.documents")
    with (
        Session(Documents(workspace), directory=workspace) as session,
        Bridge(session.mcp_config()) as bridge,
    ):
        bridge.call("bridge_copy_section", **COPY)
        bridge.call("vault_read", path="nothing.md")
    lines = waited_for(caplog, "toolbridge.documents", 2)
    assert [(line.levelname, json.loads(line.getMessage())["tool"]) for line in lines] == [
        ("INFO", "bridge_copy_section"),
        ("WARNING", "vault_read"),
    ]
    assert json.loads(lines[0].getMessage())["written_bytes"] == len(SECTION)
    assert SECRET not in caplog.text


def waited_for(caplog: pytest.LogCaptureFixture, logger: str, count: int) -> list[logging.LogRecord]:
    """Waits for the first records of a logger."""

    def records() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == logger]

    soon(lambda: len(records()) >= count)
    return records()


def test_documents_work_in_a_child_of_a_fork(workspace: Path) -> None:
    text = """
    import os, sys, json
    sys.path.insert(0, sys.argv[2])
    from support import Bridge
    from toolbridge import Documents, Session
    documents = Documents(sys.argv[1])
    def find():
        with Session(documents, directory=sys.argv[1]) as session, Bridge(session.mcp_config()) as bridge:
            return len(bridge.call("manual_find", query="Descaling")["structuredContent"]["items"])
    def say():
        os.write(1, f"{find()}\\n".encode())  # at once, so that two processes do not mix
    say()
    child = os.fork()
    say()
    if child:
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    here = str(Path(__file__).parent)
    call = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text), str(workspace), here]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment
    )
    assert (done.stdout, done.stderr) == ("1\n1\n1\nchild 0\n", "")
