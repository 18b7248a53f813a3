"""Citations against the literal rule, hostile claims, and what receipts notice."""

import json
import math
import random
import time
from dataclasses import replace

import pytest
import slow_quotes
from hypothesis import given, settings
from hypothesis import strategies as st

from vid2context.citations import (
    cited_times,
    context_from_segments,
    refusal_reason,
    replay,
    verify_citation,
    verify_quote,
)
from vid2context.core import UsageError
from vid2context.quote_words import (
    marked_words,
    quote_words,
    script_words,
    word_places,
)
from vid2context.strictness import alignment
from vid2context.video_contexts import Frame, VideoContext, VideoMeta

TRIALS = 6_000


def context(rows, video_id="v", **meta):
    keys = ("start", "end", "text")
    plain = [dict(zip(keys, row, strict=True)) for row in rows]
    return context_from_segments(video_id, plain, title=video_id, **meta)


def random_talk(rng):
    """Make a transcript full of repeats, overlaps, holes and missing ends."""
    letters = "abcdefgh"[: rng.randint(2, 8)]
    rows = []
    for _ in range(rng.randint(0, 7)):
        start = rng.randrange(0, 120, 5)
        end = rng.choice([None, start + rng.randrange(0, 90, 5), start - 5])
        text = " ".join(rng.choice(letters) for _ in range(rng.randint(0, 6)))
        rows.append((float(start), end, text))
    quote = " ".join(rng.choice(letters + "x") for _ in range(rng.randint(3, 8)))
    return rows, quote, float(rng.randrange(0, 150, 5))


def test_fast_search_equals_the_literal_rule():
    rng = random.Random(17)
    passed = elsewhere = 0
    for trial in range(TRIALS):
        rows, quote, at = random_talk(rng)
        want = slow_quotes.verdict(rows, quote, at)
        got = verify_quote(context(rows), quote, at, accept="verdict")
        have = got | {"span": got["receipt"]["span"]}
        assert {k: have[k] for k in want} == want, (trial, rows, quote, at)
        passed += want["reason"] is None
        elsewhere += want["reason"] == "quote-at-other-time"
    assert passed > TRIALS / 20 and elsewhere > TRIALS / 100


def test_guarded_alignment_equals_all_alignments():
    rng = random.Random(18)
    for _ in range(6000):
        quote, source = (
            [rng.choice("abn") for _ in range(rng.randint(1, 6))] for _ in "qs"
        )
        for marked in (lambda word: False, lambda word: word == "n"):
            want = slow_quotes.best_alignment(quote, source, marked)
            assert alignment(quote, source, marked=marked) == want, (quote, source)


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=60))
def test_words_follow_the_literal_rule(text):
    assert quote_words(text) == slow_quotes.words(text)
    for split, script in ((quote_words, False), (script_words, True)):
        places = word_places(text, script=script)
        found = split(text)
        assert len(places) == len(found)
        assert all(0 <= a < b <= len(text) for a, b in places)


TALK = [
    (0, 4, "Welcome aboard, we're reading the tide tables."),
    (4, 8, "The pilot station opens at fifteen past six, not earlier."),
    (8, 12, "So never cross the bar without a second chart."),
    (95, 99, "Again: the pilot station opens at fifteen past six,"),
    (99, 103, "and it costs £1,250 or 1.5 percent of the cargo."),
]


@pytest.mark.parametrize(
    ("quote", "at", "verdict", "accepted"),
    [
        ("the pilot station opens at fifteen past six", 6, None, True),
        ("THE PILOT STATION — opens at 15 past six", 6, None, True),
        ("were reading the tide tables", 1, None, True),
        ("we\u02bcre reading the ti\u0301de ta\u200dbles", 1, None, True),
        ("the pilot station opens at fifty past six", 6, None, False),
        ("the pilot station opens at fifteen past six earlier", 6, None, False),
        ("so cross the bar without a second chart", 9, None, False),
        ("cross the bar with a second chart", 9, None, False),
        ("six past fifteen at opens station pilot the", 6, None, False),
        ("costs £1,250 or 1.5 percent of the cargo", 100, None, True),
        ("costs £1,520 or 1.5 percent of the cargo", 100, None, False),
        ("costs £1,250 or 15 percent of the cargo", 100, None, False),
        ("and it costs £1,250 or 1.5 percent", 50, "quote-at-other-time", False),
        ("the moon pulls the sea twice", 6, "quote-not-found", False),
        ("second chart", 9, "quote-too-short", False),
        ("\u200b … 🔥", 9, "no-quote", False),
        (["so never cross the bar"], 9, "no-quote", False),
        ("so never cross the bar without", "9", "bad-timestamp", False),
        ("so never cross the bar without", True, "bad-timestamp", False),
        ("so never cross the bar without", -0.001, "bad-timestamp", False),
        ("so never cross the bar without", math.inf, "bad-timestamp", False),
        ("so never cross the bar without", 10**400, "quote-at-other-time", False),
    ],
)
def test_verdicts(quote, at, verdict, accepted):
    talk = context(TALK, language="en")
    result = verify_citation({"videoId": "v", "quote": quote, "startSec": at}, [talk])
    assert (result["reason"], result["accepted"]) == (verdict, accepted)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert replay(result["receipt"], [talk]) == "same"
    assert (refusal_reason(result) is None) == accepted
    if accepted:
        start, end = cited_times(result)
        assert quote_words(result["source_text"])
        assert any(s[0] == start for s in TALK) and any(s[1] == end for s in TALK)


def test_a_quote_said_twice_takes_the_nearest_place_and_says_so():
    talk = context(TALK, language="en")
    said = "the pilot station opens at fifteen past six"
    early, late = (verify_quote(talk, said, at) for at in (6, 90))
    assert (cited_times(early), cited_times(late)) == ((4, 8), (95, 99))
    assert early["warnings"] == ["edge-negation", "repeated"]
    assert late["warnings"] == ["repeated"]


def test_other_videos_are_searched_but_never_decide():
    talk = context(TALK, "one", language="en")
    far = context([(50, 60, "The moon pulls the sea twice a day.")], "two")
    third = context([(5, 9, "the moon pulls the sea twice")], "three")
    claim = {"videoId": "one", "quote": "the moon pulls the sea twice", "startSec": 3}
    result = verify_citation(claim, [third, talk, far])
    assert (result["reason"], result["found_in"]["videoId"]) == (
        "quote-not-found",
        "three",
    )
    assert refusal_reason(result) == "quote-in-other-video"
    keys = ("verdict", "reason", "score", "accepted")
    other = verify_citation(claim, [far, talk, third])
    assert [other[k] for k in keys] == [result[k] for k in keys]


def test_scripts_without_spaces_are_decided_by_characters():
    talk = context(
        [(0, 5, "駅は九時に開きます"), (5, 9, "切符は要りません")], language="ja"
    )
    said = verify_quote(talk, "駅は九時に開きます", 2)
    assert said["reason"] == "quote-too-short" and said["script"]["verdict"] == "pass"
    assert cited_times(said) == (0, 5) and said["source_text"] == "駅は九時に開きます"
    wrong = verify_quote(talk, "駅は八時に開きます", 2)
    assert wrong["script"]["verdict"] == "pass" and not wrong["accepted"]
    assert refusal_reason(wrong) == "not-strict"
    assert verify_quote(talk, "駅は九時", 2)["script"]["reason"] == "quote-too-short"
    assert replay(said["receipt"], [talk]) == "same"


def test_receipts_notice_what_changed(monkeypatch):
    talk = context(TALK, language="en")
    claim = {"videoId": "v", "quote": "never cross the bar without a", "startSec": 9}
    receipt = verify_citation(claim, [talk])["receipt"]
    assert "Welcome" not in json.dumps(receipt)
    for k, row in enumerate(TALK):
        for changed in ((row[0] + 0.01, *row[1:]), (*row[:2], row[2] + " no")):
            rows = [*TALK[:k], changed, *TALK[k + 1 :]]
            assert replay(receipt, [context(rows)]) == "transcript-changed"
    assert replay(receipt, []) == "transcript-changed"
    assert replay(receipt | {"strict_rule": "strict/0"}, [talk]) == "rule-changed"
    forged = receipt | {"result": receipt["result"] | {"score": 0.5}}
    assert replay(forged, [talk]) == "different"
    assert replay(forged | {"unicode": "1.0"}, [talk]) == "unicode-changed"
    assert replay(receipt | {"unicode": "1.0"}, [talk]) == "same"
    for broken in ({}, {"result": 7}, receipt | {"result": None, "frame": 3}):
        assert replay(broken, [talk]) != "same"


def test_order_and_gaps_of_segments_do_not_matter():
    rng = random.Random(3)
    talk = context(TALK)
    for _ in range(20):
        rows = rng.sample(TALK, len(TALK))
        assert context(rows).transcript_sha256 == talk.transcript_sha256
    assert context([*TALK, (200, None, "")]).words.words == talk.words.words


def test_frames_are_checked_in_order():
    frames = (
        Frame("frame-05pct.png", 5.0, ocr="PILOT 6:15\nNo entry"),
        Frame("frame-10pct.png", 10.0),
    )
    talk = VideoContext(VideoMeta("v", "v", language="en"), context(TALK).segments)
    talk = replace(talk, frames=frames)

    def ask(served=None, **claim):
        return verify_citation({"videoId": "v"} | claim, [talk], served=served)

    base = {"startSec": 5.0, "frame": "frame-05pct.png"}
    good = ask(**base, on_screen="pilot 6:15", served={"frame-05pct.png"})
    assert good["accepted"] and good["frame"]["served"] is True
    assert ask(**base)["frame"]["served"] == "unknown"
    reasons = [
        ask(**base | {"frame": "x.png"}),
        ask(**base | {"startSec": 6.5}),
        ask(**base, on_screen="pilot 6:51"),
        ask(**base, on_screen=["no"]),
        ask(**base, served=[]),
        ask(**base | {"startSec": None}),
        ask(**base | {"frame": ["frame-05pct.png"]}, served={"a"}),
    ]
    assert [refusal_reason(r) for r in reasons] == [
        "frame-not-found",
        "frame-time-mismatch",
        "text-not-in-frame",
        "text-not-in-frame",
        "frame-not-served",
        "bad-timestamp",
        "frame-not-found",
    ]
    said = {"quote": "the pilot station opens at fifteen past six"}
    both, half = ask(**base | said), ask(**base | said | {"frame": "frame-10pct.png"})
    assert both["accepted"] and not half["accepted"]
    assert refusal_reason(half) == "frame-time-mismatch"
    lost = ask(**base | {"quote": "the pilot station is closed on sunday"})
    assert refusal_reason(lost) == "quote-not-found"
    for result in (good, *reasons, both, half, lost):
        assert replay(result["receipt"], [talk]) == "same"


def test_hostile_claims_are_refused_not_raised():
    talk = context(TALK)
    hostile = [
        {},
        {"videoId": ["v"], "quote": "x", "startSec": 0},
        {"videoId": "v", "quote": "\ud800 " * 9, "startSec": 0},
        {"videoId": "v", "quote": "a " * 50_000, "startSec": 0},
        {"videoId": "v", "quote": "\u0301" * 1000, "startSec": {}},
        {"videoId": "v", "quote": 7, "startSec": 7, "frame": {}},
    ]
    for claim in hostile:
        result = verify_citation(claim, [talk])
        assert not result["accepted"] and refusal_reason(result)
    with pytest.raises(UsageError):
        verify_citation("v", [talk])
    with pytest.raises(UsageError):
        verify_citation({}, [talk, talk])


def test_every_excerpt_of_a_transcript_scores_one():
    rng = random.Random(9)
    rows = [
        (i * 3.0, i * 3.0 + 3, " ".join(rng.choices("abcdefgh", k=9)))
        for i in range(120)
    ]
    talk = context(rows)
    said = talk.words.words
    for i in range(0, len(said) - 20, 7):
        at = talk.words.start_s(i)
        assert verify_quote(talk, " ".join(said[i : i + 20]), at)["score"] == 1.0


def test_the_fast_search_is_fast():
    rng = random.Random(4)
    vocabulary = [f"w{int(900 * rng.random() ** 3)}" for _ in range(4000)]
    rows = [
        (i * 4.0, i * 4.0 + 4, " ".join(rng.choices(vocabulary, k=10)))
        for i in range(150)
    ]
    quotes = [" ".join(rng.choices(vocabulary, k=12)) for _ in range(4)]
    talk = context(rows)
    verify_quote(talk, quotes[0], 0)
    started = time.perf_counter()
    fast = [verify_quote(talk, quote, 300)["found_score"] for quote in quotes]
    between = time.perf_counter()
    slow = [slow_quotes.verdict(rows, quote, 300)["found_score"] for quote in quotes]
    assert fast == slow
    assert (time.perf_counter() - between) / (between - started) > 20


def test_lists_of_marked_words_are_words_themselves():
    for language in ("en", "es", "zh", "ja"):
        marked = marked_words(language)
        split = script_words if language in ("zh", "ja") else quote_words
        for word in marked.negations | set(marked.digits) | marked.numbers:
            assert split(word) == [word]
