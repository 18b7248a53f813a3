"Text index: hostile queries, folding, an independent BM25, ties, filters, damage."

import math
import random
import shutil
import time
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vid2context.text_index as module
from vid2context.core import UsageError, Vid2ContextError
from vid2context.folding import fold_tokens
from vid2context.records import Filters, TextRow
from vid2context.text_index import MAX_TERMS, TextIndex, build_text_index, query_terms

BLANK = TextRow(
    unit_id="",
    source="bakery",
    video="local-1",
    family="transcript",
    unit_type="transcript_window",
    evidence_class="direct",
    language=None,
    title="",
    heading_path="",
    content="",
    caption="",
    ocr="",
)


def made(folder, texts, **same):
    rows = [replace(BLANK, unit_id=i, content=t, **same) for i, t in texts.items()]
    build_text_index(folder, rows)
    return TextIndex.open(folder)


def found(index, query, **scope):
    return [unit for unit, _ in index.search(query, limit=10, **scope)]


PUNCTUATED = {
    "p1": "The parser is written in C++ and Rust.",
    "p2": "Grade C is enough to pass.",
    "p3": "See http://docs.example.net/guide/v2?page=3 for more.",
    "p4": "This is not a drill, or is it?",
    "p5": "Our hi-fi amplifier AX-707 hums.",
    "p6": "Release 3.1.0 (alpha) [notes] has ~slow^3 mode.",
    "p7": 'He wrote: "it\'s 12" tall".',
    "p8": "By 09:15 am some 40% had gone.",
    "p9": "Use /globs/ sparingly; remark: speaker and topic are columns.",
    "p10": "A path like x:y:z with a *mark* and ?sign.",
    "p11": "🎈 balloons rise",
    "p12": "Is it there? That is what counts.",
}


@pytest.fixture(scope="module")
def punctuated(tmp_path_factory):
    return made(tmp_path_factory.mktemp("text") / "p", PUNCTUATED)


@pytest.mark.parametrize(
    ("query", "wanted", "unwanted"),
    [
        ("C++", "p1", "p3"),
        ("http://docs.example.net/guide/v2?page=3", "p3", None),
        ("docs.example.net/guide", "p3", None),
        ("hi-fi", "p5", "p1"),
        ("amplifier: AX-707", "p5", None),
        ("3.1.0 (alpha)", "p6", None),
        ("[notes]", "p6", "p1"),
        ("~slow^3", "p6", None),
        ('12"', "p7", "p1"),
        ('"it\'s 12" tall"', "p7", None),
        ("09:15", "p8", "p1"),
        ("09:15 am", "p8", None),
        ("40%", "p8", "p1"),
        ("x:y:z", "p10", None),
        ("what's counted there, roughly?", "p12", None),
        ("parser (", "p1", "p2"),
        ("parser )", "p1", "p2"),
        ("parser \\", "p1", "p2"),
        ("'parser", "p1", "p2"),
        ("parser " * 3000, "p1", "p2"),
        ("🎈 balloons", "p11", "p1"),
        ("NOT drill", "p4", None),
        ("balloons xylophone", "p11", None),
    ],
)
def test_punctuation_is_plain_text(punctuated, query, wanted, unwanted):
    hits = found(punctuated, query)
    assert wanted in hits and unwanted not in hits


def test_a_language_with_signs_comes_first(punctuated):
    assert found(punctuated, "C++")[0] == "p1"
    assert found(punctuated, "c++")[0] == "p1"
    assert "c#" in fold_tokens("C#, not C")


@pytest.mark.parametrize("query", ["", "   ", "?!", "🎈", "(((", "\x00", "\ud800"])
def test_a_query_without_words_finds_nothing(punctuated, query):
    assert found(punctuated, query) == []
    assert punctuated.coverage(query) == 0.0
    assert punctuated.term_weights(query) == {}


@pytest.mark.parametrize(
    "query", ["speaker:", "{a TO b}", "a AND (", "+x -y", "^", "a:b"]
)
def test_operators_never_raise(punctuated, query):
    assert isinstance(found(punctuated, query), list)


@settings(
    max_examples=300,
    deadline=1000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text(max_size=200))
def test_no_text_at_all_raises(punctuated, query):
    found(punctuated, query)
    assert 0.0 <= punctuated.coverage(query) <= 1.0
    assert set(fold_tokens(query)) <= set(fold_tokens(query, index=True))


def test_long_queries_answer_within_a_second(punctuated):
    query = " ".join(f"word{i}" for i in range(3000)) + " parser"
    start = time.perf_counter()
    punctuated.search(query, limit=10)
    assert time.perf_counter() - start < 1
    assert len(query_terms(query)) == MAX_TERMS


WRITTEN = {
    "w1": "Pão de açúcar e crème brûlée",
    "w2": "大阪城へ歩きました",
    "w3": "火を止めてから砂糖を入れる",
    "w4": "Ёлка уже упала, Андрей.",
    "w5": "Der Großvater heißt Weiß.",
    "w6": "The ﬂour weighs ４５６ grams.",
    "w7": "설탕을 많이 넣어요",
    "w8": "IGLOOS IN İZMIR",
    "w9": "creme without marks",
    "w10": "ภาษาไทยง่าย",
    "w11": "tarte à l’orange",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return made(tmp_path_factory.mktemp("text") / "w", WRITTEN)


@pytest.mark.parametrize(
    ("query", "wanted", "unwanted"),
    [
        ("creme", "w1", None),
        ("CRÈME", "w9", None),
        ("crème", "w1", None),
        ("acucar", "w1", None),
        ("大阪", "w2", "w3"),
        ("砂糖", "w3", "w2"),
        ("城", "w2", "w3"),
        ("елка", "w4", None),
        ("grossvater", "w5", None),
        ("Großvater", "w5", None),
        ("flour", "w6", None),
        ("456", "w6", None),
        ("igloos", "w8", None),
        ("izmir", "w8", None),
        ("ไทย", "w10", None),
        ("l'orange", "w11", None),
        pytest.param(
            "설탕",
            "w7",
            None,
            marks=pytest.mark.xfail(
                reason="Korean words keep their particles; the vectors find them",
                strict=True,
            ),
        ),
    ],
)
def test_case_accents_and_scripts_fold(written, query, wanted, unwanted):
    hits = found(written, query)
    assert wanted in hits and unwanted not in hits


def test_both_spellings_meet(written):
    assert set(found(written, "creme")) == {"w1", "w9"}


def bm25(texts, query):
    "Score by the textbook, k1 = 1.2 and b = 0.75, without the index."
    bags = {unit: fold_tokens(text, index=True) for unit, text in texts.items()}
    mean = sum(map(len, bags.values())) / len(bags)
    scores = Counter()
    for term in dict.fromkeys(fold_tokens(query)):
        df = sum(term in bag for bag in bags.values())
        for unit, bag in bags.items():
            tf = bag.count(term)
            if tf:
                idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
                norm = 1.2 * (0.25 + 0.75 * len(bag) / mean)
                scores[unit] += idf * tf * 2.2 / (tf + norm)
    return scores


def test_scores_are_textbook_bm25(tmp_path):
    chance = random.Random(11)
    words = [f"w{i}" for i in range(60)]
    texts = {
        f"u{i:03d}": " ".join(chance.choices(words, k=chance.randint(3, 38)))
        for i in range(200)
    }
    index = made(tmp_path / "i", texts)
    for _ in range(20):
        query = " ".join(chance.choices(words, k=4))
        want = bm25(texts, query)
        got = dict(index.search(query, limit=500, fields=["content"]))
        assert got.keys() == want.keys()
        assert all(abs(got[unit] - want[unit]) < 2e-4 for unit in got)


def test_equals_are_cut_by_id(tmp_path):
    texts = {f"u{i:04d}": "same words here" for i in range(1500)}
    index = made(tmp_path / "i", dict(reversed(texts.items())))
    for limit in (1, 7, 50, 1499, 1500, 9000):
        assert [u for u, _ in index.search("words", limit=limit)] == sorted(texts)[
            :limit
        ]


def test_filters_narrow_and_never_score(tmp_path):
    chance = random.Random(5)
    rows = [
        replace(
            BLANK,
            unit_id=f"u{i:03d}",
            content=" ".join(chance.choices(["oven", "dough", "salt", "yeast"], k=9)),
            source=chance.choice("ab"),
            video=chance.choice(["v1", "v2", "v3"]),
            language=chance.choice(["en", "es", None]),
            family=chance.choice(["dossier", "transcript", "frame"]),
            unit_type=chance.choice(["x", "y"]),
            evidence_class=chance.choice(["direct", "visual", None]),
        )
        for i in range(300)
    ]
    build_text_index(tmp_path / "i", rows)
    index = TextIndex.open(tmp_path / "i")
    free = dict(index.search("yeast dough", limit=300, fields=["content"]))
    filters = Filters(sources=("a",), languages=("en", "es"), videos=("v1", "v3"))
    keep = {row.unit_id for row in rows[:200] if row.video != "v3"}
    want = {
        row.unit_id: free[row.unit_id]
        for row in rows
        if row.source == "a" and row.language and row.video == "v1"
        and row.family == "frame" and row.unit_id in keep and row.unit_id in free
    }  # fmt: skip
    scope = {"family": "frame", "filters": filters, "keep": keep}
    got = dict(index.search("yeast dough", limit=300, fields=["content"], **scope))
    assert got == want and want
    assert index.search("yeast", limit=5, keep=set()) == []
    assert index.coverage("yeast", keep=set()) == 0.0
    odd = {row.unit_id for row in rows[::2]}
    got = dict(index.search("yeast dough", limit=300, fields=["content"], keep=odd))
    assert got == {unit: free[unit] for unit in odd & free.keys()}


def test_a_query_is_stemmed_by_the_languages_in_scope(tmp_path):
    rows = [
        replace(BLANK, unit_id="en1", content="two boats sail", language="en-GB"),
        replace(BLANK, unit_id="es1", content="los barcos", language="es"),
        replace(BLANK, unit_id="ja1", content="boats", language="ja"),
    ]
    build_text_index(tmp_path / "i", rows)
    index = TextIndex.open(tmp_path / "i")
    assert found(index, "boat") == ["en1"]
    assert found(index, "barco") == ["es1"]
    assert found(index, "barco", filters=Filters(languages=("en-GB",))) == []
    assert set(found(index, "boats")) == {"en1", "ja1"}


def test_coverage_follows_its_formula(tmp_path):
    index = made(tmp_path / "i", {"a": "oven salt", "b": "oven dough", "c": "oven"})
    weigh = {
        t: math.log(4 / (n + 0.5)) for t, n in [("oven", 3), ("salt", 1), ("zinc", 0)]
    }
    assert index.term_weights("oven salt zinc") == pytest.approx(weigh)
    want = (weigh["oven"] + weigh["salt"]) / sum(weigh.values())
    assert index.coverage("oven salt zinc") == pytest.approx(want, abs=1e-5)
    assert index.matched_terms("zinc salt oven", "a") == ["salt", "oven"]
    assert index.matched_terms("zinc salt oven", "nobody") == []


def test_an_empty_index_answers(tmp_path):
    assert build_text_index(tmp_path / "i", []) == 0
    index = TextIndex.open(tmp_path / "i")
    assert len(index) == 0 and index.search("a", limit=5) == []
    assert index.coverage("a") == 0.0


def test_an_id_is_indexed_once(tmp_path):
    rows = [replace(BLANK, unit_id="u", content=text) for text in ("a", "b")]
    with pytest.raises(Vid2ContextError, match="given twice"):
        build_text_index(tmp_path / "i", rows)


def test_other_files_are_not_deleted(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(Vid2ContextError, match="holds other files"):
        build_text_index(tmp_path, [])
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("limit", [0, -1])
def test_limits_are_positive(punctuated, limit):
    with pytest.raises(UsageError, match="limit is"):
        punctuated.search("parser", limit=limit)


def test_every_cut_file_is_a_named_error(tmp_path):
    made(tmp_path / "i", PUNCTUATED)
    names = sorted(p.name for p in (tmp_path / "i").iterdir() if p.suffix != ".lock")
    assert len(names) > 5
    for name in names:
        shutil.copytree(tmp_path / "i", tmp_path / name)
        victim = tmp_path / name / name
        victim.write_bytes(victim.read_bytes()[:-3])
        with pytest.raises(Vid2ContextError) as caught:
            TextIndex.open(tmp_path / name)
        assert caught.value.code == "text_index_damaged"


def test_a_search_writes_nothing(tmp_path):
    made(tmp_path / "i", PUNCTUATED)

    def listing():
        return {p.name: p.stat()[6:9:2] for p in (tmp_path / "i").iterdir()}

    before = listing()
    index = TextIndex.open(tmp_path / "i")
    assert found(index, "parser") == ["p1"] and index.coverage("parser") == 1.0
    assert listing() == before


def test_rows_in_scope_are_picked_as_they_are_asked_for(tmp_path, monkeypatch):
    draw = random.Random(3)
    words = [f"word{i}" for i in range(30)]
    texts = {f"u{i:03d}": " ".join(draw.choices(words, k=8)) for i in range(300)}
    index = made(tmp_path / "t", texts)
    for _ in range(40):
        keep = frozenset(draw.sample(sorted(texts), draw.randint(1, 299)))
        query = " ".join(draw.choices([*words, "nowhere"], k=draw.randint(1, 5)))
        answers = []
        for few in (0, 10**9):
            monkeypatch.setattr(module, "FEW_ROWS", few)
            fresh = TextIndex.open(tmp_path / "t")
            answers.append(
                (
                    fresh.search(query, limit=7, keep=keep),
                    fresh.search(query, limit=250, keep=set(keep)),
                    fresh.coverage(query, keep=keep),
                    fresh.term_weights(query, keep=keep),
                )
            )
        assert answers[0] == answers[1]
        assert {unit for unit, _ in answers[0][1]} <= keep
    assert index.search("word1", limit=5, keep=frozenset()) == []
