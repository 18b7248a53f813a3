"Real files, whole and broken: each becomes a package that passes, or the true reason."

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vid2context.media import write_clip
from vid2context.options import Settings
from vid2context.packing import Packer, PackItem
from vid2context.settings import load_settings
from vid2context.validation import validate_collection

# The smallest real file of each kind of trouble, and one larger broken download.
WHOLE = (
    "androidx-media/bear-vp9-odd-dimensions.webm",
    "androidx-media/sample_h265.ts",
    "androidx-media/sample_with_srt.mkv",
    "auto-editor/mov_text.mp4",
    "derived/bitflips_mid.mp4",
    "derived/single_frame.mp4",
    "mediabunny/no-initial-keyframe.ts",
    "moviepy/-video-with-dash-.mp4",
    "moviepy/no_duration.webm",
    "opencast/inspection_test.mp4",
)
REFUSED = {
    "androidx-media/full_blocks.mkv": "media.no_video",
    "androidx-media/invalid-bitstream.webm": "media.undecodable",
    "androidx-media/sample_audio_only.mp4": "media.no_video",
    "derived/empty.mp4": "media.empty",
    "derived/text_renamed.mp4": "media.not_media",
    "moviepy/zero_length.webm": "media.empty",
    "opencast/aonly.mov": "media.no_video",
    "opencast/nostreams.mp4": "media.no_streams",
    "opencast/silent.mp4": "media.no_video",
    "opencast/speech_to_text_test.mp4": "media.no_video",
}


@pytest.fixture(scope="module")
def quick() -> Settings:
    "Settings without the reader of text, which this test is not about."
    settings = load_settings()
    return replace(settings, providers=replace(settings.providers, text_reader="off"))


@pytest.fixture(scope="module")
def packed(
    real_data: Path, quick: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Packer, list[str], dict[str, PackItem]]]:
    "A folder of copies, packed in one call."
    folder = tmp_path_factory.mktemp("bad")
    for name in (*WHOLE, *REFUSED):
        target = folder / "videos" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(real_data / "videos" / name, target)
    refs = [str(folder / "videos")]
    packer = Packer(folder / "evidence", settings=quick)
    report = packer.pack(refs)
    start = len(refs[0]) + 1
    yield packer, refs, {item.ref[start:]: item for item in report.items}


def test_every_file_has_an_outcome(packed: tuple[Any, Any, dict[str, Any]]) -> None:
    _, _, items = packed
    assert list(items) == sorted((*WHOLE, *REFUSED), key=lambda name: name.split("/"))
    assert {n: i.code for n, i in items.items() if i.code} == REFUSED
    assert {n for n, i in items.items() if i.status == "packed"} == set(WHOLE)


def test_the_reason_agrees_with_what_the_streams_hold(
    real_data: Path, packed: tuple[Any, Any, dict[str, Any]]
) -> None:
    _, _, items = packed
    probe = json.loads((real_data / "videos" / "probe.json").read_bytes())
    for name, item in items.items():
        facts = probe[f"videos/{name}"]
        kinds = {stream["type"] for stream in facts.get("streams", ())}
        if facts["size"] == 0:
            assert item.code == "media.empty"
        elif "open_error" in facts:
            assert item.code == "media.not_media"
        elif not kinds:
            assert item.code == "media.no_streams"
        elif "video" not in kinds:
            assert item.code == "media.no_video"
        elif not facts["decoded"]:
            assert item.code == "media.undecodable"
        else:
            assert item.status == "packed", (name, item)
        named = Path(name).name in (item.message or Path(name).name)
        assert named, f"{name}: the message names another file: {item.message}"


def test_what_was_packed_passes_and_nothing_else_is_left(
    packed: tuple[Packer, Any, Any],
) -> None:
    packer, _, items = packed
    reports = validate_collection(packer.collection, verify=True)
    assert {report.result for report in reports} == {"PASS"}
    slugs = {item.slug for item in items.values() if item.slug}
    assert {p.name for p in (packer.collection / "videos").iterdir()} == slugs
    assert not list((packer.collection / ".staging").iterdir())


def test_a_second_run_changes_no_byte(packed: tuple[Packer, list[str], Any]) -> None:
    packer, refs, _ = packed
    files = [p for p in packer.collection.rglob("*") if p.is_file()]
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}
    report = packer.pack(refs)
    assert report.counts == {
        "packed": 0,
        "unchanged": len(WHOLE),
        "failed": len(REFUSED),
    }
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files} == before


@pytest.mark.parametrize(
    "captions", [b"", b"\xff\x00\x13" * 99, b"these are no captions\n", b"WEBVTT\n\n"]
)
def test_captions_that_cannot_be_read_are_not_called_missing(
    captions: bytes, quick: Settings, tmp_path: Path
) -> None:
    frames = [np.full((48, 64, 3), 20 + 9 * n, np.uint8) for n in range(10)]
    write_clip(tmp_path / "talk.mp4", frames, fps=5)
    (tmp_path / "talk.en.vtt").write_bytes(captions)
    packer = Packer(tmp_path / "evidence", settings=quick)
    item = packer.pack([str(tmp_path / "talk.mp4")]).items[0]
    assert item.status == "packed"
    package = packer.collection / "videos" / "talk"
    page = (package / "deliverables" / "context.md").read_text()
    assert "captions that were found could not be read" in page
    assert "No captions were found" not in page
    receipt = json.loads((package / "source" / "receipt.json").read_bytes())
    assert receipt["warnings"][0].startswith("track_refused: captions.en.vtt: ")
    assert packer.pack([str(tmp_path / "talk.mp4")]).counts["unchanged"] == 1
