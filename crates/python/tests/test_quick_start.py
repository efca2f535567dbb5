"""The first program of a new user, in a separate process.

Others are on the page docs/first-steps/from-claudecode-model.md, and run by `test_first_steps.py`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from support import Transport, World, shown

MakeWorld = Callable[[str], World]

SERVER = "mcp__pydantic_tools__"


def test_an_agent_has_tools_with_dependencies_settings_and_a_system_prompt(
    world: MakeWorld, transport: Transport
) -> None:
    here = world(f"call {SERVER}call_api {{}}\n---\ntext It has answered.")
    # The toolset belongs to the agent, so it may be registered before it has any tools.
    program = """
    import os
    from dataclasses import dataclass
    from pydantic_ai import Agent, RunContext
    from toolbridge import ClaudeCodeModel, ClaudeCodeModelSettings

    @dataclass
    class ApiConfig:
        base_url: str

    model = ClaudeCodeModel(
        model_name="claude-opus-4-5",
        working_directory=os.getcwd(),
        timeout=60.0,
        allowed_tools=["Read"],
        disallowed_tools=["Bash"],
        permission_mode="bypassPermissions",
        max_turns=3,
    )
    settings: ClaudeCodeModelSettings = {
        "timeout": 60.0,
        "claude_code_max_turns": 5,
        "claude_code_max_budget_usd": 1.0,
        "claude_code_append_system_prompt": "Be concise, zebra.",
        "claude_code_working_directory": os.getcwd(),
    }
    agent = Agent(
        model, deps_type=ApiConfig, system_prompt="You are a helpful assistant.", model_settings=settings
    )
    transport = os.environ["TRANSPORT"]
    model.set_agent_toolsets(agent.toolsets[0], server_name="pydantic_tools", transport=transport)

    @agent.tool
    def call_api(ctx: RunContext[ApiConfig]) -> str:
        return ctx.deps.base_url

    print(agent.run_sync("go", deps=ApiConfig("https://example.com")).output)
    """
    # As root the CLI refuses to skip all permissions, unless it is told that it runs in a sandbox.
    warning = "`Read` in `allowed_tools` allows a tool that nothing offers\n"
    said = shown(here, "-c", textwrap.dedent(program), warning=warning, TRANSPORT=transport, IS_SANDBOX="1")
    assert said == "It has answered.\n"
    assert here.result_texts == ["https://example.com"]
    request = here.requests[0]
    assert request["model"] == "claude-opus-4-5"
    assert "You are a helpful assistant." in str(request["system"])
    assert "Be concise, zebra." in str(request["system"])
    assert "Bash" not in [tool["name"] for tool in request["tools"]]
