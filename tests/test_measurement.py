"""Stored lists, replays, runs, grids, pools and causes, beyond their lessons."""

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_kit import WordModel

from vid2context.abstention import abstention_row
from vid2context.catalog import Catalog
from vid2context.core import Span, UsageError, Vid2ContextError, install_hint
from vid2context.experiments import evaluate
from vid2context.failures import find_cause
from vid2context.golden_files import GoldenSet, check_videos, load_golden, read_trec
from vid2context.grids import code_digest, grid, run_grid, tune
from vid2context.indexes import open_indexes
from vid2context.ingest import Models
from vid2context.judgements import GoldenQuery, Hit
from vid2context.latency import latency_row, percentile, percentile_interval
from vid2context.options import Retrieval, Settings, Sync, Transcript
from vid2context.outside_sets import load_external, read_highlights
from vid2context.pools import Decision, append_decision, make_pool, read_decisions
from vid2context.recordings import Spoken
from vid2context.replays import Answer, Configuration, replay
from vid2context.retrieval import Retriever
from vid2context.run_files import StoredRun, make_manifest, read_run, write_run
from vid2context.scoring import score_answers, summarise, tidy
from vid2context.service import Service
from vid2context.significance import sign_test
from vid2context.stored_lists import (
    collect_lists,
    read_lists,
    read_rows,
    rows_file,
    write_lists,
)
from vid2context.transcript_libraries import index_transcripts
from vid2context.workshop import blind_answers, chance_answers

ROOT = Path(__file__).resolve().parents[1]
pytest.importorskip("ir_measures")

TALKS = {
    "boats": ("the harbour opens at six", "fishermen mend their nets by hand"),
    "bread": ("knead the dough until it is smooth", "the oven must be very hot"),
    "tides": ("spring tides follow the full moon", "the moon pulls the sea"),
    "glue": ("hide glue lets go with warm water", "a modern glue holds for ever"),
}


def moment(video: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    return {"video_id": video, "start": start, "end": end, **more}


def row(name: str, text: str, *relevant: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"query_id": name, "query": text, "relevant": list(relevant), **more}


ROWS = [
    row("q1", "when does the harbour open", moment("boats", 0, 9)),
    row("q2", "smooth dough", moment("bread", 0, 9)),
    row("q3", "who pulls the sea", moment("tides", 10, 19)),
    row(
        "q4",
        "glue and warm water",
        moment("glue", 0, 9),
        must_not=[moment("glue", 40, 49)],
    ),
    row("q5", "price of a train ticket", kind="no_answer"),
]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenSet:
    return load_golden(write_rows(tmp_path_factory.mktemp("g") / "talks.jsonl", ROWS))


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Retriever]:
    "A real library of four talks of four minutes, searched by words and by vectors."
    home, model = tmp_path_factory.mktemp("library") / "home", WordModel()
    talks = {
        name: [Spoken(10.0 * i, 10.0 * i + 9, lines[i % 2]) for i in range(24)]
        for name, lines in TALKS.items()
    }
    settings = Sync(window_s=10.0)
    index_transcripts(home, talks, models=Models(embedder=model), settings=settings)
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        yield Retriever(catalog, indexes, embedder=model)


@pytest.fixture(scope="module")
def stored(retriever: Retriever, golden: GoldenSet):
    return collect_lists(retriever, golden.queries)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"weights": "fixed"},
        {"k": 5.0},
        {"reach_z": 0.0},
        {"moment_s": 15.0, "gap_s": 0.0},
    ],
    ids=str,
)
def test_a_replay_is_the_search_itself(retriever, golden, stored, changes) -> None:
    settings = replace(Retrieval(), **changes)
    real = Retriever(
        retriever.catalog,
        retriever.indexes,
        embedder=retriever.engine.embedder,
        settings=settings,
    )
    answers = replay(stored, Configuration("same", settings=settings))
    for query in golden.queries:
        found = real.search(query.query, top_k=100, abstain=False)
        told = real.search(query.query, top_k=1).relevance
        answer = answers[query.query_id]
        want = [(m.video_id, m.start_s, m.end_s, m.score) for m in found.moments]
        spans = [(h.video_id, h.span.start_s, h.span.end_s) for h in answer.hits]
        have = [(*s, score) for s, score in zip(spans, answer.scores, strict=True)]
        assert have == want
        assert (answer.verdict, answer.confidence) == (told.verdict, told.confidence)


def test_a_replay_of_one_channel_is_the_search_of_one_channel(
    retriever, stored
) -> None:
    answers = replay(stored, Configuration("words", channels=("lexical",)))
    found = retriever.search("smooth dough", channels=["lexical"], abstain=False)
    assert [m.score for m in found.moments] == list(answers["q2"].scores[:10])


def test_stored_lists_survive_the_disk_byte_for_byte(stored, tmp_path) -> None:
    write_lists(tmp_path / "a", stored)
    back = read_lists(tmp_path / "a")
    assert (back, back.digest) == (stored, stored.digest)
    write_lists(tmp_path / "b", back)
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_no_text_of_a_video_is_in_stored_lists(stored, tmp_path) -> None:
    write_lists(tmp_path, stored)
    data = b"".join(
        gzip.decompress(path.read_bytes()) for path in tmp_path.glob("*.gz")
    )
    assert b"fishermen mend" not in data and b"modern glue" not in data


def test_two_processes_score_what_one_does(stored, golden, tmp_path) -> None:
    lines = grid(Configuration("g"), {"mode": ("fixed", "adaptive"), "k": (5.0, 60.0)})
    alone = run_grid(stored, golden, lines, workers=1, cache=tmp_path)
    kept = {path.name for path in tmp_path.iterdir()}
    both = run_grid(stored, golden, lines, workers=2)
    again = run_grid(stored, golden, lines, workers=1, cache=tmp_path)
    assert alone.equals(both) and alone.equals(again)
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert len(kept) == 4


def test_tuning_never_scores_a_need_with_a_row_chosen_by_it(stored, golden) -> None:
    lines = grid(Configuration("g"), {"k": (1.0, 60.0), "moment_s": (10.0, 60.0)})
    frame = run_grid(stored, golden, lines, workers=1)
    for need in dict.fromkeys(frame["need"]):
        lowered = frame.copy()
        mine = lowered["need"] == need
        lowered.loc[mine, "value"] = 1 - lowered.loc[mine, "value"]
        for seed in (1, 2):
            first = tune(frame, measure="nDCG@10", folds=4, seed=seed)
            second = tune(lowered, measure="nDCG@10", folds=4, seed=seed)
            fold = next(i for i in range(4) if need in _held(frame, seed, i))
            assert first.chosen[fold] == second.chosen[fold]


def _held(frame, seed: int, fold: int) -> set[str]:
    from vid2context.grids import fold_needs

    dealt = fold_needs(frame["need"], folds=4, seed=seed)
    return {need for need, i in dealt.items() if i == fold}


def test_an_evaluation_runs_from_library_to_disk(retriever, golden, tmp_path) -> None:
    done = evaluate(retriever, golden, settings=Settings(), run="first")
    back = read_run(done.write(tmp_path))
    assert back.answers.keys() == done.run.answers.keys()
    assert score_answers(back.answers, golden) == score_answers(
        done.run.answers, golden
    )
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert {"manifest.json", "run.trec", "qrels.trec", "run.jsonl.gz"} <= names


def test_run_files_have_strictly_falling_whole_scores(
    retriever, golden, tmp_path
) -> None:
    done = evaluate(retriever, golden, settings=Settings(), run="first")
    lines = (done.write(tmp_path) / "run.trec").read_text().splitlines()
    by_query: dict[str, list[int]] = {}
    for line in lines:
        query, _, _, rank, score, tag = line.split()
        assert (int(score), tag) == (101 - int(rank), "first")
        by_query.setdefault(query, []).append(int(score))
    assert all(s == sorted(set(s), reverse=True) for s in by_query.values())
    assert "q5" not in by_query
    files = read_trec(tmp_path / "first/run.trec", tmp_path / "first/qrels.trec")
    assert files.notes == ()


def test_the_manifest_names_input_and_not_the_machine(golden) -> None:
    facts = {"golden": golden, "settings": Settings(), "configuration": {}, "index": {}}
    one = make_manifest("a", seed=1, machine={"cpu": "x"}, **facts)
    two = make_manifest("a", seed=1, machine={"cpu": "y"}, timings={"s": 3}, **facts)
    assert one["digest"] == two["digest"]
    assert make_manifest("a", seed=2, **facts)["digest"] != one["digest"]
    other = {**facts, "golden": replace(golden, sha256="1" * 64)}
    assert make_manifest("a", seed=1, **other)["digest"] != one["digest"]


def test_a_manifest_says_no_secret_and_no_place(golden, tmp_path) -> None:
    usual = Settings()
    changed = replace(
        usual,
        retrieval=Retrieval(k=7.0),
        evaluation=replace(usual.evaluation, external_sets=str(tmp_path)),
        providers=replace(usual.providers, model_folder=str(Path.home() / "model")),
    )
    manifest = make_manifest(
        "a", golden=golden, settings=changed, configuration={}, index={}, seed=1
    )
    text = json.dumps(manifest)
    assert str(tmp_path) not in text and str(Path.home()) not in text
    assert manifest["settings"]["changed"]["retrieval.k"] == 7.0
    assert manifest["settings"]["changed"]["evaluation.external_sets"] == "set"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([ROWS[0], {**ROWS[0]}], "t.jsonl:2: query_id 'q1' stands already in line 1"),
        ([{**ROWS[0], "query_id": "a b"}], "t.jsonl:1: query_id: needs letters"),
        ([row("q", "x", moment("v", -2, 9))], "t.jsonl:1: relevant[0].start"),
        ([row("q", "x", moment("v", 9, 2))], "t.jsonl:1: relevant[0].end"),
        ([row("q", "x", moment("v", 1, 1.5))], "t.jsonl:1: relevant[0].end"),
        ([row("q", "x")], "t.jsonl:1: relevant: is empty exactly when"),
        ([row("q", "x", moment("v", 1, 9, grade=7))], "t.jsonl:1: relevant[0].grade"),
        ([], "t.jsonl:1: the file holds no query"),
    ],
)
def test_a_bad_golden_set_is_named_by_file_and_line(tmp_path, rows, said) -> None:
    with pytest.raises(Vid2ContextError) as error:
        load_golden(write_rows(tmp_path / "t.jsonl", rows))
    assert error.value.code == "golden_invalid" and said in error.value.message


def test_every_defect_of_a_golden_set_is_told_at_once(tmp_path) -> None:
    rows = [row("a b", "x", moment("v", 9, 2)), row("q", "", moment("v", 1, 9))]
    path = write_rows(tmp_path / "t.jsonl", rows)
    path.write_text(path.read_text() + "{not json\n")
    with pytest.raises(Vid2ContextError) as error:
        load_golden(path)
    told = error.value.message
    assert [f"t.jsonl:{n}: " in told for n in (1, 2, 3)] == [True] * 3


def test_a_missing_video_is_named_by_file_and_line(golden) -> None:
    with pytest.raises(Vid2ContextError) as error:
        check_videos(golden, {"boats", "bread", "glue"})
    assert error.value.code == "video_missing"
    assert error.value.message == (
        "1 of 4 videos is not in this library "
        "(talks.jsonl:3: 'tides'); "
        "is --home right, and does --ids name the clips?"
    )


def test_many_missing_videos_are_one_sentence(golden) -> None:
    with pytest.raises(Vid2ContextError) as error:
        check_videos(golden, {"bread"})
    assert "3 of 4 videos are not" in error.value.message
    assert error.value.message.count("talks.jsonl:") == 3


@pytest.mark.parametrize(
    "ask",
    [
        lambda desk, at: desk.evaluate(at / "none.jsonl"),
        lambda desk, at: desk.compare(["a", "b"], runs=at),
    ],
)
def test_without_the_measures_nothing_is_asked(ask, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(UsageError) as error:
        ask(Service(tmp_path / "home"), tmp_path)
    assert error.value.code == "extra_not_installed"
    assert "ir_measures" in error.value.message
    assert install_hint("lab") in error.value.message


@pytest.mark.parametrize(
    ("run", "qrels", "said"),
    [
        ("q9 Q0 a 1 5 x\n", "q1 0 a 3\n", "run.trec:1: no judgement for query 'q9'"),
        ("q1 Q0 a 1 5 x\n", "q1 0 a b 3\n", "qrels.trec:1: 5 columns, not 4"),
        ("q1 Q0 a 1 five x\n", "q1 0 a 3\n", "run.trec:1: 'five' is no number"),
        ("q1 Q0 a 1 nan x\n", "q1 0 a 3\n", "run.trec:1: 'nan' is no number"),
        (
            "q1 Q0 a 1 5 x\nq1 Q0 a 2 4 x\n",
            "q1 0 a 3\n",
            "run.trec:2: 'a' stands twice",
        ),
        (
            "q1 Q0 a 1 5 x\n",
            "q1 0 a 3\nq1 0 a 0\n",
            "qrels.trec:2: 'a' is judged twice",
        ),
        ("", "q1 0 a 3\n", "run.trec:1: the file holds no row"),
        ("q1 Q0 a 1 x t\n", "q1 0 a 3\n", "run.trec:1: 'x' is no number"),
        ("q1 Q0 a 1 inf t\n", "q1 0 a 3\n", "run.trec:1: 'inf' is no number"),
        ("q1 Q0 a 1\n", "q1 0 a 3\n", "run.trec:1: 4 columns, not 6"),
        (
            "q1 Q0 a 1 5 x\n",
            "q1 0 a 1.5\n",
            "qrels.trec:1: grade '1.5' is no whole number",
        ),
        ("q1 Q0 a 1 5 x\n", "q1 0 a 1e999\n", "qrels.trec:1: '1e999' is no number"),
    ],
)
def test_bad_trec_files_are_named_by_file_and_line(tmp_path, run, qrels, said) -> None:
    (tmp_path / "run.trec").write_text(run)
    (tmp_path / "qrels.trec").write_text(qrels)
    with pytest.raises(Vid2ContextError) as error:
        read_trec(tmp_path / "run.trec", tmp_path / "qrels.trec")
    assert said in error.value.message


def test_judgements_without_a_golden_query_are_named(tmp_path) -> None:
    (tmp_path / "run.trec").write_text("q1 Q0 a 1 5 x\n")
    (tmp_path / "qrels.trec").write_text("q1 0 a 3\nq8 0 a 3\n")
    with pytest.raises(Vid2ContextError, match=r"qrels.trec:2: query 'q8' is judged"):
        read_trec(tmp_path / "run.trec", tmp_path / "qrels.trec", queries=["q1"])


def test_ties_are_told_and_rows_decide(tmp_path) -> None:
    (tmp_path / "run.trec").write_text("q1 Q0 z 1 5 x\nq1 Q0 a 2 5 x\n")
    (tmp_path / "qrels.trec").write_text("q1 0 a 3\nq2 0 a 3\n")
    files = read_trec(tmp_path / "run.trec", tmp_path / "qrels.trec")
    assert files.run == {"q1": ["z", "a"]}
    assert "1 tied scores" in files.notes[0] and "'q2' has no row" in files.notes[1]


def test_an_empty_run_is_an_error(golden, tmp_path) -> None:
    manifest = make_manifest(
        "a", golden=golden, settings=Settings(), configuration={}, index={}, seed=1
    )
    write_run(tmp_path, StoredRun("a", manifest, {}), golden, source="s")
    with pytest.raises(Vid2ContextError, match="holds no query"):
        read_run(tmp_path)


def test_a_query_without_hits_scores_zero_and_a_lost_measure_is_missing(golden) -> None:
    nothing = Answer((), (), "low", 0.0, None, {}, ())
    frame = tidy({"none": {"q1": nothing}}, golden)
    mean = summarise(frame, measures=["nDCG@10", "mAP[long]"], seed=1)
    assert mean["mean"].tolist()[0] == 0.0
    assert mean["n"].tolist() == [4, 0] and mean["mean"].isna().tolist()[1]


def test_one_assessor_is_enough_and_two_are_told_apart(tmp_path) -> None:
    path, docid = tmp_path / "d.jsonl", "s:v#0-9000"
    append_decision(path, Decision("q1", docid, 3, "ana", 1.0))
    assert len(read_decisions(path)) == 1
    with pytest.raises(Vid2ContextError, match="grade 4 is not"):
        append_decision(path, Decision("q1", docid, 4, "ana", 1.0))
    assert len(path.read_text().splitlines()) == 1


def test_a_pool_hides_rank_and_run(golden) -> None:
    hits = tuple(Hit("s", "boats", Span(20.0 * i, 20.0 * i + 9)) for i in range(8))
    answer = Answer(hits, tuple(range(8, 0, -1)), "low", 1.0, None, {}, ({},) * 8)
    pool = make_pool({"a": {"q1": answer}}, golden, seed=5)
    assert [e.start_s for e in pool] != [h.span.start_s for h in hits]
    assert {f for e in pool for f in vars(e)} == {
        "query_id", "query", "docid", "video_id", "start_s", "end_s",
    }  # fmt: skip


def test_floors_know_nothing_of_the_video(stored, golden, tmp_path) -> None:
    drawn = chance_answers(stored, golden.needs(), seed=3, count=5)
    assert all(len({(h.video_id, h.span) for h in a.hits}) == 5 for a in drawn.values())
    blind = blind_answers(
        {name: name for name in TALKS}, golden, folder=tmp_path / "i", source="s"
    )
    assert {len(answer.hits) for answer in blind.values()} == {0, 1}


def test_causes_follow_the_stages(stored, golden) -> None:
    query = golden.queries[0]
    answers = replay(stored, Configuration("words", channels=("lexical",)))
    assert find_cause(query, answers["q1"], stored, k=10) is None
    gone = query.model_copy(
        update={
            "relevant": (
                query.relevant[0].model_copy(update={"start": 900.0, "end": 909.0}),
            )
        }
    )
    assert find_cause(gone, answers["q1"], stored, k=5) == "not_sampled"


def test_an_outside_set_with_a_hole_is_named(tmp_path) -> None:
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "v.json").write_text('[{"start": 0}]')
    write_rows(tmp_path / "queries.jsonl", [row("q", "x", moment("v", 0, 9))])
    with pytest.raises(Vid2ContextError, match=r"v.json: item 1: 'end'"):
        load_external(tmp_path)


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(v) for v in range(1, 21)]
    assert (percentile(values, 0.95), percentile(values, 0.5)) == (19.0, 10.0)
    for ask in (
        lambda: percentile([], 0.5),
        lambda: percentile_interval([], 0.5, seed=1),
        lambda: latency_row([]),
    ):
        with pytest.raises(UsageError, match="There is no timing"):
            ask()


def test_the_outside_set_is_read_whole(real_data) -> None:
    folder = real_data / "retrieval" / "tutorialvqa"
    if not folder.is_dir():
        pytest.skip("the set is not there")
    found = load_external(folder, sample=500, seed=20260810)
    assert (len(found.golden.queries), len(found.transcripts)) == (500, 76)
    again = load_external(folder, sample=500, seed=20260810)
    assert [q.query_id for q in again.golden.queries] == [
        q.query_id for q in found.golden.queries
    ]


def test_golden_queries_without_an_answer_are_at_least_twenty() -> None:
    found = load_golden(ROOT / "data" / "golden" / "samples.jsonl").queries
    none = [query for query in found if not query.right]
    near = [query for query in none if query.must_not]
    assert len(none) >= 20 and len(near) >= 8
    assert all(isinstance(query, GoldenQuery) for query in found)


@pytest.fixture
def kept_run(retriever, golden, tmp_path):
    done = evaluate(retriever, golden, settings=Settings(), run="first")
    return done.write(tmp_path)


def rewrite(folder, change):
    "Change the rows of a run, as somebody who leaves the digests out."
    rows = read_rows(folder / "run.jsonl.gz")
    (folder / "run.jsonl.gz").write_bytes(gzip.compress(rows_file(change(rows))))
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[:2], r"first/run.jsonl.gz: it answers 2 of \d+ queries"),
        (lambda rows: [*rows, rows[0]], "is answered twice"),
        (lambda rows: [{**rows[0], "verdict": "banana"}], ":1: 'banana' is no verdict"),
        (lambda rows: [{"a": 1}], "first/run.jsonl.gz:1: the row is no answer"),
    ],
)
def test_a_run_that_was_changed_is_not_compared(kept_run, change, said) -> None:
    rewrite(kept_run, change)
    with pytest.raises(Vid2ContextError, match=said):
        read_run(kept_run)


def test_the_files_of_a_run_are_those_that_were_written(kept_run) -> None:
    assert read_run(kept_run).name == "first"
    for name in ("run.jsonl.gz", "golden.jsonl.gz", "qrels.trec", "run.trec"):
        data = (kept_run / name).read_bytes()
        (kept_run / name).write_bytes(data[:-1] + b"?")
        with pytest.raises(Vid2ContextError, match=rf"{name}: it is not what was"):
            read_run(kept_run)
        (kept_run / name).write_bytes(data)


@pytest.mark.parametrize("text", ["[]", "{}", '{"data": 3}', "{"])
def test_a_manifest_that_is_none_is_named(kept_run, text) -> None:
    (kept_run / "manifest.json").write_text(text)
    with pytest.raises(Vid2ContextError, match=r"first/manifest.json"):
        read_run(kept_run)


def test_a_manifest_says_no_place(golden) -> None:
    heard = Transcript(model="/home/alice/secret-models/whisper")
    settings = Settings(transcript=heard, sync=Sync(window_s=15.0))
    manifest = make_manifest(
        "a", golden=golden, settings=settings, configuration={}, index={}, seed=1
    )
    changed = manifest["settings"]["changed"]
    assert "alice" not in json.dumps(manifest)
    assert changed["transcript.model"].startswith("sha256:")
    assert changed["sync.window_s"] == 15.0
    assert manifest["data"]["licence"] is None


def test_a_part_of_a_set_has_scores_of_its_own(stored, golden, tmp_path) -> None:
    lines = [Configuration("g")]
    whole = run_grid(stored, golden, lines, workers=1, cache=tmp_path)
    few = replace(golden, queries=golden.queries[:2])
    part = run_grid(stored, few, lines, workers=1, cache=tmp_path)
    assert set(part["query_id"]) == {"q1", "q2"} < set(whole["query_id"])
    assert part.equals(run_grid(stored, few, lines, workers=1))


def test_damaged_scores_are_made_again(stored, golden, tmp_path) -> None:
    lines = grid(Configuration("g"), {"k": (5.0, 60.0)})
    first = run_grid(stored, golden, lines, workers=1, cache=tmp_path)
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    damage = (lambda d: d[:-9], lambda d: d[:12] + b"\xff" * 9 + d[21:], lambda d: b"")
    for spoil in damage:
        for path, data in whole.items():
            path.write_bytes(spoil(data))
        again = run_grid(stored, golden, lines, workers=1, cache=tmp_path)
        assert again.equals(first)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == whole


def test_scores_are_kept_for_one_state_of_the_code(tmp_path, monkeypatch) -> None:
    (tmp_path / "reach.py").write_text("REACH = 1\n")
    monkeypatch.setattr("vid2context.__file__", str(tmp_path / "__init__.py"))
    before = code_digest()
    (tmp_path / "reach.py").write_text("REACH = 2\n")
    assert code_digest() != before


def test_what_a_grid_cannot_do_is_refused(stored, golden) -> None:
    with pytest.raises(UsageError, match="'Fixed' is no mode"):
        grid(Configuration("g"), {"mode": ("Fixed",)})
    for pair in (("lexical", "nowhere"), ("nowhere", "lexical")):
        swapped = Configuration("g", swap=(pair,))
        with pytest.raises(UsageError, match="'nowhere', and there is no such list"):
            run_grid(stored, golden, [swapped], workers=1)
    with pytest.raises(UsageError, match="workers is 0"):
        run_grid(stored, golden, [Configuration("g")], workers=0)
    frame = run_grid(stored, golden, [Configuration("g")], workers=1)
    for folds in (0, 1):
        with pytest.raises(UsageError, match=f"folds is {folds}"):
            tune(frame, measure="nDCG@10", folds=folds, seed=1)


def outside(folder: Path, spoken: Any, *rows: Any) -> Path:
    "Write an outside set of one talk."
    (folder / "transcripts").mkdir(parents=True, exist_ok=True)
    (folder / "transcripts" / "v.json").write_text(json.dumps(spoken))
    text = "".join(one if isinstance(one, str) else json.dumps(one) for one in rows)
    (folder / "queries.jsonl").write_text(text)
    return folder


SAID = [{"start": 0, "end": 9, "text": "the harbour opens at six"}]
ASKED = {"query_id": "q", "query": "x", "relevant": [moment("v", 0, 9)]}


@pytest.mark.parametrize(
    ("spoken", "row", "said"),
    [
        (SAID, "", "queries.jsonl:1: the file holds no query"),
        (SAID, "{", "queries.jsonl:1: The file is not valid JSON"),
        (SAID, "[1]", "queries.jsonl:1: the line is no object"),
        (SAID, {"a": 1}, "queries.jsonl:1: query_id None is missing"),
        (SAID, ASKED | {"relevant": 5}, "queries.jsonl:1: relevant is no list"),
        (
            SAID,
            ASKED | {"relevant": [moment(["v"], 0, 9)]},
            "queries.jsonl:1: there is no transcript",
        ),
        (
            SAID,
            ASKED | {"relevant": [moment("v", -3, 9)]},
            "queries.jsonl:1: relevant",
        ),
        (SAID, ASKED | {"relevant": [moment("v", 0, 10**400)]}, "queries.jsonl:1"),
        ([], ASKED, "v.json:1: no list of start, end and text"),
        ({}, ASKED, "v.json:1: no list of start, end and text"),
        ([{**SAID[0], "start": "nan"}], ASKED, "v.json: item 1: 'nan' is no time"),
        ([{**SAID[0], "end": 10**400}], ASKED, "v.json: item 1: 1000"),
        ([{**SAID[0], "start": 20}], ASKED, "v.json: item 1: it ends at 9 s"),
        ([{**SAID[0], "text": None}], ASKED, "v.json: item 1: 'None' is no text"),
        (SAID, ASKED | {"relevant": [moment("v", 10**400, 9.5)]}, "queries.jsonl:1"),
    ],
)
def test_what_is_wrong_with_an_outside_set_is_named(
    tmp_path, spoken, row, said
) -> None:
    with pytest.raises(Vid2ContextError) as error:
        load_external(outside(tmp_path, spoken, row))
    assert said in error.value.message


@pytest.mark.parametrize("sample", [0, -1])
def test_a_sample_holds_a_query(tmp_path, sample) -> None:
    with pytest.raises(UsageError, match=f"sample is {sample}"):
        load_external(outside(tmp_path, SAID, ASKED), sample=sample)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "t.jsonl:1: the file holds no query"),
        ("{", "t.jsonl:1: The file is not valid JSON"),
        ('{"qid": null, "vid": "v", "query": "x", "relevant_windows": []}', "no id"),
        (
            '{"qid": 1, "vid": "v", "query": "x", "relevant_windows": ["05"]}',
            "'0' is no time",
        ),
        (
            '{"qid": 1, "vid": "v", "query": "x", "relevant_windows": [[0, 1e300]]}',
            "is no time in seconds",
        ),
    ],
)
def test_bad_rows_of_highlights_are_named(tmp_path, line, said) -> None:
    (tmp_path / "t.jsonl").write_text(line)
    with pytest.raises(Vid2ContextError) as error:
        read_highlights(tmp_path / "t.jsonl")
    assert "t.jsonl:1" in error.value.message and said in error.value.message


def test_a_transcript_that_left_its_set_is_not_searched(tmp_path) -> None:
    spoken = {name: [Spoken(0.0, 9.0, text)] for name, (text, _) in TALKS.items()}
    facts: Any = {"models": Models(), "settings": Sync(), "only": True}
    index_transcripts(tmp_path / "h", spoken, **facts)
    del spoken["boats"]
    index_transcripts(tmp_path / "h", spoken, **facts)
    with Catalog.open(tmp_path / "h") as catalog:
        held = {package.video_id for package in catalog.packages()}
    assert held == set(spoken)


def test_what_cannot_be_counted_is_missing(golden) -> None:
    def answer(verdict: str) -> Answer:
        return Answer((), (), verdict, 0.0, 0.0, {}, ())

    none = golden.queries[0].model_copy(
        update={"query_id": "n1", "need": "n1", "kind": "no_answer", "relevant": ()}
    )
    alone = replace(golden, queries=(none,))
    row_ = abstention_row({"n1": answer("low")}, alone, seed=1)
    assert row_["wrong answers"].startswith("0 of 1")
    assert row_["wrong, threshold of other folds"] == "–"
    assert row_["needless silence"] == row_["AUROC"] == "–"
    both = replace(golden, queries=(none, golden.queries[0]))
    mute = {"n1": answer("uncalibrated"), "q1": answer("uncalibrated")}
    assert set(abstention_row(mute, both, seed=1).values()) == {"–"}


def test_averages_of_one_need_and_of_no_kind(golden) -> None:
    hits = (Hit("s", golden.queries[0].relevant[0].video_id, Span(0.0, 9.0)),)
    answers = {"q1": Answer(hits, (1.0,), "low", 1.0, 1.0, {}, ({},))}
    one = replace(
        golden, queries=(golden.queries[0].model_copy(update={"kind": None}),)
    )
    frame = tidy({"a": answers}, one)
    told = summarise(frame, by=("kind",), seed=1).to_dict("records")
    assert {row_["n"] for row_ in told} == {1}
    assert all(row_["low"] != row_["low"] for row_ in told)
    silent = tidy({"a": {"q1": Answer((), (), "low", 0.0, 0.0, {}, ())}}, one)
    assert "Judged@10" not in set(silent["measure"])
    assert summarise(silent.iloc[:0], seed=1).empty


def test_a_difference_that_is_no_number_is_not_significant() -> None:
    with pytest.raises(UsageError, match="no number"):
        sign_test(np.array([float("nan"), 1.0, 1.0]), seed=1)


def test_a_decision_after_a_broken_row_is_kept(tmp_path) -> None:
    path = tmp_path / "d.jsonl"
    one = Decision("q1", "s:v#0-9000", 3, "Ana", 1.0)
    append_decision(path, one)
    path.write_bytes(path.read_bytes() + b'{"query_id": "q1", "do')
    append_decision(path, replace(one, docid="s:v#9000-18000"))
    lines = path.read_text().splitlines()
    assert len(lines) == 3 and json.loads(lines[2])["docid"] == "s:v#9000-18000"
    with pytest.raises(Vid2ContextError, match=r"d.jsonl:2: no JSON object; delete"):
        read_decisions(path)
    path.write_text("\n".join([lines[0], lines[2]]))
    assert len(read_decisions(path)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"query_id": ["q1"]},
        {"query_id": "q 1"},
        {"seconds": True},
        {"seconds": float("inf")},
        {"docid": f"s:v#{'9' * 5000}-1"},
        {"docid": f"s:v#0-{'9' * 5000}"},
        {"grade": True},
    ],
)
def test_odd_decisions_are_named(tmp_path, change) -> None:
    row_ = {"query_id": "q1", "docid": "s:v#0-9000", "grade": 3}
    row_ |= {"assessor": "Ana", "seconds": 1.0} | change
    (tmp_path / "d.jsonl").write_text(json.dumps(row_))
    with pytest.raises(Vid2ContextError, match=r"d.jsonl:1: "):
        read_decisions(tmp_path / "d.jsonl")


def test_deep_nesting_in_decisions_is_named(tmp_path) -> None:
    (tmp_path / "d.jsonl").write_text("[" * 100_000)
    with pytest.raises(Vid2ContextError, match=r"d.jsonl:1: "):
        read_decisions(tmp_path / "d.jsonl")
