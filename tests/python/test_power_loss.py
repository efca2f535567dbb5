"""The power fails while a document is being changed: a real ext4, shut down in the middle."""

import fcntl
import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROUNDS = 20
# One more than may exist, so that an older one is noticed.
VERSIONS = 3
# The ext4 ioctl that drops everything that is not on disk yet, including the end of the journal.
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = (2).to_bytes(4, "little")


def section(number: int) -> str:
    return f"# Version {number}\n" + f"line of version {number}\n" * 20_000


def content(versions: list[str], number: int, mode: str) -> str:
    """The content of the file after that many writes."""
    written = [versions[number % VERSIONS] for number in range(1, number + 1)]
    return written[-1] if mode == "overwrite" else "".join(written)


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[None]:
    # Without `auto_da_alloc`, ext4 does not flush the data of a file before a rename.
    subprocess.run(["mount", "-o", "loop,noauto_da_alloc", image, at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


def request(number: int, path: str, mode: str) -> str:
    source = {"target": "manual", "manual_id": "m", "path": path, "start_line": 1}
    arguments = {"from_ref": source, "to_path": "x.md", "mode": mode, "limits": {"max_chars": 10_000_000}}
    params = {"name": "bridge_copy_section", "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + "\n"


def write_until_the_power_fails(exe: str, workspace: Path, vault: Path, mode: str, answers: int) -> int:
    """Returns the last version that was confirmed before the disk failed."""
    server = subprocess.Popen(
        [exe, "docs", "--workspace", workspace, "--vault", vault, "--hard-max-chars", "10000000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin and server.stdout
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}) + "\n")
    for number in range(1, 41):
        server.stdin.write(request(number, f"{number % VERSIONS}.md", mode))
    server.stdin.flush()
    confirmed = 0
    assert json.loads(server.stdout.readline())["id"] == 0
    for _ in range(answers):
        answer = json.loads(server.stdout.readline())
        assert not answer["result"].get("isError"), answer
        confirmed = answer["id"]
    handle = os.open(vault, os.O_RDONLY)
    fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
    os.close(handle)
    # Every later write fails with an error.
    server.stdin.close()
    rest = [json.loads(line) for line in server.stdout]
    assert server.wait(timeout=120) == 0
    for answer in rest:
        if not answer["result"].get("isError"):
            confirmed = max(confirmed, answer["id"])
    assert rest and rest[-1]["result"]["isError"], "no write came after the power failed"
    return confirmed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_confirmed_writes_survive_a_power_loss_and_no_file_is_incomplete(
    exe: str, tmp_path: Path, mode: str
) -> None:
    versions = [section(number) for number in range(VERSIONS)]
    manuals = tmp_path / "manuals" / "m"
    manuals.mkdir(parents=True)
    for number, text in enumerate(versions):
        (manuals / f"{number}.md").write_text(text)
    disk = tmp_path / "disk"
    disk.mkdir()
    for _ in range(ROUNDS):
        image, later = tmp_path / "image", tmp_path / "later"
        image.unlink(missing_ok=True)
        subprocess.run(["truncate", "-s", "64M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        with mounted(image, disk):
            (disk / "vault").mkdir()
            os.sync()
            confirmed = write_until_the_power_fails(exe, tmp_path, disk / "vault", mode, random.randrange(1, 6))
        # A copy: a test beside this one may have made a mount namespace, in which the failed disk is still mounted. Then
        # another mount of the same image would be the failed disk again.
        subprocess.run(["cp", "--sparse=always", image, later], check=True)
        with mounted(later, disk):
            text = (disk / "vault" / "x.md").read_text()
            # The last confirmed version, or the one being written.
            possible = [content(versions, number, mode) for number in (confirmed, confirmed + 1)]
            assert text in possible, f"{len(text)} bytes: half a file, or {confirmed} was confirmed and is gone"
            others = [path.name for path in (disk / "vault").iterdir() if path.name not in ("x.md", ".system")]
            assert len(others) <= 1, others
            # What is kept of what was overwritten is whole as well.
            kept = [path for path in (disk / "vault").glob(".system/trash/*") if not path.name.startswith(".")]
            whole = [content(versions, number, mode) for number in range(1, confirmed + 2)]
            assert all(path.read_text() in whole for path in kept), kept
