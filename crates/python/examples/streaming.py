"""A model whose text, thoughts and tool calls are shown as they come.

python streaming.py
"""

import asyncio
from collections.abc import AsyncIterable

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    AgentStreamEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)

from toolbridge import ClaudeCodeModel

agent = Agent(ClaudeCodeModel())


@agent.tool_plain
async def wait(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return f"waited for {seconds} seconds"


async def show(_: RunContext[object], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for event in events:
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                print(text, end="", flush=True)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                print(text, end="", flush=True)
            case PartStartEvent(part=NativeToolCallPart() as call):
                print(f"\n→ {call.tool_name} {call.args_as_json_str()}")
            case PartStartEvent(part=NativeToolReturnPart() as returned):
                print(f"← {returned.content}")


async def main() -> None:
    result = await agent.run("Wait for a tenth of a second, then say hello.", event_stream_handler=show)
    print(f"\n{len(result.output)} characters in the answer")


if __name__ == "__main__":
    asyncio.run(main())
