"""Structured output: the schema that the CLI gets, and the conversion of its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelResponsePart, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_core import from_json, to_json

CLI_TOOL = "StructuredOutput"
"""The CLI's tool with which the model submits its output."""


@dataclass(frozen=True)
class OutputSpec:
    """The kind of output that a request wants."""

    schema: dict[str, Any] | None = None
    """The JSON Schema of the output, if any."""
    tools: tuple[ToolDefinition, ...] = ()
    """The output tools that the output is a call of; without them it is returned as text."""
    is_choice: bool = False
    """Whether the output names the tool that it is for."""
    text_kind: str | None = None
    """The kind that marks plain text; `None` if plain text is not allowed."""

    @property
    def may_be_text(self) -> bool:
        """Whether it may be plain text instead."""
        return self.text_kind is not None

    def part(self, output: str) -> ModelResponsePart:
        """The response part for the output, which is JSON text."""
        if not self.tools:
            return TextPart(output)
        if not self.is_choice:
            return ToolCallPart(self.tools[0].name, output)
        chosen = from_json(output)["output"]
        if chosen["kind"] == self.text_kind:
            return TextPart(chosen["value"])
        return ToolCallPart(chosen["kind"], to_json(chosen["value"]).decode())


# A choice with its kind first, as in the schema.
_CHOICE = re.compile(r'\s*\{\s*"output"\s*:\s*\{\s*"kind"\s*:\s*"([^"\\]*)"\s*,\s*"value"\s*:\s*')


@dataclass
class StreamedOutput:
    """An output that is being streamed."""

    spec: OutputSpec
    call_id: str
    tool: str | None = None
    """The output tool, once it is known; `None` for text."""
    _json: str = ""
    _start: int | None = None
    """Where the value begins, after the kind."""
    _passed: int = 0

    @property
    def is_passed(self) -> bool:
        """Whether a part of it was already emitted."""
        return self._passed > 0

    def add(self, json: str) -> str:
        """Adds the next piece of JSON text; returns what can be emitted: JSON text, or text."""
        if not self.spec.is_choice:
            self.tool = self.spec.tools[0].name if self.spec.tools else None
            self._passed += len(json)
            return json
        self._json += json
        if self._start is None:
            if (found := _CHOICE.match(self._json)) is None:
                return ""
            self._start, kind = found.end(), found[1]
            self.tool = None if kind == self.spec.text_kind else kind
        # The last brackets may be those of the enclosing object.
        data = self._json[self._start :].rstrip("} \n\r\t")
        if self.tool is None:
            data = from_json(data, allow_partial="trailing-strings") if data else ""
        piece, self._passed = data[self._passed :], len(data)
        return piece


def output_spec(parameters: ModelRequestParameters) -> OutputSpec:
    """The kind of output that these parameters want."""
    if parameters.output_mode == "native" and parameters.output_object is not None:
        return OutputSpec(
            _described(parameters.output_object.json_schema, parameters.output_object.description)
        )
    tools = tuple(parameters.output_tools)
    if parameters.output_mode != "tool" or not tools:
        return OutputSpec()
    if len(tools) == 1 and not parameters.allow_text_output:
        return OutputSpec(_described(tools[0].parameters_json_schema, tools[0].description), tools)
    text_kind = _text_kind(tools) if parameters.allow_text_output else None
    return OutputSpec(_choice(tools, text_kind), tools, is_choice=True, text_kind=text_kind)


def _text_kind(tools: tuple[ToolDefinition, ...]) -> str:
    """A kind for plain text that is not the name of a tool."""
    kind = "text"
    while any(tool.name == kind for tool in tools):
        kind = f"plain_{kind}"
    return kind


def _described(schema: dict[str, Any], description: str | None) -> dict[str, Any]:
    return {"description": description, **schema} if description else schema


def _choice(tools: tuple[ToolDefinition, ...], text_kind: str | None) -> dict[str, Any]:
    """A schema with exactly one matching branch; each has its name."""
    definitions: dict[str, Any] = {}
    branches: list[dict[str, Any]] = []
    for tool in tools:
        # As a separate definition that contains its own definitions, so that names cannot collide.
        definitions[tool.name] = _moved(tool.parameters_json_schema, f"#/$defs/{tool.name}/$defs/")
        branches.append(_branch(tool.name, {"$ref": f"#/$defs/{tool.name}"}, tool.description))
    if text_kind is not None:
        branches.append(_branch(text_kind, {"type": "string"}, "an answer in plain text"))
    output = {"anyOf": branches}
    return {"type": "object", "properties": {"output": output}, "required": ["output"], "$defs": definitions}


def _branch(name: str, value: dict[str, Any], description: str | None) -> dict[str, Any]:
    branch = {
        "type": "object",
        "properties": {"kind": {"const": name}, "value": value},
        "required": ["kind", "value"],
    }
    return _described(branch, description)


def _moved(schema: Any, place: str) -> Any:
    """A schema with its references to its own definitions adjusted to another location."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", place, 1)
            if key == "$ref" and isinstance(value, str)
            else _moved(value, place)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_moved(value, place) for value in schema]
    return schema
