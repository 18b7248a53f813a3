"The visual index: its contract, its faults, its search over real models."

import contextlib
import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps
from visual_kit import (
    HUES,
    MoodyCaptioner,
    MoodyEncoder,
    MoodyReader,
    PlainEncoder,
    hue_clip,
    register,
    settings,
    still_clip,
    text_clip,
)

from vid2context.captioning import RapidReader
from vid2context.catalog import Catalog
from vid2context.core import UsageError, Vid2ContextError
from vid2context.embedding import E5Embedder
from vid2context.fakes import FakeCaptioner, FakeEmbedder, FakeEncoder, FakeReader
from vid2context.guard import open_media
from vid2context.index_reports import IndexWish
from vid2context.kinds import ProviderDescriptor
from vid2context.media import write_clip
from vid2context.options import Media
from vid2context.pipeline import (
    IndexStats,
    Library,
    VisualFrame,
    VisualIndexer,
    VisualSearchHit,
)
from vid2context.pipeline import visual_search as search_once
from vid2context.providers import resolve
from vid2context.recordings import BLACK
from vid2context.sampling import sample_every
from vid2context.service import Service


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return hue_clip(tmp_path_factory.mktemp("hues") / "hues one.mp4")


@pytest.fixture(scope="module")
def library(tmp_path_factory, clip):
    with Library(tmp_path_factory.mktemp("lib") / "home", settings=settings()) as found:
        found.index(clip)
        yield found


def video_of(library):
    return library.catalog.packages("bare")[0].video_id


def index(home, path, **chosen):
    "Index with chosen models, and give the report of the video."
    indexer = VisualIndexer(home, settings(**chosen))
    return indexer, indexer.index_all([path], wish=IndexWish(interval_s=1.0)).videos[0]


# The contract


def test_models_round_trip(library):
    frame = library.frames(video_of(library))[0]
    assert VisualFrame.model_validate_json(frame.model_dump_json()) == frame
    hit = library.visual_search("written red")[0]
    assert VisualSearchHit.model_validate_json(hit.model_dump_json()) == hit
    stats = library.visual_stats()
    assert IndexStats.model_validate_json(stats.model_dump_json()) == stats


def test_sampler_yields_n_frames(clip):
    frames = list(sample_every(clip, 5, settings=Media()))
    assert [one.target.at_s for one in frames] == [5.0 * n for n in range(12)]


def test_fakes_are_deterministic_and_of_the_right_dim():
    image = Image.new("RGB", (160, 90), HUES[0])
    for fake in (FakeEncoder(), PlainEncoder()):
        assert len(fake.encode_image(image)) == fake.embedding_dim
        assert list(fake.encode_image(image)) == list(fake.encode_image(image))
    rows = FakeEmbedder().embed(["a b", "a b"], "query")
    assert rows.shape == (2, 31) and np.array_equal(rows[0], rows[1])


def test_indexing_creates_catalogue_and_vectors(library):
    stats = library.visual_stats()
    assert (stats.videos_indexed, stats.frames_total, stats.vectors) == (1, 12, 12)
    assert stats.embeddings_dim == 13 and stats.thumbs == 12
    assert (library.home / "catalog.sqlite").is_file()
    assert list((library.home / "vectors/image").glob("g*/vectors.f16"))


def test_lexical_hit_on_a_caption(library):
    hits = library.visual_search("dark picture", channels=["caption"])
    assert hits[0].caption.startswith("Dark picture") and hits[0].source == "fts"


def test_vector_hit(library):
    hits = library.visual_search("blue", channels=["clip"], min_score={"clip": 0.3})
    assert {hit.source for hit in hits} == {"clip"}
    frames = {f.frame_id: f for f in library.frames(video_of(library))}
    assert "blue" in frames[hits[0].frame_id].ocr_text


def test_ocr_reads_planted_text_en_and_es(tmp_path):
    path = text_clip(tmp_path / "slides.mp4", "Rank fusion ties", "La niña añadió sal")
    chosen = settings(captioner="basic", text_reader="rapidocr", encoder="off")
    with Library(tmp_path / "home", settings=chosen) as library:
        library.index(path, interval_s=3, language="es")
        frames = library.frames(video_of(library))
        english = library.visual_search("fusion ties", channels=["ocr"])
        spanish = library.visual_search("añadio", channels=["ocr"])
    assert [f.ocr_text for f in frames if f.ocr_origin == "read"] == [
        "Rank fusion ties",
        "La niña añadió sal",
    ]
    assert (english[0].timestamp_s, spanish[0].timestamp_s) == (0.0, 6.0)
    assert english[0].source == spanish[0].source == "ocr"
    assert frames[0].caption.startswith("Imagen clara") and "Rank" in frames[0].caption
    assert {f.novelty for f in frames} == {"novel", "duplicate"}


def test_many_videos_keep_their_ids(tmp_path):
    a, b = tmp_path / "a.mp4", tmp_path / "b.mp4"
    still_clip(a, HUES[0]), still_clip(b, HUES[1])
    first = VisualIndexer(tmp_path / "one", settings())
    second = VisualIndexer(tmp_path / "two", settings())
    ids = [one.video_id for one in first.index_all([a, b]).videos]
    assert [one.video_id for one in second.index_all([b, a]).videos] == ids[::-1]


def test_stats_equal_the_bytes_on_disk(library):
    stats, home = library.visual_stats(), library.home
    library.close()
    for name, folder in (
        ("text", "text"),
        ("vectors", "vectors"),
        ("thumbs", "thumbs"),
    ):
        files = [p for p in (home / folder).rglob("*") if p.is_file()]
        assert stats.bytes[name] == sum(p.stat().st_size for p in files)
    assert stats.bytes["catalog"] == (home / "catalog.sqlite").stat().st_size
    assert stats.storage_mb == pytest.approx(sum(stats.bytes.values()) / 1e6)


def test_one_search_finds_packages_and_bare_videos(library):
    "And an answer needs no library to be held open."
    hits = search_once("written red", library=library.home)
    assert hits[0].source_name == "bare"
    assert library.search("written red").moments[0].source_name == "bare"


# Time


def burned(path, *, times_s, start_s=0.0, edits=()):
    "Write a clip whose pictures show their number in 12 black and white blocks."
    frames = []
    for n in range(len(times_s)):
        pixels = np.full((96, 192, 3), 128, np.uint8)
        for bit in range(12):
            left = 16 * bit
            pixels[16:80, left : left + 16] = 235 if n >> bit & 1 else 20
        frames.append(pixels)
    if edits:  # Pictures out of order, so that the edit list is no plain one
        write_clip(path, frames, fps=25, start_s=start_s)
        retimed(path, *edits)
    else:
        write_clip(path, frames, times_s=times_s, start_s=start_s)
    return path


def read_clock(rgb):
    centres = rgb[40:56, 4::16].mean((0, 2))
    return sum(1 << bit for bit, light in enumerate(centres[:12]) if light > 128)


def retimed(path, *edits):
    """Give an MP4 an edit list of (start, length) stretches, in seconds of its media.

    Players show these stretches one after another and nothing else; (None, length)
    is a stretch without a picture."""
    data = path.read_bytes()
    movie, media, old = (data.index(kind) for kind in (b"mvhd", b"mdhd", b"elst"))
    ticks = [int.from_bytes(data[at + 16 : at + 20]) for at in (movie, media)]
    first = int.from_bytes(data[old + 16 : old + 20], signed=True)
    rows = b"".join(
        struct.pack(
            ">Iii",
            round(length_s * ticks[0]),
            -1 if start_s is None else first + round(start_s * ticks[1]),
            1 << 16,
        )
        for start_s, length_s in edits
    )
    end = old - 4 + int.from_bytes(data[old - 4 : old])
    fresh = data[old : old + 8] + struct.pack(">I", len(edits)) + rows
    grown = len(fresh) + 4 - (end - old + 4)
    out = bytearray(data[: old - 4] + struct.pack(">I", len(fresh) + 4) + fresh)
    for kind in (b"moov", b"trak", b"edts"):  # The boxes around it grow as well
        at = out.rindex(kind)
        out[at - 4 : at] = (int.from_bytes(out[at - 4 : at]) + grown).to_bytes(4)
    path.write_bytes(out + data[end:])


STEADY = [n / 25 for n in range(300)]
CLOCKS = {
    "cfr.mp4": (STEADY, 0.0, ()),
    "vfr.mkv": (list(np.cumsum([0.02 + 0.09 * (n % 7) for n in range(300)])), 0.0, ()),
    "broadcast.ts": (STEADY, 5.0, ()),
    "offset.mkv": (STEADY, 3.0, ()),
    "late.mp4": (STEADY, 2.0, ()),  # The writer makes a stretch without a picture
    "trimmed.mp4": (STEADY, 0.0, [(1.56, 10.0)]),
    "cut.mp4": (STEADY, 0.0, [(0.6, 4.0), (6.48, 5.0)]),
    "late-and-cut.mov": (STEADY, 0.0, [(None, 3.0), (1.0, 3.0), (5.0, 4.0)]),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_behaviour_1_timestamps_equal_a_burned_in_clock(tmp_path, name):
    "The frame at a label is the one that PyAV shows then, and its time is PyAV's."
    times_s, start_s, edits = CLOCKS[name]
    path = burned(tmp_path / name, times_s=times_s, start_s=start_s, edits=edits)
    chosen = settings(captioner="off", text_reader="off", encoder="off", embedder="off")
    with Library(tmp_path / "home", settings=chosen) as library:
        library.index(path, interval_s=1.0)
        frames = library.frames(video_of(library))
    with av.open(str(path)) as film:
        clock = [
            (picture.pts, picture.time, read_clock(picture.to_ndarray(format="rgb24")))
            for picture in film.decode(video=0)
        ]
    if edits:
        expected = [
            n
            for begin_s, length_s in edits
            if begin_s is not None
            for n, at_s in enumerate(times_s)
            if begin_s - 1e-6 <= at_s < begin_s + length_s - 1e-6
        ]
        assert [number for _, _, number in clock] == expected
    with open_media(path, settings=Media()) as reader:
        origin_s = reader.info.origin_s
        shown = list(reader.at([frame.timestamp_s for frame in frames]))
    assert len(frames) >= 7
    for n, (frame, picture) in enumerate(zip(frames, shown, strict=True)):
        begun = [one for one in clock if one[1] - origin_s <= n + 1e-6]
        pts, time_s, number = (begun or clock[:1])[-1]
        assert (frame.pts, read_clock(picture.rgb)) == (pts, number)
        assert frame.timestamp_s == round(time_s - origin_s, 6)


# Faults: the other frames are kept, the row says what happened, the run resumes


@pytest.mark.parametrize(
    ("mood", "says"),
    [("raises", "RuntimeError: no more patience"), ("none", "list of TextLine")],
)
def test_a_reader_that_fails_once_costs_one_frame(tmp_path, mood, says):
    path = hue_clip(tmp_path / "a.mp4", seconds=50, each_s=1)
    register("ocr", "moody", MoodyReader(mood, at=37))
    indexer, report = index(tmp_path / "home", path, text_reader="moody")
    assert (report.status, report.frames, report.ocr_read) == ("partial", 50, 49)
    with Library(indexer.home, settings=indexer.settings) as library:
        faulty = [f for f in library.frames(report.video_id) if f.issues]
        assert len(faulty) == 1 and says in faulty[0].issues[0]
        assert library.visual_search("written red")
    again = indexer.index_all([path], wish=IndexWish(interval_s=1.0)).videos[0]
    assert (again.status, again.ocr_read, again.calls["ocr"]) == ("indexed", 50, 1)


@pytest.mark.parametrize(
    ("mood", "says"),
    [
        ("raises", "out of memory"),
        ("short", "shape"),
        ("nan", "not finite"),
        ("zeros", "zeros"),
        ("long", "length"),
    ],
)
def test_a_wrong_vector_costs_one_frame(tmp_path, mood, says):
    path = hue_clip(tmp_path / "a.mp4", seconds=10)
    register("image_text_encoder", "moody-eye", MoodyEncoder(mood))
    indexer, report = index(tmp_path / "home", path, encoder="moody-eye")
    assert (report.status, report.frames, report.vectors) == ("partial", 10, 9)
    assert says in report.issues[0]
    again = indexer.index_all([path], wish=IndexWish(interval_s=1.0)).videos[0]
    assert (again.status, again.vectors) == ("indexed", 10)


@pytest.mark.parametrize(
    ("says", "code"),
    [("", "caption_empty"), ("<loc_1>", "caption_markup"), (7, "not a text")],
)
def test_a_caption_of_no_use_is_refused(tmp_path, says, code):
    register("captioner", "moody-mouth", MoodyCaptioner(says))
    path = still_clip(tmp_path / "a.mp4", HUES[0], seconds=4)
    indexer, report = index(tmp_path / "home", path, captioner="moody-mouth")
    assert code in report.issues[0]
    with Library(indexer.home, settings=indexer.settings) as library:
        frame = library.frames(report.video_id)[0]
    assert (frame.caption_origin, frame.caption[:12]) == ("basic", "Dark picture")


def test_a_model_that_prints_leaves_standard_output_alone(tmp_path):
    path = still_clip(tmp_path / "a.mp4", HUES[0], seconds=4)
    code = [sys.executable, "-m", "visual_kit", str(tmp_path / "home"), str(path)]
    done = subprocess.run(
        [*code, "prints", "1"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "" and "shard 2 of 7" in done.stderr


def test_a_model_that_hangs_is_left_behind(tmp_path):
    path = hue_clip(tmp_path / "a.mp4", seconds=8)
    register("ocr", "moody", MoodyReader("hangs"))
    chosen = settings(text_reader="moody")
    chosen = replace(chosen, providers=replace(chosen.providers, timeout_s=1.0))
    report = VisualIndexer(tmp_path / "home", chosen).index_all(
        [path], wish=IndexWish(interval_s=1.0)
    )
    video = report.videos[0]
    assert (video.status, video.frames, video.vectors) == ("partial", 8, 8)
    assert any("no answer for 1 s" in issue for issue in video.issues)
    assert any("was not asked" in issue for issue in video.issues)


def test_five_faults_in_a_row_end_a_model(tmp_path):
    class Broken(FakeReader):
        calls = 0

        def read(self, image, language="en"):
            Broken.calls += 1
            raise OSError("weights.bin: no such file")

    register("ocr", "broken", Broken())
    path = hue_clip(tmp_path / "a.mp4", seconds=20)
    _, report = index(tmp_path / "home", path, text_reader="broken")
    assert (report.frames, report.vectors, Broken.calls) == (20, 20, 5)
    assert "15 frames" in report.issues[0]


def test_missing_weights_of_a_named_model_stop_the_run_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path / "runtime"))
    path = still_clip(tmp_path / "a.mp4", HUES[0], seconds=4)
    with pytest.raises(Vid2ContextError, match="siglip2"):
        VisualIndexer(tmp_path / "home", settings(encoder="siglip2")).index(path)
    assert not (tmp_path / "home").exists()
    indexer = VisualIndexer(tmp_path / "home", settings(encoder="auto"))
    assert indexer.index(path).embeddings_dim is None


class Newer(PlainEncoder):
    "Another model, or another one behind the same name."

    descriptor = ProviderDescriptor(id="plain-eye", version="2", dim=17)


class Turned(PlainEncoder):
    "The same fingerprint, and other preprocessing."

    def encode_image(self, image):
        return super().encode_image(ImageOps.invert(image))


@pytest.mark.parametrize("other", [Newer, Turned])
def test_a_swapped_encoder_refuses_pictures_and_text_goes_on(tmp_path, other):
    path = hue_clip(tmp_path / "a.mp4", seconds=10)
    register("image_text_encoder", "plain-eye", PlainEncoder())
    index(tmp_path / "home", path, encoder="plain-eye")
    register("image_text_encoder", "plain-eye", other())
    chosen = settings(encoder="plain-eye")
    with Library(tmp_path / "home", settings=chosen) as library:
        hits = library.visual_search("written red")
        codes = [w.code for w in hits.warnings if w.path == "visual"]
        assert hits and codes == ["vectors_stale"] and hits.status == "partial"
        more = still_clip(tmp_path / "b.mp4", HUES[1])
        report = library.indexer.index_all([more])
        assert report.warnings[0].code == "vectors_stale" and report.status == "partial"
        assert "image" in library.visual_stats().stale_channels
        anew = library.indexer.reindex("image")
        assert {v.status for v in anew.videos} == {"indexed"}
        assert library.visual_stats().stale_channels == ()
        found = library.visual_search("written red")
        assert [w.code for w in found.warnings if w.path == "visual"] == []


def test_reindex_asks_only_the_channel(tmp_path):
    path = hue_clip(tmp_path / "a.mp4", seconds=10, each_s=1)
    register("ocr", "moody", reader := MoodyReader("well"))
    indexer, report = index(tmp_path / "home", path, text_reader="moody")
    assert reader.calls == report.ocr_read == 10
    anew = indexer.reindex("image")
    assert reader.calls == 10 and anew.videos[0].status == "indexed"
    indexer.reindex("ocr")
    assert reader.calls == 20


def test_reindex_names_a_video_whose_file_has_gone(tmp_path):
    path = still_clip(tmp_path / "a.mp4", HUES[0])
    indexer, _ = index(tmp_path / "home", path)
    path.unlink()
    report = indexer.reindex("caption")
    assert (report.status, report.videos[0].code) == ("failed", "source_not_found")
    assert indexer.stats().frames_total == 20


def test_a_vanished_folder_of_thumbnails_is_made_again(tmp_path):
    path = hue_clip(tmp_path / "a.mp4", seconds=10)
    indexer, report = index(tmp_path / "home", path)
    folder = indexer.home / "thumbs/bare" / report.video_id
    names = sorted(p.name for p in folder.iterdir())
    with Image.open(folder / names[0]) as small:
        assert small.size == (256, 144) and len(small.getexif()) == 0
    for thumb in folder.iterdir():
        thumb.unlink()
    folder.rmdir()
    with Library(indexer.home, settings=indexer.settings) as library:
        assert library.visual_search("written red")[0].thumb_path is None
    again = indexer.index_all([path], wish=IndexWish(interval_s=1.0)).videos[0]
    assert again.status == "indexed" and again.calls.get("ocr") == 0
    assert sorted(p.name for p in folder.iterdir()) == names


# Videos of odd shapes


def test_one_frame(tmp_path):
    path = still_clip(tmp_path / "one.mp4", HUES[0], seconds=0.5)
    _, report = index(tmp_path / "home", path)
    assert (report.status, report.frames) == ("indexed", 1)


def test_a_tenth_of_a_frame_a_second(tmp_path):
    pictures = [np.full((90, 160, 3), hue, np.uint8) for hue in HUES]
    path = tmp_path / "slow.mkv"
    write_clip(path, pictures, times_s=[0.0, 10.0, 20.0, 30.0, 40.0])
    indexer, report = index(tmp_path / "home", path)
    with Library(indexer.home, settings=indexer.settings) as library:
        frames = library.frames(report.video_id)
    assert [frame.timestamp_s for frame in frames] == [0.0, 10.0, 20.0, 30.0, 40.0]


def test_all_black(tmp_path):
    path = still_clip(tmp_path / "night.mp4", (2, 2, 2), seconds=6)
    indexer, report = index(tmp_path / "home", path)
    assert (report.status, report.frames, report.vectors, report.thumbs) == (
        "indexed",
        6,
        0,
        0,
    )
    with Library(indexer.home, settings=indexer.settings) as library:
        frame = library.frames(report.video_id)[0]
        assert (frame.novelty, frame.embedding_id) == ("black", None)
        assert frame.caption == BLACK
        hits = library.visual_search("a black picture", abstain=False)
        assert [hit.start_s for hit in hits][:1] == [0.0]


def test_eight_k(tmp_path):
    pixels = np.full((4320, 7680, 3), 90, np.uint8)
    pixels[1000:3000, 2000:5000] = HUES[0]
    write_clip(tmp_path / "big.mp4", [pixels], fps=1, options={"preset": "ultrafast"})
    _, report = index(tmp_path / "home", tmp_path / "big.mp4")
    assert (report.status, report.vectors, report.thumbs) == ("indexed", 1, 1)


def test_no_video(tmp_path):
    (tmp_path / "notes.mp4").write_text("not a film")
    with pytest.raises(Vid2ContextError) as told:
        index(tmp_path / "home", tmp_path / "notes.mp4")
    assert told.value.code.startswith("media.")
    assert VisualIndexer(tmp_path / "home", settings()).stats().videos_indexed == 0


# Worked cases


def faint_slide() -> Image.Image:
    import matplotlib

    font = Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")
    image = Image.new("RGB", (900, 120), (128, 128, 128))
    letters = ImageFont.truetype(str(font), 40)
    ImageDraw.Draw(image).text((20, 30), "Low contrast", (140, 140, 140), font=letters)
    return image


def test_case_74_shapes_that_break_readers():
    "No text is an empty list; a faint text is read or left, never invented."
    reader = RapidReader()
    blank = Image.new("RGB", (640, 360), (240, 240, 240))
    assert reader.read(blank) == []
    assert reader.read(Image.new("RGB", (3000, 20), "white")) == []
    assert reader.read(Image.new("L", (1, 1), 200)) == []
    said = " ".join(line.text for line in reader.read(faint_slide()))
    assert said in ("", "Low contrast")


def test_case_76_auto_steps_down_and_a_named_captioner_is_an_error(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path / "runtime"))
    assert resolve("captioner", "auto", settings()).name == "basic"
    with pytest.raises(Vid2ContextError) as told:
        resolve("captioner", "florence-2", settings())
    assert told.value.code == "provider_unavailable" and "pull" in told.value.message


def test_case_78_roles_have_their_prefix_exactly_once(tmp_path):
    model = E5Embedder()
    text = "high water at noon"
    query, passage = (model.embed([text], kind)[0] for kind in ("query", "passage"))
    assert float(query @ passage) < 0.999
    twice = model.embed([f"passage: {text}"], "passage")[0]
    assert float(twice @ passage) < 0.9999
    path = text_clip(tmp_path / "tide.mp4", text)
    chosen = settings(embedder="e5-small", encoder="off", captioner="off")
    chosen = replace(
        chosen, providers=replace(chosen.providers, text_reader="rapidocr")
    )
    with Library(tmp_path / "home", settings=chosen) as library:
        library.index(path)
        hits = library.visual_search(text, channels=["dense_frame"], abstain=False)
    raw = {one.channel: one.raw for one in hits[0].channels}["dense_frame"]
    assert raw == pytest.approx(float(query @ passage), abs=0.02)


# Real image vectors


def test_a_trained_encoder_finds_what_is_drawn(tmp_path, tiny_clip, clips):
    chosen = settings(
        captioner="basic",
        text_reader="off",
        embedder="off",
        encoder="open-clip",
    )
    providers = replace(
        chosen.providers, encoder_folder=str(tiny_clip), precision="float32"
    )
    with Library(
        tmp_path / "home", settings=replace(chosen, providers=providers)
    ) as lib:
        lib.indexer.index_all([clips / "silent-day.mp4", clips / "silent-shapes.mkv"])
        names = {row.video_id: row.title for row in lib.catalog.packages("bare")}
        golden = [
            json.loads(line)
            for line in (clips.parent / "golden/samples.jsonl").read_text().splitlines()
        ]
        asked = [
            row
            for row in golden
            if row["kind"] == "visual"
            and {r["video_id"] for r in row["relevant"]} <= set(names.values())
        ]
        right = [
            names[
                lib.visual_search(row["query"], channels=["clip"], abstain=False)[
                    0
                ].video_id
            ]
            == row["relevant"][0]["video_id"]
            for row in asked
        ]
    assert len(asked) >= 4 and sum(right) >= len(right) - 1


def test_lists_of_the_library_are_whole(library):
    "Rows and vectors agree after all of it."
    with sqlite3.connect(library.home / "catalog.sqlite") as db:
        lost = """SELECT count(*) FROM frames WHERE image_sha256 IS NOT NULL
            AND image_sha256 NOT IN (SELECT sha256 FROM vectors)"""
        assert db.execute(lost).fetchone()[0] == 0
    assert threading.active_count() < 50 and os.getpid()


# What a command line may not do


def run_cli(*words, **more):
    code = [sys.executable, "-m", "vid2context", *map(str, words)]
    return subprocess.run(code, capture_output=True, text=True, check=False, **more)


def test_an_interrupted_index_ends_with_130_and_its_message(tmp_path):
    "A thread in native code must not abort the exit."
    path = text_clip(tmp_path / "a.mp4", *[f"slide {n}" for n in range(90)])
    home = tmp_path / "home"
    words = ("index", path, "--interval", "1", "--home", home, "--encoder", "off")
    process = subprocess.Popen(
        [sys.executable, "-m", "vid2context", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    thumbs = home / "thumbs/bare"
    while process.poll() is None and len(list(thumbs.glob("*/*.jpg"))) < 3:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130, told
    assert "interrupted" in told and "terminate" not in told


def test_triples_go_into_a_plain_file_only(tmp_path):
    path = still_clip(tmp_path / "a.mp4", HUES[0], seconds=4)
    chosen = settings(captioner="basic")
    indexer = VisualIndexer(tmp_path / "home", chosen)
    indexer.index(path)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    os.mkfifo(tmp_path / "pipe")
    with contextlib.closing(Service(tmp_path / "home")) as service:
        for name in ("link", "pipe", "home"):
            with pytest.raises(UsageError, match="no plain file"):
                service.export_triples(tmp_path / name)
        with pytest.raises(UsageError, match=r"gone/out\.jsonl"):
            service.export_triples(tmp_path / "gone/out.jsonl")
        with pytest.raises(UsageError) as told:
            service.export_triples(tmp_path / "out", video_id="nosuch")
        assert told.value.code == "video_not_found"
        assert not (tmp_path / "out").exists()
        data = service.export_triples(tmp_path / "out").data
    assert data["triples"] == 0 and data["left_out"] > 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.parametrize("given", ["", "nosuch.mp4"])
def test_a_path_that_names_nothing_makes_no_library(tmp_path, given):
    told = run_cli("index", given, "--home", tmp_path / "new", cwd=tmp_path)
    assert told.returncode in (1, 2) and "Traceback" not in told.stderr
    assert ("empty" in told.stderr) == (given == "")
    assert given or told.returncode == 2
    assert not (tmp_path / "new").exists()


class Singer(FakeCaptioner):
    "Caption as no default captioner does."

    name = "singer"
    descriptor = ProviderDescriptor(id="singer", version="1")

    def caption(self, image, language="en"):
        return "a song about a " + super().caption(image, language)


def rows_of(home):
    "Read what each channel says of each frame, and what is said."
    with sqlite3.connect(home / "catalog.sqlite") as db:
        frames = db.execute("SELECT details FROM frames ORDER BY unit_id").fetchall()
        units = db.execute(
            "SELECT unit_id, caption, ocr, type FROM units ORDER BY 1"
        ).fetchall()
        models = json.loads(db.execute("SELECT details FROM packages").fetchone()[0])
        answers = db.execute("SELECT identity FROM readings ORDER BY 1, sha256")
        asked = [row[0] for row in answers]
    facts = [json.loads(row[0]) for row in frames]
    return {
        "caption": (
            [
                {k: v for k, v in one.items() if k.startswith("caption")}
                for one in facts
            ],
            [unit[1] for unit in units],
            models["models"]["caption"],
            [name for name in asked if ":caption:" in name],
        ),
        "ocr": (
            [{k: v for k, v in one.items() if k.startswith("ocr")} for one in facts],
            [unit[2] for unit in units],
            models["models"]["ocr"],
            [name for name in asked if ":ocr:" in name],
        ),
        "said": (
            [one.get("said") for one in facts],
            [unit for unit in units if unit[3] != "frame"],
            models["speech"],
        ),
        "image": [one.get("image") for one in facts] + [models["models"]["image"]],
    }


@pytest.mark.parametrize("channel", ["image", "caption", "ocr"])
def test_reindex_leaves_the_other_channels_as_they_are(tmp_path, channel):
    "Whatever provider made them, and even where it is gone."
    path = hue_clip(tmp_path / "a.mp4", seconds=12, each_s=2)
    said = "WEBVTT\n\n00:01.000 --> 00:05.000\nThe tide is high\n"
    (tmp_path / "a.en.vtt").write_text(said)
    register("captioner", "singer", Singer())
    register("ocr", "moody", MoodyReader("well"))
    first = settings(captioner="singer", text_reader="moody")
    VisualIndexer(tmp_path / "home", first).index(path, interval_s=1)
    before = rows_of(tmp_path / "home")
    assert any("song" in text for text in before["caption"][1])
    assert before["said"][1]
    now = {"image": {"encoder": "plain-eye"}, "caption": {}, "ocr": {}}[channel]
    register("image_text_encoder", "plain-eye", PlainEncoder())
    others = {"captioner": "basic", "text_reader": "off" if channel != "ocr" else None}
    if channel != "caption":
        others["captioner"] = "gone-by-now"
    chosen = {k: v for k, v in {**others, **now}.items() if v}
    indexer = VisualIndexer(tmp_path / "home", settings(**chosen))
    report = indexer.reindex(channel)
    assert [one.status for one in report.videos] == ["indexed"]
    after = rows_of(tmp_path / "home")
    for name in set(before) - {channel}:
        assert after[name] == before[name], name
    assert after[channel] != before[channel]
    assert indexer.stats().stale_channels == ()


def test_reindex_claims_nothing_that_it_did_not_look_at(tmp_path):
    "Captions that came beside the video since then are still news to index."
    path = hue_clip(tmp_path / "a.mp4", seconds=8)
    indexer = VisualIndexer(tmp_path / "home", settings())
    indexer.index(path)
    assert indexer.index_all([path]).videos[0].status == "unchanged"
    indexer.reindex("image")
    assert indexer.index_all([path]).videos[0].status == "unchanged"
    said = "WEBVTT\n\n00:01.000 --> 00:05.000\nThe tide is high\n"
    (tmp_path / "a.en.vtt").write_text(said)
    indexer.reindex("image")
    video = indexer.index_all([path]).videos[0]
    assert (video.status, video.speech) == ("indexed", "sidecar")


def test_a_removed_video_leaves_no_vectors_in_the_count(tmp_path):
    path = still_clip(tmp_path / "a.mp4", HUES[0], seconds=4)
    indexer, report = index(tmp_path / "home", path)
    with Catalog.open(indexer.home) as catalog:
        assert catalog.counts()["vectors"] == 2  # A text and a picture
    indexer.remove(report.video_id)
    with Catalog.open(indexer.home) as catalog:
        assert catalog.counts()["vectors"] == 0


@pytest.mark.parametrize("command", [("visual", "search"), ("search",)])
def test_a_wrong_channel_is_told_the_names_that_the_help_lists(library, command):
    told = run_cli(*command, "red", "--channel", "smell", "--home", library.home)
    assert told.returncode == 2 and "there is no channel 'smell'" in told.stderr
    shown = " ".join(run_cli(*command, "--help").stdout.split())
    listed = shown.partition("--channel")[2].partition("Only ")[2].partition(". ")[0]
    assert f"it can be {listed}" in " ".join(told.stderr.split())
    names = listed.replace(" or ", ", ").split(", ")
    assert len(names) == 7
    for name in names:
        assert library.visual_search("written red", channels=[name]) is not None


@pytest.mark.parametrize("given", ["nan", "clip=nan", "ocr=inf", "high", "clip="])
def test_a_least_score_that_is_no_number_is_told_as_it_was_typed(library, given):
    words = ("visual", "search", "red", "--min-score", given, "--home", library.home)
    told = run_cli(*words)
    assert told.returncode == 2 and f"--min-score is '{given}'" in told.stderr
    assert (
        "write a number, as 0.2" in told.stderr and "lexical_frame" not in told.stderr
    )
    if given == "nan":
        with pytest.raises(UsageError, match="the least score of 'visual' is nan"):
            library.visual_search("red", min_score=float("nan"))
