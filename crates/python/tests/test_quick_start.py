"""First programs of new users, unchanged, each in a separate process."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
from support import Transport, World, shown

MakeWorld = Callable[[str], World]

SERVER = "mcp__pydantic_tools__"

ADD = f'call {SERVER}add {{"a": 40, "b": 2}}\n---\ntext The sum is {{result}}.'


def printed(here: World, program: str, **variables: str) -> str:
    """What a program prints."""
    return shown(here, "-c", textwrap.dedent(program), **variables)


def test_an_agent_answers(world: MakeWorld) -> None:
    here = world("text I am fine.")
    program = """
    from pydantic_ai import Agent
    from toolbridge import ClaudeCodeModel

    model = ClaudeCodeModel()
    agent = Agent(model, system_prompt="You are a helpful assistant.")
    result = agent.run_sync("Hello, how are you?")
    print(result.output)
    """
    assert printed(here, program) == "I am fine.\n"
    assert "You are a helpful assistant." in str(here.requests[0]["system"])


def test_an_agent_has_an_output_type(world: MakeWorld) -> None:
    here = world('call StructuredOutput {"name": "Tokyo", "country": "Japan"}\n---\ntext done')
    program = """
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from toolbridge import ClaudeCodeModel

    class CityInfo(BaseModel):
        name: str
        country: str

    agent = Agent(ClaudeCodeModel(), output_type=CityInfo)
    print(repr(agent.run_sync("Tell me about Tokyo").output))
    """
    assert printed(here, program) == "CityInfo(name='Tokyo', country='Japan')\n"


# The toolset belongs to the agent, so it may be registered before it has any tools.
REGISTER = "model.set_agent_toolsets(agent.toolsets[0], transport=os.environ['TRANSPORT'])"


@pytest.mark.parametrize(("before", "after"), [("", ""), (REGISTER, ""), ("", REGISTER)])
def test_an_agent_has_tools(world: MakeWorld, transport: Transport, before: str, after: str) -> None:
    here = world(ADD)
    program = f"""
    import os
    from pydantic_ai import Agent
    from toolbridge import ClaudeCodeModel

    model = ClaudeCodeModel()
    agent = Agent(model)
    {before}

    @agent.tool_plain
    def add(a: int, b: int = 1) -> int:
        return a + b

    {after}
    print(agent.run_sync("What is 40 + 2?").output)
    """
    assert printed(here, program, TRANSPORT=transport) == "The sum is 42.\n"


def test_tools_have_dependencies(world: MakeWorld, transport: Transport) -> None:
    here = world(f"call {SERVER}call_api {{}}\n---\ntext {{result}}")
    program = """
    import os
    from dataclasses import dataclass
    from pydantic_ai import Agent, RunContext
    from toolbridge import ClaudeCodeModel

    @dataclass
    class ApiConfig:
        base_url: str

    model = ClaudeCodeModel()
    agent = Agent(model, deps_type=ApiConfig)

    @agent.tool
    def call_api(ctx: RunContext[ApiConfig]) -> str:
        return ctx.deps.base_url

    transport = os.environ["TRANSPORT"]
    model.set_agent_toolsets(agent.toolsets[0], server_name="pydantic_tools", transport=transport)
    print(agent.run_sync("go", deps=ApiConfig("https://example.com")).output)
    """
    assert printed(here, program, TRANSPORT=transport) == "https://example.com\n"


def test_an_agent_has_settings(world: MakeWorld) -> None:
    here = world("text ok")
    program = """
    import os
    from pydantic_ai import Agent
    from toolbridge import ClaudeCodeModel, ClaudeCodeModelSettings

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
    print(Agent(model, model_settings=settings).run_sync("go").output)
    """
    # As root the CLI refuses to skip all permissions, unless it is told that it runs in a sandbox.
    assert printed(here, program, IS_SANDBOX="1") == "ok\n"
    request = here.requests[0]
    assert request["model"] == "claude-opus-4-5"
    assert "Be concise, zebra." in str(request["system"])
    assert "Bash" not in [tool["name"] for tool in request["tools"]]


def test_a_request_reports_usage_and_cost(world: MakeWorld, transport: Transport) -> None:
    here = world(ADD)
    program = """
    import asyncio, os
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelRequest, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from toolbridge import ClaudeCodeModel

    def add(a: int, b: int) -> int:
        return a + b

    async def main():
        model = ClaudeCodeModel()
        model.set_agent_toolsets([add], transport=os.environ["TRANSPORT"])
        messages = [ModelRequest(parts=[UserPromptPart(content="Hello")])]
        params = ModelRequestParameters()
        result = await model.request_with_metadata(messages, None, params)
        print(result.response.text, result.cli_response.num_turns)
        assert result.cli_response.total_cost_usd > 0
        assert result.cli_response.usage.input_tokens + result.cli_response.usage.output_tokens > 0
        print((await model.request(messages, None, params)).text)
        async with model.request_stream(messages, None, params) as stream:
            async for _ in stream:
                pass
        print(stream.get().text)
        async for message in model.stream_messages(messages, None, params):
            last = message
        print(last["result"])
        print(list(model.get_mcp_servers()))

    asyncio.run(main())
    """
    assert printed(here, program, TRANSPORT=transport).split("\n") == [
        "The sum is 42. 2",
        "The sum is 42.",
        "The sum is 42.",
        "The sum is 42.",
        "['pydantic_tools']",
        "",
    ]
