"Background: the probes and their statistics, against plain Python."

import statistics

import numpy as np

from vid2context.background import MIN_ROWS, PROBES, Background, measure
from vid2context.core import sha256_bytes
from vid2context.vector_index import VectorIndex, build_vector_index


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def test_the_probes_are_these():
    digest = sha256_bytes("\n".join(PROBES).encode())
    assert (len(set(PROBES)), digest[:16]) == (64, "c16c7a9a7e21104b")


def test_statistics_equal_plain_python(tmp_path):
    rng = np.random.default_rng(4)
    rows, probes = (
        unit(rng.standard_normal((300, 20))),
        unit(rng.standard_normal((64, 20))),
    )
    build_vector_index(tmp_path / "i", [f"f{i}" for i in range(300)], rows)
    index = VectorIndex.open(tmp_path / "i")
    for keep in (None, rng.random(300) < 0.4):
        kept = rows if keep is None else rows[keep]
        best = [round(max(kept.astype(float) @ p.astype(float)), 6) for p in probes]
        median = statistics.median(best)
        mad = statistics.median(abs(x - median) for x in best)
        got = measure(index, probes, keep=keep)
        assert (got.rows, round(got.median, 6), round(got.mad, 6)) == (
            len(kept),
            round(median, 6),
            round(mad, 6),
        )
        assert got.z(median) == 0.0
        assert got.z(median + 1.4826 * mad) == 1.0


def test_small_or_flat_backgrounds_give_no_z():
    assert Background(0.5, 0.01, MIN_ROWS - 1).z(1.0) is None
    assert Background(0.5, 0.0, 1000).z(1.0) is None
    assert Background(0.5, 0.01, MIN_ROWS).z(1.0) is not None
