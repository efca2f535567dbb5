"""The book that mdBook builds from the pages, and the recording in the README."""

import importlib.util
import json
import re
import subprocess
import sys
from os.path import normpath
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "xtask" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_in_the_book_lead_to_its_pages_and_pictures() -> None:
    docs = ROOT / "docs"
    sources = re.findall(r"\]\((.*?)\)", (docs / "SUMMARY.md").read_text())
    chapters = [
        {"source_path": source, "path": source, "content": (docs / source).read_text(), "sub_items": []}
        for source in sources
    ]
    # As mdBook calls it, with a chapter below another, a separator and the title of a part.
    chapters[0]["sub_items"] = [{"Chapter": chapters.pop()}]
    items = [{"Chapter": chapter} for chapter in chapters] + ["Separator", {"PartTitle": "More"}]
    command = [sys.executable, ROOT / "xtask/book.py"]
    assert subprocess.run([*command, "supports", "html"], stdin=subprocess.DEVNULL, check=False).returncode == 0
    done = subprocess.run(command, input=json.dumps([{}, {"items": items}]), capture_output=True, text=True, check=True)
    book = [item["Chapter"] for item in json.loads(done.stdout)["items"] if "Chapter" in item]
    book.append(book[0]["sub_items"][0]["Chapter"])

    places = {Path(chapter["path"]) for chapter in book}
    assert len(places) == len(sources)
    assert {Path("README.md"), Path("USING.md"), Path("crates/python/README.md")} <= places
    count = 0
    for chapter in book:
        prose = re.sub(r"(?ms)^```.*?^```", "", chapter["content"])
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", prose):
            place = Path(normpath(Path(chapter["path"]).parent / link))
            assert place in places or (docs / place).is_file(), f"{chapter['path']} links to {link}"
            count += 1
    assert count >= 50


def test_code_in_the_book_is_as_it_was() -> None:
    code = "```rust\nlet x = table[0](docs/USING.md);\n```\n"
    chapter = {"source_path": "../README.md", "content": code + "[a](docs/USING.md#b) [c](https://d.e)", "sub_items": []}
    script("book").change([{"Chapter": chapter}])
    assert chapter["content"] == code + "[a](USING.md#b) [c](https://d.e)"


def test_the_first_moment_of_the_picture_shows_everything() -> None:
    picture = script("record").PICTURE.read_text()
    animations = re.findall(r"@keyframes k(\d+){(.*)}", picture)
    assert len(animations) > 10
    for number, frames in animations:
        styles = {at: style for ats, style in re.findall(r"([\d.%,]+){([^}]*)}", frames) for at in ats.split(",")}
        assert styles["0%"] == "opacity:1", number
    # Without animations, pieces are visible too.
    assert "opacity:0" not in re.sub("@keyframes.*", "", picture)


def test_the_picture_shows_the_recording_of_a_demo_that_worked() -> None:
    record = script("record")
    cast = record.CAST.read_text()
    assert record.PICTURE.read_text() == record.draw(cast)
    header, *events = map(json.loads, cast.splitlines())
    assert (header["version"], header["title"]) == (2, "toolbridge demo")
    assert "everything worked" in "".join(text for _, _, text in events)
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)


def test_long_lines_and_wide_characters_are_laid_out_as_in_a_terminal() -> None:
    pieces, row, column = script("record").lay_out("abcde\r\n\r\nx語y", 1, 2, 4)
    assert pieces == [(1, 2, 2, "ab"), (2, 0, 3, "cde"), (4, 0, 1, "x"), (4, 1, 2, "語"), (4, 3, 1, "y")]
    assert (row, column) == (4, 4)
