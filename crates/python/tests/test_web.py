"""pydantic-ai's native tools for the web, which the CLI provides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse, NativeToolCallPart, NativeToolReturnPart
from pydantic_ai.native_tools import AbstractNativeTool, CodeExecutionTool, WebFetchTool, WebSearchTool
from support import World

from toolbridge import PermissionRequest
from toolbridge.web import _is_at

MakeWorld = Callable[[str], World]

pytestmark = pytest.mark.anyio

SEARCH = 'call WebSearch {"query": "zebra", "blocked_domains": ["of.the.model"]}\n---\ntext ok\n---\ntext ok'

FETCH = 'call WebFetch {"url": "https://127.0.0.1:1/page", "prompt": "?"}\n---\ntext ok'


def agent(here: World, *tools: AbstractNativeTool, **options: Any) -> Agent[None, str]:
    return Agent(here.model(**options), capabilities=[NativeTool(tool) for tool in tools])


def offered(here: World) -> list[str]:
    return sorted(tool["name"] for tool in here.requests[0].get("tools", []))


async def used(here: World, *tools: AbstractNativeTool, **options: Any) -> tuple[Any, ...]:
    """A run's use of its only tool: the call and its result."""
    result = await agent(here, *tools, **options).run("go")
    response = result.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    return tuple(
        part for part in response.parts if isinstance(part, NativeToolCallPart | NativeToolReturnPart)
    )


async def test_the_web_is_searched_by_the_cli(world: MakeWorld) -> None:
    here = world(SEARCH)
    call, returned = await used(here, WebSearchTool())
    assert offered(here) == ["WebSearch"]
    assert (call.tool_name, call.args_as_dict()["query"], call.provider_name) == (
        "web_search",
        "zebra",
        "claude-code",
    )
    assert (returned.tool_name, returned.tool_call_id, returned.outcome) == (
        "web_search",
        call.tool_call_id,
        "success",
    )
    assert "zebra" in returned.content
    [search] = [tool for request in here.requests for tool in request["tools"] if "type" in tool]
    assert search["name"] == "web_search"
    # The model itself is unchanged.
    without = world("text ok")
    await agent(without).run("go")
    assert offered(without) == []


async def test_a_search_is_kept_to_its_domains(world: MakeWorld) -> None:
    here = world(SEARCH)
    await used(here, WebSearchTool(allowed_domains=["example.com"]))
    [search] = [tool for request in here.requests for tool in request["tools"] if "type" in tool]
    assert search["allowed_domains"] == ["example.com"]
    assert "blocked_domains" not in search


async def test_pages_are_read_by_the_cli_within_the_domains(world: MakeWorld) -> None:
    here = world(FETCH)
    call, returned = await used(here, WebFetchTool(), builtin_tools=["Read"])
    assert offered(here) == ["Read", "WebFetch"]
    assert call.tool_name == returned.tool_name == "web_fetch"
    # There is no network here, and the CLI reports that.
    assert returned.outcome == "failed"
    assert "127.0.0.1" in returned.content
    for tool in (WebFetchTool(allowed_domains=["example.com"]), WebFetchTool(blocked_domains=["127.0.0.1"])):
        _, returned = await used(world(FETCH), tool)
        assert "domains" in returned.content
    _, returned = await used(world(FETCH), WebFetchTool(allowed_domains=["127.0.0.1"]))
    assert "domains may" not in returned.content


async def test_can_use_tool_decides_about_web_tools(world: MakeWorld) -> None:
    asked: list[str] = []

    def decide(request: PermissionRequest) -> bool:
        asked.append(request.tool_name)
        return False

    _, returned = await used(world(FETCH), WebFetchTool(), can_use_tool=decide)
    assert asked == ["WebFetch"]
    assert "`WebFetch` may not be used" in returned.content


@pytest.mark.parametrize(
    "tool",
    [CodeExecutionTool(), WebSearchTool(max_uses=1), WebFetchTool(max_uses=1)],
    ids=lambda tool: tool.kind,
)
async def test_unsupported_native_tools_are_errors(world: MakeWorld, tool: AbstractNativeTool) -> None:
    here = world("text ok")
    with pytest.raises(UserError, match=r"max_uses|not supported by this model"):
        await agent(here, tool).run("go")
    assert here.requests == []


@pytest.mark.parametrize(
    ("place", "domain", "is_so"),
    [
        ("example.com/", "example.com", True),
        ("docs.example.com/a", "example.com", True),
        ("example.com/", "docs.example.com", False),
        ("badexample.com/", "example.com", False),
        ("example.com.bad/", "example.com", False),
        ("example.com/blog/1", "Example.com/blog", True),
        ("example.com/blog", "https://example.com/blog/", True),
        ("example.com/blogs", "example.com/blog", False),
    ],
)
def test_hosts_and_paths_match_domains(place: str, domain: str, is_so: bool) -> None:
    assert _is_at(place, domain) is is_so
