"""An MCP server on the package `mcp`, with its tools in it: `mcp_server.py TOOLS [http]`."""

import sys
from typing import Any, Literal

from mcp.server import MCPServer
from mcp.types import CallToolResult, TextContent

server = MCPServer("bench", log_level="ERROR")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Returns exactly the text."""
    return text


@server.tool(structured_output=False)
def take(items: list[dict[str, Any]], text: str) -> str:
    """Takes items, and returns the text."""
    return text


@server.tool(structured_output=False)
def both(items: list[dict[str, Any]], text: str) -> CallToolResult:
    """Returns the items."""
    structured = {"items": items, "text": text}
    return CallToolResult(content=[TextContent(type="text", text="items")], structured_content=structured)


def find_orders(
    customer: str, article: str = "", status: Literal["open", "paid", "sent", "returned"] = "open", offset: int = 0
) -> str:
    """Finds the orders that fit all of what is given, the newest first. Leave out what does not matter."""
    return ""


for number in range(int(sys.argv[1]) - 3):
    server.add_tool(find_orders, name=f"find_orders_{number}", structured_output=False)

if "http" in sys.argv:
    from over_http import serve

    # One JSON message per answer instead of a stream of events: that is faster.
    serve(server.streamable_http_app(json_response=True))
else:
    server.run("stdio")
