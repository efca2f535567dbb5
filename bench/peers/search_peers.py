"""Indexes and searches a folder of Markdown with an engine of others; prints one JSON object.

    search_peers.py index ENGINE MANUALS STORE
    search_peers.py search ENGINE STORE QUERY...
    search_peers.py quality ENGINE MANUALS QUESTIONS.tsv...

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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HEADING = re.compile(r"^(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
FENCE = re.compile(r"^ {0,3}(```|~~~)")
MOST = 10
# The weights of a section's title, of the titles above it and of its text.
Weights = tuple[float, float, float]
WEIGHTS: Weights = (2.0, 0.5, 1.0)
# For quality, the best of several settings counts.
ALL_WEIGHTS: tuple[Weights, ...] = (WEIGHTS, (1.0, 1.0, 1.0), (0.5, 0.2, 1.0), (5.0, 1.0, 1.0))
TOKENIZERS = ("porter unicode61", "unicode61")
PARAMETERS = ((1.5, 0.75), (0.9, 0.4))
FILLERS = re.compile(
    "an?|and|are|as|at|be|by|can|do|does|for|from|how|i|in|is|it|my|of|on|or|that|the|this|to|what|when|where"
    "|which|with|you|your"
)
# Scripts without spaces are searched by pairs of characters; the engines have no better tokenizer for them.
UNSPACED = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff]+")


class Section(NamedTuple):
    path: str
    title: str
    context: str
    body: str


Find = Callable[[str], list[str]]


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
            level, title, body = len(heading[1]), heading[2].replace("`", ""), []
            above = [one for one in above if one[0] < level]
            context = " ".join(text for _, text in above)
            above.append((level, title))
        yield Section(path, title, context, "\n".join(body))


def spaced(text: str) -> str:
    def pairs(run: re.Match[str]) -> str:
        starts = range(max(1, len(run[0]) - 1))
        return f" {' '.join(run[0][start : start + 2] for start in starts)} "

    return UNSPACED.sub(pairs, text)


def words(query: str, is_filtered: bool = False) -> list[str]:
    asked = re.findall(r"\w+", spaced(query).lower())
    kept = [word for word in asked if not FILLERS.fullmatch(word)]
    return kept if is_filtered and kept else asked


def index_fts5(
    all_sections: Iterable[Section], store: Path | None, tokenizer: str = TOKENIZERS[0]
) -> sqlite3.Connection:
    database = sqlite3.connect(store / "fts5" if store else ":memory:")
    database.execute(
        f"create virtual table s using fts5(path unindexed, title, context, body, tokenize='{tokenizer}')"
    )
    database.executemany("insert into s values (?, ?, ?, ?)", all_sections)
    database.execute("insert into s (s) values ('optimize')")
    database.commit()
    return database


def find_fts5(database: sqlite3.Connection, weights: Weights = WEIGHTS, is_filtered: bool = False) -> Find:
    order = f"bm25(s, 0, {weights[0]}, {weights[1]}, {weights[2]})"
    statement = f"select path from s where s match ? order by {order} limit {MOST}"

    def find(query: str) -> list[str]:
        match = " OR ".join(f'"{word}"' for word in words(query, is_filtered))
        return [path for (path,) in database.execute(statement, (match,))]

    return find


def index_tantivy(all_sections: Iterable[Section], store: Path | None) -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("path", stored=True, tokenizer_name="raw")
    for field in ("title", "context", "body"):
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


def find_tantivy(index: Any, weights: Weights = WEIGHTS, is_filtered: bool = False) -> Find:
    boosts = dict(zip(("title", "context", "body"), weights, strict=True))

    def find(query: str) -> list[str]:
        searcher = index.searcher()
        asked = " ".join(words(query, is_filtered))
        parsed = index.parse_query(asked, list(boosts), field_boosts=boosts)
        return [searcher.doc(address)["path"][0] for _, address in searcher.search(parsed, MOST).hits]

    return find


def finds_bm25s(known: list[Section]) -> Iterator[Find]:
    import bm25s  # type: ignore[import-untyped]
    import Stemmer  # type: ignore[import-not-found]

    def find_with(engine: Any, **how: Any) -> Find:
        def find(query: str) -> list[str]:
            asked = bm25s.tokenize(spaced(query), show_progress=False, **how)
            places, scores = engine.retrieve(asked, k=MOST, show_progress=False)
            return [known[at].path for at, score in zip(places[0], scores[0], strict=True) if score > 0]

        return find

    for titles in (1, 3):
        texts = [" ".join([*[one.title] * titles, one.context, one.body]) for one in known]
        for stemmer in (None, Stemmer.Stemmer("english")):
            for stopwords in ("en", None):
                how = {"stopwords": stopwords, "stemmer": stemmer}
                tokens = bm25s.tokenize(texts, show_progress=False, **how)
                for k1, b in PARAMETERS:
                    engine = bm25s.BM25(k1=k1, b=b)
                    engine.index(tokens, show_progress=False)
                    yield find_with(engine, **how)


def open_store(engine: str, store: Path) -> Find:
    if engine == "fts5":
        return find_fts5(sqlite3.connect(store / "fts5"))
    import tantivy

    return find_tantivy(tantivy.Index.open(str(store / "tantivy")))


def finds(engine: str, manuals: Path) -> Iterator[Find]:
    """The engine with each of its settings; what is found is `path#title`."""
    known = [
        Section(f"{one.path}#{one.title}", spaced(one.title), spaced(one.context), spaced(one.body))
        for one in sections(manuals)
    ]
    match engine:
        case "fts5":
            for tokenizer in TOKENIZERS:
                database = index_fts5(known, None, tokenizer)
                for weights in ALL_WEIGHTS:
                    yield from (find_fts5(database, weights, filtered) for filtered in (False, True))
        case "tantivy":
            index = index_tantivy(known, None)
            for weights in ALL_WEIGHTS:
                yield from (find_tantivy(index, weights, filtered) for filtered in (False, True))
        case _:
            yield from finds_bm25s(known)


def resident() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]


def ndcg(find: Find, questions: Path) -> float:
    gains = list[float]()
    for line in questions.read_text().splitlines():
        question, *answers = line.split("\t")
        # A page may have several sections with one title; only the first of them counts.
        ranks = {one: rank for rank, one in reversed(list(enumerate(find(question)))) if one in answers}
        gain = sum(1 / math.log2(rank + 2) for rank in ranks.values())
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
        tried = [[ndcg(find, Path(questions)) for questions in rest] for find in finds(engine, Path(place))]
        return {"ndcg": [max(figures) for figures in zip(*tried, strict=True)]}
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
