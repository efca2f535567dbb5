#!/usr/bin/env python3
"""Records the demo in a terminal: `docs/demo.cast` (asciinema's format, version 2) and its picture, `docs/demo.svg`.

`python3 xtask/record.py` builds the executable and records it; with `--draw` it only draws the recording again. The
demo prints plain lines, so colours and cursor movements are not drawn; a recording with any is refused.
"""

import json
import os
import pty
import subprocess
import sys
import termios
import time
from itertools import groupby
from pathlib import Path
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
CAST, PICTURE = ROOT / "docs/demo.cast", ROOT / "docs/demo.svg"
COLUMNS, ROWS = 120, 40
COMMAND = "toolbridge demo"
KEY_SECONDS, PAUSE_SECONDS = 0.08, 0.6
# The whole picture is shown before the recording and after it.
BEFORE_SECONDS, AFTER_SECONDS = 4.0, 11.0
FONT_PIXELS, CELL_PIXELS, ROW_PIXELS, MARGIN_PIXELS = 13, 7.83, 17, 14


def build() -> Path:
    """Builds the executable in release mode."""
    cargo = ["cargo", "build", "--release", "--package", "toolbridge-cli", "--message-format=json"]
    built = subprocess.run(cargo, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    messages = map(json.loads, built.stdout.splitlines())
    return next(Path(found) for message in messages if (found := message.get("executable")))


def record(executable: Path) -> str:
    """Records the command as if it were typed, and its output, with times."""
    events = [(0.0, "$ "), *((PAUSE_SECONDS + at * KEY_SECONDS, key) for at, key in enumerate(COMMAND))]
    start = events[-1][0] + PAUSE_SECONDS
    events.append((start, "\r\n"))
    began = time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        termios.tcsetwinsize(0, (ROWS, COLUMNS))
        os.execve(executable, COMMAND.split(), {"TMPDIR": "/tmp", "TERM": "xterm"})
    rest = b""
    while data := read(terminal):
        # Whole lines, so that no character and no path is cut.
        lines, newline, rest = (rest + data).rpartition(b"\n")
        text = (lines + newline).decode().replace(str(executable), "toolbridge")
        events.append((start + time.monotonic() - began, text))
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"the demo ended with {status}")
    events.append((events[-1][0], "$ "))
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": COMMAND}
    cast = [header, *([round(at, 3), "o", text] for at, text in events if text)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in cast)


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux returns this error when the other side is closed.
        return b""


def draw(cast: str) -> str:
    """Shows everything, and then every piece of a line from its time on; the animation repeats.

    It begins with everything, so that a viewer that shows only the first moment, or no animation, shows it too.
    """
    header, *events = map(json.loads, cast.splitlines())
    pieces: list[str] = []
    moments: list[float] = []
    row = column = 0
    for at, _, text in events:
        moments.append(at)
        laid_out, row, column = lay_out(text, row, column, header["width"])
        for at_row, at_column, cells, piece in laid_out:
            x, y = MARGIN_PIXELS + at_column * CELL_PIXELS, MARGIN_PIXELS + (at_row + 0.75) * ROW_PIXELS
            size = f'x="{x:.1f}" y="{y:.1f}" textLength="{cells * CELL_PIXELS:.1f}"'
            pieces.append(f'<text class="m{len(moments) - 1}" {size}>{escape(piece)}</text>')
    if row >= header["height"]:
        sys.exit(f"{row + 1} rows do not fit into a terminal of {header['height']}")
    total = BEFORE_SECONDS + moments[-1] + AFTER_SECONDS
    rules = "".join(
        f".m{number}{{animation:k{number} {total:.2f}s step-end infinite}}"
        f"@keyframes k{number}{{{100 * BEFORE_SECONDS / total:.2f}%{{opacity:0}}"
        f"0%,{100 * (BEFORE_SECONDS + at) / total:.2f}%,100%{{opacity:1}}}}\n"
        for number, at in enumerate(moments)
        if at > 0
    )
    width, height = 2 * MARGIN_PIXELS + header["width"] * CELL_PIXELS, 2 * MARGIN_PIXELS + (row + 1) * ROW_PIXELS
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">\n'
        f"<title>{escape(header['title'])}</title>\n<style>\n"
        f"text{{font:{FONT_PIXELS}px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}}\n"
        f"{rules}@media (prefers-reduced-motion){{text{{animation:none!important}}}}\n</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#1d2129"/>\n' + "\n".join(pieces) + "\n</svg>\n"
    )


def lay_out(text: str, row: int, column: int, width: int) -> tuple[list[tuple[int, int, int, str]], int, int]:
    """Row, column, cells and text of each piece, and the position after it; long lines wrap to the next row."""
    pieces = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n")):
        if number > 0:
            row, column = row + 1, 0
        # Wide characters are separate pieces: they may come from another font.
        for cells, run in groupby(line, lambda character: 2 if east_asian_width(character) in "WF" else 1):
            piece = "".join(run)
            if not piece.isprintable():
                sys.exit(f"{piece!r} cannot be drawn")
            while piece:
                if column + cells > width:
                    row, column = row + 1, 0
                fits = (width - column) // cells
                pieces.append((row, column, cells * len(piece[:fits]), piece[:fits]))
                column += pieces[-1][2]
                piece = piece[fits:]
    return pieces, row, column


if __name__ == "__main__":
    if sys.argv[1:] != ["--draw"]:
        CAST.write_text(record(build()))
    PICTURE.write_text(draw(CAST.read_text()))
