"""Captions made to break a parser: nothing but a named refusal may come out."""

import html
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vid2context.core import Vid2ContextError
from vid2context.options import Transcript as Options
from vid2context.repair import repair
from vid2context.transcript import parse_captions, segments_jsonl, source_vtt

quick = settings(
    max_examples=120, deadline=None, suppress_health_check=list(HealthCheck)
)


def read(data, **options):
    "Read a file to segments; None when it was refused by name."
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    try:
        captions = parse_captions(raw, **options)
        found, _ = repair(captions, duration_s=None, origin={"kind": "manual"})
    except Vid2ContextError as error:
        assert error.code.startswith("transcript.")
        return None
    return found


def check(found):
    last = {}
    for i, s in enumerate(found or ()):
        assert s.i == i and 0 <= s.start_s <= s.end_s
        assert s.text and "\n" not in s.text and "\0" not in s.text
        assert last.get(s.speaker, 0.0) <= s.start_s
        last[s.speaker] = s.end_s
        times = [t for w in s.words or () for t in (w.start_s, w.end_s)]
        assert times == sorted(times)
        assert all(s.start_s <= t <= s.end_s for t in times)
    if found:
        assert segments_jsonl(found).decode()
        assert source_vtt(found, note="fuzz").decode()


TEXT = (
    "00:00:01.000 --> 00:00:02.000|00:01,5 --> 0:02|-->|99:99:99 --> 1|WEBVTT|NOTE"
    "|STYLE|X-TIMESTAMP-MAP=LOCAL:00:00:00.000,MPEGTS:900000|<v Ann>|</v>|<c>"
    "|<00:00:01.500>|<|>|&amp;|&#0;|&#xD800;|&|[Music]|[ __ ]|♪|>> |- |ANN: |（笑）"
    "|{\\an8}|{\\p1}|{|}|[Events]|Dialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,"
    "|Comment: |Format: Start, Text|\\N|\\h|0:00:01.000,0:00:02.000|1|\u200b|\ufeff"
    "|\u202e|\x00|\x0b|é|word| |\n|\n\n|<tt>|<body>|<p begin='1s' end='2s'>|</p>|</tt>"
    "|<timedtext>|<p t='1' d='9'>|<br/>"
    '|<s t="5">|{"events": [|{"tStartMs": 1, "segs": [{"utf8": "a"}]}|]}|\ud800'
)
PIECES = st.sampled_from(TEXT.split("|"))


@quick
@given(st.lists(PIECES, max_size=40).map("".join))
def test_shuffled_pieces_of_every_format(text):
    check(read(text))


@quick
@given(st.binary(max_size=400), st.sampled_from(["", "a.srt", "b.tr.vtt", "c.ja.ass"]))
def test_any_bytes(data, name):
    check(read(data, name=name))
    check(read(b"WEBVTT\n\n00:01.000 --> 00:02.000\n" + data, name=name))
    check(read(b"0:01 --> 0:02\n" + data, name=name))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=6,
)
SEGS = st.lists(
    st.fixed_dictionaries(
        {}, optional={k: VALUES for k in ("utf8", "tOffsetMs", "acAsrConf")}
    )
    | st.fixed_dictionaries({"utf8": st.text(max_size=12)})
    | VALUES,
    max_size=4,
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"tStartMs": st.integers(-5, 9000) | VALUES},
        optional={"dDurationMs": st.integers(-5, 9000) | VALUES, "segs": SEGS | VALUES},
    )
    | VALUES,
    max_size=8,
)


@quick
@given(EVENTS)
def test_json_of_any_shape(events):
    check(read(json.dumps({"events": events})))


LINE = st.lists(st.sampled_from(["yes", "no", "we", "wait"]), min_size=2, max_size=4)


@quick
@given(st.lists(LINE.map(" ".join), min_size=6, max_size=25))
def test_rolled_captions_give_the_words_that_were_rolled(lines):
    vtt = ["WEBVTT", ""]
    for k, line in enumerate(lines):
        first, *rest = line.split()
        timed = first + "".join(
            f"<00:{k:02d}.{100 * n:03d}><c> {word}</c>"
            for n, word in enumerate(rest, 1)
        )
        above = lines[k - 1] if k else " "
        vtt += [f"00:{k:02d}.000 --> 00:{k:02d}.990", above, timed, ""]
        vtt += [f"00:{k:02d}.990 --> 00:{k + 1:02d}.000", line, " ", ""]
    assert [s.text for s in read("\n".join(vtt))] == lines


# A quadratic step takes minutes on a megabyte, a linear one well under a second.
LIMIT_S = 8.0
MEGABYTE = 1_000_000
UNITS = ("x", "{", "{\\", "<", "<a", "<00:", "&", "&#1", " ", "- ", ">> ", "[a] ", "(")
UNITS += (
    "♪ ",
    "A:",
    "\u200b",
    "1",
    "1:",
    "AB C ",
    " \n",
    "-->",
    "<v a>x",
    '"',
    "[",
    "]",
)


def shapes(body):
    safe = html.escape(body)
    run = {"tStartMs": 1, "segs": [{"utf8": body}]}
    runs = {"tStartMs": 1, "segs": [{"utf8": f"{body[:3]} ", "tOffsetMs": 1}] * 20_000}
    yield "vtt", f"WEBVTT\n\n00:01.000 --> 00:02.000\n{body}\n"
    yield "srt", f"1\n00:00:01,000 --> 00:00:02,000\n{body}\n"
    yield "ass", f"[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,,0,0,0,,{body}\n"
    yield "sbv", f"0:00:01.000,0:00:02.000\n{body}\n"
    yield "json3", json.dumps({"events": [run, runs]})
    yield "srv3", f'<timedtext><body><p t="1" d="5">{safe}</p></body></timedtext>'
    yield "ttml", f'<tt><body><p begin="1s" end="5s">{safe}</p></body></tt>'
    yield "bare", body


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_a_megabyte_on_one_line_costs_linear_time(unit):
    body = (unit * (MEGABYTE // len(unit) + 1))[:MEGABYTE]
    began = time.process_time()
    for _, text in shapes(body):
        check(read(text))
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize(
    ("head", "cue"),
    [
        ("WEBVTT\n\n", "00:01.000 --> 00:02.000\na\n\n"),
        ("", "0:01 --> 0:02\na\n"),
        ("[Events]\n", "Dialogue: 0,0:00:01.00,0:00:02.00,,,,,,,\n"),
        ("", "0:00:01.0,0:00:02.0\na\n"),
        ('{"events":[', '{"tStartMs":1,"segs":[]},'),
        ("<timedtext><body>", "<p t='1'>a</p>"),
        ("<tt><body>", "<p begin='1s'>a</p>"),
    ],
    ids=["vtt", "srt", "ass", "sbv", "json3", "srv3", "ttml"],
)
def test_a_million_cues_are_refused_before_any_parser(head, cue):
    data = (head + cue * 1_000_000).encode()
    assert len(data) < Options().max_bytes * 1.5
    began = time.process_time()
    with pytest.raises(Vid2ContextError) as caught:
        parse_captions(data, limits=Options(max_bytes=2**26))
    assert caught.value.code == "transcript.too_large"
    assert time.process_time() - began < 6.0


def test_thirty_two_mebibytes_are_the_end():
    with pytest.raises(Vid2ContextError, match="bytes"):
        parse_captions(b"x" * (32 * 2**20 + 1))


@pytest.mark.parametrize(
    "text", ["[" * 10**6, '{"events":' + "[" * 10**6, '{"events":' + '{"a":' * 10**5]
)
def test_bottomless_json_is_refused(text):
    assert read(text) is None


def test_a_long_cue_is_cut_and_says_so():
    found = read("0:01 --> 0:09\n" + "word " * 3000 + "\n")
    assert len(found) == 1 and len(found[0].text) <= 4096
    assert found[0].text.endswith("word") and found[0].flags == ("capped",)
    tall = read("0:01 --> 0:09\n" + "row\n" * 100)
    assert tall[0].text == " ".join(["row"] * 64)


def test_many_cues_of_many_speakers_stay_linear():
    cues = "".join(
        f"00:{k // 60 % 60:02d}:{k % 60:02d}.000 --> 20:00:00.000\n<v n{k}>word {k}\n\n"
        for k in range(3000)
    )
    began = time.process_time()
    found = read(f"WEBVTT\n\n{cues}")
    assert len(found) == 3000 and time.process_time() - began < 3.0
