"""Local files as sources, and what is refused."""

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harbour import VTT, clip

from vid2context.core import UsageError, Vid2ContextError, sha256_file
from vid2context.local_files import embedded_vtt, keep_file
from vid2context.media import write_clip
from vid2context.options import Settings
from vid2context.sources import acquire, expand, read_source

SETTINGS = Settings()
ENGLISH = [(0.1, 0.5, r"{\i1}High{\i0} water\Nat noon & 5 > 4")]


def test_the_original_is_never_touched(tmp_path):
    video = clip(tmp_path / "talk.mp4")
    (tmp_path / "talk.en.vtt").write_bytes(VTT)
    before = [(p, p.stat().st_mtime_ns, sha256_file(p)) for p in tmp_path.iterdir()]
    for path in tmp_path.iterdir():
        path.chmod(0o400)
    source = acquire(video, tmp_path / "out" / "source", settings=SETTINGS)
    assert [(p, p.stat().st_mtime_ns, sha256_file(p)) for p, *_ in before] == before
    assert source.captions[0].path.read_bytes() == VTT
    assert source.media_sha256 == sha256_file(video)


def test_same_file_gives_same_bytes_wherever_it_lies(tmp_path):
    folders = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        video = clip(tmp_path / name / "Tide table.mp4")
        os.utime(video, (1, 1) if name == "a" else (9, 9))
        made = acquire(video, tmp_path / name / "source", settings=SETTINGS)
        folders.append({p.name: p.read_bytes() for p in made.folder.iterdir()})
    assert folders[0] == folders[1]
    assert str(tmp_path).encode() not in b"".join(folders[0].values())


def test_nothing_but_a_plain_file_is_opened(tmp_path):
    video = clip(tmp_path / "real.mp4")
    (tmp_path / "link.mp4").symlink_to(video)
    os.mkfifo(tmp_path / "pipe.mp4")
    for bad in (tmp_path / "link.mp4", tmp_path / "pipe.mp4", "/dev/zero", tmp_path):
        with pytest.raises(Vid2ContextError) as caught:
            acquire(bad, tmp_path / "out" / "source", settings=SETTINGS)
        assert caught.value.code == "source_not_plain"
    for gone in (tmp_path / "no.mp4", "a\0b.mp4", "x" * 5000):
        with pytest.raises(Vid2ContextError) as caught:
            acquire(gone, tmp_path / "out" / "source", settings=SETTINGS)
        assert caught.value.code in ("source_not_found", "source_not_plain")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_that_grows_while_it_is_copied_is_refused(tmp_path):
    video = tmp_path / "growing.mp4"
    video.write_bytes(b"x" * 3_000_000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def drain():
        with pipe.open("rb") as end:
            end.read(1000)
            with video.open("ab") as file:
                file.write(b"more")
            while end.read(65536):
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    with pytest.raises(Vid2ContextError) as caught:
        keep_file(video, pipe, max_bytes=2**30)
    reader.join()
    assert caught.value.code == "source_changed" and caught.value.retryable


def test_captions_inside_and_beside_rank_by_spoken_language(tmp_path):
    frames = [np.full((48, 64, 3), 20 * i, np.uint8) for i in range(10)]
    video = tmp_path / "Tour [final].mkv"
    write_clip(video, frames, fps=10, subtitles=ENGLISH, language="eng")
    for name in ("Tour [final].es.vtt", "Tour [final].srt", "Tour f.en.vtt"):
        (tmp_path / name).write_bytes(VTT)
    english = acquire(video, tmp_path / "a" / "s", settings=SETTINGS, spoken="en")
    kinds = [(c.kind, c.language) for c in english.captions]
    assert kinds == [("embedded", "en"), ("sidecar", None)]
    written = english.captions[0].path.read_text()
    assert "High water\nat noon &amp; 5 &gt; 4" in written
    spanish = acquire(video, tmp_path / "b" / "s", settings=SETTINGS, spoken="es")
    assert [c.language for c in spanish.captions] == ["es", None]
    listening = acquire(
        video, tmp_path / "c" / "s", settings=SETTINGS, recognition=True
    )
    assert [c.language for c in listening.captions] == [None]


@pytest.mark.parametrize("open_braces", ["{", "{\\p", "{\\i1"])
def test_braces_that_never_close_cost_a_time_in_proportion(open_braces):
    spent = []
    for count in (20_000, 200_000):
        start = time.process_time()
        written = embedded_vtt([(0.0, 1.0, open_braces * count)])
        spent.append(time.process_time() - start)
    assert written.startswith(b"WEBVTT")
    assert spent[1] < 40 * max(spent[0], 0.005)


def test_hostile_names_stay_names(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    names = ["\u202egpj.mp4", "-rf.mp4", " .mp4", "a\nb.mp4", "CON.mp4"]
    raw = os.fsencode(folder) + b"/caf\xe9.mp4"
    paths = [folder / name for name in names] + [Path(os.fsdecode(raw))]
    for i, path in enumerate(paths):
        path.write_bytes(clip(tmp_path / "clip.mp4").read_bytes())
        source = acquire(path, tmp_path / f"{i}" / "source", settings=SETTINGS)
        assert source.video.name == "video.mp4"
        receipt = json.loads((source.folder / "receipt.json").read_bytes())
        assert "\n" not in receipt["ref"] and "\u202e" not in receipt["ref"]
        assert source.title
    assert len(expand(folder)) == len(paths)


def test_errors_name_the_file_that_was_given(tmp_path):
    text = tmp_path / "notes renamed.mp4"
    text.write_text("ffconcat version 1.0\nfile neighbour.mp4\n")
    with pytest.raises(Vid2ContextError, match="notes renamed") as caught:
        acquire(text, tmp_path / "out" / "source", settings=SETTINGS)
    assert caught.value.code.startswith("media.")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_over_the_limit_is_not_copied(tmp_path):
    video = clip(tmp_path / "big.mp4")
    small = replace(SETTINGS, media=replace(SETTINGS.media, max_file_bytes=100))
    with pytest.raises(Vid2ContextError) as caught:
        acquire(video, tmp_path / "out" / "source", settings=small)
    assert caught.value.code == "media.limit.file"
    assert list((tmp_path / "out").iterdir()) == []


def test_a_changed_byte_is_found_and_repaired(tmp_path):
    video = clip(tmp_path / "talk.mp4")
    source = acquire(video, tmp_path / "s", settings=SETTINGS)
    broken = bytearray(source.video.read_bytes())
    broken[-1] ^= 1
    source.video.write_bytes(broken)
    with pytest.raises(Vid2ContextError, match=r"video\.mp4 is missing or changed"):
        read_source(source.folder)
    again = acquire(video, tmp_path / "s", settings=SETTINGS)
    assert again == source and read_source(again.folder) == source


def test_broken_receipts_are_named(tmp_path):
    source = acquire(clip(tmp_path / "t.mp4"), tmp_path / "s", settings=SETTINGS)
    good = (source.folder / "receipt.json").read_bytes()
    for bad in (b"", b"[]", b"{}", b"\xff", good.replace(b'"media"', b'"medium"')):
        (source.folder / "receipt.json").write_bytes(bad)
        with pytest.raises(Vid2ContextError) as caught:
            read_source(source.folder)
        assert caught.value.code == "source_incomplete"


def test_an_empty_folder_says_so(tmp_path):
    with pytest.raises(UsageError, match="no video file"):
        expand(tmp_path)
    assert expand(tmp_path / "absent.mp4") == [str(tmp_path / "absent.mp4")]


REAL = os.environ.get("VID2CONTEXT_REAL_DATA")


@pytest.mark.skipif(not REAL, reason="VID2CONTEXT_REAL_DATA is not set")
def test_real_files_become_sources_or_say_why(tmp_path):
    facts = json.loads(Path(REAL, "videos", "probe.json").read_text())
    videos = [p for p in sorted(Path(REAL, "videos").rglob("*")) if p.is_file()]
    made, refused = 0, []
    for i, video in enumerate(v for v in videos if v.suffix != ".json"):
        try:
            source = acquire(video, tmp_path / f"{i}" / "source", settings=SETTINGS)
            made += source.metadata["duration"] > 0
        except Vid2ContextError as problem:
            refused.append(problem.code)
    assert facts and made >= 35
    assert all(code.startswith("media.") for code in refused)


def test_what_lies_beside_and_is_not_taken_is_told(tmp_path):
    write_clip(tmp_path / "quay.mp4", [np.zeros((48, 64, 3), np.uint8)] * 5)
    for name in ("quay.ogg", "quay.mp3", "quay.en.smi", "quays.mp3"):
        (tmp_path / name).write_bytes(b"-")
    (tmp_path / "quay.fr.vtt").symlink_to(tmp_path / "nowhere")
    source = acquire(str(tmp_path / "quay.mp4"), tmp_path / "got", settings=Settings())
    told = [w for w in source.receipt["warnings"] if w.startswith("left out")]
    assert [w.split(":")[0].removeprefix("left out ") for w in told] == [
        "quay.en.smi",
        "quay.mp3",
        "quay.ogg",
    ]
