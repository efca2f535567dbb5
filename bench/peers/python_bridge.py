"""A bridge in Python on the package `mcp`: `python_bridge.py SOCKET SCHEMA`.

One connection, made for the first call and kept; length-prefixed JSON frames, as in ours.
"""

import asyncio
import json
import struct
import sys
from typing import Any

from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, Tool


class Parent:
    """The process with the tools. Without the lock, parallel calls would get each other's answers."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = asyncio.Lock()
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        request = {"method": "call_tool", "params": {"name": name, "arguments": arguments}}
        payload = json.dumps(request).encode()
        async with self.lock:
            if self.streams is None:
                self.streams = await asyncio.open_unix_connection(self.path)
            reader, writer = self.streams
            writer.write(struct.pack(">I", len(payload)) + payload)
            await writer.drain()
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            answer: dict[str, Any] = json.loads(await reader.readexactly(length))
        return answer


async def main(socket: str, schema: str) -> None:
    parent = Parent(socket)
    with open(schema) as file:
        tools = [
            Tool(name=tool["name"], description=tool["description"], input_schema=tool["input_schema"])
            for tool in json.load(file)
        ]

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        answer = await parent.call(params.name, params.arguments or {})
        return CallToolResult.model_validate(answer["result"])

    server = Server("bridge", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


asyncio.run(main(*sys.argv[1:]))
