"""Plain functions, which are called without a detour over the event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pydantic_ai import Tool
from pydantic_ai.toolsets import FunctionToolset


def direct_functions(toolset: FunctionToolset[Any]) -> dict[str, Callable[[bytes], Any]]:
    """Those tools of a set that are plain functions, by name: what calls each with arguments as JSON text."""
    functions = {name: _direct(tool) for name, tool in toolset.tools.items()}
    return {name: function for name, function in functions.items() if function is not None}


def _direct(tool: Tool[Any]) -> Callable[[bytes], Any] | None:
    """`None` for a tool of which more is said: whoever manages tools has to see to that."""
    schema = tool.function_schema
    asks_for_more = (
        tool.prepare or tool.args_validator or tool.requires_approval or tool.timeout,
        schema.takes_ctx or schema.is_async,
        # Not all of its arguments have a name.
        schema.positional_fields or schema.var_positional_field,
    )
    # An asynchronous `__call__`, and the like.
    if any(asks_for_more) or not inspect.isroutine(schema.function):
        return None
    function, validate = schema.function, schema.validator.validate_json
    return lambda arguments: function(**validate(arguments))
