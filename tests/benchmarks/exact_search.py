"""Find the twenty nearest vectors, exactly, each backend in a fresh process.

python tests/benchmarks/exact_search.py OUT.jsonl.gz [N …]   all backends, one file
python tests/benchmarks/exact_search.py --one BACKEND N      one backend, rows on stdout
"""

import gzip
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SEED, DIM, TOP, QUERIES, WARM = 20260810, 384, 20, 50, 5
CHANGED, GONE = 17, 23
Answer = Callable[[np.ndarray], list[int]]


def unit(values: np.ndarray) -> np.ndarray:
    "Scale rows to length one."
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return (values / lengths).astype(np.float32)


def made(n: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    "Give all rows, the new value of one, and two sets of queries."
    random = np.random.default_rng(SEED)
    rows = unit(random.uniform(-1, 1, (n, DIM)))
    new = unit(random.uniform(-1, 1, (1, DIM)))[0]
    picked = np.linspace(0, n - 1, QUERIES).round().astype(int)
    stored = rows[picked]
    noisy = unit(stored + random.normal(scale=0.02, size=stored.shape))
    return rows, new, {"stored": stored, "noisy": noisy}


def truth(rows: np.ndarray, query: np.ndarray) -> list[int]:
    "Score in float64, ties by row, without the deleted one."
    scores = rows.astype(np.float64) @ query.astype(np.float64)
    scores[GONE] = -np.inf
    return np.argsort(-scores, kind="stable")[:TOP].tolist()


def by_ours(folder: Path, rows: np.ndarray, new: np.ndarray) -> None:
    from vid2context.vector_index import build_vector_index

    final = rows.copy()
    final[CHANGED] = new
    ids = [f"r{i:06d}" for i in range(len(rows))]
    keep = np.arange(len(rows)) != GONE
    build_vector_index(
        folder / "v", [i for i, k in zip(ids, keep, strict=True) if k], final[keep]
    )


def ours(folder: Path) -> tuple[Answer, int]:
    from vid2context.vector_index import VectorIndex

    index = VectorIndex.open(folder / "v")
    number = np.array([int(name[1:]) for name in index.ids])
    return lambda q: number[index.nearest(q, limit=TOP)[0]].tolist(), len(index)


def keep_arrays(folder: Path, rows: np.ndarray, new: np.ndarray) -> None:
    final = rows.copy()
    final[CHANGED] = new
    keep = np.flatnonzero(np.arange(len(rows)) != GONE)
    np.save(folder / "rows.npy", final[keep])
    np.save(folder / "ids.npy", keep)


def by_numpy(folder: Path) -> tuple[Answer, int]:
    rows, ids = np.load(folder / "rows.npy"), np.load(folder / "ids.npy")

    def ask(query: np.ndarray) -> list[int]:
        scores = rows @ query
        best = np.argpartition(-scores, TOP)[:TOP]
        return ids[best[np.argsort(-scores[best], kind="stable")]].tolist()

    return ask, len(ids)


def usearch_of(
    kind: str,
) -> tuple[Callable[..., None], Callable[..., tuple[Answer, int]]]:
    "Give the exact scan of usearch in a precision."

    def make(folder: Path, rows: np.ndarray, new: np.ndarray) -> None:
        from usearch.index import Index

        index = Index(ndim=DIM, metric="cos", dtype=kind, expansion_add=1)
        index.add(np.arange(len(rows)), rows, threads=1)
        index.remove(CHANGED)
        index.add(CHANGED, new)
        index.remove(GONE)
        index.save(str(folder / "index"))

    def load(folder: Path) -> tuple[Answer, int]:
        from usearch.index import Index

        index = Index(ndim=DIM, metric="cos", dtype=kind)
        index.load(str(folder / "index"))
        return (
            lambda q: index.search(q, TOP, exact=True, threads=1).keys.tolist(),
            len(index),
        )

    return make, load


def make_faiss(folder: Path, rows: np.ndarray, new: np.ndarray) -> None:
    import faiss

    index = faiss.IndexIDMap2(faiss.IndexFlatIP(DIM))
    index.add_with_ids(rows, np.arange(len(rows)))
    index.remove_ids(np.array([CHANGED, GONE]))
    index.add_with_ids(new[None], np.array([CHANGED]))
    faiss.write_index(index, str(folder / "index"))


def load_faiss(folder: Path) -> tuple[Answer, int]:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.read_index(str(folder / "index"))
    return lambda q: index.search(q[None], TOP)[1][0].tolist(), index.ntotal


def open_base(folder: Path):
    import apsw
    import sqlite_vec

    base = apsw.Connection(str(folder / "base"))
    base.enable_load_extension(True)
    base.load_extension(sqlite_vec.loadable_path())
    return base


def make_sqlite(folder: Path, rows: np.ndarray, new: np.ndarray) -> None:
    base = open_base(folder)
    base.execute(
        f"create virtual table v using vec0(x float[{DIM}] distance_metric=cosine)"
    )
    with base:
        pairs = ((i + 1, row.tobytes()) for i, row in enumerate(rows))
        base.executemany("insert into v(rowid, x) values (?, ?)", pairs)
    base.execute("update v set x = ? where rowid = ?", (new.tobytes(), CHANGED + 1))
    base.execute("delete from v where rowid = ?", (GONE + 1,))
    base.close()


def load_sqlite(folder: Path) -> tuple[Answer, int]:
    base = open_base(folder)
    ask = "select rowid from v where x match ? and k = ? order by distance"
    ((count,),) = base.execute("select count(*) from v")
    return (
        lambda q: [i - 1 for (i,) in base.execute(ask, (q.tobytes(), TOP))],
        count,
    )


BACKENDS = {
    "vid2context": ((by_ours, ours), "vid2context"),
    "numpy f32": ((keep_arrays, by_numpy), "numpy"),
    "usearch exact f32": (usearch_of("f32"), "usearch"),
    "usearch exact f16": (usearch_of("f16"), "usearch"),
    "usearch exact i8": (usearch_of("i8"), "usearch"),
    "faiss Flat": ((make_faiss, load_faiss), "faiss"),
    "sqlite-vec f32": ((make_sqlite, load_sqlite), "sqlite_vec"),
}


def one(name: str, n: int) -> dict:
    "Build, change, close, open and ask one backend."
    (make, load), _ = BACKENDS[name]
    rows, new, queries = made(n)
    final = rows.copy()
    final[CHANGED] = new
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        start = time.perf_counter()
        make(folder, rows, new)
        built = time.perf_counter() - start
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        start = time.perf_counter()
        ask, count = load(folder)
        loaded = time.perf_counter() - start
        for query in queries["noisy"][:WARM]:
            ask(query)
        row = {
            "backend": name,
            "n": n,
            "build_s": round(built, 3),
            "load_s": round(loaded, 4),
            "bytes": size,
            "count": count,
            "deleted_absent": GONE not in ask(rows[GONE]),
            "updated_found": ask(new)[0] == CHANGED,
        }
        for kind, asked in queries.items():
            taken, found, first = [], [], []
            for query in asked:
                start = time.perf_counter_ns()
                answer = ask(query)
                taken.append(round((time.perf_counter_ns() - start) / 1e6, 4))
                right = truth(final, query)
                found.append(len(set(right) & set(answer)) / TOP)
                first.append(answer[0] == right[0])
            row[kind] = {
                "ms": taken,
                "recall20": float(np.mean(found)),
                "hit1": float(np.mean(first)),
            }
    return row


def main(words: list[str]) -> None:
    if words[:1] == ["--one"]:
        print(json.dumps(one(words[1], int(words[2]))))
        return
    sizes = [int(word) for word in words[1:]] or [10_000, 50_000]
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_CORE")}
    env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows = []
    for n in sizes:
        for name, (_, library) in BACKENDS.items():
            if importlib.util.find_spec(library) is None:
                rows.append({"backend": name, "n": n, "skipped": "not installed"})
                continue
            call = [sys.executable, __file__, "--one", name, str(n)]
            done = subprocess.run(call, capture_output=True, text=True, env=env)
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1:]
                rows.append({"backend": name, "n": n, "skipped": " ".join(last)})
            else:
                rows.append(json.loads(done.stdout))
            print(name, n, rows[-1].get("skipped", "done"), file=sys.stderr, flush=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    Path(words[0]).write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
