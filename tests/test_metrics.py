"""The measures against ten-line references, a brute force, and their own properties."""

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from vid2context.core import Span, UsageError
from vid2context.judgements import GoldenQuery, Hit, JudgedMoment, make_run
from vid2context.metrics import (
    AD_HOC,
    IOU_STEPS,
    KNOWN_ITEM,
    LENGTHS,
    auroc,
    best_iou,
    count_abstention,
    first_iou,
    hit_within,
    interpolated_precision,
    mean_scores,
    moment_measures,
    moment_precision,
    moment_scores,
    rank_scores,
    start_distance_s,
    trap_count,
    video_run,
    wilson_interval,
)

pytest.importorskip("ir_measures")

Reference = Callable[[Sequence[str], dict[str, int]], float]


def ndcg_10(docs: Sequence[str], grades: dict[str, int]) -> float:
    def gain(values: Sequence[int]) -> float:
        return sum(g / math.log2(i + 2) for i, g in enumerate(values[:10]))

    best = gain(sorted(grades.values(), reverse=True))
    return gain([grades.get(d, 0) for d in docs]) / best if best else 0.0


def precision_5(docs: Sequence[str], grades: dict[str, int]) -> float:
    return sum(grades.get(d, 0) >= 2 for d in docs[:5]) / 5


def reciprocal_10(docs: Sequence[str], grades: dict[str, int]) -> float:
    right = [i for i, d in enumerate(docs[:10], start=1) if grades.get(d, 0) >= 2]
    return 1 / right[0] if right else 0.0


def recall_50(docs: Sequence[str], grades: dict[str, int]) -> float:
    right = {d for d, g in grades.items() if g >= 2}
    return len(right & set(docs[:50])) / len(right) if right else 0.0


def judged_10(docs: Sequence[str], grades: dict[str, int]) -> float:
    return sum(d in grades for d in docs[:10]) / len(docs[:10]) if docs else 0.0


def success(k: int) -> Reference:
    return lambda docs, grades: float(any(grades.get(d, 0) >= 2 for d in docs[:k]))


REFERENCES: dict[str, Reference] = {
    "nDCG@10": ndcg_10,
    "P(rel=2)@5": precision_5,
    "RR(rel=2)@10": reciprocal_10,
    "R(rel=2)@50": recall_50,
    "Judged@10": judged_10,
    "Success(rel=2)@1": success(1),
    "Success(rel=2)@5": success(5),
}


def random_case(
    rng: np.random.Generator,
) -> tuple[dict[str, list[str]], dict[str, dict[str, int]]]:
    run, qrels = {}, {}
    for q in range(12):
        pool = [f"d{i}" for i in range(int(rng.integers(1, 80)))]
        share = rng.uniform(0.1, 1)
        grades = {d: int(rng.integers(0, 4)) for d in pool if rng.random() < share}
        qrels[f"q{q}"] = {**grades, "only-judged": int(rng.integers(2, 4))}
        if rng.random() < 0.8:
            order = list(rng.permutation(pool))
            run[f"q{q}"] = [str(d) for d in order[: int(rng.integers(0, 100))]]
    return run, qrels


def test_every_reported_measure_has_a_reference() -> None:
    assert set(REFERENCES) == {*AD_HOC, *KNOWN_ITEM}


@pytest.mark.parametrize("seed", range(20))
def test_ir_measures_agree_with_ten_line_references(seed: int) -> None:
    run, qrels = random_case(np.random.default_rng(seed))
    scores = rank_scores(run, qrels, measures=list(REFERENCES))
    for name, reference in REFERENCES.items():
        wanted = {q: reference(run.get(q, []), qrels[q]) for q in qrels}
        assert scores[name] == pytest.approx(wanted, abs=1e-12), name


def test_a_query_absent_from_the_run_counts_as_zero() -> None:
    scores = rank_scores({"a": ["d"]}, {"a": {"d": 3}, "b": {"d": 3}})
    assert mean_scores(scores)["nDCG@10"] == 0.5


def test_an_unknown_query_is_an_error() -> None:
    with pytest.raises(UsageError, match="'c'"):
        rank_scores({"c": ["d"]}, {"a": {"d": 3}})


@pytest.mark.parametrize("name", ["nDGC@10", "", "nDCG@", "__import__('os')", "RR("])
def test_an_unknown_measure_is_an_error(name: str) -> None:
    with pytest.raises(UsageError):
        rank_scores({}, {"a": {"d": 3}}, measures=[name])


def test_the_mean_over_no_query_is_not_a_zero() -> None:
    assert math.isnan(mean_scores({"x": {}})["x"])


def test_importing_metrics_does_not_import_ir_measures() -> None:
    code = "import sys, vid2context.metrics; sys.exit('ir_measures' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def random_moments(rng: np.random.Generator) -> tuple[list[Hit], GoldenQuery]:
    def span() -> tuple[str, float, float]:
        start, length = round(rng.uniform(0, 90), 3), round(rng.uniform(1, 60), 3)
        return f"v{rng.integers(2)}", start, round(start + length, 3)

    truths = []
    for _ in range(int(rng.integers(1, 6))):
        video, start, end = span()
        grade = int(rng.integers(2, 4))
        truths.append(JudgedMoment(video_id=video, start=start, end=end, grade=grade))
    hits = []
    for _ in range(int(rng.integers(0, 14))):
        if truths and rng.random() < 0.5:
            near = truths[int(rng.integers(len(truths)))]
            video, start = near.video_id, max(0.0, near.start + rng.uniform(-4, 4))
            end = max(start + 1, near.end + rng.uniform(-4, 4))
        else:
            video, start, end = span()
        hits.append(Hit("s", video, Span(round(start, 3), round(end, 3))))
    query = GoldenQuery(query_id="q", query="x", relevant=tuple(truths))
    return hits, query


def brute_precision(hits: Sequence[Hit], query: GoldenQuery, length: str) -> float:
    "Interpolated AP straight from its definition, and a plain greedy match."
    low, high = LENGTHS[length]
    truths = [t for t in query.right if low < t.end - t.start <= high]
    values = []
    for threshold in [round(0.5 + 0.05 * i, 2) for i in range(10)]:
        taken: set[int] = set()
        good = []
        for hit in hits[:10]:
            ious = {
                i: hit.span.iou(t.span)
                for i, t in enumerate(truths)
                if t.video_id == hit.video_id and i not in taken
            }
            best = max(ious, key=lambda i: (ious[i], -i), default=None)
            good.append(best is not None and ious[best] >= threshold)
            if good[-1] and best is not None:
                taken.add(best)
        points = [
            (sum(good[:k]) / len(truths), sum(good[:k]) / k)
            for k in range(1, len(good) + 1)
        ]
        area = 0.0
        for i, ok in enumerate(good):
            if ok:
                area += max(p for _, p in points[i:]) / len(truths)
        values.append(area)
    return sum(values) / 10


@pytest.mark.parametrize("seed", range(60))
def test_moment_precision_agrees_with_brute_force(seed: int) -> None:
    hits, query = random_moments(np.random.default_rng(seed))
    for length, (low, high) in LENGTHS.items():
        value = moment_precision(hits, query, length=length)
        has = any(low < t.end - t.start <= high for t in query.right)
        assert (value is not None) == has
        if value is not None:
            assert value == pytest.approx(brute_precision(hits, query, length))
            assert 0 <= value <= 1


def test_iou_steps_are_ten_from_half_to_nearly_one() -> None:
    assert len(IOU_STEPS) == 10 and IOU_STEPS[0] == 0.5 and IOU_STEPS[-1] == 0.95


@pytest.mark.parametrize("seed", range(40))
def test_iou_is_symmetric_and_bounded(seed: int) -> None:
    hits, query = random_moments(np.random.default_rng(seed))
    for hit, truth in itertools.product(hits, query.right):
        one, other = hit.span.iou(truth.span), truth.span.iou(hit.span)
        assert one == other and 0 <= one <= 1


@pytest.mark.parametrize("seed", range(40))
def test_shifting_all_times_changes_nothing(seed: int) -> None:
    hits, query = random_moments(np.random.default_rng(seed))

    def moved(moment: JudgedMoment) -> JudgedMoment:
        times = {"start": moment.start + 512, "end": moment.end + 512}
        return moment.model_copy(update=times)

    later = query.model_copy(update={"relevant": tuple(map(moved, query.relevant))})
    shifted = [
        Hit(h.source, h.video_id, Span(h.span.start_s + 512, h.span.end_s + 512))
        for h in hits
    ]
    before, after = (
        mean_scores(moment_scores({"q": found}, [asked]))
        for found, asked in ((hits, query), (shifted, later))
    )
    assert before == pytest.approx(after, nan_ok=True)
    runs = [
        make_run({"q": found}, [asked], source="s")
        for found, asked in ((hits, query), (shifted, later))
    ]
    scores = [mean_scores(rank_scores(run, qrels)) for run, qrels in runs]
    assert scores[0] == pytest.approx(scores[1])


@pytest.mark.parametrize("seed", range(40))
def test_a_duplicate_hit_never_raises_a_ranking_score(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hits, query = random_moments(rng)
    if not hits:
        return
    i = int(rng.integers(len(hits)))
    doubled = [*hits[: i + 1], hits[i], *hits[i + 1 :]]
    names = [name for name in REFERENCES if name != "Judged@10"]
    plain, copied = (
        mean_scores(
            rank_scores(*make_run({"q": h}, [query], source="s"), measures=names)
        )
        for h in (hits, doubled)
    )
    for name in names:
        assert copied[name] <= plain[name] + 1e-12, name


@pytest.mark.parametrize("place", range(1, 12))
def test_with_one_truth_moving_the_right_hit_up_never_lowers_a_score(
    place: int,
) -> None:
    truth = JudgedMoment(video_id="v", start=10, end=20)
    query = GoldenQuery(query_id="q", query="x", relevant=(truth,))
    wrong = [Hit("s", "w", Span(5 * i, 5 * i + 5)) for i in range(12)]
    right = Hit("s", "v", Span(11, 20))

    def scores(at: int) -> dict[str, float]:
        hits = [*wrong[:at], right, *wrong[at:]]
        run, qrels = make_run({"q": hits}, [query], source="s")
        ranked = rank_scores(run, qrels, measures=list(REFERENCES))
        moments = moment_scores({"q": hits}, [query])
        found = mean_scores({**ranked, **moments})
        return {k: v for k, v in found.items() if not math.isnan(v)}

    before, after = scores(place), scores(place - 1)
    assert all(after[name] >= before[name] - 1e-12 for name in before)


def test_a_frame_counts_as_one_second() -> None:
    truth = JudgedMoment(video_id="v", start=10, end=11)
    assert best_iou(Hit("s", "v", Span(10.5, 10.5)), [truth]) == 1.0


def test_a_hit_in_another_video_is_infinitely_far() -> None:
    truth = JudgedMoment(video_id="v", start=10, end=11)
    assert start_distance_s(Hit("s", "w", Span(10, 11)), [truth]) == math.inf


def test_distance_counts_from_the_nearer_edge() -> None:
    truth = JudgedMoment(video_id="v", start=10, end=20)
    query = GoldenQuery(query_id="q", query="x", relevant=(truth,))
    for start, away in ((7.0, 3.0), (10.0, 0.0), (15.0, 0.0), (24.0, 4.0)):
        hit = Hit("s", "v", Span(start, start + 5))
        assert start_distance_s(hit, [truth]) == away
        assert hit_within([hit], query, k=1, within_s=away) == 1.0
        if away:
            assert hit_within([hit], query, k=1, within_s=away - 0.01) == 0.0


def test_no_hits_score_zero_everywhere() -> None:
    truth = JudgedMoment(video_id="v", start=10, end=20)
    query = GoldenQuery(query_id="q", query="x", relevant=(truth,))
    assert first_iou([], query, at_least=0.5) == 0.0
    assert interpolated_precision([], truths=1) == 0.0
    found = moment_scores({}, [query])
    assert {v for rows in found.values() for v in rows.values()} == {0.0}


def test_every_moment_measure_is_named_after_what_it_does() -> None:
    assert len(moment_measures()) == 2 + len(LENGTHS) + 6
    assert {"R1@IoU0.5", "mAP[short]", "hit@5±10s"} <= set(moment_measures())


def test_traps_on_a_right_moment_are_no_traps() -> None:
    right = JudgedMoment(video_id="v", start=10, end=20)
    trap = JudgedMoment(video_id="v", start=12, end=22)
    query = GoldenQuery(query_id="q", query="x", relevant=(right,), must_not=(trap,))
    assert trap_count([Hit("s", "v", Span(10, 20))], query) == 0
    assert trap_count([Hit("s", "v", Span(20.5, 22))], query) == 1


def test_video_run_ignores_unanswerable_queries_and_repeats() -> None:
    right = JudgedMoment(video_id="v", start=10, end=20)
    asked = [
        GoldenQuery(query_id="a", query="x", relevant=(right,)),
        GoldenQuery(query_id="b", query="y", kind="no_answer"),
    ]
    hits = [Hit("s", "w", Span(0, 5)), Hit("s", "v", Span(0, 5))] * 2
    run, qrels = video_run({"a": hits, "b": hits}, asked)
    assert run == {"a": ["w", "v"]} and qrels == {"a": {"v": 3}}


@pytest.mark.parametrize("seed", range(10))
def test_auroc_agrees_with_counting_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (list(rng.integers(0, 6, size=n) / 5) for n in (9, 7))
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x in a for y in b]
    assert auroc(a, b) == pytest.approx(sum(pairs) / len(pairs))
    assert math.isnan(auroc([], b))


def test_a_query_without_verdict_has_abstained() -> None:
    right = JudgedMoment(video_id="v", start=10, end=20)
    asked = [GoldenQuery(query_id="a", query="x", relevant=(right,))]
    assert count_abstention({}, asked).needless == 1
    with pytest.raises(UsageError, match="sure"):
        count_abstention({"a": "sure"}, asked)


# Newcombe (1998), table I, method 3: the score interval without correction.
@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_agrees_with_published_intervals(
    successes: int, n: int, low: float, high: float
) -> None:
    found = wilson_interval(successes, n)
    assert found == pytest.approx((low, high), abs=5e-5)


def test_wilson_holds_the_share_and_shrinks() -> None:
    for n in range(1, 60):
        for k in range(n + 1):
            low, high = wilson_interval(k, n)
            assert 0 <= low <= k / n <= high <= 1
    widths = [wilson_interval(n // 2, n) for n in (10, 50, 500)]
    assert [h - lo for lo, h in widths] == sorted(
        (h - lo for lo, h in widths), reverse=True
    )


@pytest.mark.parametrize("bad", [(-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0)])
def test_wilson_refuses_nonsense(bad: tuple[int, int, float]) -> None:
    with pytest.raises(UsageError):
        wilson_interval(bad[0], bad[1], level=bad[2])
