"Find the ten nearest of 50,000 vectors of 384 float32, exactly, on one thread."

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench import optional, race, show

from vid2context.proposals import usearch_search
from vid2context.vector_index import VectorIndex, build_vector_index

ROWS, DIM, TOP, QUERIES = 50_000, 384, 10, 20


def unit(values: np.ndarray) -> np.ndarray:
    "Scale rows to length one."
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return (values / lengths).astype(np.float32)


def made() -> tuple[np.ndarray, np.ndarray]:
    "Draw rows in topics around a common direction, as text embeddings lie."
    random = np.random.default_rng(7)
    common = random.normal(size=DIM) * 3
    topics = random.normal(size=(400, DIM)) * 0.8
    rows = common + topics[random.integers(0, 400, ROWS)]
    rows = rows + random.normal(size=(ROWS, DIM)) * 0.7
    near = rows[random.integers(0, ROWS, QUERIES)]
    return unit(rows), unit(near + random.normal(size=(QUERIES, DIM)) * 0.5)


def truth(rows: np.ndarray, queries: np.ndarray) -> list[list[int]]:
    "Score in float64, ties by row."
    scores = rows.astype(np.float64) @ queries.astype(np.float64).T
    return [np.argsort(-s, kind="stable")[:TOP].tolist() for s in scores.T]


def by_numpy(rows: np.ndarray, query: np.ndarray) -> list[int]:
    scores = rows @ query
    best = np.argpartition(-scores, TOP)[:TOP]
    return best[np.argsort(-scores[best], kind="stable")].tolist()


def by_usearch(rows: np.ndarray, query: np.ndarray) -> list[int]:
    from usearch.index import MetricKind

    hits = usearch_search(rows, query, TOP, MetricKind.IP, exact=True, threads=1)
    return hits.keys.tolist()


def sqlite_vec(rows: np.ndarray) -> Callable[[np.ndarray], list[int]] | None:
    "Fill a table of sqlite-vec through apsw, whose SQLite loads extensions."
    apsw, extension = optional("apsw"), optional("sqlite_vec")
    if apsw is None or extension is None:
        return None
    base = apsw.Connection(":memory:")
    base.enable_load_extension(True)
    base.load_extension(extension.loadable_path())
    base.execute(
        f"create virtual table v using vec0(x float[{DIM}] distance_metric=cosine)"
    )
    with base:
        pairs = ((i + 1, row.tobytes()) for i, row in enumerate(rows))
        base.executemany("insert into v(rowid, x) values (?, ?)", pairs)
    ask = "select rowid from v where x match ? and k = ? order by distance"
    return lambda query: [
        i - 1 for (i,) in base.execute(ask, (query.tobytes(), TOP)).fetchall()
    ]


def main() -> None:
    rows, queries = made()
    expected = truth(rows, queries)
    folder = Path(tempfile.mkdtemp())
    build_vector_index(folder, [f"r{i:05d}" for i in range(ROWS)], rows)
    with VectorIndex.open(folder) as index:
        methods: dict[str, Callable[[np.ndarray], list[int]] | None] = {
            "ours": lambda q: index.nearest(q, limit=TOP)[0].tolist(),
            "usearch.search f32": lambda q: by_usearch(rows, q),
            "numpy matmul, argpartition": lambda q: by_numpy(rows, q),
            "sqlite-vec f32": sqlite_vec(rows),
        }
        notes = {}
        for name, method in methods.items():
            if method is not None:
                same = sum(
                    method(q) == e for q, e in zip(queries, expected, strict=True)
                )
                notes[name] = f"{same}/{QUERIES} in float64 order"
        runners = {
            name: method and (lambda m=method: [m(q) for q in queries])
            for name, method in methods.items()
        }
        hot = race(runners, rounds=9)
        aims = {"usearch.search f32": 6, "numpy matmul, argpartition": 2.3}
        show(
            f"Exact vectors, {ROWS:,} × {DIM}, blocks of {QUERIES} queries (hot)",
            hot,
            per=QUERIES,
            notes=notes,
            reach=aims | {"sqlite-vec f32": 14},
        )
        one = iter(range(10**9))
        single = {
            name: method and (lambda m=method: m(queries[next(one) % QUERIES]))
            for name, method in methods.items()
        }
        taken = race(single, rounds=40)
        aims = {"usearch.search f32": 4.5, "numpy matmul, argpartition": 2}
        show(
            "The same, one query in turn (each finds the caches full of the others)",
            taken,
            reach=aims | {"sqlite-vec f32": 12},
        )
        keep = np.random.default_rng(1).random(ROWS) < 0.1
        kept = np.flatnonzero(keep)
        filtered = race(
            {
                "ours": lambda: [
                    index.nearest(q, limit=TOP, keep=keep) for q in queries
                ],
                "numpy, kept rows gathered": lambda: [
                    by_numpy(rows[kept], q) for q in queries
                ],
                "numpy, kept rows gathered before": (
                    lambda part=rows[kept]: [by_numpy(part, q) for q in queries]
                ),
            },
            rounds=9,
        )
        show("The same, filtered to a tenth of the rows", filtered, per=QUERIES)


if __name__ == "__main__":
    print(f"SQLite {sqlite3.sqlite_version}, numpy {np.__version__}")
    main()
