"""The golden set, the rule that turns hits into judged documents, and the files."""

import itertools
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vid2context.core import Span, UsageError, Vid2ContextError
from vid2context.golden_files import load_golden, read_trec
from vid2context.judgements import (
    GoldenQuery,
    Hit,
    JudgedMoment,
    credit,
    make_run,
    matches,
    moment_id,
    name_videos,
    parse_moment_id,
    read_golden,
    trec_qrels,
    trec_run,
)

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "data/golden/samples.jsonl"
CLIPS = ROOT / "data/clips/clips.json"


def row(**changes: Any) -> bytes:
    base = {
        "query_id": "q1",
        "need": "n1",
        "query": "where is the gear",
        "lang": "en",
        "kind": "speech",
        "holds": ["speech"],
        "form": "known_item",
        "relevant": [{"video_id": "v", "start": 1.0, "end": 9.0, "grade": 3}],
        "must_not": [],
        "judged": [],
    }
    return json.dumps(base | changes).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"query_id": ""},
        {"query_id": "a/b"},
        {"query_id": "a b"},
        {"query_id": 7},
        {"query": ""},
        {"query": None},
        {"kind": "taste"},
        {"kind": "no_answer"},
        {"relevant": []},
        {"holds": ["smell"]},
        {"form": "lost"},
        {"relevant": [{"video_id": "v", "start": 1, "end": 1.9}]},
        {"relevant": [{"video_id": "v", "start": -1, "end": 9}]},
        {"relevant": [{"video_id": "v", "start": 9, "end": 1}]},
        {"relevant": [{"video_id": "v", "start": "1", "end": 9}]},
        {"relevant": [{"video_id": "", "start": 1, "end": 9}]},
        {"relevant": [{"video_id": "v", "start": 1, "end": 9, "grade": 4}]},
        {"relevant": [{"video_id": "v", "start": 1, "end": 9, "grade": 2.5}]},
        {"relevant": [{"start": 1, "end": 9}]},
        {"relevant": [7]},
        {"relevant": {"video_id": "v"}},
        {"must_not": [{"video_id": "v", "start": 1, "end": 1}]},
    ],
)
def test_a_broken_query_names_its_line(changes: dict[str, Any]) -> None:
    data = row(query_id="q0") + b"\n" + row(**changes)
    with pytest.raises(Vid2ContextError, match="line 2") as caught:
        read_golden(data)
    assert caught.value.code == "golden_invalid"


@pytest.mark.parametrize(
    "data", [b"{", b'{"a": 1, "a": 2}', b"\xff\xfe", b'{"a": NaN}']
)
def test_what_is_no_json_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(Vid2ContextError):
        read_golden(data)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused_with_a_code(data: bytes) -> None:
    try:
        read_golden(data)
    except Vid2ContextError as error:
        assert error.code


def test_a_query_id_stands_once() -> None:
    with pytest.raises(Vid2ContextError, match="twice"):
        read_golden(row() + b"\n" + row())


def test_a_missing_need_is_the_set_of_spans() -> None:
    spans = [
        {"video_id": "b", "start": 5, "end": 9},
        {"video_id": "a", "start": 1, "end": 3},
    ]
    one, other = (
        read_golden(row(need="", relevant=list(order)))[0].need
        for order in (spans, spans[::-1])
    )
    assert one == other and re.fullmatch(r"[A-Za-z0-9._-]+", one)


def test_unknown_keys_are_ignored_as_external_sets_have_them() -> None:
    assert read_golden(row(source_page="x"))[0].query_id == "q1"


names = st.text(min_size=1, max_size=20)
clocks = st.integers(0, 10**8)


@given(names, names, clocks, clocks)
def test_moment_ids_are_reversible_and_without_white_space(
    source: str, video: str, one: int, other: int
) -> None:
    start, end = sorted((one, other))
    try:
        (source + video).encode()
    except UnicodeEncodeError:
        return
    hit = Hit(source, video, Span(start / 1000, end / 1000))
    text = moment_id(hit)
    assert re.fullmatch(r"[A-Za-z0-9._%-]+:[A-Za-z0-9._%-]+#\d+-\d+", text)
    assert parse_moment_id(text) == hit


@pytest.mark.parametrize(
    "text", ["", "a:b", "a:b#1", "a b:c#1-2", "a:b#x-2", "a:b#1-2 "]
)
def test_other_ids_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment_id(text)


quarters = st.integers(0, 240)


@given(quarters, quarters, quarters, quarters)
def test_matching_is_half_of_the_shorter(a: int, b: int, c: int, d: int) -> None:
    (a, b), (c, d) = sorted((a, b)), sorted((c, d))
    if b - a < 4 or d - c < 4:
        return
    overlap = len(set(range(a, b)) & set(range(c, d)))
    wanted = 2 * overlap >= min(b - a, d - c)
    assert matches(Span(a / 4, b / 4), Span(c / 4, d / 4)) == wanted


def query(*moments: tuple[str, float, float, int]) -> GoldenQuery:
    found = tuple(
        JudgedMoment.model_validate(dict(video_id=v, start=s, end=e, grade=g))
        for v, s, e, g in moments
    )
    return GoldenQuery(query_id="q", query="x", relevant=found)


def test_the_better_grade_wins_then_iou_then_the_earlier_start() -> None:
    hit = Hit("s", "v", Span(10, 20))
    graded = query(("v", 10, 20, 2), ("v", 12, 24, 3))
    assert credit([hit], graded)[0].docid == "s:v#12000-24000"
    closer = query(("v", 12, 24, 3), ("v", 11, 20, 3))
    assert credit([hit], closer)[0].docid == "s:v#11000-20000"
    mirrored = query(("v", 12, 22, 3), ("v", 8, 18, 3))
    assert credit([hit], mirrored)[0].docid == "s:v#8000-18000"


def test_one_truth_credits_one_hit_and_a_second_costs() -> None:
    asked = query(("v", 10, 20, 3))
    hits = [Hit("s", "v", Span(10, 19)), Hit("s", "v", Span(11, 20))]
    assert [r.grade for r in credit(hits, asked)] == [3, 0]


def test_the_same_hit_twice_never_takes_two_truths() -> None:
    asked = query(("v", 10, 20, 3), ("v", 12, 22, 3))
    hit = Hit("s", "v", Span(11, 21))
    assert [r.grade for r in credit([hit, hit], asked)] == [3, 0]


def test_another_video_never_matches() -> None:
    asked = query(("v", 10, 20, 3))
    rows = credit([Hit("s", "w", Span(10, 20))], asked)
    assert [r.grade for r in rows] == [None]


def test_credited_ids_are_unique() -> None:
    rng = random.Random(5)
    for _ in range(200):
        spots = [(rng.randrange(40), rng.randrange(1, 20)) for _ in range(12)]
        asked = query(*(("v", s, s + n, 3) for s, n in spots[:4]))
        hits = [Hit("s", "v", Span(s, s + n)) for s, n in spots for _ in "ab"]
        rows = credit(hits, asked)
        assert len({r.docid for r in rows}) == len(rows) == len(hits)
        assert sum((r.grade or 0) >= 2 for r in rows) <= len(asked.right)


def test_run_files_hold_falling_integers_and_no_unanswerable_query() -> None:
    none = GoldenQuery(query_id="z", query="y", kind="no_answer")
    hits = [Hit("s", "v", Span(2 * i, 2 * i + 2)) for i in range(130)]
    results = {"q": hits, "z": hits}
    run, qrels = make_run(results, [query(("v", 10, 12, 3)), none], source="s")
    rows = [line.split() for line in trec_run(run, tag="t").decode().splitlines()]
    assert [r[4] for r in rows] == [str(101 - i) for i in range(1, 101)]
    assert {r[0] for r in rows} == {"q"} == set(qrels)


def test_truths_nobody_found_are_in_the_qrels() -> None:
    _, qrels = make_run({}, [query(("v", 10, 12, 3))], source="s")
    assert qrels == {"q": {"s:v#10000-12000": 3}}


def test_files_round_trip(tmp_path: Path) -> None:
    hits = [Hit("s", "v ä", Span(2 * i, 2 * i + 2)) for i in range(9)]
    run, qrels = make_run({"q": hits}, [query(("v ä", 10, 12, 3))], source="s")
    (tmp_path / "run.trec").write_bytes(trec_run(run, tag="t"))
    (tmp_path / "qrels.trec").write_bytes(trec_qrels(qrels))
    files = read_trec(tmp_path / "run.trec", tmp_path / "qrels.trec")
    assert (files.run, files.qrels, files.notes) == (run, qrels, ())


def test_the_shipped_golden_set_keeps_the_promised_counts() -> None:
    queries = read_golden(GOLDEN.read_bytes())
    kinds = [q.kind for q in queries]
    least = {
        "speech": 10,
        "on_screen": 8,
        "visual": 8,
        "temporal": 6,
        "cross_video": 6,
        "paraphrase": 6,
        "cross_lingual": 6,
        "no_answer": 8,
    }
    assert len(queries) >= 58
    assert {k for k, n in least.items() if kinds.count(k) < n} == set()
    near = [q for q in queries if q.kind == "no_answer" and q.must_not]
    assert len(near) >= 4
    lingual = {q.lang for q in queries if q.kind == "cross_lingual"}
    assert lingual == {"en", "es"}


def test_golden_queries_name_shipped_clips_inside_their_length() -> None:
    clips = json.loads(CLIPS.read_text())
    queries = read_golden(GOLDEN.read_bytes())
    named = name_videos(queries, {k: v["video_id"] for k, v in clips.items()})
    for before, after in zip(queries, named, strict=True):
        for old, new in zip(before.relevant, after.relevant, strict=True):
            truth = json.loads(
                (CLIPS.parent / f"{old.video_id}.truth.json").read_text()
            )
            assert new.video_id.startswith("local-")
            assert new.end <= truth["duration_s"] + 1e-6
    with pytest.raises(Vid2ContextError, match="No video"):
        name_videos(queries, {})


def test_the_shipped_qrels_are_those_of_the_golden_set() -> None:
    queries = read_golden(GOLDEN.read_bytes())
    _, qrels = make_run({}, queries, source="samples")
    assert trec_qrels(qrels) == (ROOT / "data/qrels/samples.trec").read_bytes()


def test_a_perfect_run_over_the_golden_set_is_perfect() -> None:
    for asked in read_golden(GOLDEN.read_bytes()):
        best = sorted(asked.relevant, key=lambda m: -m.grade)
        hits = [Hit("samples", m.video_id, m.span) for m in best]
        grades = [r.grade for r in credit(hits, asked)]
        assert grades == [m.grade for m in best]


@pytest.mark.skipif(
    "VID2CONTEXT_REAL_DATA" not in os.environ, reason="VID2CONTEXT_REAL_DATA is not set"
)
def test_an_external_set_is_read_by_the_same_code() -> None:
    folder = Path(os.environ["VID2CONTEXT_REAL_DATA"]) / "retrieval/tutorialvqa"
    found = sorted(folder.rglob("*queries*.jsonl"))
    assert found
    queries = list(
        itertools.chain.from_iterable(read_golden(p.read_bytes()) for p in found[:1])
    )
    assert len(queries) > 100
    assert len({q.need for q in queries}) < len(queries)


def test_a_truth_is_one_document_whatever_source_found_it() -> None:
    golden = [query(("v", 10, 12, 3), ("w", 20, 30, 2))]
    hits = [Hit("s2", "w", Span(21, 29)), Hit("s1", "v", Span(10, 12))]
    run, qrels = make_run({"q": hits}, golden, source="s1")
    assert qrels["q"] == {"s1:v#10000-12000": 3, "s2:w#20000-30000": 2}
    assert set(run["q"]) == set(qrels["q"])


def test_a_copy_never_takes_the_id_of_a_truth() -> None:
    golden = [query(("v", 10, 20, 3), ("v", 12, 18, 2))]
    hits = [Hit("s", "v", Span(12, 18))] * 2
    run, qrels = make_run({"q": hits}, golden, source="s")
    assert run["q"] == ["s:v#10000-20000", "s:v#12000-18000~2"]
    assert qrels["q"]["s:v#12000-18000"] == 2
    assert qrels["q"]["s:v#12000-18000~2"] == 0


RIGHT = {"video_id": "v", "start": 1.0, "end": 9.0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"judged": [RIGHT]}, "grade: needs its grade"),
        ({"judged": [RIGHT | {"grad": 0}]}, "grad: is no key; write 'grade'"),
        ({"relevent": []}, "relevent: is no key; write 'relevant'"),
        ({"relevant": [RIGHT | {"grade": True}]}, "grade: is 0, 1, 2 or 3"),
        ({"relevant": [RIGHT | {"grade": 0}]}, "grade: is 1, 2 or 3"),
        ({"relevant": [RIGHT, RIGHT]}, "start: is there twice"),
        ({"relevant": [RIGHT | {"end": 10**400, "start": 0.5}]}, "beyond any video"),
    ],
)
def test_rows_that_would_change_a_score_in_silence_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    (tmp_path / "g.jsonl").write_bytes(row(**changes))
    with pytest.raises(Vid2ContextError) as error:
        load_golden(tmp_path / "g.jsonl")
    assert said in error.value.message and "g.jsonl:1" in error.value.message


def test_other_keys_pass(tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_bytes(row(annotator="ana", source_url="x"))
    assert len(load_golden(tmp_path / "g.jsonl").queries) == 1


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "g.jsonl").write_bytes(row(query="über").decode().encode("utf-16"))
    with pytest.raises(Vid2ContextError, match=r"g.jsonl: The file is not UTF-8"):
        load_golden(tmp_path / "g.jsonl")
