"Find the ten nearest of a million vectors of 384 float32: 3 GB of memory and of disk."

import shutil
import tempfile
import time
from pathlib import Path

from vectors import DIM, TOP, by_numpy, by_usearch, compare, made, truth

from vid2context.vector_index import VectorIndex, build_vector_index

ROWS, QUERIES = 1_000_000, 6


def main() -> None:
    rows, queries = made(ROWS, queries=QUERIES)
    expected = truth(rows, queries)
    folder = Path(tempfile.mkdtemp())
    build_vector_index(folder, [f"r{i:06d}" for i in range(ROWS)], rows)
    began = time.perf_counter()
    with VectorIndex.open(folder, verify=False) as index:
        load = time.perf_counter() - began
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        print(f"opened in {load:.2f} s, {size:.2f} GB on disk")
        compare(
            f"Exact vectors, {ROWS:,} × {DIM}, k = {TOP}",
            {
                "ours": lambda q: index.nearest(q, limit=TOP)[0].tolist(),
                "usearch.search f32": lambda q: by_usearch(rows, q),
                "numpy matmul, argpartition": lambda q: by_numpy(rows, q),
            },
            queries,
            expected,
            hot={"usearch.search f32": 5.5, "numpy matmul, argpartition": 2.5},
            cold={},
            rounds=5,
        )
    shutil.rmtree(folder)
