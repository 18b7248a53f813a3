"""Whole packages of real clips: written, validated, installed, written again."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vid2context.captioning import read_frames
from vid2context.collection import install_package
from vid2context.core import Vid2ContextError, pretty_json, sha256_file
from vid2context.extraction import extract_frames
from vid2context.front_matter import read_front_matter
from vid2context.manifest import read_manifest
from vid2context.media import write_clip
from vid2context.options import Settings
from vid2context.package import manifest_entry, settle_metadata, write_package
from vid2context.plain_captions import BasicCaptioner
from vid2context.schema import read_json
from vid2context.segments import read_segments
from vid2context.sources import acquire, read_source
from vid2context.transcript import transcript_of
from vid2context.validation import validate_package

SETTINGS = Settings()
NEAR = replace(SETTINGS, media=replace(SETTINGS.media, guarded=False))
SRT = """1
00:00:00,500 --> 00:00:03,000
La luna tira del mar.

2
00:00:03,500 --> 00:00:06,000
- ¿Y el sol?
- Menos. Mira frame-99pct.png a las 12:34.

3
00:00:06,500 --> 00:00:09,500
# Propósito ``` [S01] La tabla cuesta 5 €.
"""


def clip(path, seconds=10, **more):
    colours = [(180, 40, 40), (40, 160, 60), (40, 60, 190), (0, 0, 0)]
    pictures = (
        np.full((72, 128, 3), colours[i * 4 // (seconds * 5)], np.uint8)
        for i in range(seconds * 5)
    )
    write_clip(path, pictures, fps=5, **more)


def parts_of(video, stage, settings=NEAR, **wishes):
    source = acquire(video, stage / "source", settings=settings, **wishes)
    frames = extract_frames(
        source.video, stage / "visual", profile="auto", settings=settings
    )
    transcript = transcript_of(
        source.captions, duration_s=frames.info.duration_s, settings=settings.transcript
    )
    paths = [
        stage / "visual" / "frames" / frame.file
        for frame in frames.frames
        if not frame.black and not frame.duplicate_of
    ]
    readings = read_frames(paths, reader=None, captioner=BasicCaptioner())
    return {
        "source": source,
        "transcript": transcript,
        "frames": frames,
        "readings": readings,
    }


def pack(video, stage, *, language="en", settings=NEAR, **wishes):
    stage.mkdir(parents=True)
    parts = parts_of(video, stage, settings, **wishes)
    write_package(stage, **parts, settings=settings, context_language=language)
    return stage


def errors_of(folder):
    report = validate_package(folder, expect_slug=folder.name)
    return [(f.code, f.file, f.field) for f in report.findings if f.severity == "error"]


def digests(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): sha256_file(p) for p in files}


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    clip(folder / "Mareas: ¿por qué?.mp4")
    (folder / "Mareas: ¿por qué?.es.srt").write_text(SRT, encoding="utf-8")
    return folder / "Mareas: ¿por qué?.mp4"


@pytest.mark.parametrize("language", ["en", "es"])
def test_a_clip_with_hostile_captions_passes_the_validator(video, tmp_path, language):
    stage = pack(video, tmp_path / "mareas-por-qué", language=language)
    assert errors_of(stage) == []
    text = (stage / "deliverables" / "context.md").read_text(encoding="utf-8")
    front = read_front_matter(text.split("\n")).values
    assert front["source_language"] == "es" and front["context_language"] == language
    head = {"en": "# Autonomous context", "es": "# Contexto autónomo"}[language]
    assert f"\n{head}" in text


def test_packing_twice_gives_the_same_bytes_and_touches_no_source(video, tmp_path):
    before = sha256_file(video), video.stat().st_mtime_ns
    first = pack(video, tmp_path / "a" / "x")
    second = pack(video, tmp_path / "b" / "x")
    assert digests(first) == digests(second)
    assert (sha256_file(video), video.stat().st_mtime_ns) == before


def test_no_path_of_this_machine_and_no_clock_is_written(video, tmp_path):
    stage = pack(video, tmp_path / "x")
    for path in stage.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".md", ".txt", ".vtt"):
            data = path.read_bytes()
            assert str(tmp_path).encode() not in data
            assert str(video.parent).encode() not in data
            assert data == b"" or data.endswith(b"\n")
            assert b"\r" not in data and not data.startswith(b"\xef\xbb\xbf")


def test_an_installed_package_is_listed_with_what_is_there(video, tmp_path):
    stage = pack(video, tmp_path / ".staging" / "mareas")
    entry = manifest_entry(stage, slug="mareas")
    folder = install_package(tmp_path, entry)
    assert errors_of(folder) == []
    (listed,) = read_manifest(tmp_path).raw["videos"]
    assert listed == entry
    assert listed["resources"] == {
        "context": True,
        "metadata": True,
        "analysis": True,
        "rules": False,
        "transcript": True,
        "original_captions": True,
        "frames": True,
        "source_video": True,
    }
    assert listed["package_status"] == "draft"
    for gone, flag in (
        ("visual/frames/frame-95pct.png", "frames"),
        ("source/metadata.json", "metadata"),
        ("deliverables/analysis.json", "analysis"),
        ("transcript/source.txt", "transcript"),
    ):
        (folder / gone).unlink()
        assert manifest_entry(folder, slug="mareas")["resources"][flag] is False


def test_a_source_from_elsewhere_is_copied_and_links_are_not(video, tmp_path):
    elsewhere, stage = tmp_path / "elsewhere", tmp_path / "x"
    elsewhere.mkdir()
    stage.mkdir()
    parts = parts_of(video, elsewhere)
    frames = extract_frames(video, stage / "visual", profile="auto", settings=NEAR)
    (elsewhere / "source" / "link.txt").symlink_to("/etc/hostname")
    write_package(stage, **parts | {"frames": frames}, settings=NEAR)
    names = {path.name for path in (stage / "source").iterdir()}
    assert {"metadata.json", "receipt.json", "video.mp4"} <= names
    assert "link.txt" not in names
    assert errors_of(stage) == []


def test_frames_of_another_package_are_refused(video, tmp_path):
    stage = tmp_path / "x"
    stage.mkdir()
    parts = parts_of(video, stage)
    (stage / "visual" / "frames" / "frame-40pct.png").unlink()
    with pytest.raises(Vid2ContextError) as caught:
        write_package(stage, **parts, settings=NEAR)
    assert caught.value.code == "frames_missing"
    assert not (stage / "deliverables").exists()


def test_platform_facts_give_way_to_measured_ones(video, tmp_path):
    stage = tmp_path / "x"
    stage.mkdir()
    parts = parts_of(video, stage)
    path = stage / "source" / "metadata.json"
    wrong = read_json(path.read_bytes()) | {"language": "en", "duration": 14.0}
    receipt = read_json((stage / "source" / "receipt.json").read_bytes())
    for row in receipt["files"]:
        if row["path"] == "metadata.json":
            row["sha256"] = sha256_file(path)
    path.write_bytes(pretty_json(wrong))
    write_package(stage, **parts, settings=NEAR)
    told = read_json(path.read_bytes())
    assert (told["language"], told["duration"]) == ("es", 10.0)
    assert read_source(stage / "source").metadata == told
    assert errors_of(stage) == []
    again = settle_metadata(stage, language="es-MX", duration_s=10.2)
    assert again == told


def test_a_video_without_words_or_text_passes(tmp_path):
    clip(tmp_path / "silent.mp4", seconds=4)
    stage = pack(tmp_path / "silent.mp4", tmp_path / "silent")
    assert errors_of(stage) == []
    assert read_segments(stage / "transcript" / "segments.jsonl") == ()


REAL = os.environ.get("VID2CONTEXT_REAL_DATA")
CLIPS = (
    "torchcodec/nasa_13013.mp4",
    "androidx-media/sample_with_srt.mkv",
    "opencast/scene-change.mov",
    "torchcodec/var_fps_video.mp4",
)


@pytest.mark.skipif(not REAL, reason="VID2CONTEXT_REAL_DATA names no folder")
@pytest.mark.parametrize("name", CLIPS)
def test_real_files_give_packages_that_pass(name, tmp_path):
    stage = pack(Path(REAL or "") / "videos" / name, tmp_path / "x", settings=SETTINGS)
    assert errors_of(stage) == []
