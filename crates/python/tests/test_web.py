"""pydantic-ai's native tools for the web, which the CLI provides."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
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

ELSEWHERE = 'call WebFetch {"url": "https://127.0.0.2:1/page", "prompt": "?"}\n'


@contextmanager
def page(text: str, certificate: Path) -> Iterator[str]:
    """A web page on loopback. `certificate` gets the certificate to trust."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"<html><body><h1>{text}</h1></body></html>".encode())

        def log_message(self, *args: object) -> None:
            pass

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}/page"
        finally:
            server.shutdown()
            serving.join()


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


@pytest.mark.oldest
async def test_the_web_is_searched_by_the_cli_within_the_domains(world: MakeWorld) -> None:
    here = world(SEARCH)
    call, returned = await used(here, WebSearchTool(allowed_domains=["example.com"]))
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
    assert search["allowed_domains"] == ["example.com"]
    assert "blocked_domains" not in search


async def test_pages_are_read_by_the_cli_within_the_domains(world: MakeWorld) -> None:
    # The first call is to another domain.
    for tool, refused in (
        (WebFetchTool(allowed_domains=["127.0.0.1"]), 0),
        (WebFetchTool(blocked_domains=["127.0.0.1"]), 1),
    ):
        here = world(ELSEWHERE + FETCH)
        parts = await used(here, tool, builtin_tools=["Read"])
        assert offered(here) == ["Read", "WebFetch"]
        assert {part.tool_name for part in parts} == {"web_fetch"}
        # There is no network here, and the CLI reports that.
        returned = [part for part in parts if isinstance(part, NativeToolReturnPart)]
        assert [part.outcome for part in returned] == ["failed"] * 2
        told = here.result_texts
        assert "127.0.0.1" in told[1]
        assert len(told) == 2
        assert "domains" in told[refused]
        assert "domains may" not in told[1 - refused]


async def test_the_model_gets_what_the_cli_read_from_a_page(world: MakeWorld, tmp_path: Path) -> None:
    with page("Zebras of today", tmp_path / "ca.pem") as address:
        here = world(
            f'call WebFetch {{"url": "{address}", "prompt": "Which animals?"}}\n'
            "aside It is about zebras.\n---\ntext {result}"
        )
        ran = await agent(
            here,
            WebFetchTool(allowed_domains=["127.0.0.1"]),
            env={**here.environment, "NODE_EXTRA_CA_CERTS": str(tmp_path / "ca.pem")},
            # Otherwise the CLI asks its vendor about the domain first.
            cli_settings={"skipWebFetchPreflight": True},
        ).run("go")
    response = ran.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    [returned] = [part for part in response.parts if isinstance(part, NativeToolReturnPart)]
    assert (returned.tool_name, returned.outcome) == ("web_fetch", "success")
    assert "It is about zebras." in str(returned.content)
    assert "It is about zebras." in ran.output
    # The CLI's own question about the page, and what the model was told.
    [aside] = [request for request in here.requests if not request.get("tools")]
    assert "Zebras of today" in str(aside["messages"])
    assert "Which animals?" in str(aside["messages"])


async def test_can_use_tool_decides_about_web_tools(world: MakeWorld) -> None:
    asked: list[str] = []

    def decide(request: PermissionRequest) -> bool:
        asked.append(request.tool_name)
        return False

    _, returned = await used(world(FETCH), WebFetchTool(), can_use_tool=decide)
    assert asked == ["WebFetch"]
    assert "`WebFetch` may not be used" in returned.content


@pytest.mark.oldest
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
