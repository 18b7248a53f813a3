"Briefs, extractions, prompts: wrapped answers, wrong shapes, long videos, invariants."

import json
import random
import re
import subprocess
import sys

import pytest
from llm_server import FAULTS, ScriptedServer, Turn, claim, said, single

from vid2context.answer_schemas import (
    check_schema,
    schema_errors,
    strict_export,
    without_nulls,
)
from vid2context.answers import read_answer
from vid2context.brief_page import Brief
from vid2context.briefs import build_brief
from vid2context.chain import Chain
from vid2context.citations import replay
from vid2context.claims import check_claim
from vid2context.core import UsageError, Vid2ContextError, canonical_json
from vid2context.extracting import extract
from vid2context.gathering import Deps
from vid2context.lines import estimate_tokens
from vid2context.options import Llm, Rung, Transcript
from vid2context.outcomes import BadAnswer
from vid2context.points import classify, voices_of
from vid2context.prompts import brief_prompt
from vid2context.requests import read_claims
from vid2context.templates import TEMPLATES
from vid2context.text import parse_untrusted, timestamp_url
from vid2context.transcript import (
    CaptionFile,
    Segment,
    segments_jsonl,
    transcript_of,
)
from vid2context.video_contexts import context_from_segments

WORDS = [
    *("lens", "shutter", "battery", "menu", "grip", "sensor", "flash", "tripod"),
    *("strap", "filter", "mount", "dial", "screen", "button", "cable", "card", "case"),
    *("charger", "aperture", "focus", "zoom", "timer", "light", "meter"),
]


def video(name, said, *, step_s=9.0, **more):
    rows = [
        {"start_s": step_s * n, "end_s": step_s * (n + 1), "text": text}
        for n, text in enumerate(said)
    ]
    url = f"https://example.org/{name}.mp4"
    return context_from_segments(name, rows, title=f"About {name}", url=url, **more)


def deps(*servers, **more):
    facts = {"kind": "keyless", "model": "m", "context_tokens": 32_000}
    facts |= more.pop("rung", {})
    rungs = [Rung(str(n), base_url=s.base_url, **facts) for n, s in enumerate(servers)]
    options = {"clock": lambda: 0.0, "sleep": lambda _: None, "environ": {}}
    extractive = more.pop("extractive", False)
    chain = Chain(rungs, extractive=extractive, **options | more.pop("chain", {}))
    return Deps(chain, **more)


ANA = video("ana", ["the battery lasts a whole day of shooting in the city"])
QUOTE = "the battery lasts a whole day of shooting"


# Wrapped answers and wrong shapes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"claims": [{"text": "Nets dry first", "cites": ["S2"]}]}', None),
        ('```json\n{"claims": []}\n```', None),
        ('So:\n\n```\n{"claims": []}\n```\nGood luck {friend}', None),
        ('\ufeff \n {"claims": []}\n', None),
        ('<think>or {"claims": 1}?</think>{"claims": []}', None),
        ('{"claims": "\\u00f6 \\ud83e\\uddf5"}', None),
        ('{"claims": [],}', "not valid JSON"),
        ('{"claims": [{"text": "Nets dry', "not valid JSON"),
        ('```json\n{"claims": [', "not valid JSON"),
        ("", "empty"),
        ("Sorry, no.", "no JSON object"),
        ('{"claims": []}{"claims": []}', "more than one"),
        ("null", "no JSON object"),
        ('{"claims": NaN}', "NaN"),
        ('{"claims": [], "claims": [1]}', "stands twice"),
        ('{"claims": 1e999}', "too large"),
    ],
)
def test_one_object_or_a_reason(text, reason):
    if reason is None:
        assert "claims" in read_answer(text)
        return
    with pytest.raises(BadAnswer, match=reason) as caught:
        read_answer(text)
    assert caught.value.raw == text[:2000]


def test_a_curly_quote_never_becomes_an_answer():
    curly = Turn('{\u201cclaims": [{"claim": "x"}]}')
    with ScriptedServer([curly]) as server, pytest.raises(Vid2ContextError) as caught:
        build_brief([ANA], deps=deps(server))
    assert caught.value.code == "upstream"


NOTES = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "notes": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "kind": {"enum": ["fact", "opinion"]},
                    "rows": {
                        "type": "array",
                        "items": {"type": "string", "pattern": "^R[1-9][0-9]*$"},
                    },
                    "more": {"type": "string"},
                },
                "required": ["text", "kind", "rows"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["name", "notes"],
    "additionalProperties": False,
}
NOTE = {"text": "x", "kind": "fact", "rows": ["R1"]}


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ({"name": "N", "notes": [NOTE]}, []),
        ({"name": "N", "notes": [NOTE | {"kind": "Fact"}]}, ["/notes/0/kind"]),
        (
            {"name": "N", "notes": [NOTE | {"sure": 0.9}], "end": "y"},
            ["/end", "/notes/0/sure"],
        ),
        (
            {
                "name": "",
                "notes": [
                    {"text": 5, "kind": "maybe", "rows": ["r1", "R0", 3]},
                    {"kind": "fact", "rows": []},
                ],
            },
            [
                "/name",
                "/notes/0/kind",
                "/notes/0/rows/0",
                "/notes/0/rows/1",
                "/notes/0/rows/2",
                "/notes/0/text",
                "/notes/1/text",
            ],
        ),
        ([{"name": "N"}], [""]),
        ({"name": "N", "notes": [NOTE | {"rows": "R1"}]}, ["/notes/0/rows"]),
        ({"name": "N", "notes": [NOTE | {"more": None}]}, ["/notes/0/more"]),
    ],
)
def test_every_fault_is_named_once(value, places):
    check_schema(NOTES)
    assert [place for place, _ in schema_errors(NOTES, value)] == places


def test_the_strict_export_closes_requires_and_allows_null():
    item = strict_export(NOTES)["properties"]["notes"]["items"]
    assert item["required"] == ["text", "kind", "rows", "more"]
    assert item["additionalProperties"] is False
    assert item["properties"]["more"] == {"type": ["string", "null"]}
    assert "pattern" not in json.dumps(item)
    came = {"name": "N", "notes": [NOTE | {"more": None}]}
    assert schema_errors(strict_export(NOTES), came) == []
    assert schema_errors(NOTES, without_nulls(NOTES, came)) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://evil.invalid/s.json"},
        {"properties": {"a": {"anyOf": []}}},
        {"items": [{}]},
        {"type": "object", "patternProperties": {}},
        {"pattern": "("},
        {"pattern": "(((x{90}){90}){90}){90}"},
        {"minItems": True},
        {"properties": {"a": True}},
        [],
    ],
)
def test_a_schema_outside_the_subset_costs_no_request(schema):
    with ScriptedServer([Turn("{}")]) as server:
        with pytest.raises(UsageError) as caught:
            extract([ANA], schema=schema, deps=deps(server))
        assert server.requests == []
    assert caught.value.code == "bad-request"
    assert caught.value.field.startswith("schema")


def test_a_backtracking_pattern_is_a_fault_and_not_a_hang():
    slow = {"type": "object", "properties": {"a": {"pattern": "^(\\w|\\d)*(x+x+)+y$"}}}
    answer = said({"data": {"a": "x" * 5000}, "citations": []})
    with ScriptedServer([answer]) as server:
        with pytest.raises(Vid2ContextError) as caught:
            extract([ANA], schema=slow, deps=deps(server))
        assert len(server.requests) == 2
    assert caught.value.code == "upstream"


# A long video


def test_a_long_video_is_covered_to_its_last_word():
    talk = [
        f"The crew looks at buoy {n} and sails on to the next mark."
        for n in range(3000)
    ]
    talk[1500], talk[-1] = (
        "The middle light is green.",
        "The last word is albatross nine.",
    )
    long = video("long", talk, step_s=4.0)
    told = []

    def answer(request):
        told.append(request["body"]["messages"])
        return said({"claims": []})

    with ScriptedServer(answer) as server:
        options = {"rung": {"context_tokens": 16_000}}
        brief = build_brief([long], max_chunk_tokens=4000, deps=deps(server, **options))
    contents = [messages[1]["content"] for messages in told]
    sources = [parse_untrusted(content)[0][1] for content in contents]
    everything = "\n".join(sources)
    assert all(text in everything for text in talk)
    assert max(estimate_tokens(source) for source in sources) <= 4000
    for messages in told:
        whole = sum(estimate_tokens(m["content"]) + 4 for m in messages)
        assert whole + Llm().answer_tokens <= 0.75 * 16_000
        assert messages[0]["content"] == told[0][0]["content"]
        assert "A claim is one statement" in messages[1]["content"]
    assert brief.notes[-1] == "Nothing was cited from: long."


def test_what_no_model_read_is_named_with_its_times():
    talk = [
        f"The crew looks at buoy {n} and sails on to the next mark." for n in range(600)
    ]
    long, count = video("long", talk, step_s=4.0), iter(range(99))

    def answer(request):
        first = next(count) == 0
        return said({"claims": []}) if first else FAULTS["truncated"][0]

    with ScriptedServer(answer) as server:
        brief = build_brief([long], max_chunk_tokens=4000, deps=deps(server))
    gaps = [note for note in brief.notes if "was left out" in note]
    assert len(gaps) == len(brief.attempts) - 1
    assert re.match(r"long from \d+:\d\d to \d+:\d\d was left out", gaps[0])
    assert "to the end was left out" in gaps[-1]


# Invariants


def talks(draw):
    "Three talks of made-up sentences; the last may repeat the first."
    made = []
    for name in "abc":
        lines = [" ".join(draw.choices(WORDS, k=12)) for _ in range(20)]
        made.append(video(name, lines))
    if draw.random() < 0.3:
        made[2] = video("c", [s.text for s in made[0].segments])
    return made


def claims_from(draw, contexts):
    "Claims of which some are right and some are wrong."
    made = []
    for n in range(draw.randrange(3, 14)):
        one = draw.choice(contexts)
        line = draw.choice(one.segments)
        quote = " ".join(line.text.split()[: draw.randrange(3, 13)])
        if draw.random() < 0.3:
            quote = " ".join(draw.choices(WORDS, k=9))
        made.append(
            claim(
                draw.choice([one.id, one.id, one.id, "ghost", "a"]),
                line.start_s + draw.choice([0, 3, 100]),
                quote,
                id=draw.choice([f"m{n}", "m0"]),
                topic=draw.choice(["Lens", "lenses", "The grip", "", "Menus"]),
            )
        )
    return made


def grouping_of(draw, ids):
    points = [
        {
            "text": "A point",
            "support": draw.choices([*ids, "lost"], k=draw.randrange(3)),
            "oppose": draw.choices(ids, k=draw.randrange(2)),
            "counter": draw.choice(["Else", None]),
        }
        for _ in range(draw.randrange(5))
    ]
    return [{"topic": draw.choice(["Lens", "Menu"]), "points": points}]


@pytest.mark.parametrize("seed", range(25))
def test_invariants_of_a_brief(seed):
    draw = random.Random(seed)
    contexts = talks(draw)
    claims = claims_from(draw, contexts)
    topics = grouping_of(draw, [c["id"] for c in claims])
    with ScriptedServer([single(*claims, topics=topics)]) as server:
        brief = build_brief(contexts, "What is said?", deps=deps(server))
        again = build_brief(contexts, "What is said?", deps=deps(server))
        assert len(server.requests) == 2
    check_brief(brief, contexts)
    assert canonical_json(brief.to_json()) == canonical_json(again.to_json())
    accepted = [
        c for c in claims if check_claim(c, contexts).__class__.__name__ == "Citation"
    ]
    distinct = {(c["quote"], c["videoId"], c["topic"]) for c in accepted}
    cited = {(c.quote, c.videoId) for c in brief.citations}
    assert cited == {(quote, name) for quote, name, _ in distinct}
    assert len(brief.citations) <= len(accepted)


def check_brief(brief, contexts):
    voices = voices_of(contexts)
    for citation in brief.citations:
        assert replay(citation.receipt, contexts) == "same"
        strict, script = citation.strict, citation.receipt["result"]["script"]
        assert citation.frame or strict["passes"]
        assert script or citation.receipt["result"]["verdict"] == "pass"
    refused = {(u.quote, u.videoId, u.startSec) for u in brief.unverified}
    cited = {(c.quote, c.videoId, c.receipt["startSec"]) for c in brief.citations}
    assert not refused & cited
    for topic in brief.topics:
        for point in topic.points:
            sides = [
                [voices[c.videoId] for c in s] for s in (point.support, point.oppose)
            ]
            assert point.status == classify(*sides)
            assert point.support and (point.counter is None) == (not point.oppose)
    known = {c.id: c.meta.url for c in contexts}
    urls = {timestamp_url(known[c.videoId], c.startSec) for c in brief.citations}
    links = set(re.findall(r"(?<!\\)\]\(([^)]*)\)", brief.markdown))
    assert links == urls == {c.url for c in brief.citations}
    Brief.model_validate(json.loads(json.dumps(brief.to_json())))


@pytest.mark.parametrize("seed", range(6))
def test_claims_are_conserved_through_parts_and_grouping(seed):
    draw = random.Random(100 + seed)
    contexts = talks(draw)

    def answer(request):
        label, inside = parse_untrusted(request["body"]["messages"][1]["content"])[0]
        if label == "claims":
            ids = [json.loads(line)["id"] for line in inside.splitlines()]
            if draw.random() < 0.3:
                return Turn(status=500)
            return said({"topics": grouping_of(draw, ids)})
        name = re.search(r"videoId: (\S+)", inside)[1]
        lines = re.findall(r"\[\d+:\d\d\|(\d+)\] (.*)", inside)
        picked = draw.sample(lines, k=min(3, len(lines)))
        return said(
            {
                "claims": [
                    claim(name, int(at), text[: draw.randrange(30, 60)], topic=text[:5])
                    for at, text in picked
                ]
            }
        )

    with ScriptedServer(answer) as server:
        brief = build_brief(contexts, max_chunk_tokens=400, deps=deps(server))
    check_brief(brief, contexts)
    assert any(row["step"].startswith("map:") for row in brief.rungs)
    keys = [(c.videoId, c.quote, c.claim) for c in brief.citations]
    assert len(keys) == len(set(keys))


def test_the_order_of_videos_changes_no_verdict():
    draw = random.Random(5)
    contexts = talks(draw)
    for one in claims_from(draw, contexts) * 3:
        shuffled = draw.sample(contexts, k=3)
        first, second = check_claim(one, contexts), check_claim(one, shuffled)
        assert type(first) is type(second)
        assert (first.startSec, first.score) == (second.startSec, second.score)


def test_ten_megabytes_invented_ids_and_repetitions():
    twice = claim("ana", 0, QUOTE)
    ghosts = [claim("ghost", 0, QUOTE, id=f"g{n}") for n in range(500)]
    topics = [
        {
            "topic": "T",
            "points": [{"text": "P", "support": ["a", "g1", "zz"], "oppose": []}] * 3,
        }
    ]
    flood = FAULTS["10 MB"][0]
    with (
        ScriptedServer([flood]) as first,
        ScriptedServer([single(twice, twice, twice, *ghosts, topics=topics)]) as second,
    ):
        brief = build_brief([ANA], deps=deps(first, second))
    assert [a.outcome for a in brief.attempts] == ["bad-answer", "ok"]
    assert len(brief.citations) == 1
    assert {u.reason for u in brief.unverified} == {"unknown-video"}
    assert any(note.startswith("Repeated claims") for note in brief.notes)


def test_when_every_model_fails_code_picks_quotes():
    with ScriptedServer([FAULTS["truncated"][0]]) as server:
        brief = build_brief([ANA], deps=deps(server, extractive=True))
    assert [(a.rung, a.outcome) for a in brief.attempts] == [
        ("0", "bad-answer"),
        ("extractive", "ok"),
    ]
    assert brief.citations[0].quote == ANA.segments[0].text


def test_extractive_alone_makes_no_request_and_never_waits():
    def no(*_):
        raise AssertionError("slept")

    chain = Chain([], sleep=no, clock=lambda: 0.0)
    brief = build_brief([ANA, video("b", ["x y"])], deps=Deps(chain))
    assert {a.rung for a in brief.attempts} == {"extractive"}
    assert "Nothing was cited from: b." in brief.notes


def test_a_question_that_was_set_aside_is_told_first():
    talk = video("b", ["Who still likes old fashioned glue at all?", "Glue it is!"])
    brief = build_brief([talk], "what does the submarine cost", deps=Deps(Chain([])))
    shown = [line for line in brief.markdown.splitlines() if line]
    assert shown[0] == "# what does the submarine cost"
    assert shown[1].startswith("> **No line shares a word with the question")
    assert brief.markdown.count("shares a word") == 1
    assert not re.search(r"[?!]\.", brief.summary)
    assert "at all?" in brief.summary
    asked = build_brief([talk], "which glue", deps=Deps(Chain([])))
    assert "shares a word" not in asked.markdown


def test_a_request_without_words_asks_nobody():
    with ScriptedServer([Turn("{}")]) as server:
        brief = build_brief([video("mute", [])], deps=deps(server))
        assert server.requests == []
    assert (brief.topics, brief.attempts) == ([], [])
    assert "has no words" in brief.notes[0]


@pytest.mark.parametrize(
    "options",
    [
        {"template": "haiku"},
        {"policy": "best"},
        {"max_chunk_tokens": 3},
        {"rate_limit_retries": -1},
        {"question": "why " * 300},
    ],
)
def test_a_wrong_call_asks_nobody(options):
    with ScriptedServer([Turn("{}")]) as server:
        with pytest.raises(UsageError) as caught:
            build_brief([ANA], deps=deps(server), **options)
        with pytest.raises(UsageError):
            build_brief([ANA, ANA], deps=deps(server))
        assert server.requests == []
    assert caught.value.code == "bad-request"


# Extraction


def test_a_comparison_leaves_a_hole_and_an_empty_verdict():
    def cell(column, quote):
        source = {"videoId": "ana", "startSec": 0, "quote": quote}
        return {"column": column, "value": "a day", "sources": [source]}

    bad = cell("cold", "the battery lasts a whole week of skiing up north")
    answer = {
        "columns": [
            {"id": "battery", "label": "Battery"},
            {"id": "cold", "label": "Cold"},
        ],
        "rows": [{"option": "Alder", "cells": [cell("battery", QUOTE), bad]}],
        "verdict": {"text": "Buy.", "sources": bad["sources"]},
    }
    with ScriptedServer([said(answer)]) as server:
        found = extract([ANA], template="comparison", deps=deps(server))
    assert [c["column"] for c in found.data["rows"][0]["cells"]] == ["battery"]
    assert found.data["verdict"] is None
    assert [u.pointer for u in found.unverified] == [
        "/rows/0/cells/1/sources/0",
        "/verdict/sources/0",
    ]
    assert found.uncited[0] == "/columns/0/id"
    assert schema_errors(TEMPLATES["comparison"].schema, found.data) == []
    assert [replay(c.receipt, [ANA]) for c in found.citations] == ["same"]


@pytest.mark.parametrize("first", ["trailing comma", "truncated", "empty", "10 MB"])
def test_one_repair_on_the_same_rung_then_the_next_without(first):
    turns = [FAULTS[first][0], Turn("still wrong")]
    good = said({"paragraph": "", "key_points": []})
    with ScriptedServer(turns) as a, ScriptedServer([Turn("no"), good]) as b:
        with pytest.raises(Vid2ContextError) as caught:
            extract([ANA], deps=deps(a, b))
        assert (len(a.requests), len(b.requests)) == (2, 1)
        repair = a.requests[1]["body"]["messages"]
    assert caught.value.code == "upstream"
    assert repair[:2] == a.requests[0]["body"]["messages"]


def test_pointers_cover_what_lies_below_them():
    schema = {"type": "object", "properties": {"a": {"type": "object"}, "b": {}}}
    data = {"a": {"x": 1, "y": [True, None, {}]}, "b": "z"}
    source = {"videoId": "ana", "startSec": 0, "quote": QUOTE}
    cited = [{"pointer": "/a", **source}, {"pointer": "/a/y/7", **source}]
    with ScriptedServer([said({"data": data, "citations": cited})]) as server:
        found = extract([ANA], schema=schema, deps=deps(server))
    assert found.data == data
    assert found.uncited == ["/b"]
    assert [u.reason for u in found.unverified] == ["bad-pointer"]
    assert "template" not in found.to_json()


# Prompts, commands, real words


def test_a_prompt_takes_whole_videos_in_order_and_names_the_others():
    many = [
        video(name, [" ".join(WORDS)] * n)
        for name, n in zip("abcd", (3, 90, 2, 1), strict=True)
    ]
    whole = brief_prompt(many)
    prompt = brief_prompt(many, max_tokens=whole.tokens // 2)
    assert prompt.included == ("a", "c", "d")
    assert prompt.omitted == ("b",)
    assert prompt.tokens <= whole.tokens // 2
    assert "Not included for their length: b." in prompt.messages[1]["content"]


def test_the_command_line_in_a_process_of_its_own(tmp_path):
    package(tmp_path / "ana")
    with ScriptedServer([Turn("{}")]) as server:
        planted = (
            f"[vid2context]\n[llm]\nrungs = evil\n[llm.evil]\nmodel = m\n"
            f"base_url = {server.base_url}\nkind = keyless\n"
        )
        (tmp_path / "settings.ini").write_text(planted)
        done = run_cli(tmp_path, "brief", "ana", "-q", "What lasts?", "--json")
        assert server.requests == []
    assert done.returncode == 0
    assert done.stderr.count("was left out, since the file was found") == 4
    (line,) = done.stdout.splitlines()
    brief = json.loads(line)
    assert (brief["command"], brief["status"]) == ("brief", "ok")
    (tmp_path / "brief.json").write_text(line)
    claims = read_claims(tmp_path / "brief.json")
    assert [(c["videoId"], c["quote"]) for c in claims] == [
        ("ana", ANA.segments[0].text)
    ]


def test_a_brief_is_verified_again_and_a_changed_transcript_is_noticed(tmp_path):
    spoken = package(tmp_path / "ana")
    brief = run_cli(tmp_path, "brief", "ana", "--json")
    (tmp_path / "brief.json").write_text(brief.stdout)
    again = run_cli(tmp_path, "verify", "brief.json", "ana", "--replay", "--json")
    assert again.returncode == 0
    told = json.loads(again.stdout)
    assert [c["replay"] for c in told["claims"]] == ["same"]
    spoken.write_bytes(spoken.read_bytes().replace(b"whole day", b"whole week"))
    changed = run_cli(tmp_path, "verify", "brief.json", "ana", "--replay", "--json")
    assert changed.returncode == 1
    told = json.loads(changed.stdout)
    assert [c["replay"] for c in told["claims"]] == ["transcript-changed"]


def package(folder):
    "A package of one sentence; its transcript is returned."
    spoken = folder / "transcript/segments.jsonl"
    for path in (folder / "source", spoken.parent):
        path.mkdir(parents=True)
    (folder / "source/metadata.json").write_text('{"id": "ana", "title": "Ana"}')
    spoken.write_bytes(segments_jsonl([Segment(0, 0.0, 9.0, ANA.segments[0].text)]))
    return spoken


def run_cli(folder, *words):
    command = [sys.executable, "-m", "vid2context", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )


def test_real_transcripts_give_quotes_that_hold(real_data):
    kinds = {".vtt", ".srt", ".json3", ".ass"}
    files = [
        f for f in sorted((real_data / "captions").rglob("*")) if f.suffix in kinds
    ]
    contexts = []
    for n, file in enumerate(files):
        track = CaptionFile(file, None, "sidecar", None, file.suffix[1:])
        told = transcript_of([track], duration_s=1e5, settings=Transcript())
        rows = [
            {"start_s": s.start_s, "end_s": s.end_s, "text": s.text}
            for s in told.segments
            if s.kind == "speech"
        ]
        context = context_from_segments(f"v{n}", rows, title=file.stem)
        if any(len(s.text.split()) >= 8 for s in context.segments):
            contexts.append(context)
    assert len(contexts) >= 5
    brief = build_brief(contexts, deps=Deps(Chain([], clock=lambda: 0.0)))
    assert 5 <= len(brief.citations) <= 12
    assert {replay(c.receipt, contexts) for c in brief.citations} == {"same"}
    prompt = brief_prompt(contexts, max_tokens=20_000)
    assert prompt.included and prompt.tokens <= 20_000
    assert len(prompt.included) + len(prompt.omitted) == len(contexts)
