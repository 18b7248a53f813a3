"Find the nearest of many vectors, exactly: hot, cold, filtered, batched, by size."

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from bench import optional, race, show

from vid2context.proposals import usearch_search
from vid2context.vector_index import VectorIndex, build_vector_index

ROWS, DIM, TOP, QUERIES, BATCH = 50_000, 384, 10, 20, 64
Answer = Callable[[np.ndarray], list[int]]


def unit(values: np.ndarray) -> np.ndarray:
    "Scale rows to length one."
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return (values / lengths).astype(np.float32)


def made(
    n: int = ROWS,  # Rows wanted
    *,
    d: int = DIM,  # Numbers in a row
    queries: int = QUERIES,  # Queries wanted
) -> tuple[np.ndarray, np.ndarray]:
    "Draw rows in topics around a common direction, as text embeddings lie."
    random = np.random.default_rng(7)
    common = random.normal(size=d).astype(np.float32) * 3
    topics = random.normal(size=(400, d)).astype(np.float32) * np.float32(0.8)
    rows = np.empty((n, d), np.float32)
    for start in range(0, n, 50_000):
        part = rows[start : start + 50_000]
        noise = random.standard_normal(part.shape, np.float32) * np.float32(0.7)
        part[:] = unit(common + topics[random.integers(0, 400, len(part))] + noise)
    near = rows[random.integers(0, n, queries)]
    away = random.standard_normal(near.shape, np.float32) * np.float32(0.5)
    return rows, unit(near + away / np.sqrt(np.float32(d)) * 1.3)


def truth(rows: np.ndarray, queries: np.ndarray, *, top: int = TOP) -> list[list[int]]:
    "Score in float64, to six decimals, equals by row."
    found = []
    for query in queries.astype(np.float64):
        scores = np.empty(len(rows))
        for start in range(0, len(rows), 50_000):
            part = rows[start : start + 50_000].astype(np.float64)
            scores[start : start + 50_000] = part @ query
        near = np.argpartition(-scores, 2 * top)[: 2 * top]
        ranked = sorted(near.tolist(), key=lambda i: (-round(scores[i], 6), i))
        found.append(ranked[:top])
    return found


def by_numpy(rows: np.ndarray, query: np.ndarray, *, top: int = TOP) -> list[int]:
    scores = rows @ query
    best = np.argpartition(-scores, top)[:top]
    return best[np.argsort(-scores[best], kind="stable")].tolist()


def by_sgemm(rows: np.ndarray, queries: np.ndarray) -> list[list[int]]:
    "Score a batch by one product of matrices."
    found = []
    for scores in queries @ rows.T:
        best = np.argpartition(-scores, TOP)[:TOP]
        found.append(best[np.argsort(-scores[best], kind="stable")].tolist())
    return found


def by_usearch(rows: np.ndarray, query: np.ndarray) -> list[int]:
    from usearch.index import MetricKind

    hits = usearch_search(rows, query, TOP, MetricKind.IP, exact=True, threads=1)
    return hits.keys.tolist()


def sqlite_vec(rows: np.ndarray, kept: np.ndarray) -> tuple[Answer, Answer] | None:
    "Fill a table of sqlite-vec through apsw, whose SQLite loads extensions."
    apsw, extension = optional("apsw"), optional("sqlite_vec")
    if apsw is None or extension is None:
        return None
    base = apsw.Connection(":memory:")
    base.enable_load_extension(True)
    base.load_extension(extension.loadable_path())
    base.execute(
        f"create virtual table v using vec0(x float[{DIM}] distance_metric=cosine, "
        "kept integer)"
    )
    with base:
        values = zip(rows, kept.tolist(), strict=True)
        lines = ((i + 1, row.tobytes(), int(k)) for i, (row, k) in enumerate(values))
        base.executemany("insert into v(rowid, x, kept) values (?, ?, ?)", lines)

    def ask(query: np.ndarray, where: str) -> list[int]:
        sql = f"select rowid from v where x match ? and k = ? {where} order by distance"
        return [i - 1 for (i,) in base.execute(sql, (query.tobytes(), TOP)).fetchall()]

    return lambda q: ask(q, ""), lambda q: ask(q, "and kept = 1")


def counted(method: Answer, queries: np.ndarray, expected: list[list[int]]) -> str:
    "Say how much of the truth a method finds."
    answers = [method(query) for query in queries]
    pairs = list(zip(answers, expected, strict=True))
    shared = sum(len({*a} & {*e}) for a, e in pairs)
    same = sum(a == e for a, e in pairs)
    recall = shared / sum(len(e) for _, e in pairs)
    return f"recall {recall:.3f}; {same}/{len(pairs)} in float64 order"


def compare(
    title: str,
    methods: dict[str, Answer | None],
    queries: np.ndarray,
    expected: list[list[int]],
    *,
    hot: dict[str, float],
    cold: dict[str, float],
    rounds: int = 9,
) -> None:
    "Race methods in blocks of queries, then one query in turn."
    notes = {n: counted(m, queries, expected) for n, m in methods.items() if m}
    blocks = {
        n: m and (lambda m=m: [m(q) for q in queries]) for n, m in methods.items()
    }
    show(
        f"{title}, blocks of {len(queries)} queries (hot)",
        race(blocks, rounds=rounds),
        per=len(queries),
        notes=notes,
        reach=hot,
    )
    if cold:
        turn = iter(range(10**9))
        one = {
            n: m and (lambda m=m: m(queries[next(turn) % len(queries)]))
            for n, m in methods.items()
        }
        show(
            f"{title}, one query in turn (cold: caches full of the others)",
            race(one, rounds=5 * rounds),
            reach=cold,
        )


def sizes() -> None:
    "Print a row for each dimension and k, on one thread and on two."
    print("\n## Ours by size\n")
    print(
        "| rows × numbers | k | p50 ms | p95 ms | two clients, queries/s ÷ one | ",
        end="",
    )
    print("recall | load ms | MB on disk |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for d in (384, 512):
        rows, queries = made(d=d)
        with tempfile.TemporaryDirectory() as folder:
            build_vector_index(folder, [f"r{i:05d}" for i in range(ROWS)], rows)
            began = time.perf_counter()
            index = VectorIndex.open(folder, verify=False)
            load = 1000 * (time.perf_counter() - began)
            size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
            for top in (10, 20, 50):
                said = counted(
                    lambda q, i=index, top=top: i.nearest(q, limit=top)[0].tolist(),
                    queries,
                    truth(rows, queries, top=top),
                )
                line = _latency(index, queries, top)
                print(f"| {ROWS:,} × {d} | {top} | {line} | {said[7:12]} ", end="")
                print(f"| {load:.0f} | {size:.0f} |")
            index.close()


def _latency(index: VectorIndex, queries: np.ndarray, top: int) -> str:
    "Time queries one by one, then by two clients at once."
    taken = []
    for query in np.concatenate([queries] * 10):
        began = time.perf_counter()
        index.nearest(query, limit=top)
        taken.append(1000 * (time.perf_counter() - began))
    p50, p95 = (float(np.percentile(taken, p, method="inverted_cdf")) for p in (50, 95))

    def client(_: int) -> None:
        for query in queries:
            index.nearest(query, limit=top)

    spent = {}
    for clients in (1, 2):
        with ThreadPoolExecutor(clients) as threads:
            began = time.perf_counter()
            list(threads.map(client, range(2 * clients)))
            spent[clients] = (time.perf_counter() - began) / clients
    return f"{p50:.2f} | {p95:.2f} | {spent[1] / spent[2]:.2f}"


def main() -> None:
    rows, queries = made()
    expected = truth(rows, queries)
    keep = np.random.default_rng(1).random(ROWS) < 0.1
    kept = np.flatnonzero(keep)
    folder = Path(tempfile.mkdtemp())
    build_vector_index(folder, [f"r{i:05d}" for i in range(ROWS)], rows)
    tables = sqlite_vec(rows, keep)
    with VectorIndex.open(folder) as index:
        compare(
            f"Exact vectors, {ROWS:,} × {DIM}, k = {TOP}",
            {
                "ours": lambda q: index.nearest(q, limit=TOP)[0].tolist(),
                "usearch.search f32": lambda q: by_usearch(rows, q),
                "numpy matmul, argpartition": lambda q: by_numpy(rows, q),
                "sqlite-vec f32": tables and tables[0],
            },
            queries,
            expected,
            hot={
                "usearch.search f32": 6,
                "numpy matmul, argpartition": 2.3,
                "sqlite-vec f32": 14,
            },
            cold={
                "usearch.search f32": 4.5,
                "numpy matmul, argpartition": 2,
                "sqlite-vec f32": 12,
            },
        )
        part = rows[kept]
        compare(
            "The same, filtered to a tenth of the rows",
            {
                "ours": lambda q: index.nearest(q, limit=TOP, keep=keep)[0].tolist(),
                "sqlite-vec, a metadata column": tables and tables[1],
                "numpy, kept rows gathered": lambda q: kept[
                    by_numpy(rows[kept], q)
                ].tolist(),
            },
            queries,
            [kept[found].tolist() for found in truth(part, queries)],
            hot={"sqlite-vec, a metadata column": 9},
            cold={},
        )
        _, many = made(queries=BATCH)
        together = index.nearest_each(many, limit=TOP)
        assert [a.tolist() for a, _ in together] == truth(rows, many)
        show(
            f"The same, {BATCH} queries at once",
            race(
                {
                    "ours": lambda: index.nearest_each(many, limit=TOP),
                    "numpy sgemm, argpartition": lambda: by_sgemm(rows, many),
                },
                rounds=9,
            ),
            per=BATCH,
            reach={"numpy sgemm, argpartition": 1.5},
        )
    shutil.rmtree(folder)
    sizes()


if __name__ == "__main__":
    print(f"SQLite {sqlite3.sqlite_version}, numpy {np.__version__}")
    main()
