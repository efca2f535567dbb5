"""Writes a public manual as Markdown, so that all engines read the same files.

`manuals.py rust HTML FOLDER` takes books of rustup's component `rust-docs`, below share/doc/rust/html.
`manuals.py electron JSON FOLDER` takes Electron's manual in Japanese, docs.json of the npm package
`electron-i18n`.
"""

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

BOOKS = ("book", "cargo", "reference")
# The names of the reference's rules, which stand before what they name.
RULE = re.compile(r'<div class="rule".*?</div>', re.DOTALL)
# Copies of other pages, and lists of them.
NOT_PAGES = {"index.html", "print.html", "toc.html", "test-summary.html", "syntax-index.html"}
SKIPPED = {"script", "style", "svg", "button", "nav"}
BLOCKS = {"p", "li", "ul", "ol", "tr", "div", "dt", "dd", "table", "blockquote", "br"}


class Markdown(HTMLParser):
    """Headings, text and code blocks; everything else is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = list[str]()
        self.skipped = 0
        self.is_code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SKIPPED:
            self.skipped += 1
        elif tag == "pre":
            self.is_code = True
            self.parts.append("\n\n```text\n")
        elif tag == "code" and not self.is_code:
            self.parts.append("`")
        elif re.fullmatch("h[1-6]", tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag in BLOCKS:
            self.parts.append("\n")
        elif tag in ("td", "th"):
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in SKIPPED:
            self.skipped -= 1
        elif tag == "pre":
            self.is_code = False
            self.parts.append("\n```\n\n")
        elif tag == "code" and not self.is_code:
            self.parts.append("`")
        elif tag in BLOCKS or re.fullmatch("h[1-6]", tag):
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.parts.append(data if self.is_code else re.sub(r"\s+", " ", data))


def markdown(html: str) -> str:
    parser = Markdown()
    parser.feed(html)
    return re.sub(r"\n{3,}", "\n\n", "".join(parser.parts)).strip() + "\n"


def rust(html: Path) -> Iterator[tuple[str, str]]:
    for book in BOOKS:
        for file in sorted((html / book).rglob("*.html")):
            path = file.relative_to(html)
            # The folders of old editions have one page with a new address for each of their pages.
            is_copy = "-edition" in str(path) or (file.name in NOT_PAGES and len(path.parts) == 2)
            main = re.search(r"<main>(.*?)</main>", file.read_text(), re.DOTALL)
            if main and not is_copy:
                yield str(path.with_suffix(".md")), markdown(RULE.sub("", main[1]))


def electron(docs: Path) -> Iterator[tuple[str, str]]:
    for page in json.loads(docs.read_text())["ja-JP"].values():
        yield page["href"].removeprefix("/docs/") + ".md", markdown(page["html"])


def main() -> None:
    manual, source, folder = sys.argv[1:]
    pages = {"rust": rust, "electron": electron}[manual](Path(source))
    for path, text in pages:
        if text.startswith("#"):
            to = Path(folder) / path
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)


if __name__ == "__main__":
    main()
