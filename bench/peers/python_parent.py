"""The parent of the bridge in Python: `python_parent.py SOCKET`. It ends when its stdin ends."""

import asyncio
import json
import os
import struct
import sys
from typing import Any


def echo(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def take(items: list[dict[str, Any]], text: str) -> dict[str, Any]:
    return echo(text)


def both(items: list[dict[str, Any]], text: str) -> dict[str, Any]:
    return {**echo("items"), "structuredContent": {"items": items, "text": text}}


TOOLS = {"echo": echo, "take": take, "both": both}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            params = json.loads(await reader.readexactly(length))["params"]
            result = TOOLS[params["name"]](**params["arguments"])
            payload = json.dumps({"result": result}).encode()
            writer.write(struct.pack(">I", len(payload)) + payload)
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()


async def main(socket: str) -> None:
    server = await asyncio.start_unix_server(serve, socket)
    os.chmod(socket, 0o600)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


asyncio.run(main(sys.argv[1]))
