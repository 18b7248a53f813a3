"The twenty-four behaviours that a visual index is held to."

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from visual_kit import (
    HUES,
    MoodyReader,
    PlainEncoder,
    hue_clip,
    register,
    settings,
    still_clip,
    text_clip,
)

from vid2context.caches import store_vectors
from vid2context.catalog import Catalog
from vid2context.core import UsageError, Vid2ContextError
from vid2context.fakes import FakeEncoder
from vid2context.fusion import fuse
from vid2context.index_reports import IndexWish
from vid2context.media import write_clip
from vid2context.options import Media
from vid2context.patience import Fault
from vid2context.pipeline import Library, VisualIndexer
from vid2context.publish import publish
from vid2context.records import Document, FrameRow, PackageRow, Unit
from vid2context.sampling import sample_every
from vid2context.service import Service
from vid2context.writing import open_writer

SIZES = {"bytes", "storage_mb"}
EVERY_SECOND = IndexWish(interval_s=1.0)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return hue_clip(tmp_path_factory.mktemp("clip") / "hues.mp4", seconds=40)


@pytest.fixture(scope="module")
def library(tmp_path_factory, clip):
    with Library(tmp_path_factory.mktemp("lib") / "home", settings=settings()) as found:
        found.indexer.index_all([clip], wish=EVERY_SECOND)
        yield found


def dump(home):
    "List everything of the catalogue that must not depend on how it came about."
    with sqlite3.connect(home / "catalog.sqlite") as db:
        return {
            table: db.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()
            for table, columns in (
                ("frames", "unit_id, shown_s, image_sha256, thumb, details"),
                ("units", "unit_id, content, timestamps, structured"),
                ("fragments", "fragment_id, text_sha256"),
                ("vectors", "sha256, fingerprint, vector"),
                ("packages", "video_id, evidence_sha256, derivation_sha256"),
            )
        }


def rows_agree(home):
    "Hold rows against vectors: neither may want for the other."
    with sqlite3.connect(home / "catalog.sqlite") as db:
        lost = db.execute(
            """SELECT count(*) FROM frames WHERE image_sha256 IS NOT NULL
            AND image_sha256 NOT IN (SELECT sha256 FROM vectors)"""
        ).fetchone()[0]
    return lost == 0


def synthetic(writer, count):
    "Add a bare video of many frames without decoding any."
    document = Document("document:bare:v:visual", "bare", "v", "visual", "", "")
    package = PackageRow("bare", "v", "", "v", *[None] * 6, "", "")
    records, vectors = [document], {}
    for n in range(count):
        name = f"unit:bare:v:visual:frame:{n * 1000:09d}"
        place = (document.document_id, None, "bare", "v", "frame", "frame", 1, n)
        stamps = ((float(n), None),)
        records.append(Unit(name, *place, "", f"word{n}", timestamps=stamps))
        records.append(
            FrameRow(name, "bare", "v", "", float(n), float(n), image_sha256=f"k{n}")
        )
        row = np.array([np.cos(n), np.sin(n)], np.float32)
        vectors[f"k{n}"] = row / np.linalg.norm(row)
    store_vectors(writer, vectors, fingerprint="f", dtype="f16")
    writer.replace(package, *records)
    writer.use_model("image", "f")
    publish(writer)


# 1 stands in test_visual_index.py: timestamps equal a burned-in clock


def test_behaviour_2_appends_are_linear(tmp_path):
    spent = {}
    for count in (1000, 4000):
        with open_writer(tmp_path / str(count), create=True) as writer:
            began = time.process_time()
            synthetic(writer, count)
            spent[count] = time.process_time() - began
    assert spent[4000] <= 5 * spent[1000]


@pytest.mark.parametrize("at", [1, 12, 34, 39])
def test_behaviour_3_killed_at_a_step_rows_and_vectors_agree(tmp_path, clip, at):
    "And the next run ends equal to one that nobody broke."
    code = [sys.executable, "-m", "visual_kit"]
    folder, clean = Path(__file__).parent, tmp_path / "clean"
    moving = hue_clip(tmp_path / "moving.mp4", seconds=40, each_s=1)
    broken = subprocess.run(
        [*code, str(tmp_path / "home"), str(moving), "dies", str(at)],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert broken.returncode == 9
    assert rows_agree(tmp_path / "home")
    register("ocr", "moody", reader := MoodyReader("dies", at=at))
    reader.at = 10_000
    chosen = settings(text_reader="moody")
    report = VisualIndexer(tmp_path / "home", chosen).index_all(
        [moving], wish=EVERY_SECOND
    )
    saved = 30 if at > 30 else 0
    assert report.videos[0].calls["ocr"] <= 40 - saved
    VisualIndexer(clean, chosen).index_all([moving], wish=EVERY_SECOND)
    assert dump(tmp_path / "home") == dump(clean)


def test_behaviour_3_killed_at_any_write_the_next_run_ends_as_if_nothing_was(tmp_path):
    "A kill before and after commits, at files that move, come and go."
    moving = hue_clip(tmp_path / "moving.mp4", seconds=5, each_s=1)
    words = ["everywhere", str(tmp_path), str(moving), "10"]
    done = subprocess.run(
        [sys.executable, "-m", "visual_kit", *words],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed = sorted(tmp_path.glob("killed-*"))
    assert len(killed) == 10
    for home in killed:
        left = tmp_path / home.name.replace("killed", "left")
        assert not (left / "catalog.sqlite").is_file() or rows_agree(left)
        assert dump(home) == dump(tmp_path / "clean"), home.name
        with Library(home, settings=settings()) as library:
            assert library.visual_search("written red")
        assert not list(home.glob("**/.*.part")) and not list(home.glob(".pieces/*"))


def test_behaviour_4_a_delete_moves_no_key(tmp_path):
    paths = [still_clip(tmp_path / f"{n}.mp4", HUES[n]) for n in range(3)]
    indexer = VisualIndexer(tmp_path / "home", settings())
    videos = indexer.index_all(paths).videos
    before = dump(indexer.home)
    indexer.remove(videos[1].video_id)
    after = dump(indexer.home)
    gone = videos[1].video_id
    for table, rows in after.items():
        kept = [row for row in before[table] if gone not in str(row[0])]
        assert [r for r in rows if r in kept] == rows
    assert not (indexer.home / "thumbs/bare" / gone).exists()
    assert sum(gone in row[0] for row in after["frames"]) == 0


def test_behaviour_5_indexing_again_keeps_the_count(tmp_path, clip):
    indexer = VisualIndexer(tmp_path / "home", settings())
    first = indexer.index(clip)
    before = dump(indexer.home)
    same = indexer.index(clip)
    assert same.model_dump(exclude=SIZES) == first.model_dump(exclude=SIZES)
    forced = indexer.index(clip, force=True)
    assert (forced.frames_total, forced.vectors) == (first.frames_total, first.vectors)
    assert dump(indexer.home) == before


def test_behaviour_6_two_files_of_one_name_are_two_videos(tmp_path):
    paths = []
    for n in range(2):
        (tmp_path / str(n)).mkdir()
        paths.append(still_clip(tmp_path / str(n) / "intro.mp4", HUES[n]))
    copy = tmp_path / "copy of intro.mp4"
    shutil.copy(paths[0], copy)
    indexer = VisualIndexer(tmp_path / "home", settings())
    videos = indexer.index_all([*paths, copy]).videos
    assert len({one.video_id for one in videos}) == 2
    assert videos[2].status == "unchanged" and indexer.stats().videos_indexed == 2


def test_behaviour_7_search_and_stats_write_nothing(library):
    library.close()
    home = library.home

    def state():
        return {
            path.relative_to(home): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(home.rglob("*"))
            if path.is_file()
        }

    before = state()
    library.visual_search("written red")
    library.visual_search(image=Image.new("RGB", (9, 9), HUES[0]))
    library.visual_stats()
    library.close()
    assert state() == before


def test_behaviour_8_a_wrong_dim_or_provider_is_a_typed_error(tmp_path, clip):
    class Half(FakeEncoder):
        embedding_dim = 7

    register("image_text_encoder", "half-eye", Half())
    with pytest.raises(Vid2ContextError) as told:
        VisualIndexer(tmp_path / "home", settings(encoder="half-eye")).index(clip)
    assert told.value.code == "provider_invalid"
    for name in ("nobody", "runner:nobody"):
        with pytest.raises(Vid2ContextError) as told:
            VisualIndexer(tmp_path / "home", settings(captioner=name)).index(clip)
        assert told.value.code.startswith(("provider_", "runner_"))
    assert not (tmp_path / "home").exists()


def test_behaviour_9_thresholds_act_on_raw_scores(library):
    free = library.visual_search("red", top_k=50, channels=["clip"])
    raws = [one.raw for hit in free for one in hit.channels]
    least = (max(raws) + min(raws)) / 2
    kept = library.visual_search("red", top_k=50, channels=["clip"], min_score=least)
    assert 0 < len(kept) <= len(free)
    assert all(one.raw >= least for hit in kept for one in hit.channels)
    named = library.visual_search("red", top_k=50, min_score={"clip": 2.0})
    assert all(one.channel != "visual" for hit in named for one in hit.channels)
    with pytest.raises(UsageError):
        library.visual_search("red", min_score={"fused": 0.1})


def test_behaviour_10_nonsense_is_not_confident(library):
    for query in ("xqzzv brplk", "quarterly tax estimate of a dentist"):
        assert library.visual_search(query).verdict != "confident"
    assert library.visual_search("written red").verdict == "confident"


ODD = ["C++", '"x', "NOT man", "paul's", "page-12", "ocr:*", "a AND", "(((a", "red~2"]


def test_behaviour_11_user_text_never_raises(tmp_path):
    path = text_clip(tmp_path / "zoo.mp4", "man on page-12", "zebra in C++")
    chosen = settings(captioner="off", text_reader="rapidocr", encoder="off")
    with Library(tmp_path / "home", settings=chosen) as library:
        library.index(path)
        for query in ODD:
            library.visual_search(query, abstain=False)
        hits = library.visual_search("man zebra", channels=["ocr"])
        texts = " ".join(f.ocr_text for f in library.frames(hits[0].video_id))
        assert "man" in texts and "zebra" in texts and len(hits) >= 1
        either = [library.visual_search(q, channels=["ocr"]) for q in ("man", "zebra")]
        assert all(found for found in either)


def test_behaviour_12_source_tells_the_channels_of_this_hit(library):
    kinds = {"visual": "clip", "ocr": "ocr", "caption": "fts"}
    for hit in library.visual_search("red", top_k=50, abstain=False):
        names = {one.channel for one in hit.channels}
        found = {kinds[name] for name in names & kinds.keys()}
        found |= (
            {"fts"} if any("transcript" in n or "dense" in n for n in names) else set()
        )
        assert hit.source == (found.pop() if len(found) == 1 else "hybrid")
        shares = sum(one.contribution for one in hit.channels)
        assert shares == pytest.approx(hit.score, abs=1e-9)
        assert min(one.rank for one in hit.channels) >= 1


def test_behaviour_13_ties_do_not_depend_on_channel_order():
    lists = {"b": ["x", "y"], "a": ["y", "x"]}
    weights = {"a": 1.0, "b": 1.0}
    turned = dict(reversed(lists.items()))
    assert [u.id for u in fuse(lists, weights)] == [u.id for u in fuse(turned, weights)]
    assert [u.id for u in fuse(lists, weights)] == ["x", "y"]


def test_behaviour_14_near_equal_frames_give_one_hit(tmp_path):
    path = still_clip(tmp_path / "slide.mp4", HUES[0], seconds=300)
    with Library(tmp_path / "home", settings=settings()) as library:
        library.index(path)
        hits = library.visual_search("written red", abstain=False)
        frames = library.frames(hits[0].video_id)
    assert (len(frames), len(hits)) == (60, 1)
    assert len({f.embedding_id for f in frames}) == 1


def test_behaviour_15_links_are_encoded_and_right_per_source(tmp_path):
    path = still_clip(tmp_path / "tide & time #2?.mp4", HUES[0])
    with Library(tmp_path / "home", settings=settings()) as library:
        library.index(path)
        hit = library.visual_search("written red")[0]
        whole = library.visual_search("written red", absolute_links=True)[0]
        moment = library.search("written red").moments[0]
    assert hit.deep_link == moment.link == "tide%20%26%20time%20%232%3F.mp4#t=0"
    assert whole.deep_link.startswith("file:///") and "#t=0" in whole.deep_link


def test_behaviour_16_corrupt_input_raises_with_a_reason(tmp_path, clip):
    data = bytearray(clip.read_bytes())
    for name, content in {
        "empty.mp4": b"",
        "text.mp4": b"ffconcat version 1.0\nfile 'x.mp4'\n",
        "half.mp4": bytes(data[: len(data) // 2]),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Vid2ContextError) as told:
            VisualIndexer(tmp_path / "home", settings()).index(tmp_path / name)
        assert told.value.code.startswith("media.") and len(told.value.message) > 20


def test_behaviour_17_an_abandoned_iterator_leaves_no_process(clip):
    def children():
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(os.getpid())],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        return len(found)

    def open_files():
        place = Path("/proc/self/fd")
        return len(list(place.iterdir())) if place.is_dir() else 0

    handles = open_files()
    before = children()
    frames = sample_every(clip, 1, settings=Media())
    next(frames)
    assert children() > before
    frames.close()
    assert children() == before
    assert open_files() == handles


def test_behaviour_18_errors_close_the_connection_and_a_batch_is_one_commit(
    tmp_path, monkeypatch
):
    moving = hue_clip(tmp_path / "moving.mp4", seconds=70, each_s=1)
    commits = []

    def stop(done, total):
        if done == 66:
            raise Fault("stopped", "enough")

    from vid2context.journal import Journal

    save = Journal.save

    def counted(self, *args, **options):
        with_before = self._writer.db.total_changes
        save(self, *args, **options)
        commits.append(self._writer.db.total_changes - with_before)

    monkeypatch.setattr(Journal, "save", counted)
    indexer = VisualIndexer(tmp_path / "home", settings())
    with pytest.raises(Vid2ContextError, match="enough"):
        indexer.index(moving, interval_s=1, progress=stop)
    assert len(commits) == 2 and min(commits) >= 30
    with open_writer(tmp_path / "home") as writer:
        assert writer.is_current()
    indexer.index(moving, interval_s=1)
    assert len(commits) == 3


def test_behaviour_19_a_query_reads_no_vector_file_again(library):
    library.visual_search("written red")
    opened = []
    watching = [True]

    def hook(event, args):
        if watching[0] and event == "open" and "vectors" in str(args[0]):
            opened.append(args[0])

    sys.addaudithook(hook)
    library.visual_search("written blue")
    library.visual_search("green")
    watching[0] = False
    assert opened == []


def test_behaviour_20_stats_answer_while_indexing(tmp_path, clip):
    "What the MCP server's stats tool calls answers from another thread."
    service = Service(tmp_path / "home")
    service.settings = settings()
    still = still_clip(tmp_path / "first.mp4", HUES[0])
    service.visual_index(still)
    answers, going = [], threading.Event()

    def ask():
        going.wait()
        other = Service(tmp_path / "home")
        other.settings = settings()
        answers.append(other.visual_stats().data["stats"]["videos_indexed"])
        other.close()

    thread = threading.Thread(target=ask)
    thread.start()

    def progress(done, total):
        going.set()
        if done == total:
            thread.join()

    service.visual_index(clip, progress=progress)
    service.close()
    assert answers == [1]


def test_behaviour_21_fakes_expose_dim_and_pairing_mistakes():
    "Dims are prime, and a picture and the words for it have one vector."
    dims = {FakeEncoder.embedding_dim, PlainEncoder.embedding_dim, 31}
    assert all(all(d % k for k in range(2, d)) for d in dims) and len(dims) == 3
    eye = FakeEncoder()
    red, blue = (
        np.array(eye.encode_image(Image.new("RGB", (9, 9), h))) for h in HUES[:2]
    )
    assert red @ np.array(eye.encode_text("red")) > red @ np.array(
        eye.encode_text("blue")
    )
    assert blue @ np.array(eye.encode_text("blue")) > 0.5


def test_behaviour_22_integers_identify_rows(library):
    with sqlite3.connect(library.home / "catalog.sqlite") as db:
        rows = db.execute(
            """SELECT json_extract(details, '$.pts'),
            json_extract(details, '$.time_base[0]'), unit_id FROM frames"""
        ).fetchall()
    assert all(type(pts) is int and type(base) is int for pts, base, _ in rows)
    assert len({pts for pts, _, _ in rows}) == len(rows)
    keys = [unit.rpartition(":")[2] for _, _, unit in rows]
    assert all(len(key) == 9 and key.isdigit() for key in keys)


def test_behaviour_23_cues_without_hours_count(tmp_path):
    path = still_clip(tmp_path / "talk.mp4", HUES[0])
    cue = "WEBVTT\n\n00:05.250 --> 00:07.500\nNow the tide turns.\n"
    (tmp_path / "talk.en.vtt").write_text(cue)
    with Library(tmp_path / "home", settings=settings()) as library:
        library.index(path)
        hits = library.visual_search("tide turns", channels=["transcript"])
        said = {
            f.timestamp_s: f.transcript_concurrent
            for f in library.frames(hits[0].video_id)
        }
    assert hits[0].start_s == 5.25
    assert said == {0.0: "", 5.0: "Now the tide turns.", 10.0: "", 15.0: ""}


def test_behaviour_24_without_thumbnails_no_image_bytes(tmp_path, clip):
    indexer = VisualIndexer(tmp_path / "home", settings())
    indexer.index(clip, thumbs=True)
    assert indexer.stats().thumbs > 0
    indexer.index(clip, thumbs=False)
    assert indexer.stats().thumbs == 0
    marks = (b"\xff\xd8\xff", b"\x89PNG", b"JFIF", b"RIFF")
    for path in indexer.home.rglob("*"):
        if path.is_file():
            assert not any(mark in path.read_bytes() for mark in marks), path


# Also


def test_reuse_never_crosses_a_look_change(library):
    frames = library.frames(library.catalog.packages("bare")[0].video_id)
    by_id = {frame.frame_id: frame for frame in frames}
    reused = [frame for frame in frames if frame.caption_origin == "reused"]
    assert reused
    for frame in reused:
        assert by_id[frame.caption_from].ocr_text == frame.ocr_text


def test_ordered_text_minus_text_and_filters(library):
    video = library.catalog.packages("bare")[0].video_id
    pairs = library.visual_search("red", then="blue", within_s=10, channels=["clip"])
    for first, second in zip(pairs, pairs.then, strict=True):
        assert 0 < second.start_s - first.start_s <= 10
    assert len(pairs) > 0
    assert library.visual_search("red", minus="blue", videos=[video])
    with pytest.raises(UsageError, match="no video"):
        library.visual_search("red", videos=["local-0"])


def test_two_writers_do_not_mix(tmp_path, clip):
    with (
        open_writer(tmp_path / "home", create=True),
        pytest.raises(Vid2ContextError) as told,
    ):
        VisualIndexer(tmp_path / "home", settings()).index(clip)
    assert told.value.code == "sync_already_running" and told.value.retryable
    assert multiprocessing.active_children() == []


def test_a_moved_file_is_the_same_video(tmp_path, clip):
    indexer = VisualIndexer(tmp_path / "home", settings())
    first = shutil.copy(clip, tmp_path / "a.mp4")
    indexer.index(first)
    second = Path(first).rename(tmp_path / "b.mp4")
    assert indexer.index_all([second]).videos[0].status == "unchanged"
    with Catalog.open(indexer.home) as catalog:
        assert catalog.packages("bare")[0].details["file"] == "b.mp4"


def test_write_clip_is_used_for_every_clip(tmp_path):
    "A clip of two tones is two kept frames, whatever wrote it."
    write_clip(
        tmp_path / "a.mp4",
        [np.full((90, 160, 3), HUES[n // 10], np.uint8) for n in range(20)],
        fps=2,
    )
    report = VisualIndexer(tmp_path / "home", settings()).index_all(
        [tmp_path / "a.mp4"]
    )
    assert report.videos[0].vectors == 2


def test_a_pass_whose_vectors_were_tidied_away_begins_anew(tmp_path):
    moving = hue_clip(tmp_path / "moving.mp4", seconds=40, each_s=1)

    def stop(done, total):
        if done == 35:
            raise Fault("stopped", "enough")

    indexer = VisualIndexer(tmp_path / "home", settings())
    with pytest.raises(Vid2ContextError):
        indexer.index(moving, interval_s=1, progress=stop)
    with open_writer(indexer.home) as writer, writer.transaction() as db:
        db.execute("DELETE FROM vectors WHERE instr(fingerprint, ':') = 0")
    assert indexer.index(moving, interval_s=1).vectors == 40
    assert rows_agree(indexer.home)
