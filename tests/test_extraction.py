"Extraction writes twenty frames and more, says what each is, and does so twice alike."

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from vid2context.core import UsageError, Vid2ContextError, sha256_bytes
from vid2context.coverage import largest_gap_s
from vid2context.extraction import capture, extract_frames
from vid2context.media import opened, packets_of, write_clip
from vid2context.options import Media, Sampling, Settings

PLAIN = Settings(media=Media(guarded=False))
KEYS = [
    "schema_version",
    "requested_profile",
    "resolved_profile",
    "source",
    "sampling",
    "metrics",
    "frames",
    "manual_review",
    "other_frames",
    "gaps",
    "decode",
    "sampler_fingerprint",
]


def stripes(i, size=(128, 72)):
    bits = np.repeat([(i >> k) & 1 for k in range(8)], size[0] // 8) * 235 + 10
    line = np.tile(bits.astype(np.uint8), (size[1], 1))
    return np.repeat(line[..., None], 3, axis=2)


def number(image):
    rgb = np.asarray(image.convert("RGB"))
    middles = rgb[rgb.shape[0] // 2, rgb.shape[1] // 16 :: rgb.shape[1] // 8, 0]
    return sum(int(v > 127) << k for k, v in enumerate(middles))


def files(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    "Two minutes of slides: 12, 55 and 200, each for 40 s."
    path = tmp_path_factory.mktemp("talk") / "talk.mp4"
    pictures = (stripes((12, 55, 200)[i // 80]) for i in range(240))
    write_clip(path, pictures, fps=2, options={"g": "20"})
    return path


def test_the_report_has_the_agreed_form(talk, tmp_path):
    found = extract_frames(talk, tmp_path, profile="auto", settings=PLAIN)
    text = (tmp_path / "coverage.json").read_text(encoding="utf-8")
    coverage = json.loads(text)
    assert coverage == json.loads(json.dumps(found.coverage))
    assert text.endswith("}\n")
    assert list(coverage) == KEYS
    assert coverage["source"] == {
        "video": "talk.mp4",
        "duration_seconds": 120.0,
        "fps": 2.0,
        "width": 128,
        "height": 72,
    }
    assert coverage["resolved_profile"] == "standard"
    assert coverage["sampling"]["target_max_gap_seconds"] == 20.0
    flags = [v for k, v in coverage["manual_review"].items() if k != "notes"]
    assert flags == [False] * 3
    times = [f["timestamp_seconds"] for f in coverage["frames"]]
    assert times == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 119.5]
    assert coverage["frames"][2]["reasons"] == ["scene-change", "timeline-anchor"]
    observed = coverage["sampling"]["max_observed_gap_seconds"]
    assert observed == largest_gap_s(times, duration_s=120.0) == 20.0
    for frame in (*coverage["frames"], *coverage["other_frames"]):
        numerator, denominator = frame["time_base"]
        counted = frame["pts"] * numerator / denominator
        assert frame["shown_s"] == pytest.approx(counted, abs=6e-4)
        with Image.open(tmp_path / "frames" / frame["file"]) as image:
            assert image.size == (128, 72)
            shown = (12, 55, 200)[min(int(frame["timestamp_seconds"] // 40), 2)]
            assert number(image) == shown


def test_a_held_picture_is_marked_not_hidden(talk, tmp_path):
    found = extract_frames(talk, tmp_path, profile="auto", settings=PLAIN)
    names = [f"frame-{p:02d}pct.png" for p in range(0, 100, 5)]
    uniform = [f for f in found.frames if f.kind == "uniform"]
    assert [f.file for f in uniform] == names
    assert [f.same_frame_as for f in uniform[:8]] == [
        None,
        *["frame-00pct.png"] * 6,
        None,
    ]
    assert sum(f.duplicate_of is None for f in found.frames) == 3
    for frame in found.frames:
        data = (tmp_path / "frames" / frame.file).read_bytes()
        assert sha256_bytes(data) == frame.sha256
        if frame.same_frame_as:
            same = (tmp_path / "frames" / frame.same_frame_as).read_bytes()
            assert same == data


def test_the_same_video_gives_the_same_bytes(talk, tmp_path):
    guarded = replace(PLAIN, media=Media())
    for name, settings in (("a", PLAIN), ("b", PLAIN), ("c", guarded)):
        extract_frames(talk, tmp_path / name, profile="auto", settings=settings)
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")


def test_a_closer_look_has_smaller_gaps(talk, tmp_path):
    found = extract_frames(talk, tmp_path, profile="visual-heavy", settings=PLAIN)
    assert found.coverage["sampling"]["max_observed_gap_seconds"] == 10.0
    sheets = sorted(p.name for p in (tmp_path / "frames").glob("*.jpg"))
    assert sheets == ["adaptive-contact-sheet-01.jpg", "contact-sheet.jpg"]


def test_chapters_are_anchors_when_asked(talk, tmp_path):
    chapters = [{"title": "A", "start_time": 7.25, "end_time": 30.0}]
    options = replace(PLAIN, sampling=Sampling(chapter_anchors=True))
    found = extract_frames(
        talk, tmp_path, profile="auto", settings=options, chapters=chapters
    )
    assert "adaptive-000007250ms.png" in {f.file for f in found.frames}
    without = extract_frames(
        talk, tmp_path / "b", profile="auto", settings=PLAIN, chapters=chapters
    )
    prints = {c.coverage["sampler_fingerprint"] for c in (found, without)}
    assert len(prints) == 2
    scenes = {c.coverage["metrics"]["scene_changes"] for c in (found, without)}
    assert scenes == {2}


def test_seven_pictures_still_give_twenty_files(tmp_path):
    write_clip(tmp_path / "short.mp4", map(stripes, range(7)), fps=25)
    found = extract_frames(
        tmp_path / "short.mp4", tmp_path / "visual", profile="auto", settings=PLAIN
    )
    assert sum(f.kind == "uniform" for f in found.frames) == 20
    adaptive = [f.file for f in found.frames if f.kind == "adaptive"]
    assert adaptive[0] == "adaptive-000000000ms.png"


def test_black_openings_are_told(tmp_path):
    pictures = [np.zeros((72, 128, 3), np.uint8)] * 20 + [stripes(77)] * 60
    write_clip(tmp_path / "dark.mp4", pictures, fps=10)
    found = extract_frames(
        tmp_path / "dark.mp4", tmp_path / "visual", profile="auto", settings=PLAIN
    )
    black = {f.file for f in found.frames if f.black}
    assert "frame-00pct.png" in black
    assert "frame-50pct.png" not in black
    kept = [f for f in found.frames if f.duplicate_of is None and not f.black]
    assert len(kept) == 1


def test_damage_is_named_or_refused(tmp_path):
    def hurt(name, bad):
        clip = tmp_path / name
        write_clip(clip, map(stripes, range(200)), fps=10, options={"g": "1"})
        with opened(clip, settings=PLAIN.media) as container:
            packets = packets_of(container, container.streams.video)
            bodies = [bytes(packet) for packet in packets if packet.size]
        data = bytearray(clip.read_bytes())
        for body in bodies[bad]:
            at = data.index(body)
            data[at : at + len(body)] = b"\xff" * len(body)
        clip.write_bytes(data)
        return clip

    small = hurt("small.mkv", slice(99, 104))
    found = extract_frames(small, tmp_path / "a", profile="auto", settings=PLAIN)
    stand_in = next(f for f in found.frames if f.file == "frame-50pct.png")
    assert (stand_in.substituted, stand_in.shown_s) == (True, 9.8)
    assert {"start_s": 9.9, "end_s": 10.4, "reason": "undecodable"} in (
        found.coverage["gaps"]
    )
    assert found.coverage["decode"]["failed"] >= 5
    large = hurt("large.mkv", slice(85, 125))
    with pytest.raises(Vid2ContextError, match="within 1 s of 00:10"):
        extract_frames(large, tmp_path / "b", profile="auto", settings=PLAIN)


def test_output_has_a_limit(talk, tmp_path):
    tight = replace(PLAIN, media=Media(guarded=False, max_output_bytes=2000))
    with pytest.raises(Vid2ContextError) as caught:
        extract_frames(talk, tmp_path, profile="auto", settings=tight)
    assert caught.value.code == "media.limit.output"


def test_no_video_writes_nothing(tmp_path):
    (tmp_path / "page.mp4").write_text("<html></html>")
    with pytest.raises(Vid2ContextError) as caught:
        extract_frames(
            tmp_path / "page.mp4", tmp_path / "visual", profile="auto", settings=PLAIN
        )
    assert caught.value.code == "media.not_media"
    assert not (tmp_path / "visual").exists()


def test_captures_add_up(talk, tmp_path):
    extract_frames(talk, tmp_path, profile="auto", settings=PLAIN)
    frames = {
        f["file"]
        for f in json.loads((tmp_path / "coverage.json").read_text())["frames"]
    }
    capture(talk, tmp_path, settings=PLAIN, at_s=[39.6, 90])
    capture(talk, tmp_path, settings=PLAIN, sequences={"turn": 40.0, "end": 119.9})
    coverage = json.loads((tmp_path / "coverage.json").read_text())
    assert {f["file"] for f in coverage["frames"]} == frames
    kinds = [e["kind"] for e in coverage["other_frames"]]
    assert {k: kinds.count(k) for k in set(kinds)} == {
        "uniform": 20,
        "supplemental": 2,
        "sequence": 14,
    }
    numbers = {}
    for entry in coverage["other_frames"]:
        with Image.open(tmp_path / "frames" / entry["file"]) as image:
            numbers[entry["file"]] = number(image)
    assert numbers["supplemental-39s.png"] == 12
    assert numbers["sequence-turn-000039500ms-04.png"] == 12
    assert numbers["sequence-turn-000040000ms-05.png"] == 55
    sheets = {p.name for p in (tmp_path / "frames").glob("*.jpg")}
    assert {"sequence-contact-sheet-01.jpg", "supplemental-contact-sheet.jpg"} <= sheets
    for given, code in (
        ({"at_s": [39.1]}, "frame_exists"),
        ({"at_s": [5.0, 5.9]}, "frame_exists"),
        ({"at_s": [400]}, "time_out_of_range"),
        ({"sequences": {"turn": 40.0}}, "frame_exists"),
        ({"sequences": {"../x": 10.0}}, "invalid_label"),
    ):
        with pytest.raises(UsageError) as caught:
            capture(talk, tmp_path, settings=PLAIN, **given)
        assert caught.value.code == code


def test_real_videos_are_extracted(real_data, tmp_path):
    names = (
        "mediabunny/cursed-vfr.mp4",
        "derived/bitflips_mid.mp4",
        "opencast/vonly.mov",
    )
    for name in names:
        found = extract_frames(
            real_data / "videos" / name,
            tmp_path / name,
            profile="auto",
            settings=Settings(),
        )
        assert sum(f.kind == "uniform" for f in found.frames) == 20
        sampling = found.coverage["sampling"]
        allowed = sampling["target_max_gap_seconds"] + 0.05
        assert sampling["max_observed_gap_seconds"] <= allowed
