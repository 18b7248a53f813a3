"""A ledger that was touched anywhere is found out."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vid2context.core import Vid2ContextError, canonical_json, sha256_bytes
from vid2context.evidence import (
    ZERO,
    Anchors,
    FrameEvidence,
    MadeBy,
    live_rows,
    quote_of,
    read_rows,
    row_digest,
)
from vid2context.grounding import check_ledger, quote_problem
from vid2context.ledger import Ledger
from vid2context.review_files import LedgerHead
from vid2context.schema import read_json
from vid2context.segments import Segment

CODE = MadeBy(kind="code", name="test", version="1")
ANCHORS = Anchors(
    video_id="v", duration_ms=60_000, segments_sha256="a" * 64, media_sha256="b" * 64
)
TALK = [Segment(0, 0, 4, "One  two"), Segment(1, 4, 8, "three four.")]
SAID = quote_of("two three", start_s=0, end_s=8, first=0, last=1)


def small_ledger(rows=4):
    ledger = Ledger.create(ANCHORS, "Título «raro» \u2028 \x07", made_by=CODE)
    for i in range(rows):
        ledger.add(
            f'Claim {i} "é" 😀 \\ \t.',
            evidence_class="direct",
            spans=[SAID],
            made_by=CODE,
        )
    return ledger


DATA = small_ledger().to_bytes()


@given(at=st.integers(0, len(DATA) - 1), byte=st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_one_changed_byte_is_always_found(at, byte):
    changed = DATA[:at] + bytes([byte]) + DATA[at + 1 :]
    if changed != DATA:
        assert read_rows(changed)[1]
        with pytest.raises(Vid2ContextError):
            Ledger.parse(changed)


@given(begin=st.integers(0, len(DATA)), length=st.integers(1, 400))
@settings(max_examples=200, deadline=None)
def test_a_cut_is_found_by_the_chain_or_by_the_head(begin, length):
    cut = DATA[:begin] + DATA[begin + length :]
    ledger = Ledger.parse(DATA)
    head = LedgerHead(rows=len(ledger.rows), head_sha256=ledger.head_sha256)
    if cut != DATA:
        assert check_ledger(cut, head=head)


def test_a_cut_tail_is_sound_as_a_chain_and_truncated_against_the_head():
    ledger = Ledger.parse(DATA)
    head = LedgerHead(rows=len(ledger.rows), head_sha256=ledger.head_sha256)
    tail_cut = b"".join(DATA.splitlines(keepends=True)[:-1])
    assert read_rows(tail_cut)[1] == ()
    assert [p.code for p in check_ledger(tail_cut, head=head)] == ["ledger_truncated"]
    grown = Ledger.parse(DATA)
    grown.add("More.", evidence_class="direct", spans=[SAID], made_by=CODE)
    assert check_ledger(grown.to_bytes(), head=head) == []


def test_swapped_and_repeated_rows_break_the_chain():
    lines = DATA.splitlines(keepends=True)
    for order in ([0, 2, 1, 3, 4], [0, 1, 1, 2, 3, 4], [1, 2, 3, 4]):
        problems = read_rows(b"".join(lines[i] for i in order))[1]
        assert "ledger_chain_broken" in {problem.code for problem in problems}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data + b"\n",
        lambda data: data[:-1],
        lambda data: data.replace(b"{", b"{ ", 1),
        lambda data: data.replace("é".encode(), b"\\u00e9", 1),
    ],
    ids=["crlf", "bom", "blank line", "no last line feed", "space", "escape"],
)
def test_only_canonical_lines_pass(change):
    codes = {problem.code for problem in read_rows(change(DATA))[1]}
    assert codes & {"ledger_not_canonical", "jsonl_invalid"}


def test_escapes_are_the_ones_json_demands():
    line = DATA.splitlines()[0]
    assert b"\\u0007" in line and "«raro» \u2028".encode() in line
    assert canonical_json(read_json(line)) == line


def test_floats_and_unknown_keys_are_no_row():
    row = read_json(DATA.splitlines()[0])
    for change in ({"seq": 0.0}, {"anchors": None}, {"mood": "calm"}):
        body = row | change
        body["row_sha256"] = row_digest(body)
        problems = read_rows(canonical_json(body) + b"\n")[1]
        assert "ledger_row_invalid" in {problem.code for problem in problems}


def test_live_rows_follow_targets():
    ledger = small_ledger(2)
    second, third = ledger.rows[1:]
    new = ledger.add(
        "New.", evidence_class="direct", target=second.id, spans=[SAID], made_by=CODE
    )
    ledger.withdraw(third.id, reason="Wrong.", made_by=CODE)
    assert [row.id for row in ledger.live()] == [new.id]
    assert live_rows(ledger.rows) == ledger.live()
    assert Ledger.parse(ledger.to_bytes()).live() == ledger.live()
    for dead in (second.id, third.id, ledger.rows[0].id, ledger.rows[-1].id):
        with pytest.raises(Vid2ContextError) as caught:
            ledger.withdraw(dead, reason="Again.", made_by=CODE)
        assert caught.value.code == "ledger_dangling"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"evidence_class": "direct"}, "ledger_ungrounded"),
        ({"evidence_class": "visual", "spans": [SAID]}, "ledger_ungrounded"),
        ({"evidence_class": "time_bound", "spans": [SAID]}, "ledger_ungrounded"),
        ({"evidence_class": "unverified", "limit": "x"}, "ledger_ungrounded"),
        ({"evidence_class": "analyst_judgment"}, "ledger_ungrounded"),
        ({"evidence_class": "recommendation", "basis": ["L0002"]}, "ledger_ungrounded"),
        (
            {"evidence_class": "recommendation", "confidence": "low"},
            "ledger_ungrounded",
        ),
        ({"evidence_class": None, "spans": [SAID]}, "ledger_row_invalid"),
    ],
)
def test_each_class_demands_its_evidence(fields, code):
    ledger = small_ledger(1)
    before = ledger.to_bytes()
    with pytest.raises(Vid2ContextError) as caught:
        ledger.add("A claim.", **fields, made_by=CODE)
    assert caught.value.code == code
    assert ledger.to_bytes() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"evidence_class": "time_bound", "spans": [SAID], "limit": "As of May 2024."},
        {"evidence_class": "unverified", "spans": [SAID], "limit": "No source named."},
        {"evidence_class": "analyst_judgment", "limit": "Omission: no numbers."},
        {"evidence_class": "analyst_judgment", "basis": ["L0002"]},
        {"evidence_class": "recommendation", "basis": ["L0002"], "confidence": "low"},
    ],
)
def test_each_class_is_content_with_its_evidence(fields):
    small_ledger(1).add("A claim.", **fields, made_by=CODE)


def test_quotes_are_looked_up_where_they_claim_to_stand():
    assert quote_problem(SAID, TALK) is None
    for change in (
        {"first_segment": 1},
        {"last_segment": 2},
        {"quote": "two four"},
        {"end_ms": 8_100},
        {"first_segment": 1, "last_segment": 0},
    ):
        assert quote_problem(SAID.model_copy(update=change), TALK)


def test_a_frame_that_is_gone_or_other_is_named():
    ledger = small_ledger(0)
    frame = FrameEvidence(
        file="frame-05pct.png", at_ms=0, sha256="c" * 64, reading=None, reader=None
    )
    ledger.add("Seen.", evidence_class="visual", frames=[frame], made_by=CODE)
    for digests in ({}, {"frame-05pct.png": "d" * 64}):
        found = check_ledger(ledger.to_bytes(), frame_sha256=digests)
        assert [(p.code, p.line, p.field) for p in found] == [
            ("ledger_frame_changed", 2, "frames[0]")
        ]


def test_a_long_ledger_is_read_in_linear_time():
    ledger = small_ledger(0)
    started = time.process_time()
    for _ in range(1500):
        ledger.add("Again.", evidence_class="direct", spans=[SAID], made_by=CODE)
    assert read_rows(ledger.to_bytes())[1] == ()
    assert time.process_time() - started < 10


def test_digests_are_over_what_the_specification_says():
    first, second = (read_json(line) for line in DATA.splitlines()[:2])
    body = {key: value for key, value in first.items() if key != "row_sha256"}
    assert first["row_sha256"] == sha256_bytes(canonical_json(body))
    assert first["prev_sha256"] == ZERO
    assert second["prev_sha256"] == first["row_sha256"]
    span = second["transcript_spans"][0]
    assert span["quote_sha256"] == sha256_bytes(span["quote"].encode())
