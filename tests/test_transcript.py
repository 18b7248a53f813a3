"""Captions as people find them: what must be read, how, and what is refused."""

import json
import os
from pathlib import Path

import pytest

from vid2context.citations import verify_quote
from vid2context.core import Vid2ContextError
from vid2context.options import Transcript as Options
from vid2context.repair import repair
from vid2context.transcript import (
    CaptionFile,
    Segment,
    Transcript,
    parse_captions,
    read_segments,
    segments_jsonl,
    source_txt,
    source_vtt,
    transcript_of,
)
from vid2context.video_contexts import context_from_segments

REAL = os.environ.get("VID2CONTEXT_REAL_DATA")
ORIGIN = {"kind": "manual"}


def segments(data, *, name="", language=None, duration_s=None):
    raw = data if isinstance(data, bytes) else data.encode()
    captions = parse_captions(raw, name=name, language=language)
    return repair(captions, duration_s=duration_s, origin=ORIGIN)


def texts(data, **options):
    return [s.text for s in segments(data, **options)[0]]


def rolled_vtt(lines, *, holds=True, step_s=2.0):
    "Roll lines as YouTube does: the old line above, the new one below with its times."
    out, before = ["WEBVTT", ""], " "
    for k, line in enumerate(lines):
        start, end = k * step_s, (k + 1) * step_s - (0.01 if holds else 0)
        words = line.split()
        each = (end - start) / len(words)
        timed = words[0] + "".join(
            f"<{clock(start + n * each)}><c> {word}</c>"
            for n, word in enumerate(words[1:], 1)
        )
        out += [f"{clock(start)} --> {clock(end)} align:start", before, timed, ""]
        if holds:
            out += [f"{clock(end)} --> {clock(end + 0.01)} align:start", line, " ", ""]
        before = line
    return "\n".join(out)


def clock(seconds):
    millis = round(seconds * 1000)
    minutes, rest = divmod(millis, 60_000)
    return (
        f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}.{rest % 1000:03d}"
    )


class TestRolling:
    said = (
        "we mix the lime with sand",
        "and then we stir",
        "and then we stir",
        "[Music]",
        "until no lump is left",
        "yes",
        "yes",
        "that is all",
    )

    def test_every_word_comes_once_and_repeats_stay(self):
        found, issues = segments(rolled_vtt(self.said))
        assert [s.text for s in found] == list(self.said)
        assert [s.start_s for s in found] == [2.0 * k for k in range(len(self.said))]
        assert [s.kind for s in found].count("sound") == 1
        assert "rolling_unrolled" in issues
        assert min(s.end_s - s.start_s for s in found) > 0.05

    def test_word_times_stay_with_their_words(self):
        found, _ = segments(rolled_vtt(self.said))
        words = found[0].words
        assert [w.text for w in words] == self.said[0].split()
        assert [w.start_s for w in words] == sorted(w.start_s for w in words)
        assert words[-1].end_s <= found[0].end_s

    def test_a_player_that_trims_padding_changes_nothing(self):
        trimmed = rolled_vtt(self.said).replace("\n \n", "\n\n")
        found, _ = segments(trimmed)
        assert [s.text for s in found] == list(self.said)
        assert [s.start_s for s in found] == [2.0 * k for k in range(len(self.said))]

    def test_scrolling_without_word_times_or_holds(self):
        lines = [f"line {n} of the talk" for n in range(12)]
        srt = "".join(
            f"{k}\n{clock(k)} --> {clock(k + 1)}\n{lines[k - 1]}\n{lines[k]}\n\n"
            for k in range(1, 12)
        )
        assert texts(srt) == ["line 0 of the talk line 1 of the talk", *lines[2:]]

    def test_a_line_that_grows_word_by_word(self):
        said = ["so", "today", "we", "plant", "the", "beans", "in", "rows", "now"]
        srt = "".join(
            f"{k}\n{clock(k)} --> {clock(k + 1)}\n{' '.join(said[: k + 1])}\n\n"
            for k in range(len(said))
        )
        assert texts(srt) == said

    def test_a_track_that_does_not_roll_keeps_every_repeat(self):
        srt = "".join(f"{k}\n{clock(k)} --> {clock(k + 1)}\nyes\n\n" for k in range(20))
        assert texts(srt) == ["yes"] * 20
        choir = "".join(
            f"{k}\n{clock(k)} --> {clock(k + 1)}\n{'ab'[k % 2]} la la\n\n"
            for k in range(20)
        )
        assert len(texts(choir)) == 20

    def test_a_pause_ends_what_was_on_screen(self):
        cues = [("a b", 0), ("a b\nc d", 1), ("c d\ne f", 2), ("e f\ng h", 3)]
        cues += [("g h\ni j", 4), ("i j\nk l", 5), ("k l\nm n", 9)]
        srt = "".join(f"{clock(t)} --> {clock(t + 1)}\n{x}\n\n" for x, t in cues)
        assert texts(srt)[-1] == "k l m n"


class TestVtt:
    def test_blocks_that_are_no_cues_leave_no_text(self):
        text = (
            "\ufeffWEBVTT - the pier\r\nKind: captions\r\nLanguage: nl-BE\r\n\r\n"
            "STYLE\r\n::cue { color: red }\r\n\r\nREGION\r\nid:low\r\n\r\n"
            "NOTE\r\nbetween 00:09.000 and 00:10.000\r\n\r\n"
            "first one\r\n00:01.000 --> 00:02.500 region:low\r\nCast\r\noff.\r\n\r\n"
            "NOTE short\r\n\r\n01:00:05.000\t-->\t01:00:06.000\r\n7"
        )
        captions = parse_captions(text.encode())
        found, _ = repair(captions, duration_s=None, origin=ORIGIN)
        assert [(s.start_s, s.end_s, s.text) for s in found] == [
            (1.0, 2.5, "Cast off."),
            (3605.0, 3606.0, "7"),
        ]
        assert captions.language == "nl-BE"
        assert {s.lang for s in found} == {"nl-BE"}

    @pytest.mark.parametrize(
        ("raw", "text"),
        [
            ("Fish &amp; chips", "Fish & chips"),
            ("3 &lt; 4 &gt; 1", "3 < 4 > 1"),
            ("it&#39;s 9&nbsp;&deg;C", "it's 9 °C"),
            ("write &amp;lt;i&amp;gt; here", "write &lt;i&gt; here"),
            ("if p < q and r > s", "if p < q and r > s"),
            ("<i.foo>soft</i> <c.red>red</c> <lang fr>oui</lang>", "soft red oui"),
            ("R&D has &none; of it", "R&D has &none; of it"),
            ("a --> b is an arrow", "a --> b is an arrow"),
            ("<b>bold<br/>next", "bold next"),
        ],
    )
    def test_markup_and_entities(self, raw, text):
        assert texts(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{raw}\n") == [text]

    def test_voices_name_their_speaker(self):
        raw = "<v.loud Dr. Ada Bos>In.</v>\n<v Tim>Out.</v>"
        found, _ = segments(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{raw}\n")
        assert [(s.speaker, s.text) for s in found] == [
            ("Dr. Ada Bos", "In."),
            ("Tim", "Out."),
        ]

    def test_a_broken_time_is_counted_not_joined(self):
        vtt = "WEBVTT\n\n" + "".join(
            f"00:0{k}.000 --> 00:0{k}.900\nkept {k}\n\n" for k in range(1, 9)
        )
        found, issues = segments(vtt + "00:09.000 --> 00:0x.000\nlost\n")
        assert [s.text for s in found] == [f"kept {k}" for k in range(1, 9)]
        assert "cues_dropped: 1 of 9" in issues

    def test_one_in_five_may_be_broken_and_no_more(self):
        cue = "00:0{}.000 --> 00:0{}.900\nkept\n\n"
        bad = "00:01.000 --> soon\nlost\n\n"
        good = "".join(cue.format(k, k) for k in range(4))
        assert len(texts("WEBVTT\n\n" + good + bad)) == 4
        with pytest.raises(Vid2ContextError) as caught:
            segments("WEBVTT\n\n" + good + bad + bad)
        assert caught.value.code == "transcript.too_broken"


class TestSrt:
    def test_the_wild_is_read(self):
        srt = """
1
0:00:01,000 --> 0:00:02,500
Well,

my friend.

00:00:03.000 --> 00:00:04.000
No index.

3
00:00:05 --> 00:00:06
Bare.

4
00:00:07,5 --> 00:00:08,25
7

5
00:00:09,000 --> 00:00:10,000


6
00:00:11,000 --> 00:00:12,000 X1:1 X2:2
<font color="#fff">Sum:</font>
{\\an8}1.567
7
00:00:13,000 --> 00:00:14,000
from 10:30:00
to 18:00:00 ->"""
        found, _ = segments(srt)
        assert [(s.start_s, s.end_s, s.text) for s in found] == [
            (1.0, 2.5, "Well, my friend."),
            (3.0, 4.0, "No index."),
            (5.0, 6.0, "Bare."),
            (7.5, 8.25, "7"),
            (11.0, 12.0, "Sum: 1.567"),
            (13.0, 14.0, "from 10:30:00 to 18:00:00 ->"),
        ]

    def test_text_that_looks_like_structure_stays_text(self):
        srt = "1\n00:01 --> 00:02\nsee C:\\New\\now {note}\n00:00:08,000 00:00:09,000\n"
        assert texts(srt) == ["see C:\\New\\now {note} 00:00:08,000 00:00:09,000"]


@pytest.mark.parametrize(
    ("text", "codec", "name", "language"),
    [
        ("Größe zählt.", "utf-16", "a.srt", None),
        ("Ça va déjà.", "utf-8-sig", "b.srt", None),
        ("Üç kuş uçtu, şaştım.", "cp1254", "c.tr.srt", None),
        ("Чай остыл.", "cp1251", "d.srt", "ru"),
        ("L’été coûte 20 €.", "cp1252", "e.fr.srt", None),
        ("鐘が鳴る。", "shift_jis", "f.srt", "ja"),
        ("Żółw idzie.", "cp1250", "g.pl.srt", None),
        ("שלום לכם", "cp1255", "h.srt", "he"),
        ("¿Qué pasó? Mañana será otro día.", "latin-1", "i.srt", None),
        ("Zażółć gęślą jaźń, prosił żółw.", "cp1250", "j.srt", None),
    ],
)
def test_the_encoding_is_found(text, codec, name, language):
    raw = f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n".encode(codec)
    captions = parse_captions(raw, name=name, language=language)
    assert [line.text for line in captions.cues[0].lines] == [text]
    guessed = any(issue.startswith("encoding_guessed") for issue in captions.issues)
    assert guessed == (codec not in ("utf-16", "utf-8-sig"))


def test_one_bad_byte_after_a_mark_costs_one_character():
    raw = b"\xef\xbb\xbf1\n00:00:01,000 --> 00:00:02,000\nna\xc3\xafve r\xe9el\n"
    captions = parse_captions(raw)
    assert captions.cues[0].lines[0].text == "naïve r\ufffdel"
    assert captions.issues == ("encoding_guessed: utf-8",)


class TestJson3:
    def test_rows_words_and_windows(self):
        events = [
            {"tStartMs": 0, "dDurationMs": 90_000, "wpWinPosId": 1},
            {
                "tStartMs": 500,
                "dDurationMs": 4000,
                "segs": [
                    {"utf8": "mind", "acAsrConf": 204},
                    {"utf8": " the", "tOffsetMs": 300, "acAsrConf": 102},
                ],
            },
            {"tStartMs": 1990, "aAppend": 1, "segs": [{"utf8": "\n"}]},
            {"tStartMs": 2000, "segs": [{"utf8": "gap &amp; go"}]},
            {"tStartMs": 4000, "dDurationMs": 500, "segs": [{"tOffsetMs": 1}]},
            {"tStartMs": 5000, "dDurationMs": 1000, "segs": [{"utf8": "[Bell]"}]},
        ]
        found, _ = segments(json.dumps({"events": events}))
        assert [(s.start_s, s.end_s, s.text, s.kind) for s in found] == [
            (0.5, 2.0, "mind the", "speech"),
            (2.0, 5.0, "gap &amp; go", "speech"),
            (5.0, 6.0, "[Bell]", "sound"),
        ]
        assert [(w.start_s, w.end_s) for w in found[0].words] == [
            (0.5, 0.8),
            (0.8, 2.0),
        ]
        assert found[0].words[0].confidence == 0.8
        assert found[0].confidence == pytest.approx(
            (0.3 * 0.8 + 1.2 * 0.4) / 1.5, abs=1e-3
        )
        assert found[1].words is None and found[1].confidence is None
        assert {s.flags for s in found} == {()}  # long rows are the format's way

    def test_word_times_stay_in_their_row_and_never_fall(self):
        pieces = [("one", 0), (" two", 900), (" three", 400), (" four", 5000)]
        segs = [{"utf8": text, "tOffsetMs": at} for text, at in pieces]
        events = [
            {"tStartMs": 1000, "dDurationMs": 9000, "segs": segs},
            {"tStartMs": 3000, "dDurationMs": 1000, "segs": [{"utf8": "next"}]},
        ]
        found, _ = segments(json.dumps({"events": events}))
        assert [(w.start_s, w.end_s) for w in found[0].words] == [
            (1.0, 1.9),
            (1.9, 1.9),
            (1.9, 3.0),
            (3.0, 3.0),
        ]

    def test_zero_confidence_throughout_says_nothing(self):
        event = {
            "tStartMs": 0,
            "dDurationMs": 9,
            "segs": [{"utf8": "a", "acAsrConf": 0}],
        }
        found, _ = segments(json.dumps({"events": [event]}))
        assert found[0].words[0].confidence is None

    @pytest.mark.parametrize("bad", [None, "x", [], {}, True, 1e400, -5, 10**30])
    def test_a_number_that_is_none_drops_one_row(self, bad):
        rows = [
            {"tStartMs": 1000 * k, "dDurationMs": 900, "segs": [{"utf8": f"row {k}"}]}
            for k in range(8)
        ]
        rows[3]["tStartMs"] = bad
        found, issues = segments(json.dumps({"events": [bad, *rows]}))
        assert [s.text for s in found] == [f"row {k}" for k in range(8) if k != 3]
        assert "cues_dropped: 1 of 8" in issues


class TestXml:
    def test_ttml_times_in_every_notation(self):
        ttml = (
            '<tt xmlns="http://www.w3.org/ns/ttml" xml:lang="de" xmlns:ttp="p" '
            'ttp:frameRate="25" ttp:tickRate="1000"><head><metadata><title>no</title>'
            '</metadata></head><body><div begin="10s">'
            '<p begin="00:00:01.500" end="00:00:02.000">Uhr</p>'
            '<p begin="00:00:03:10" dur="1s">Bild</p>'
            '<p begin="5000t" end="6000t">Tick</p>'
            '<p begin="50f" end="75f">Bilder</p>'
            '<p begin="9s" end="10s">Zeile <span>eins</span><br/>zwei</p></div>'
            '<div timeContainer="seq"><p dur="1s">nach</p>'
            '<p dur="1s">einander</p></div>'
            "</body></tt>"
        )
        captions = parse_captions(ttml.encode())
        assert captions.language == "de"
        assert [(c.start_s, c.end_s) for c in captions.cues] == [
            (11.5, 12.0),
            (13.4, 14.4),
            (15.0, 16.0),
            (12.0, 13.0),
            (19.0, 20.0),
            (0.0, 1.0),
            (1.0, 2.0),
        ]
        assert [x.text for x in captions.cues[4].lines] == ["Zeile eins", "zwei"]

    def test_timed_spans_are_words_or_cues(self):
        ttml = (
            "<tt><body><div><p begin='1s' end='3s'><span begin='0s'>on</span> "
            "<span begin='1s'>time</span></p><p><span begin='4s' end='5s'>alone</span>"
            "</p></div></body></tt>"
        )
        found, _ = segments(ttml)
        assert [(w.text, w.start_s, w.end_s) for w in found[0].words] == [
            ("on", 1.0, 2.0),
            ("time", 2.0, 3.0),
        ]
        assert (found[1].start_s, found[1].end_s, found[1].text) == (4.0, 5.0, "alone")

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ('<!DOCTYPE tt [<!ENTITY a "b">]><tt>&a;</tt>', "transcript.xml_refused"),
            ("<tt>" + "<div>" * 40, "transcript.xml_refused"),
            ("<tt><body><p begin='1s'>cut", "transcript.xml_invalid"),
            ("<html><p>hi</p></html>", "transcript.unknown_format"),
            ("<tt><body>&undefined;</body></tt>", "transcript.xml_invalid"),
        ],
    )
    def test_what_is_refused(self, text, code):
        with pytest.raises(Vid2ContextError) as caught:
            parse_captions(text.encode())
        assert caught.value.code == code


def test_ass_is_dialogue_only():
    script = (
        "[Script Info]\nScriptType: v4.00+\n\n[Events]\n"
        "Format: Start, End, Name, Text\n"
        "Comment: 0:00:00.00,0:00:01.00,,hidden\n"
        "Dialogue: 0:00:01.00,0:00:02.50,Bo,{\\an8\\fad(9,9)}Hot, "
        "{\\i1}fresh{\\i0}\\Nand\\hnew\n"
        "Dialogue: 0:00:02.00,0:00:03.00,,{\\p1}m 0 0 l 9 9{\\p0}\n"
        "Dialogue: 9:59:59.99,10:00:01.00,,Late, &amp; later. {oops\n"
    )
    found, _ = segments(script)
    assert [(s.start_s, s.end_s, s.speaker, s.text) for s in found] == [
        (1.0, 2.5, "Bo", "Hot, fresh and new"),
        (35999.99, 36001.0, None, "Late, & later. {oops"),
    ]


@pytest.mark.parametrize(
    ("raw", "speaker", "markers", "text"),
    [
        ("[APPLAUSE GROWS]", None, ("[APPLAUSE GROWS]",), "[APPLAUSE GROWS]"),
        ("♪ do re mi ♪", None, ("♪",), "do re mi"),
        (">> Anyone?", ">>", (), "Anyone?"),
        (">>> OLGA: At 10:42 pm.", "OLGA", (), "At 10:42 pm."),
        ("OLGA: At 10:42 pm.", "OLGA", (), "At 10:42 pm."),
        ("MAN 2: Hello there.", "MAN 2", (), "Hello there."),
        ("Cause of fire: fog.", None, (), "Cause of fire: fog."),
        ("ALL CAPS: EVERY LINE", None, (), "ALL CAPS: EVERY LINE"),
        ("10:42 we left", None, (), "10:42 we left"),
        ("（笑） はい", None, ("（笑）",), "はい"),
        ("(sighs) That [one] is fine.", None, ("(sighs)",), "That [one] is fine."),
        ("Well [laughs]", None, ("[laughs]",), "Well"),
        ("f(x) and main()", None, (), "f(x) and main()"),
        ("what the [ __ ]", None, (), "what the [ __ ]"),
    ],
)
def test_markers_and_speakers(raw, speaker, markers, text):
    found, _ = segments(f"1\n00:01 --> 00:03\n{raw}\n")
    assert (found[0].speaker, found[0].markers, found[0].text) == (
        speaker,
        markers,
        text,
    )
    assert ("masked" in found[0].flags) == ("__" in raw)


class TestWordTimes:
    def test_two_timed_lines_of_one_cue_follow_each_other(self):
        vtt = (
            "WEBVTT\n\n00:01.000 --> 00:03.000\n"
            "above <00:02.000>all\nwe\xa0wait <00:02.500>here\n"
        )
        found, _ = segments(vtt)
        times = [t for w in found[0].words for t in (w.start_s, w.end_s)]
        assert times == sorted(times)


class TestTimes:
    def test_each_repair_is_flagged(self):
        srt = (
            "0:10 --> 0:12\nsecond\n\n0:01 --> 0:11\nfirst\n\n"
            "0:14 --> 0:13\nbackward talk\n\n0:20 --> 0:29\nfar end\n\n"
            "0:21.5 --> 0:22\npast the end"
        )
        found, issues = segments(srt, duration_s=21.0)
        assert [(s.start_s, s.end_s, s.text) for s in found] == [
            (1.0, 10.0, "first"),
            (10.0, 12.0, "second"),
            (14.0, 14.867, "backward talk"),
            (20.0, 21.0, "far end"),
            (21.0, 21.0, "past the end"),
        ]
        assert set(issues) == {"reordered: 1", "overlap_cut: 1", "end_repaired: 1"}

    def test_two_people_may_speak_at_once_and_one_may_not(self):
        vtt = (
            "WEBVTT\n\n00:01.000 --> 00:05.000\n<v A>one\n\n"
            "00:02.000 --> 00:04.000\n<v B>two\n\n"
            "00:03.000 --> 00:06.000\n<v A>three\n\n00:03.500 --> 00:07.000\nfour\n"
        )
        found, _ = segments(vtt)
        assert [(s.start_s, s.end_s) for s in found] == [
            (1.0, 3.0),
            (2.0, 3.5),
            (3.0, 3.5),
            (3.5, 7.0),
        ]


class TestTranscript:
    @pytest.fixture
    def tracks(self, tmp_path):
        def write(name, text, kind="manual"):
            path = tmp_path / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            return CaptionFile(path, "en", kind, "en", "vtt")

        return write

    def test_a_refused_track_hands_over_to_the_next(self, tracks):
        bad = tracks("a.vtt", "WEBVTT\n")
        gone = CaptionFile(bad.path.with_name("gone.vtt"), "en", "manual", "en", "vtt")
        good = tracks("b.srt", "1\n00:01 --> 00:02\nHere we are.\n", kind="auto")
        found = transcript_of([bad, gone, good], duration_s=5.0, settings=Options())
        assert (found.kind, found.segments[0].text) == ("auto", "Here we are.")
        assert found.issues[0].startswith("track_refused: a.vtt: ")
        assert found.issues[1].startswith("track_refused: gone.vtt: ")
        origin = found.segments[0].origin
        assert list(origin) == ["kind", "track", "format", "file_sha256", "engine"]
        assert (origin["kind"], origin["format"], origin["track"]) == (
            "auto",
            "srt",
            "en",
        )

    def test_nothing_to_read_and_nobody_to_listen(self, tracks):
        found = transcript_of([], duration_s=5.0, settings=Options(), spoken="es")
        assert (found.kind, found.segments, found.language) == ("none", (), "es")
        assert found.vtt.startswith(b"WEBVTT")

    def test_a_vtt_is_copied_and_anything_else_rendered(self, tracks):
        raw = b"\xef\xbb\xbfWEBVTT\r\n\r\n00:01.000 --> 00:02.000\r\nAs it came\r\n"
        vtt = transcript_of([tracks("a.vtt", raw)], duration_s=5.0, settings=Options())
        assert vtt.vtt == raw
        latin = "WEBVTT\n\n00:01.000 --> 00:02.000\nété\n".encode("latin-1")
        other = transcript_of(
            [tracks("b.vtt", latin)], duration_s=5.0, settings=Options()
        )
        assert "été" in other.vtt.decode() and "b.vtt" in other.vtt.decode()
        assert other.segments[0].origin["file_sha256"] in other.vtt.decode()

    def test_the_limits_hold_before_any_parser(self, tracks):
        big = tracks("big.srt", "0:01 --> 0:02\nx\n" * 40)
        few = Options(max_cues=20)
        found = transcript_of([big], duration_s=5.0, settings=few)
        assert found.kind == "none" and "at most 20" in found.issues[0]
        small = Options(max_bytes=50)
        found = transcript_of([big], duration_s=5.0, settings=small)
        assert "at most 50" in found.issues[0]


class TestFiles:
    said = (
        Segment(0, 0.0, 20.0, "One & two <three>", lang="en", speaker=">> 2"),
        Segment(1, 20.0, 22.5, "[Bell]", "sound", markers=("[Bell]",)),
        Segment(2, 22.5, 40.0, "four --> five", markers=("♪",)),
        Segment(3, 40.0, 40.0, "six", flags=("overlap_cut",)),
    )

    def test_rendered_captions_read_back_the_same(self):
        vtt = source_vtt(self.said, note="from --> here\nWEBVTT", language="en")
        back, _ = segments(vtt)
        assert vtt.count(b"-->") == len(self.said)
        assert [(s.text, s.kind, s.markers) for s in back] == [
            (s.text, s.kind, s.markers) for s in self.said
        ]
        assert [s.speaker for s in back] == [s.speaker for s in self.said]

    def test_the_text_file_has_the_words_of_the_speech(self):
        transcript = Transcript(self.said, "en", "manual", b"")
        text = source_txt(
            transcript, title=" A\n# title ", video_id="v", duration_s=3600.2
        ).decode()
        head, _, body = text.partition("\n\n")
        assert head.splitlines() == [
            "# title: A # title",
            "# video_id: v",
            "# language: en",
            "# provenance: manual",
            "# duration: 01:00:00",
        ]
        assert body.splitlines() == [
            "[00:00:00-00:00:40] One & two <three> four --> five",
            "[00:00:40-00:00:40] six",
        ]

    def test_no_speech_is_a_header_alone(self):
        text = source_txt(
            Transcript((), None, "none", b""), title="t", video_id="v", duration_s=0
        )
        assert text.endswith(b"# duration: 00:00:00\n\n")

    def test_segments_read_back_and_a_bad_line_is_named(self, tmp_path):
        path = tmp_path / "segments.jsonl"
        path.write_bytes(
            b"\xef\xbb\xbf" + segments_jsonl(self.said).replace(b"\n", b"\r\n")
        )
        assert read_segments(path) == self.said
        for bad in (b'{"i": 0}', b"[]", b"nonsense", b'{"i": NaN}'):
            path.write_bytes(segments_jsonl(self.said[:1]) + bad + b"\n")
            with pytest.raises(Vid2ContextError) as caught:
                read_segments(path)
            assert (caught.value.code, caught.value.field) == (
                "jsonl_invalid",
                "line 2",
            )


def assert_sound(found):
    "Check what every later step relies on."
    last = {}
    starts = [s.start_s for s in found]
    assert starts == sorted(starts) and [s.i for s in found] == list(range(len(found)))
    for s in found:
        assert 0 <= s.start_s <= s.end_s
        assert s.text and s.text == " ".join(s.text.split()) and s.text.encode()
        assert last.get(s.speaker, 0.0) <= s.start_s
        last[s.speaker] = s.end_s
        times = [t for w in s.words or () for t in (w.start_s, w.end_s)]
        assert times == sorted(times)
        assert all(s.start_s <= t <= s.end_s for t in times)


def assert_quotable(found, step):
    "Check that excerpts of twenty words score 1.0 in the citation checker."
    rows = [vars(s) for s in found]
    context = context_from_segments("v", rows, title="t")
    speech = [s for s in found if s.kind == "speech"]
    words = [(w, s.start_s) for s in speech for w in s.text.split()]
    for k in range(0, max(1, len(words) - 20), step):
        quote = " ".join(w for w, _ in words[k : k + 20])
        verdict = verify_quote(context, quote, words[k][1], accept="verdict")
        if verdict["reason"] not in ("quote-too-short", "no-quote"):
            assert verdict["score"] == 1.0, (quote, verdict)


def test_what_was_unrolled_can_be_quoted():
    lines = [
        f"step {n} we turn the handle {'left' if n % 3 else 'right'}" for n in range(60)
    ]
    found, _ = segments(rolled_vtt(lines))
    assert_sound(found)
    assert_quotable(found, 3)


@pytest.mark.skipif(not REAL, reason="VID2CONTEXT_REAL_DATA is not set")
class TestRealFiles:
    def files(self):
        return [p for p in sorted(Path(REAL, "captions").rglob("*")) if p.is_file()]

    def test_each_is_read_or_refused_with_a_reason(self):
        read, refused = 0, {}
        for path in self.files():
            try:
                found, _ = segments(path.read_bytes(), name=path.name)
            except Vid2ContextError as error:
                assert error.code.startswith("transcript.") and error.message
                refused[path.name] = error.code
                continue
            read += 1
            assert_sound(found)
            assert_quotable(found, 7)
            again, _ = segments(source_vtt(found, note=path.name))
            assert [s.text for s in again] == [s.text for s in found]
        assert read >= 135, refused
        assert set(refused.values()) <= {
            "transcript.empty",
            "transcript.format_refused",
            "transcript.no_cues",
            "transcript.too_broken",
            "transcript.unknown_format",
        }

    def test_every_encoding_of_one_file_reads_the_same(self):
        folder = Path(REAL, "captions", "derived")
        same = ["cr_only", "dot_ms", "no_hours", "no_numbers", "utf8_bom_crlf"]
        first = texts((folder / "es_latin1_crlf.srt").read_bytes(), language="es")
        for name in same:
            assert texts((folder / f"es_{name}.srt").read_bytes()) == first, name

    def test_automatic_captions_have_rising_word_times(self):
        path = Path(REAL, "captions", "youtube-auto", "asr_lesson.json3")
        found, _ = segments(path.read_bytes())
        assert len(found) > 380 and all(s.words for s in found if s.kind == "speech")
        times = [w.start_s for s in found for w in s.words or ()]
        assert times == sorted(times)
