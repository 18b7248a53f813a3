"Kappa against another implementation, and its properties."

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vid2context.agreement import agreement, kappa
from vid2context.core import UsageError
from vid2context.glimpses import Glimpse
from vid2context.judging import Judging
from vid2context.pools import PoolEntry, read_decisions

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40)


@settings(deadline=None)
@given(PAIRS)
def test_kappa_is_that_of_scikit_learn(pairs):
    metrics = pytest.importorskip("sklearn.metrics")
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    for weighted in (False, True):
        ours = kappa(first, second, weighted=weighted)
        if ours is None:
            assert len({*first, *second}) < 2
            continue
        weights = "quadratic" if weighted else None
        theirs = metrics.cohen_kappa_score(
            first, second, labels=range(4), weights=weights
        )
        assert ours == pytest.approx(theirs, abs=1e-12)


@settings(deadline=None)
@given(PAIRS)
def test_kappa_does_not_depend_on_who_comes_first(pairs):
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = kappa(first, second), kappa(second, first)
    assert (one is None) == (other is None)
    assert one is None or one == pytest.approx(other)


def test_the_interval_covers_what_it_should():
    "Of 200 samples of one population, about 190 intervals hold its kappa."
    rng = np.random.default_rng(7)
    joint = np.array([[0.4, 0.1], [0.1, 0.4]])
    truth, held = 0.6, 0
    for seed in range(200):
        cells = rng.choice(4, size=80, p=joint.ravel())
        grades = {
            "a": {("q", str(i)): int(3 * (c // 2)) for i, c in enumerate(cells)},
            "b": {("q", str(i)): int(3 * (c % 2)) for i, c in enumerate(cells)},
        }
        told = agreement(grades, first="a", second="b", draws=300, seed=seed).right
        held += told.low <= truth <= told.high
    assert 180 <= held <= 199


def test_the_same_seed_gives_the_same_interval():
    rng = np.random.default_rng(1)
    grades = {
        name: {("q", str(i)): int(g) for i, g in enumerate(rng.integers(0, 4, 50))}
        for name in ("a", "b")
    }
    told = [agreement(grades, first="a", second="b", draws=500) for _ in range(2)]
    assert told[0] == told[1]


def test_nobody_is_compared_with_themselves():
    with pytest.raises(UsageError, match="needs two assessors"):
        agreement({"a": {("q", "d"): 3}}, first="a", second="a")


def test_the_last_grade_can_be_given_again_when_it_was_not_written(tmp_path):
    def look(entry):
        return Glimpse(entry.docid, "v", 0.0, 9.0, "", (), (), ())

    entry = PoolEntry("q1", "x", "s:v#0-9000", "v", 0.0, 9.0)
    blocked = tmp_path / "file"
    blocked.write_text("")
    ana = Judging([entry], path=tmp_path / "d.jsonl", assessor="ana", look=look)
    ana.path = blocked / "d.jsonl"
    with pytest.raises(OSError):
        ana.grade(3)
    ana.path = tmp_path / "d.jsonl"
    ana.grade(3)
    assert [one.grade for one in read_decisions(tmp_path / "d.jsonl")] == [3]
