"""A model that calls a function of this program.

python basic_tool.py
"""

from pydantic_ai import Agent

from toolbridge import ClaudeCodeModel

agent = Agent(ClaudeCodeModel(), instructions="Use the tools for every calculation.")


@agent.tool_plain
def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


if __name__ == "__main__":
    result = agent.run_sync("What is 40 + 2?")
    print(result.output)
    print(f"{result.usage.input_tokens} tokens in, {result.usage.output_tokens} out")
