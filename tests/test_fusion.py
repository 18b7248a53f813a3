"Fusion: worked cases, exact arithmetic, threads and speed."

import random
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vid2context.core import UsageError
from vid2context.fusion import Fused, fuse, fuse_rows, ranked

IDS = st.lists(st.sampled_from([f"u{i}" for i in range(30)]), max_size=40)
LISTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), IDS, max_size=5)


def exact(lists, weights, k):
    total = {}
    for name, ids in lists.items():
        for unit in set(ids) if weights[name] else ():
            earned = Fraction(weights[name]) / (Fraction(k) + ids.index(unit) + 1)
            total[unit] = total.get(unit, 0) + earned
    return total


@settings(max_examples=150, deadline=None)
@given(LISTS, st.floats(0, 4), st.floats(0.5, 200))
def test_scores_equal_exact_fractions(lists, weight, k):
    weights = dict(zip("abcde", [1.0, weight, 0.5, 0.0, 0.3], strict=True))
    want = exact(lists, weights, k)
    got = fuse(lists, weights, k=k)
    assert {u.id for u in got} == set(want)
    for unit in got:
        assert abs(unit.score - float(want[unit.id])) <= 1e-12
        assert unit.contributions.keys() <= lists.keys()
    assert got == sorted(got, key=lambda u: (-u.score, u.id))


def test_a_missing_list_adds_nothing():
    got = fuse({"a": [], "b": ["v", "t"]}, {"a": 1, "b": 1})
    assert [(u.id, round(u.score, 6)) for u in got] == [
        ("t", 0.016129),
        ("v", 0.016393),
    ][::-1]
    assert fuse({"a": [], "b": []}, {"a": 1, "b": 1}) == []
    assert fuse({}, {}) == []


def test_numbers_and_their_text_are_one_id():
    got = fuse({"a": ["30", "4"], "b": [30, 8]}, {"a": 1, "b": 1})
    assert [(u.id, round(u.score, 6)) for u in got] == [
        ("30", 0.032787),
        ("4", 0.016129),
        ("8", 0.016129),
    ]


def test_ties_fall_to_the_id_in_any_order_and_thread():
    pool = [f"u{i}" for i in range(50)]
    lists = {name: random.Random(name).sample(pool, 30) for name in "abcdefghijkl"}
    weights = {name: 1 + i % 3 for i, name in enumerate(lists)}
    want = repr(fuse(lists, weights))

    def again(seed: int) -> str:
        names = list(lists)
        random.Random(seed).shuffle(names)
        return repr(fuse({n: lists[n] for n in names}, weights))

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(again, range(50))) == {want}


def test_ranks_four_and_one_beat_a_lone_first():
    lists = {"a": ["p", "q", "r", "u"], "b": ["u"]}
    assert fuse(lists, {"a": 1, "b": 1})[0].id == "u"


def test_a_floor_acts_before_fusion_on_raw_scores():
    dense = ranked([("m2", 0.8), ("m4", 0.7), ("m1", 0.1)], at_least=0.3)
    got = fuse(
        {"lexical": ["m1", "m2", "m3"], "dense": dense}, {"lexical": 1, "dense": 1}
    )
    assert [u.id for u in got] == ["m2", "m1", "m4", "m3"]
    assert "dense" not in got[1].contributions


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_bad_weights_are_refused(bad):
    with pytest.raises(UsageError, match="weight of 'b'"):
        fuse({"a": ["x"], "b": ["z"]}, {"a": 1, "b": bad})


@pytest.mark.parametrize("bad", [0, -60, float("nan"), float("inf")])
def test_bad_damping_is_refused(bad):
    with pytest.raises(UsageError, match="k is"):
        fuse({"a": ["x"]}, {"a": 1}, k=bad)


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(UsageError, match="not a number"):
        ranked([("a", float("nan"))])


def test_rows_are_faster_than_a_dictionary():
    order = np.random.default_rng(5)
    lists = {name: order.permutation(400)[:200] for name in "abcd"}
    weights = {"a": 1.0, "b": 0.5, "c": 0.3, "d": 1.0}
    as_ids = {name: [int(i) for i in rows] for name, rows in lists.items()}

    def plain() -> list[tuple[int, float]]:
        score: dict[int, float] = {}
        for name in sorted(as_ids):
            for rank, unit in enumerate(as_ids[name], 1):
                score[unit] = score.get(unit, 0.0) + weights[name] / (60 + rank)
        pairs = [(unit, round(value, 12)) for unit, value in score.items()]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    rows, scores = fuse_rows(lists, weights)
    assert list(zip(rows.tolist(), scores.tolist(), strict=True)) == plain()

    def best(work) -> float:
        spent = []
        for _ in range(200):
            start = time.perf_counter()
            work()
            spent.append(time.perf_counter() - start)
        return min(spent)

    assert best(plain) > 1.5 * best(lambda: fuse_rows(lists, weights))


def test_a_fused_unit_is_a_value():
    assert fuse({"a": ["x"]}, {"a": 1}) == [
        Fused("x", 0.016393442623, {"a": (1, 1 / 61)})
    ]
