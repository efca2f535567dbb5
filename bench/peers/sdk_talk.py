"""The same measurements with the vendor's SDK: `sdk_talk.py CLI RUNS`.

Prints a list with the times at which each run sent its prompts, and the seconds it took to connect.
"""

import asyncio
import json
import sys
from time import time
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server, query, tool


@tool("echo", "Returns exactly the text", {"text": str})
async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": arguments["text"]}]}


def options(cli: str) -> ClaudeAgentOptions:
    server = create_sdk_mcp_server("tools", tools=[echo])
    return ClaudeAgentOptions(
        cli_path=cli,
        tools=[],
        setting_sources=[],
        system_prompt="",
        strict_mcp_config=True,
        mcp_servers={"tools": server},
        allowed_tools=["mcp__tools"],
    )


async def run(cli: str) -> dict[str, float]:
    told = {"cold": time()}
    async for _ in query(prompt="cold", options=options(cli)):
        pass
    opening = time()
    async with ClaudeSDKClient(options(cli)) as client:
        told["open"] = time() - opening
        for prompt in ("first", "second"):
            told[prompt] = time()
            await client.query(prompt)
            async for _ in client.receive_response():
                pass
    return told


async def main() -> None:
    cli, runs = sys.argv[1:]
    print(json.dumps([await run(cli) for _ in range(int(runs))]))


asyncio.run(main())
