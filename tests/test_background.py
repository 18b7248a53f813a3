"Background: the probes and their statistics, against plain Python."

import statistics

import numpy as np

from vid2context.background import MIN_ROWS, PROBES, Background, lifts, measure
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
        assert round(got.spread / mad, 4) == 1.4826


def test_lifts_equal_plain_python(tmp_path):
    rng = np.random.default_rng(5)
    rows, probes = (
        unit(rng.standard_normal((300, 20))),
        unit(rng.standard_normal((64, 20)) + 1.0),
    )
    build_vector_index(tmp_path / "i", [f"f{i}" for i in range(300)], rows)
    index = VectorIndex.open(tmp_path / "i")
    exact, asked = rows.astype(float), probes.astype(float)
    for keep in (None, rng.random(300) < 0.4):
        kept = exact if keep is None else exact[keep]
        own = []
        for i, probe in enumerate(asked):
            others = np.delete(asked, i, axis=0)
            usual = (kept @ others.T).mean(axis=1)
            own.append(float((kept @ probe - usual).max()))
        middle = statistics.median(own)
        mad = statistics.median(abs(x - middle) for x in own)
        got = measure(index, probes, keep=keep)
        assert abs(got.lift_median - middle) < 1e-6
        assert abs(got.lift_mad - mad) < 1e-6
        found = lifts(index, probes[:1], asked.mean(axis=0), keep=keep)
        wanted = (kept @ asked[0] - (kept @ asked.T).mean(axis=1)).max()
        assert abs(found[0] - wanted) < 1e-6
        assert abs(got.z(middle + 1.4826 * mad) - 1.0) < 1e-4


def test_a_question_that_is_the_mean_of_all_has_no_lift(tmp_path):
    rows = unit(np.random.default_rng(6).standard_normal((60, 8)))
    build_vector_index(tmp_path / "i", [f"f{i}" for i in range(60)], rows)
    index = VectorIndex.open(tmp_path / "i")
    assert lifts(index, rows[:1], rows[0].astype(float)).tolist() == [0.0]
    nothing = np.zeros(60, dtype=bool)
    assert lifts(index, rows[:1], np.zeros(8), keep=nothing).size == 0


def test_small_or_flat_backgrounds_give_no_z():
    assert Background(0.5, 0.01, MIN_ROWS - 1, 0.1, 0.01).z(1.0) is None
    assert Background(0.5, 0.01, 1000, 0.1, 0.0).z(1.0) is None
    assert Background(0.5, 0.01, MIN_ROWS, 0.1, 0.01).z(1.0) is not None
