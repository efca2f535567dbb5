"""Test worlds; each is checked for leftovers after its test."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from support import TRANSPORTS, World

# No test may use a real account or real settings, not even by accident.
for name in [name for name in os.environ if name.startswith(("ANTHROPIC", "CLAUDE"))]:
    del os.environ[name]

# Tests in the background may have inherited that SIGINT is ignored, and their children would inherit it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Lets captured output reach the reporting process, even if it is not valid Unicode."""
    if data := (yield):
        said = data.get("sections", [])
        data["sections"] = [(name, text.encode(errors="backslashreplace").decode()) for name, text in said]
    return data


def pytest_collection_finish() -> None:
    """Leaves out of later garbage collections what has been imported by now; otherwise each takes 0.1 s."""
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world() -> Iterator[Callable[[str], World]]:
    """Creates worlds; after the test nothing may be left of its requests."""
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
    """A directory whose path is short enough for a socket; pytest's are too long."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="run each combination of parameters, over both transports"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test over one transport, assigned to half of the tests each, or over both.

    The transport is implemented below Python, and tested there over both. Each request takes half a second.
    """
    own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "transport" in metafunc.fixturenames and not any("transport" in names for names in own):
        both = metafunc.config.getoption("thorough") or metafunc.definition.get_closest_marker(
            "both_transports"
        )
        name = metafunc.definition.nodeid.encode()
        one = TRANSPORTS[crc32(name) % len(TRANSPORTS)]
        metafunc.parametrize("transport", TRANSPORTS if both else [one])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out, unless everything is wanted, rows marked `thorough`, and most of what is `sampled`."""
    if config.getoption("thorough"):
        return
    wanted = [item for item in items if item.get_closest_marker("thorough") is None]
    tables: dict[str, list[pytest.Function]] = {}
    for item in wanted:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled") is not None:
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item.nodeid for table in tables.values() for item in sample(table)}
    skipped = {item.nodeid for table in tables.values() for item in table} - kept
    wanted = [item for item in wanted if item.nodeid not in skipped]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


def sample(table: list[pytest.Function]) -> list[pytest.Function]:
    """A few combinations of a test's parameters, in which each value of each parameter occurs."""
    values = {
        item.nodeid: {(name, id(value)) for name, value in item.callspec.params.items()} for item in table
    }
    missing = set[tuple[str, int]]().union(*values.values())
    kept = []
    while missing:
        best = max(table, key=lambda item: len(values[item.nodeid] & missing))
        kept.append(best)
        missing -= values[best.nodeid]
    return kept
