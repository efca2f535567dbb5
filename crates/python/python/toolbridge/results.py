"""Converts the return values of tools to MCP results."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    FileUrl,
    TextContent,
    ToolReturn,
    ToolReturnPart,
    UploadedFile,
    is_multi_modal_content,
)
from pydantic_ai.tools import ToolDenied
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python


def result_of(tool: str, value: Any, *, is_structured: bool = False) -> bytes:
    """The JSON text of the MCP result for a tool's return value.

    A structured result also has the value as an object, not only as text.

    Raises:
        PydanticSerializationError: If it cannot be represented as JSON. The message has the reason.
    """
    try:
        return _result(tool, value, is_structured)
    except BaseException as error:  # serialising may run user code
        reason = encodable(str(error)) if isinstance(error, Exception) else type(error).__name__
        message = f"the result of tool `{tool}` cannot be sent: {reason}"
        raise PydanticSerializationError(message) from error


def _result(tool: str, value: Any, is_structured: bool) -> bytes:
    if type(value) is str:  # the fast path: most results are strings
        return to_json({"content": [_text(value)]})
    if isinstance(value, ToolDenied):
        return error_result(value.message)
    blocks: list[dict[str, Any]]
    if isinstance(value, ToolReturn):
        blocks = [*_blocks(tool, value.return_value), *_extra_blocks(value.content)]
    else:
        blocks = _blocks(tool, value)
    result = to_json({"content": blocks})
    # A client may show only the structured content, so it has to be complete.
    if is_structured and len(blocks) == 1 and not isinstance(value, str | ToolReturn):
        written = blocks[0].get("text", "")
        if written.startswith("{"):
            # It is already JSON, and may be large.
            return b"".join((result[:-1], b',"structuredContent":', written.encode(), b"}"))
    return result


def encodable(text: str) -> str:
    """The text without characters that cannot be encoded.

    Python creates lone surrogates from bytes that are not valid text, such as in file names. They are
    escaped.
    """
    return str.encode(text, "utf-8", "backslashreplace").decode()


def error_result(message: str) -> bytes:
    """The JSON text of an MCP result with an error message."""
    return to_json({"content": [_text(encodable(message))], "isError": True})


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _blocks(tool: str, value: Any) -> list[dict[str, Any]]:
    if value is None:
        return [_text("")]
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"`{type(value).__name__}` is not text; return a `BinaryContent`, or decode it")
    part = ToolReturnPart(tool_name=tool, content=value)
    items: list[Any] = part.content_items()
    if not any(is_multi_modal_content(item) for item in items):
        text = part.model_response_str()
        if "null" in text and not isinstance(value, str):
            _check_numbers(value)
        return [_text(text)]
    return [_block(item) for item in part.content_items(mode="str")]


def _check_numbers(value: Any) -> None:
    """Rejects numbers that JSON does not support, which would be written as `null`."""
    plain = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants")
    for number in _numbers(plain):
        if not math.isfinite(number):
            raise ValueError(f"JSON has no number `{number}`")


def _numbers(plain: Any) -> Iterator[float]:
    if isinstance(plain, float):
        yield plain
    elif isinstance(plain, dict | list):
        for one in plain.values() if isinstance(plain, dict) else plain:
            yield from _numbers(one)


def _extra_blocks(content: Any) -> Iterable[dict[str, Any]]:
    """The additional content of a `ToolReturn`."""
    if content is None:
        return []
    items = [content] if isinstance(content, str) else content
    return [_block(item) for item in items if not isinstance(item, CachePoint)]


def _block(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return _text(item)
    if isinstance(item, TextContent):
        return _text(item.content)
    if isinstance(item, FileUrl):
        link = {"type": "resource_link", "uri": item.url, "name": item.identifier}
        return {**link, "mimeType": item.media_type}
    if isinstance(item, BinaryContent):
        kind = item.media_type.partition("/")[0]
        data = base64.b64encode(item.data).decode()
        if kind in ("image", "audio"):
            return {"type": kind, "data": data, "mimeType": item.media_type}
        uri = f"file:///{item.identifier}"
        return {"type": "resource", "resource": {"uri": uri, "mimeType": item.media_type, "blob": data}}
    if isinstance(item, UploadedFile):
        raise TypeError(f"a file uploaded to `{item.provider_name}` cannot be shown to this model")
    return _text(to_json(item).decode())
