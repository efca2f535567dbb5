"""The cost of a call in Python alone, without any other process: `own_cost.py`.

Reads lines of `{"tool": …, "arguments": …, "runs": …}`; answers each with the seconds of every run, once for
`json` (decode the arguments, call the function, encode the result) and once for `pydantic_ai` (the same work
by the tool manager that every agent uses, with its checks of the arguments and its threads).
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Any

from pydantic_ai import Tool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from toolbridge.results import result_of
from toolbridge.tools import manager_of


def echo(text: str) -> str:
    """Returns exactly the text."""
    return text


def take(items: list[dict[str, Any]], text: str) -> str:
    """Takes items, and returns the text."""
    return text


def both(items: list[dict[str, Any]], text: str) -> dict[str, Any]:
    """Returns the items."""
    return {"items": items, "text": text}


FUNCTIONS = {function.__name__: function for function in (echo, take, both)}


def with_json(name: str, arguments: bytes) -> float:
    function = FUNCTIONS[name]
    started = perf_counter()
    value = function(**json.loads(arguments))
    text = value if isinstance(value, str) else json.dumps(value)
    json.dumps({"content": [{"type": "text", "text": text}], "isError": False}).encode()
    return perf_counter() - started


async def main() -> None:
    async with AsyncExitStack() as stack:
        toolset = FunctionToolset([Tool(function) for function in FUNCTIONS.values()])
        manager = await manager_of(toolset, TestModel(), None, stack)

        async def with_pydantic_ai(name: str, arguments: bytes) -> float:
            started = perf_counter()
            part = ToolCallPart(name, arguments.decode())
            result_of(name, await manager.handle_call(part, wrap_validation_errors=False))
            return perf_counter() - started

        print("ready", flush=True)
        while line := sys.stdin.readline():
            request = json.loads(line)
            name, arguments = request["tool"], json.dumps(request["arguments"]).encode()
            figures = {
                "json": [with_json(name, arguments) for _ in range(request["runs"])],
                "pydantic_ai": [await with_pydantic_ai(name, arguments) for _ in range(request["runs"])],
            }
            print(json.dumps(figures), flush=True)


asyncio.run(main())
