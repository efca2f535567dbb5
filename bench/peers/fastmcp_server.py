"""An MCP server on the package `fastmcp`, with its tools in it: `fastmcp_server.py TOOLS [http]`."""

import sys
from typing import Any, Literal

from fastmcp import FastMCP
from fastmcp.tools import Tool, ToolResult
from mcp.types import TextContent

server = FastMCP("bench")


@server.tool(output_schema=None)
def echo(text: str) -> str:
    """Returns exactly the text."""
    return text


@server.tool(output_schema=None)
def take(items: list[dict[str, Any]], text: str) -> str:
    """Takes items, and returns the text."""
    return text


@server.tool(output_schema=None)
def both(items: list[dict[str, Any]], text: str) -> ToolResult:
    """Returns the items."""
    structured = {"items": items, "text": text}
    return ToolResult(content=[TextContent(type="text", text="items")], structured_content=structured)


def find_orders(
    customer: str, article: str = "", status: Literal["open", "paid", "sent", "returned"] = "open", offset: int = 0
) -> str:
    """Finds the orders that fit all of what is given, the newest first. Leave out what does not matter."""
    return ""


for number in range(int(sys.argv[1]) - 3):
    server.add_tool(Tool.from_function(find_orders, name=f"find_orders_{number}", output_schema=None))

if "http" in sys.argv:
    from over_http import serve

    serve(server.http_app(json_response=True))
else:
    server.run(show_banner=False)
