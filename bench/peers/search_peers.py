"""Indexes and searches a folder of Markdown with an engine of others; prints one JSON object.

    search_peers.py index ENGINE MANUALS STORE
    search_peers.py search ENGINE STORE QUERY...
    search_peers.py quality ENGINE MANUALS QUESTIONS.tsv

An engine is `fts5`, `tantivy` or, for quality alone, `bm25s`. As with ours, what is found is a section: its
title, the titles above it, its text.
"""

import json
import math
import re
import resource
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
FENCE = re.compile(r"^ {0,3}(```|~~~)")
MOST = 10
# A title is about all that stands below it; the same as ours.
WEIGHTS = {"title": 2.0, "context": 0.5, "body": 1.0}


class Section(NamedTuple):
    path: str
    title: str
    context: str
    body: str


Find = Callable[[str], list[tuple[str, str]]]


def sections(manuals: Path) -> Iterator[Section]:
    for file in sorted(manuals.rglob("*.md")):
        path = str(file.relative_to(manuals))
        above: list[tuple[int, str]] = []
        title, body, fence = file.name, list[str](), ""
        context = ""
        for line in file.read_text().splitlines():
            mark = FENCE.match(line)
            if mark and not fence:
                fence = mark[1]
            elif mark and mark[1] == fence:
                fence = ""
            heading = None if fence else HEADING.match(line)
            if not heading:
                body.append(line)
                continue
            if above or any(body):
                yield Section(path, title, context, "\n".join(body))
            level, title, body = len(heading[1]), heading[2], []
            above = [one for one in above if one[0] < level]
            context = " ".join(text for _, text in above)
            above.append((level, title))
        yield Section(path, title, context, "\n".join(body))


def words(query: str) -> list[str]:
    return re.findall(r"\w+", query.lower())


def index_fts5(all_sections: Iterator[Section], store: Path | None) -> sqlite3.Connection:
    database = sqlite3.connect(store / "fts5" if store else ":memory:")
    database.execute(
        "create virtual table s using fts5(path unindexed, title, context, body, tokenize='porter unicode61')"
    )
    database.executemany("insert into s values (?, ?, ?, ?)", all_sections)
    database.execute("insert into s (s) values ('optimize')")
    database.commit()
    return database


def find_fts5(database: sqlite3.Connection) -> Find:
    weights = f"0, {WEIGHTS['title']}, {WEIGHTS['context']}, {WEIGHTS['body']}"
    statement = f"select path, title from s where s match ? order by bm25(s, {weights}) limit {MOST}"

    def find(query: str) -> list[tuple[str, str]]:
        match = " OR ".join(f'"{word}"' for word in words(query))
        return database.execute(statement, (match,)).fetchall()

    return find


def index_tantivy(all_sections: Iterator[Section], store: Path | None) -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("path", stored=True, tokenizer_name="raw")
    builder.add_text_field("title", stored=True, tokenizer_name="en_stem")
    for field in ("context", "body"):
        builder.add_text_field(field, tokenizer_name="en_stem")
    if store:
        (store / "tantivy").mkdir()
    index = tantivy.Index(builder.build(), path=str(store / "tantivy") if store else None)
    writer = index.writer()
    for one in all_sections:
        writer.add_document(
            tantivy.Document(path=one.path, title=one.title, context=one.context, body=one.body)
        )
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index


def find_tantivy(index: Any) -> Find:
    def find(query: str) -> list[tuple[str, str]]:
        searcher = index.searcher()
        parsed = index.parse_query(" ".join(words(query)), list(WEIGHTS), field_boosts=WEIGHTS)
        found = [searcher.doc(address) for _, address in searcher.search(parsed, MOST).hits]
        return [(one["path"][0], one["title"][0]) for one in found]

    return find


def find_bm25s(all_sections: Iterator[Section]) -> Find:
    import bm25s  # type: ignore[import-untyped]

    known = list(all_sections)
    texts = [f"{one.title} {one.context} {one.body}" for one in known]
    engine = bm25s.BM25()
    engine.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)

    def find(query: str) -> list[tuple[str, str]]:
        asked = bm25s.tokenize(query, stopwords="en", show_progress=False)
        places, _ = engine.retrieve(asked, k=MOST, show_progress=False)
        return [(known[place].path, known[place].title) for place in places[0]]

    return find


def open_store(engine: str, store: Path) -> Find:
    if engine == "fts5":
        return find_fts5(sqlite3.connect(store / "fts5"))
    import tantivy

    return find_tantivy(tantivy.Index.open(str(store / "tantivy")))


def in_memory(engine: str, manuals: Path) -> Find:
    match engine:
        case "fts5":
            return find_fts5(index_fts5(sections(manuals), None))
        case "tantivy":
            return find_tantivy(index_tantivy(sections(manuals), None))
        case _:
            return find_bm25s(sections(manuals))


def resident() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]


def ndcg(find: Find, questions: Path) -> float:
    gains = list[float]()
    for line in questions.read_text().splitlines():
        if line.startswith("#"):
            continue
        question, *answers = line.split("\t")
        found = [f"{path}#{title}" for path, title in find(question)]
        gain = sum(1 / math.log2(rank + 2) for rank, one in enumerate(found) if one in answers)
        gains.append(gain / sum(1 / math.log2(rank + 2) for rank in range(len(answers))))
    return sum(gains) / len(gains)


def main() -> dict[str, object]:
    command, engine, place, *rest = sys.argv[1:]
    started = time.perf_counter()
    if command == "index":
        make = index_fts5 if engine == "fts5" else index_tantivy
        make(sections(Path(place)), Path(rest[0]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"seconds": time.perf_counter() - started, "bytes": peak}
    if command == "quality":
        return {"ndcg": ndcg(in_memory(engine, Path(place)), Path(rest[0]))}
    find = open_store(engine, Path(place))
    later = list[float]()
    for query in rest:
        begun = time.perf_counter() if later else started
        # In few files there may be no rare word.
        if not find(query) and not later:
            sys.exit(f"{engine}: nothing is found for `{query}`")
        later.append(time.perf_counter() - begun)
    return {"first": later[0], "later": later[1:], "bytes": resident()}


if __name__ == "__main__":
    print(json.dumps(main()))
