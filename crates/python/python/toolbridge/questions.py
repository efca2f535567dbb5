"""Questions of tools to the user, and the functions that answer them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from . import _native
from ._waiting import EventLoop, completed
from .errors import QuestionError
from .progress import current_call

T = TypeVar("T")

Action: TypeAlias = Literal["accept", "decline", "cancel", "nobody"]
"""The outcome of a question; with `nobody` there was no user to ask."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The outcome of a question. It is true if the user has answered."""

    action: Action
    value: T | None = None
    """The answer, if there is one."""

    def __bool__(self) -> bool:
        return self.action == "accept"


@overload
async def ask(message: str, kind: type[T]) -> Answer[T]: ...


@overload
async def ask(message: str, kind: Any = ...) -> Answer[Any]: ...


async def ask(message: str, kind: Any = str) -> Answer[Any]:
    """Asks the user on whose behalf the tool is called, and waits for the answer.

    Outside of a tool, or if the client cannot ask a user, the action is `nobody`. If the call is cancelled,
    so is the question.

    Args:
        message: The text that the user sees.
        kind: The type of the answer: `str`, `int`, `float`, `bool`, an enum or `Literal` of strings, or a
            model, dataclass or `TypedDict` with fields of these types.

    Raises:
        QuestionError: If `kind` is not supported, the client fails to ask, or the answer does not fit.
    """
    call = current_call.get()
    if call is None:
        return Answer("nobody")
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return _read(adapter, await completed(call.ask, message, _schema(adapter), EventLoop()))


@overload
def ask_sync(message: str, kind: type[T]) -> Answer[T]: ...


@overload
def ask_sync(message: str, kind: Any = ...) -> Answer[Any]: ...


def ask_sync(message: str, kind: Any = str) -> Answer[Any]:
    """Like `ask`, for functions that are not `async`: blocks the thread until the answer arrives."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise QuestionError("`ask_sync` would hold up the event loop of this thread; use `await ask(…)`")
    call = current_call.get()
    if call is None:
        return Answer("nobody")
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    answer: Future[bytes] = Future()

    def done(value: bytes | None, error: BaseException | None) -> None:
        if error is None:
            answer.set_result(value or b"")
        else:
            answer.set_exception(error)

    task = call.ask(message, _schema(adapter), EventLoop(_AtOnce()), done)
    try:
        return _read(adapter, answer.result())
    finally:
        task.cancel()


class _AtOnce:
    """A stand-in for an event loop: runs callbacks immediately in the calling thread."""

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *arguments: Any, context: contextvars.Context
    ) -> None:
        context.run(callback, *arguments)


def _schema(adapter: TypeAdapter[Any]) -> bytes:
    return to_json(adapter.json_schema())


def _read(adapter: TypeAdapter[Any], answer: bytes) -> Answer[Any]:
    read = from_json(answer)
    if "error" in read:
        raise QuestionError(read["error"])
    if read["action"] != "accept":
        return Answer(read["action"])
    try:
        return Answer("accept", adapter.validate_json(to_json(read["value"])))
    except ValueError as error:
        raise QuestionError(f"the answer does not fit the question: {error}") from error


@dataclass(frozen=True)
class AskRequest:
    """A question of a tool, or of an MCP server of the run, to the user."""

    server_name: str
    """The MCP server whose tool asks; for this process's tools it is `pydantic_tools`, unless renamed."""
    message: str
    """The text for the user."""
    schema: dict[str, Any]
    """The JSON Schema of the answer, a flat object. A plain value is asked for as an object with one
    field."""
    url: str | None = None
    """The page to which a server sends the user instead of showing a form."""


OnAsk: TypeAlias = Callable[[AskRequest], Any | Awaitable[Any]]
"""Answers a question, on the event loop of the request: with an `Answer` or the value; `None` declines."""


async def answer_question(on_ask: OnAsk, call: _native.Call) -> bytes:
    """Calls the function, and serialises its answer for the native module."""
    asked = from_json(call.arguments)
    answer = on_ask(AskRequest(call.name, asked["message"], asked["schema"] or {}, asked["url"]))
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is None:
        answer = Answer("decline")
    elif not isinstance(answer, Answer):
        answer = Answer("accept", answer)
    return to_json({"action": answer.action, "content": answer.value})
