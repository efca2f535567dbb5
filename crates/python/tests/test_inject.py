"""System calls of a session and of a request fail, in the real wheel: some of each kind, or all of them.

`fail-each-call`, which the Rust tests use too, selects the call that fails; `inject_player.py` makes the
calls.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import named, soon

SESSION = ["bind", "listen", "mmap", "openat", "read", "renameat2", "socket", "write"]

# One call in so many fails, and the first of each kind, unless all of them do.
EVERY = {"session": "4", "request": "24"}

REQUEST = ["mkdir", "mmap", "openat", "pipe2", "read", "writev"]


@pytest.mark.parametrize(("scenario", "known"), [("session", SESSION), ("request", SESSION + REQUEST)])
def test_any_system_call_may_fail(
    scenario: str, known: list[str], short_path: Path, pytestconfig: pytest.Config
) -> None:
    path = short_path / "player"
    player = subprocess.Popen([sys.executable, Path(__file__).with_name("inject_player.py"), scenario, path])
    try:
        soon(path.exists)
        fail_each_call = Path(named("TOOLBRIDGE_SCRIPTED_MODEL")).with_name("fail-each-call")
        # The Rust tests already fail each call that is made below Python.
        every = "1" if pytestconfig.getoption("thorough") else EVERY[scenario]
        test = f"test_inject::test_any_system_call_may_fail[{scenario}]"
        done = subprocess.run(
            [fail_each_call, test, path, every, *known],
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        print(done.stderr)
        assert done.returncode == 0, done.stderr
    finally:
        player.kill()
        player.wait()
