"Find the fifty best of 90,000 passages by BM25."

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tantivy
from bench import race, show
from tantivy import Occur, Query

from vid2context.records import TextRow
from vid2context.text_index import TextIndex, build_text_index, query_terms

PASSAGES, VOCABULARY, TOP, QUERIES = 90_000, 60_000, 50, 40
AWKWARD = ["don't", "AND", "a:b OR", '"unbalanced', "https://x.org/?q=(", "*^~", ""]


def passages() -> tuple[list[str], list[str]]:
    "Draw words as languages use them, few of them often; a query is part of a passage."
    random = np.random.default_rng(5)
    ranks = np.arange(1, VOCABULARY + 1)
    odds = 1 / (ranks + 2.7)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    spelt = ["".join(random.choice(letters, 2 + i % 7)) + str(i) for i in ranks]
    words = np.array(spelt)
    lengths = random.integers(30, 90, PASSAGES)
    drawn = random.choice(words, int(lengths.sum()), p=odds / odds.sum())
    ends = np.cumsum(lengths)
    found = [
        " ".join(drawn[end - length : end].tolist())
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]
    chosen = random.integers(0, PASSAGES, QUERIES)
    queries = [
        " ".join(found[i].split()[: 3 + n % 6]) for n, i in enumerate(chosen.tolist())
    ]
    return found, queries


def rows(texts: list[str]) -> Iterator[TextRow]:
    for i, text in enumerate(texts):
        yield TextRow(
            unit_id=f"u{i:06d}",
            source="bench",
            video="bench",
            family="transcript",
            unit_type="passage",
            evidence_class=None,
            language=None,
            title="",
            heading_path="",
            content=text,
            caption="",
            ocr="",
        )


def bare_tantivy(texts: list[str], folder: Path) -> Callable[[str], list[int]]:
    "Index words with frequencies and a fast number, as little as BM25 needs."
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", fast=True)
    builder.add_text_field("content", tokenizer_name="whitespace", index_option="freq")
    schema = builder.build()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(heap_size=128_000_000, num_threads=1)
    for i, text in enumerate(texts):
        document = tantivy.Document()
        document.add_unsigned("row", i)
        document.add_text("content", text)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def ask(query: str) -> list[int]:
        terms = [
            (Occur.Should, Query.term_query(schema, "content", term, "freq"))
            for term in dict.fromkeys(query.split())
        ]
        hits = searcher.search(Query.boolean_query(terms), TOP, count=False).hits
        return searcher.fast_field_values("row", [place for _, place in hits])

    return ask


def fts5(texts: list[str]) -> Callable[[str], list[int]]:
    "Ask SQLite for any of the words."
    base = sqlite3.connect(":memory:")
    base.execute("create virtual table t using fts5(content)")
    numbered = ((i + 1, text) for i, text in enumerate(texts))
    base.executemany("insert into t(rowid, content) values (?, ?)", numbered)
    base.execute("insert into t(t) values ('optimize')")
    statement = "select rowid from t where t match ? order by rank limit ?"

    def ask(query: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(query.split()))
        return [i - 1 for (i,) in base.execute(statement, (words, TOP))]

    return ask


def main() -> None:
    texts, queries = passages()
    folder = Path(tempfile.mkdtemp())
    (folder / "bare").mkdir()
    bare, sqlite = bare_tantivy(texts, folder / "bare"), fts5(texts)
    build_text_index(folder / "ours", rows(texts))
    index = TextIndex.open(folder / "ours")
    for text in AWKWARD:
        index.search(text, limit=TOP)
    ours = {
        q: [h[0] for h in index.search(q, limit=10, fields=["content"])]
        for q in queries
    }
    same = sum(
        len({int(name[1:]) for name in ours[q]} & set(bare(q)[:10])) for q in queries
    )
    asked = {query: len(query_terms(query)) for query in queries}
    ask: dict[str, Callable[[str], object]] = {
        "ours, one list over `content`": lambda q: index.search(
            q, limit=TOP, fields=["content"]
        ),
        "bare tantivy, the same words": bare,
        "ours, five boosted fields": lambda q: index.search(q, limit=TOP),
        "SQLite FTS5, OR of the words": sqlite,
    }
    runners = {
        name: lambda method=method: [method(q) for q in queries]
        for name, method in ask.items()
    }
    taken = race(runners, rounds=8)
    show(
        f"BM25, top {TOP} of {PASSAGES:,} passages, {QUERIES} queries of "
        f"{min(asked.values())}–{max(asked.values())} words",
        taken,
        per=QUERIES,
        notes={
            "ours, one list over `content`": f"{same}/{10 * QUERIES} of the top ten "
            "shared with bare tantivy",
        },
        reach={
            "SQLite FTS5, OR of the words": 60,
        },
    )


if __name__ == "__main__":
    main()
