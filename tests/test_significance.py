"""The tests of differences against enumeration, theory and their own promises."""

import itertools
from math import comb

import numpy as np
import pytest

from vid2context.core import UsageError
from vid2context.significance import (
    bootstrap_interval,
    by_need,
    compare,
    differences,
    holm,
    sign_test,
)


@pytest.mark.parametrize("seed", range(8))
def test_randomization_agrees_with_exact_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    deltas = np.round(rng.normal(0.1, 0.3, size=int(rng.integers(4, 13))), 3)
    signs = np.array(list(itertools.product((-1, 1), repeat=len(deltas))))
    exact = (np.abs(signs @ deltas) >= abs(deltas.sum()) - 1e-9).mean()
    error = 4 * np.sqrt(exact * (1 - exact) / 10_000) + 1 / 10_001
    assert sign_test(deltas, seed=seed) == pytest.approx(exact, abs=error)


def test_equal_differences_follow_the_binomial_law() -> None:
    deltas = np.array([1.0] * 14 + [-1.0] * 6)
    exact = 2 * sum(comb(20, k) for k in range(14, 21)) / 2**20
    assert sign_test(deltas, seed=0) == pytest.approx(exact, abs=0.012)


def test_p_is_uniform_when_nothing_differs() -> None:
    rng = np.random.default_rng(4)
    found = sorted(
        sign_test(rng.normal(0, 1, size=25), seed=i, draws=999) for i in range(400)
    )
    steps = np.arange(1, 401) / 400
    assert np.abs(np.array(found) - steps).max() < 1.63 / np.sqrt(400)  # K-S, 1 %


def test_p_is_never_zero_and_does_not_depend_on_direction() -> None:
    deltas = np.linspace(0.1, 1, 30)
    assert sign_test(deltas, seed=1) == 1 / 10_001
    assert sign_test(deltas, seed=1) == sign_test(-deltas, seed=1)


def test_holm_is_monotone_bounded_and_never_below_the_raw_value() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        raw = {f"s{i}": float(rng.uniform()) for i in range(int(rng.integers(1, 9)))}
        fixed = holm(raw)
        order = sorted(raw, key=lambda s: raw[s])
        assert list(fixed) == list(raw)
        assert [fixed[s] for s in order] == sorted(fixed.values())
        assert all(raw[s] <= fixed[s] <= 1 for s in raw)
        assert fixed[order[0]] == min(1.0, raw[order[0]] * len(raw))


def test_holm_of_a_published_family() -> None:
    found = holm({"a": 0.01, "b": 0.02, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.04, "c": 0.04, "d": 0.02})


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for i in range(200):
        low, high = bootstrap_interval(rng.normal(1, 1, size=50), seed=i, draws=1000)
        covered += low <= 1 <= high
    assert 180 <= covered <= 199


def test_a_constant_has_no_spread() -> None:
    assert bootstrap_interval(np.full(9, 0.25), seed=0) == (0.25, 0.25)


def test_wordings_of_a_need_count_once() -> None:
    scores = {f"q{i}": 1.0 for i in range(9)} | {"z": 0.0}
    needs = {f"q{i}": "n1" for i in range(9)} | {"z": "n2"}
    assert by_need(scores, needs) == {"n1": 1.0, "n2": 0.0}
    with pytest.raises(KeyError):
        by_need({"unknown": 1.0}, needs)


def test_a_comparison_counts_its_needs() -> None:
    base = {f"n{i}": 0.5 for i in range(10)}
    other = {**base, "n0": 1.0, "n1": 0.7, "n2": 0.1, "n3": 0.5 + 1e-12}
    row = compare({"b": base, "o": other}, baseline="b", seed=1)["o"]
    assert (row.wins, row.ties, row.losses, row.n) == (2, 7, 1, 10)
    assert row.low <= row.mean <= row.high and row.corrected == row.p


def test_the_same_seed_gives_the_same_row() -> None:
    rng = np.random.default_rng(0)
    a, b = (
        {f"n{i}": float(v) for i, v in enumerate(rng.uniform(size=20))} for _ in "ab"
    )
    rows = [compare({"a": a, "b": b}, baseline="a", seed=7) for _ in "xy"]
    assert rows[0] == rows[1]


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(UsageError, match="same needs"):
        differences({"n1": 1.0}, {"n1": 1.0, "n2": 0.0})
    with pytest.raises(UsageError, match="same needs"):
        differences({}, {})
    with pytest.raises(UsageError, match="'x'"):
        compare({"a": {"n": 1.0}}, baseline="x", seed=1)
