"Retrieval: whole queries over a real library on disk, with a small honest embedder."

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from vid2context.background import PROBES, Background
from vid2context.caches import store_vectors
from vid2context.catalog import Catalog
from vid2context.core import Span, UsageError, Vid2ContextError, sha256_bytes
from vid2context.folding import fold_tokens
from vid2context.fusion import fuse
from vid2context.indexes import open_indexes
from vid2context.lists import LISTS, WEIGHTS
from vid2context.moments import intervals, join_moments, pair_moments
from vid2context.options import Retrieval
from vid2context.publish import publish, query_fingerprint
from vid2context.reach import within_reach
from vid2context.records import (
    Document,
    Filters,
    Fragment,
    FrameRow,
    PackageRow,
    Source,
    Unit,
    document_id,
    fragment_id,
    unit_id,
)
from vid2context.retrieval import Retriever
from vid2context.writing import open_writer

DIM = 48
TOPICS = {
    "knots": "rope knot bowline hitch splice mooring cleat sheet halyard fender",
    "bread": "dough flour starter oven crust yeast knead proof loaf rye",
    "stars": "telescope planet moon comet mirror orbit nebula eclipse lens dusk",
    "bees": "hive queen smoke honey wax drone swarm pollen brood frame",
}


def word_vector(word):
    seed = int.from_bytes(sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(DIM)


class WordEmbedder:
    "Sum one random direction a word: near means words in common."

    name = "words"
    embedding_dim = DIM
    max_tokens = 40
    descriptor = SimpleNamespace(id="words", fingerprint="words-1")

    def embed(self, texts, kind):
        rows = [sum(map(word_vector, ["", *fold_tokens(text)])) for text in texts]
        return [row / np.linalg.norm(row) for row in rows]

    def count_tokens(self, text, kind):
        return len(text.split())


class ColourEncoder:
    "Place pictures by their mean colour and words by the colour they name."

    name = "colours"
    embedding_dim = 3

    def encode_image(self, image):
        mean = np.asarray(image, np.float64).reshape(-1, 3).mean(axis=0) + 1
        return mean / np.linalg.norm(mean)

    def encode_text(self, text):
        names = ["red", "green", "blue"]
        mean = np.array([float(name in text) for name in names]) + 0.01
        return mean / np.linalg.norm(mean)


def window(video, start, text, language="en"):
    return Unit(
        unit_id=unit_id("talks", video, "transcript", f"window:{start * 1000:09}"),
        document_id=document_id("talks", video, "transcript"),
        parent_id=None,
        source="talks",
        video_id=video,
        type="transcript_window",
        family="transcript",
        depth=1,
        ordinal=start,
        title="",
        content=text,
        timestamps=((float(start), start + 30.0),),
        evidence_class="direct",
        language=language,
    )


def frame(video, start, ocr, caption=""):
    return replace(
        window(video, start, ocr or caption or "picture"),
        unit_id=unit_id("talks", video, "visual", f"frame:{start * 1000:09}"),
        document_id=document_id("talks", video, "visual"),
        type="frame",
        family="frame",
        ocr=ocr,
        caption=caption,
        timestamps=((float(start), None),),
        structured={"next_s": start + 4.0},
        evidence_class="visual",
        searchable=bool(ocr or caption),
    )


def section(video, name, text, times=()):
    return replace(
        window(video, 0, text),
        unit_id=unit_id("talks", video, "context", f"section:{name}"),
        document_id=document_id("talks", video, "context"),
        type="context_section",
        family="dossier",
        title=name,
        heading_path=(name,),
        timestamps=times,
        evidence_class=None,
    )


def packages():
    chance = random.Random(3)
    found = {}
    for video, topic in TOPICS.items():
        words = topic.split()
        said = [" ".join(chance.choices(words, k=8)) for _ in range(20)]
        group = [window(video, 30 * i, text) for i, text in enumerate(said)]
        group += [frame(video, 100 * i + 7, words[i].upper()) for i in range(3)]
        group += [
            frame(
                video,
                350,
                "",
                f"a {['red', 'green', 'blue', 'red'][len(words[0]) % 4]} card",
            )
        ]
        group += [
            section(video, "summary", " ".join(words), ((30.0, 55.0), (300.0, None)))
        ]
        found[video] = group
    found["bees"].append(window("bees", 900, "miel y colmena", language="es"))
    found["bees"].append(window("bees", 930, "unknown tongue speaks", language=None))
    found["stars"].append(frame("stars", 500, ""))
    return found


PICTURES = {
    unit_id("talks", video, "visual", "frame:000350000"): colour
    for video, colour in zip(
        TOPICS, [(250, 0, 0), (0, 250, 0), (0, 0, 250), (200, 200, 0)], strict=True
    )
}


def still(unit):
    key = sha256_bytes(unit.unit_id.encode()) if unit.unit_id in PICTURES else None
    file, at_s = f"visual/{unit.ordinal}.png", float(unit.ordinal)
    return FrameRow(
        unit.unit_id, "talks", unit.video_id, file, at_s, at_s, image_sha256=key
    )


def build(home, groups, *, model="words-1"):
    embedder, encoder = WordEmbedder(), ColourEncoder()
    with open_writer(home, create=True) as writer:
        writer.register(Source("talks", "/talks", "/talks/m", "/talks/v"))
        for video, group in groups.items():
            row = PackageRow(
                "talks", video, video, video.title(), None,
                "https://youtu.be/abcdefghijk", "en", "en", None, 960.0, video, video,
            )  # fmt: skip
            papers = [
                Document(
                    document_id("talks", video, kind), "talks", video, kind, "", ""
                )
                for kind in ("transcript", "visual", "context")
            ]
            pieces = [
                Fragment(
                    fragment_id(u.unit_id, 0),
                    u.unit_id,
                    0,
                    0,
                    len(u.content),
                    u.content_sha256,
                )
                for u in group
                if u.searchable
            ]
            stills = [still(u) for u in group if u.family == "frame"]
            writer.replace(row, *papers, *group, *pieces, *stills)
        texts = {u.content_sha256: u.content for g in groups.values() for u in g}
        made = embedder.embed(list(texts.values()), "passage")
        store_vectors(
            writer,
            dict(zip(texts, np.array(made, "f4"), strict=True)),
            fingerprint=model,
        )
        keys = [sha256_bytes(text.encode()) for text in PROBES]
        made = np.array(embedder.embed(PROBES, "query"), "f4")
        store_vectors(
            writer,
            dict(zip(keys, made, strict=True)),
            fingerprint=query_fingerprint(model),
        )
        seen = {
            sha256_bytes(u.encode()): encoder.encode_image(Image.new("RGB", (4, 4), c))
            for u, c in PICTURES.items()
        }
        store_vectors(writer, seen, fingerprint="colours-1")
        writer.use_model("text", model)
        writer.use_model("image", "colours-1")
        publish(writer)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    home = tmp_path_factory.mktemp("library") / "home"
    build(home, packages())
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        yield catalog, indexes


@pytest.fixture(scope="module")
def retriever(library):
    return Retriever(*library, embedder=WordEmbedder(), encoder=ColourEncoder())


def with_settings(library, **changed):
    return Retriever(
        *library,
        embedder=WordEmbedder(),
        encoder=ColourEncoder(),
        settings=replace(Retrieval(), **changed),
    )


def test_a_ranking_is_the_fusion_of_its_lists(retriever):
    ranking = retriever.query("bowline hitch", mode="search")
    assert set(ranking.lists) == set(LISTS)
    assert ranking.status == "ok" and ranking.warnings == ()
    c = ranking.relevance.lexical_coverage
    for name, weight in WEIGHTS["search"].items():
        scale = c if LISTS[name][0] == "lexical" else 1 - c / 2
        assert ranking.weights[name] == pytest.approx(weight * scale)
    ids = {name: [unit for unit, _ in hits] for name, hits in ranking.lists.items()}
    assert list(ranking.units) == fuse(ids, ranking.weights, k=60)
    for hits in ranking.lists.values():
        assert list(hits) == sorted(hits, key=lambda hit: (-hit[1], hit[0]))
        assert len({unit for unit, _ in hits}) == len(hits) <= 100


def test_fixed_weights_leave_the_table(library):
    ranking = with_settings(library, weights="fixed", k=10.0).query("bowline")
    assert ranking.weights == dict(WEIGHTS["retrieve"])
    assert (ranking.k, ranking.weights_mode) == (10.0, "fixed")
    best = ranking.units[0]
    assert best.score == pytest.approx(
        sum(ranking.weights[n] / (10 + r) for n, (r, _) in best.contributions.items())
    )


def test_given_weights_replace_the_table(retriever):
    ranking = retriever.query("bowline", weights={"dense": 0.0, "lexical": 7.0})
    assert all("dense" not in unit.contributions for unit in ranking.units)
    with pytest.raises(UsageError, match="smell"):
        retriever.query("bowline", weights={"smell": 1.0})


def test_the_depth_bounds_each_list(retriever):
    for depth, most in {"focused": 50, "balanced": 100, "deep": 200}.items():
        ranking = retriever.query("rope", depth=depth)
        assert len(ranking.lists["dense_transcript"]) == min(most, 82)
    with pytest.raises(UsageError, match="depth 'bottomless'"):
        retriever.query("rope", depth="bottomless")


def test_what_stands_out_is_confident_and_what_does_not_abstains(retriever):
    known = retriever.query("honey wax brood pollen")
    assert known.relevance.verdict == "confident"
    assert known.relevance.z["dense"] > 2
    strange = retriever.query("quarterly dividend forecast")
    assert strange.relevance.verdict == "abstain"
    assert (strange.status, strange.units) == ("no_results", ())
    assert [w.code for w in strange.warnings] == ["abstained"]
    assert strange.relevance.top_vector_similarity is not None
    shown = retriever.query("quarterly dividend forecast", abstain=False)
    assert shown.relevance.verdict == "low" and shown.units
    assert [w.code for w in shown.warnings] == ["low_relevance"]


def test_a_filter_has_its_own_yardstick(retriever):
    filters = Filters(videos=("knots", "bread", "stars"))
    asked = retriever.query("rope splice", filters=filters)
    whole = retriever.query("rope splice")
    assert asked.relevance.z["dense"] != whole.relevance.z["dense"]
    few = retriever.query("rope splice", filters=Filters(videos=("knots",)))
    assert "dense" not in few.relevance.z


FILTERS = {
    "video": Filters(videos=("bees", "stars")),
    "type": Filters(unit_types=("frame",)),
    "class": Filters(evidence_classes=("direct",)),
    "language": Filters(languages=("es",)),
    "between": Filters(between=Span(100, 130)),
    "all": Filters(
        videos=("bees",), unit_types=("frame", "context_section"), between=Span(0, 60)
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_keep_exactly_the_units_in_scope(library, retriever, name):
    filters = FILTERS[name]
    allowed = set(library[0].unit_ids(filters))
    free = retriever.query("honey smoke telescope", abstain=False, depth="deep")
    kept = retriever.query(
        "honey smoke telescope", abstain=False, depth="deep", filters=filters
    )
    for list_name, hits in kept.lists.items():
        assert list(hits) == [h for h in free.lists[list_name] if h[0] in allowed]


def test_unknown_language_is_said(retriever):
    ranking = retriever.query("smoke", filters=Filters(languages=("en",)))
    assert "language_unknown" in [w.code for w in ranking.warnings]
    assert not ranking.is_partial


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        (Filters(sources=("films",)), "source_not_found"),
        (Filters(videos=("kitchen",)), "video_not_found"),
    ],
)
def test_unknown_places_are_errors(retriever, filters, code):
    with pytest.raises(UsageError) as caught:
        retriever.search("rope", filters=filters)
    assert caught.value.code == code


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text(max_size=60))
def test_any_text_is_answered_or_refused(retriever, text):
    try:
        retriever.search(text, abstain=False)
    except UsageError as error:
        assert error.code == "invalid_query"


WORDS = sorted({word for topic in TOPICS.values() for word in topic.split()})
GLUE = [
    " ",
    " AND ",
    " OR NOT ",
    ": ",
    ' "',
    '" ',
    " (",
    ")^2 ",
    " [draft] -",
    "\x00",
    "\u202e ",
    " \U0001f388 ",
    " https://a.example/?q=",
    "' -- ",
    " {x TO y} ",
    " 城へ ",
    " מים ",
    "\ud800",
    "~5 *",
    "\n> ",
]
SHAPES = [
    str.upper,
    str.title,
    str,
    lambda word: "\u0301".join(word),
    lambda word: "".join(chr(ord(c) + 0xFEE0) for c in word),
]
HOSTILE = int(os.environ.get("VID2CONTEXT_HOSTILE_QUERIES", "120"))


@settings(
    max_examples=HOSTILE,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(GLUE), st.sampled_from(WORDS), st.sampled_from(SHAPES)
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(GLUE),
)
def test_words_of_the_corpus_are_found_however_they_are_asked(retriever, parts, end):
    query = "".join(glue + shape(word) for glue, word, shape in parts) + end
    by_word = retriever.query(query, abstain=False, channels=["lexical"])
    assert by_word.units, query
    terms = retriever.indexes.text.matched_terms(by_word.query, by_word.units[0].id)
    assert {*terms} & {word for _, word, _ in parts}, query
    assert retriever.search(query, abstain=False).moments, query


def test_a_long_query_is_cut_for_the_vectors_only(retriever):
    ranking = retriever.query("rope " * 60 + "nebula")
    assert [w.code for w in ranking.warnings if w.code != "low_relevance"] == [
        "query_truncated"
    ]
    found = {unit for unit, _ in ranking.lists["lexical_transcript"]}
    assert any(":stars:" in unit for unit in found)


def test_the_order_of_indexing_does_not_show(tmp_path, library, retriever):
    build(tmp_path / "home", dict(reversed(packages().items())))
    with Catalog.open(tmp_path / "home") as catalog, open_indexes(catalog) as indexes:
        other = Retriever(
            catalog, indexes, embedder=WordEmbedder(), encoder=ColourEncoder()
        )
        for query in ("honey", "rope and flour", "red card", "miel"):
            mine, theirs = retriever.search(query), other.search(query)
            assert mine.moments == theirs.moments
            assert mine.ranking == theirs.ranking


class Broken(WordEmbedder):
    def embed(self, texts, kind):
        raise MemoryError("no room for the model")


def test_a_failed_channel_leaves_the_others(library):
    partial = Retriever(*library, embedder=Broken(), encoder=ColourEncoder()).search(
        "honey"
    )
    assert partial.status == "partial" and partial.moments
    assert [w.code for w in partial.warnings] == ["vector_search_unavailable"]
    assert partial.relevance.top_vector_similarity is None


def test_vectors_of_a_wrong_size_fail_their_channel(library):
    class Wide(WordEmbedder):
        embedding_dim = DIM + 1

        def embed(self, texts, kind):
            return [np.eye(DIM + 1)[0] for _ in texts]

    result = Retriever(*library, embedder=Wide()).search("honey")
    assert result.status == "partial"
    assert "dimension 49" in result.warnings[0].message


def test_without_any_channel_there_is_an_error(library):
    blind = Retriever(*library, embedder=Broken())
    with pytest.raises(Vid2ContextError) as caught:
        blind.query("honey", channels=["dense", "visual"])
    assert caught.value.code == "search_failed"
    assert "no room" in caught.value.message
    assert "The visual channel needs an image-text encoder" in caught.value.message


@pytest.mark.parametrize(
    ("channel", "said"),
    [("visual", "`models pull clip-small`"), ("dense", "needs a text model")],
)
def test_a_channel_without_its_model_says_what_to_do(library, channel, said):
    with pytest.raises(Vid2ContextError, match=said) as caught:
        Retriever(*library).search("honey", channels=[channel])
    assert caught.value.code == "search_failed"


def test_vectors_of_another_model_are_the_reason_given(library):
    catalog, _ = library
    with open_indexes(catalog, models={"text": "words-2"}) as indexes:
        stale = Retriever(catalog, indexes, embedder=WordEmbedder())
        with pytest.raises(Vid2ContextError, match="makes them anew"):
            stale.search("honey", channels=["dense"])


def test_absent_models_are_no_warning(library):
    result = Retriever(*library).search("honey")
    assert (result.status, result.warnings) == ("ok", ())
    assert set(result.ranking.lists) == {
        "lexical",
        "lexical_transcript",
        "lexical_frame",
    }


def test_another_model_leaves_words_and_a_warning(library):
    catalog, _ = library
    with open_indexes(catalog, models={"text": "words-2", "image": None}) as indexes:
        stale = Retriever(catalog, indexes, embedder=WordEmbedder())
        found = stale.search("honey")
        assert found.status == "partial" and found.moments
        assert [w.code for w in found.warnings] == ["vectors_stale"]
        nothing = stale.query("mortgage")
        assert "vectors_stale" not in [w.code for w in nothing.warnings]


def test_an_older_index_drops_what_is_gone(tmp_path):
    home, groups = tmp_path / "home", packages()
    build(home, groups)
    with open_writer(home) as writer, Catalog.open(home) as catalog:
        writer.delete("talks", "bees")
        with open_indexes(catalog) as indexes:
            behind = Retriever(
                catalog, indexes, embedder=WordEmbedder(), encoder=ColourEncoder()
            )
            ranking = behind.query("honey rope", abstain=False, depth="deep")
            assert "index_behind" in [w.code for w in ranking.warnings]
            assert not ranking.is_partial
            found = {unit for hits in ranking.lists.values() for unit, _ in hits}
            assert found and not any(":bees:" in unit for unit in found)
            assert behind.search("honey rope", abstain=False).moments


def test_moments_follow_their_rule(library, retriever):
    result = retriever.search("honey smoke red card", top_k=100, abstain=False)
    units = library[0].units([u.id for u in result.ranking.units])
    rank = {
        (name, unit): place
        for name, hits in result.ranking.lists.items()
        for place, (unit, _) in enumerate(hits, 1)
    }
    for moment in result.moments:
        assert moment.end_s - moment.start_s <= 60
        best = {}
        for unit in moment.unit_ids:
            assert units[unit].video_id == moment.video_id
            for name in LISTS:
                place = rank.get((name, unit))
                if place and place < best.get(name, 10**6):
                    best[name] = place
        assert {n: c["rank"] for n, c in moment.channels.items()} == best
        total = sum(result.ranking.weights[n] / (60 + r) for n, r in best.items())
        assert moment.score == pytest.approx(total, abs=1e-11)
        start, end = round(moment.start_s * 1000), round(moment.end_s * 1000)
        assert moment.moment_id == f"talks:{moment.video_id}#{start}-{end}"
    order = [(-m.score, m.start_s, m.moment_id) for m in result.moments]
    assert order == sorted(order)


def test_sections_longer_than_a_moment_stand_alone():
    long = replace(section("knots", "all", "x"), timestamps=((0.0, 300.0),))
    near = window("knots", 30, "y")
    units = {u.unit_id: u for u in (long, near)}
    fused = fuse({"lexical": list(units)}, {"lexical": 1.0})
    drafts = join_moments(
        fused, units, weights={"lexical": 1.0}, k=60, settings=Retrieval()
    )
    assert [d.moment_id for d in drafts] == [
        "talks:knots#0-300000",
        "talks:knots#30000-60000",
    ]


def test_frames_last_until_the_next_and_at_most_five_seconds():
    assert intervals(frame("v", 10, "x")) == [Span(10.0, 14.0)]
    late = replace(frame("v", 10, "x"), structured={"next_s": 99.0})
    assert intervals(late) == [Span(10.0, 15.0)]
    assert intervals(replace(late, structured={})) == [Span(10.0, 15.0)]
    assert intervals(replace(late, structured={"next_s": None})) == [Span(10.0, 15.0)]


def test_a_moment_shows_who_found_it(retriever):
    read = retriever.search("KNOT", channels=["lexical_frame"], top_k=1).moments[0]
    assert (read.source, read.ocr, read.frame) == ("ocr", "KNOT", "visual/107.png")
    assert "rope" in read.text or "knot" in read.text
    assert read.link == "https://www.youtube.com/watch?v=abcdefghijk&t=107s"
    told = retriever.search("card", channels=["lexical_frame"], top_k=1).moments[0]
    assert (told.source, told.caption.endswith("card")) == ("fts", True)
    seen = retriever.search("red", channels=["visual"], top_k=1).moments[0]
    assert (seen.source, seen.video_id) == ("clip", "knots")
    assert "hybrid" in {m.source for m in retriever.search("knot").moments}


def test_a_picture_asks(retriever):
    result = retriever.search(image=Image.new("RGB", (8, 8), (0, 240, 10)), top_k=1)
    assert result.moments[0].video_id == "bread"
    assert set(result.ranking.lists) == {"visual"}
    assert result.relevance.verdict == "uncalibrated"


def test_an_example_finds_others_like_it(library, retriever):
    example = window("stars", 60, "").unit_id
    ranking = retriever.query(like=example)
    assert example not in {unit.id for unit in ranking.units}
    stored = library[1].vectors["text"]
    row = stored.ids[stored.units.index(example)]
    cosines = {u: s for hits in ranking.lists.values() for u, s in hits}
    best = max(cosines, key=lambda u: (cosines[u], u))
    assert best.startswith("unit:talks:stars")
    want = float(
        stored.vector(row) @ stored.vector(stored.ids[stored.units.index(best)])
    )
    assert cosines[best] == pytest.approx(want, abs=1e-5)
    with pytest.raises(UsageError, match="no unit with vectors"):
        retriever.query(like="unit:talks:stars:visual:frame:000500000")


def test_minus_turns_away(retriever):
    plain = retriever.query("honey comet", channels=["dense_transcript"], abstain=False)
    turned = retriever.query(
        "honey comet", minus="comet", channels=["dense_transcript"], abstain=False
    )
    share = lambda r: sum(":bees:" in u for u, _ in r.lists["dense_transcript"][:10])  # noqa: E731
    assert share(turned) > share(plain)


def test_ordered_search_pairs_by_the_worse_rank(library, retriever):
    "Moments of an ordered search are at most half as long as the time between them."
    result = retriever.search("rope", then="knot", within_s=60, top_k=50, abstain=False)
    assert len(result.moments) == len(result.then) > 0
    for first, second in zip(result.moments, result.then, strict=True):
        assert first.video_id == second.video_id
        assert 0 < second.start_s - first.start_s <= 60
    short = with_settings(library, moment_s=30.0)
    a, b = (
        [m.moment_id for m in short.search(q, top_k=1000, abstain=False).moments]
        for q in ("rope", "knot")
    )
    worse = [
        max(a.index(x.moment_id), b.index(y.moment_id))
        for x, y in zip(result.moments, result.then, strict=True)
    ]
    assert worse == sorted(worse)
    assert pair_moments([], [], within_s=1) == []


def test_floors_act_on_raw_scores(library):
    retriever = with_settings(library, reach_z=0.0)
    free = retriever.query("knot rope", mode="search")
    least = free.lists["dense_transcript"][3][1]
    kept = retriever.query("knot rope", mode="search", min_score={"dense": least})
    assert list(kept.lists["dense_transcript"]) == [
        hit for hit in free.lists["dense_transcript"] if hit[1] >= least
    ]
    assert kept.lists["lexical"] == free.lists["lexical"]
    none = retriever.search("KNOT", channels=["lexical_frame"], min_score={"ocr": 1e6})
    assert none.moments == () and none.status == "no_results"
    with pytest.raises(UsageError, match="no floor"):
        retriever.query("rope", min_score={"fused": 0.01})


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["dense", "dense_frame", "dense_transcript"]),
            st.floats(0.7, 0.95),
            st.sampled_from(["en", "es", "zh", None]),
        ),
        max_size=30,
    ),
    st.floats(0, 4),
    st.floats(0, 8),
)
def test_each_language_is_measured_from_its_best(rows, near, across):
    units = {
        f"u{i}": (name, score, tongue) for i, (name, score, tongue) in enumerate(rows)
    }
    lists = {name: [] for name, _, _ in rows}
    for unit, (name, score, _) in sorted(units.items(), key=lambda u: -u[1][1]):
        lists[name].append((unit, score))
    kept = within_reach(
        lists,
        text=Background(0.8, 0.01, 99),
        image=None,
        image_z=None,
        spoken=lambda ids: {u: units[u][2] for u in ids if units[u][2]},
        settings=Retrieval(reach_z=near, reach_across_z=across),
    )

    def far(unit, others):
        best = max(score for _, score, _ in others)
        return (best - units[unit][1]) / (1.4826 * 0.01)

    for name, hits in lists.items():
        for hit in hits:
            same = [u for u in units.values() if u[2] == units[hit[0]][2]]
            behind = far(hit[0], same), far(hit[0], units.values())
            if min(abs(behind[0] - near), abs(behind[1] - max(near, across))) > 1e-9:
                fits = behind[0] <= near and behind[1] <= max(near, across)
                assert (hit in kept[name]) == (fits or not near)


def test_a_search_leaves_out_what_is_far_behind_the_best(library):
    catalog, indexes = library
    pictures = {**indexes.backgrounds, "image": Background(0.4, 0.02, 60)}
    library = catalog, replace(indexes, backgrounds=pictures)
    near, wide = with_settings(library), with_settings(library, reach_z=0.0)
    assert pictures["image"].z(1.0) is None  # No lifts: what stands out is unknown
    spread = indexes.backgrounds["text"].spread
    cut = {"dense": 0, "visual": 0}
    for query in ("knot rope", "bowline splice", "red ball on the sand"):
        kept, free = (
            r.query(query, mode="search", abstain=False) for r in (near, wide)
        )
        dense = [name for name in free.lists if LISTS[name][0] == "dense"]
        best = max(score for name in dense for _, score in free.lists[name])
        for name, hits in free.lists.items():
            least = best - 1.5 * spread if name in dense else float("-inf")
            if name == "visual":
                least = hits[0][1] - 1.5 * pictures["image"].spread
            assert list(kept.lists[name]) == [hit for hit in hits if hit[1] >= least]
            channel = LISTS[name][0]
            cut[channel] = cut.get(channel, 0) + len(hits) - len(kept.lists[name])
        assert (kept.relevance, kept.weights) == (free.relevance, free.weights)
        bundle = [r.query(query, abstain=False).lists for r in (near, wide)]
        assert bundle[0] == bundle[1]
        alone = [r.search(query, channels=["visual"], top_k=99) for r in (near, wide)]
        assert alone[0].moments == alone[1].moments
    assert cut["lexical"] == 0 and cut["dense"] and cut["visual"]
    one = Filters(videos=("knots",))
    if near.engine.background("dense", near.engine.scope(one)).spread is None:
        few = [r.query("rope", mode="search", filters=one) for r in (near, wide)]
        assert few[0].lists == few[1].lists


def test_units_are_read_once_a_generation(library, monkeypatch):
    engine = with_settings(library).engine
    catalog = engine.catalog
    ids = [row.unit_id for row in catalog.text_rows()][:9]
    asked = [ids[4], "unit:talks:knots:visual:frame:none", *ids[:3], ids[4]]
    read = catalog.units(asked)
    assert list(engine.units(asked).items()) == list(read.items())
    known = [ids[2], ids[4]]
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "units", lambda *_: pytest.fail("read again"))
        assert list(engine.units(known)) == known
        patch.setattr(
            Catalog, "units", lambda self, wanted: dict.fromkeys(wanted, "new")
        )
        patch.setattr(Catalog, "generation", catalog.generation + 1)
        assert engine.units(known) == dict.fromkeys(known, "new")


def test_explanations_name_the_stage(library, retriever):
    query = "bowline splice"
    result = retriever.search(query, top_k=5)
    top = retriever.explain(query, result.moments[0].moment_id, limit=5)
    assert (top.rank, top.lost_at, top.score) == (1, None, result.moments[0].score)
    assert set(top.matched_terms) <= {"bowline", "splice"} and top.matched_terms
    unit = result.moments[0].unit_ids[0]
    mine = retriever.explain(query, unit, limit=5)
    assert mine.lost_at is None and mine.shown_as == result.moments[0].moment_id
    total = sum(part["contribution"] for part in mine.lists.values())
    assert mine.score == pytest.approx(total, abs=1e-11)
    assert (
        retriever.explain(query, "talks:knots#5000000-5001000").lost_at == "not_sampled"
    )
    blank = unit_id("talks", "stars", "visual", "frame:000500000")
    assert retriever.explain(query, blank).lost_at == "not_read"
    far = result.ranking.units[-1].id
    assert retriever.explain(query, far, limit=1).lost_at == "fused_away"
    assert (
        retriever.explain(query, unit, limit=5, channels=["visual"]).lost_at
        == "not_matched"
    )
    ranked = {unit.id for unit in result.ranking.units}
    raw = result.ranking.found["dense_transcript"]
    behind = next(unit for unit, _ in reversed(raw) if unit not in ranked)
    assert retriever.explain(query, behind).lost_at == "out_of_reach"
    start, end = result.moments[0].start_s + 1, result.moments[0].end_s + 1
    other = f"talks:knots#{int(start * 1000)}-{int(end * 1000)}"
    assert retriever.explain(query, other, limit=5).lost_at == "merged_away"
    for wrong in (
        "unit:talks:knots:context:section:none",
        "nonsense",
        "talks:knots#5-1",
    ):
        with pytest.raises(UsageError) as caught:
            retriever.explain(query, wrong)
        assert caught.value.code == "invalid_identifier"
    with pytest.raises(UsageError) as caught:
        retriever.explain(query, "talks:kitchen#1-2")
    assert caught.value.code == "video_not_found"


def test_hostile_text_stays_in_its_cell(tmp_path):
    groups = {"knots": [window("knots", 0, "rope | [S01] <script> \n# heading `x`")]}
    build(tmp_path / "home", groups)
    with Catalog.open(tmp_path / "home") as catalog, open_indexes(catalog) as indexes:
        shown = Retriever(catalog, indexes).search("rope")._repr_markdown_()
    row = shown.splitlines()[-1]
    assert (
        row.count(" | ") == 5 and "<script>" not in row and "\n# heading" not in shown
    )


@pytest.mark.parametrize("top_k", [0, -1])
def test_limits_are_positive(retriever, top_k):
    with pytest.raises(UsageError) as caught:
        retriever.search("rope", top_k=top_k)
    assert caught.value.code == "invalid_limit"


def test_a_question_needs_something_to_ask_by(retriever):
    with pytest.raises(UsageError) as caught:
        retriever.query()
    assert caught.value.code == "invalid_query"


def test_many_threads_get_the_same_answers(library):
    shared = Retriever(*library, embedder=WordEmbedder(), encoder=ColourEncoder())
    scopes = [
        Filters(videos=(v,), between=Span(0, 30 * i))
        for i in range(1, 12)
        for v in TOPICS
    ]
    want = [
        shared.search("rope honey", filters=f, abstain=False).moments for f in scopes
    ]
    fresh = Retriever(*library, embedder=WordEmbedder(), encoder=ColourEncoder())

    def ask(filters):
        result = fresh.search("rope honey", filters=filters, abstain=False)
        assert not result.ranking.is_partial
        return result.moments

    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            assert list(pool.map(ask, scopes)) == want
