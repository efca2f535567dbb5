"""A preprocessor for mdBook: adds pages from outside of docs/ to the book, and adjusts the links between pages.

Pages and `docs/SUMMARY.md` link to each other as files of the repository, so that its web view follows them. In the
book, docs/ is the root: `docs/USING.md` becomes `USING.md`, and `../README.md` of the summary becomes `README.md`.
"""

import json
import re
import sys
from functools import partial
from posixpath import dirname, join, normpath, relpath
from typing import Any

# Code is left as it is. A link with a colon leads to another site.
CODE_OR_LINK = re.compile(r"(?ms)^```.*?^```|(?<=\]\()[^)\s#:]+")


def place(path: str) -> str:
    """The path in the book of a file of the repository."""
    return normpath(path).removeprefix("docs/")


def change(items: list[Any]) -> None:
    """Changes the chapters among these items, and those below them."""
    for chapter in (item["Chapter"] for item in items if "Chapter" in item):
        source = normpath(join("docs", chapter["source_path"]))
        chapter["path"] = place(source)
        folders = dirname(source), dirname(chapter["path"]) or "."
        chapter["content"] = CODE_OR_LINK.sub(partial(link, *folders), chapter["content"])
        change(chapter["sub_items"])


def link(folder: str, folder_in_book: str, found: re.Match[str]) -> str:
    text = found[0]
    return text if text.startswith("```") else relpath(place(join(folder, text)), folder_in_book)


if __name__ == "__main__" and sys.argv[1:2] != ["supports"]:
    _, book = json.load(sys.stdin)
    change(book["items"])
    json.dump(book, sys.stdout)
