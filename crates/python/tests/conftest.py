"""Worlds for the tests, each of which is looked at when its test is over."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import TRANSPORTS, Transport, World

# Nobody's account and nobody's settings: not even by accident.
for name in [name for name in os.environ if name.startswith(("ANTHROPIC", "CLAUDE"))]:
    del os.environ[name]

# Tests that run in the background may have inherited that SIGINT is ignored, and so would their children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Has what a test printed and logged reach the process that reports it, though it be no valid Unicode."""
    if data := (yield):
        said = data.get("sections", [])
        data["sections"] = [(name, text.encode(errors="backslashreplace").decode()) for name, text in said]
    return data


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world() -> Iterator[Callable[[str], World]]:
    """Makes worlds; when the test is over, nothing may be left of its requests."""
    worlds: list[World] = []

    def make(script: str) -> World:
        worlds.append(World(script))
        return worlds[-1]

    try:
        yield make
        for one in worlds:
            one.nothing_is_left()
    finally:
        for one in worlds:
            one.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path is short enough for a socket, which pytest's are not."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen
