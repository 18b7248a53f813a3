"What a model in another process may do to an index: nothing but lose its own answers."

import json
import os
import shutil
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from visual_kit import HUES, hue_clip, register, settings, still_clip

from vid2context.core import Vid2ContextError, sha256_file
from vid2context.fakes import FakeEmbedder
from vid2context.index_reports import IndexWish
from vid2context.kinds import ProviderDescriptor
from vid2context.media import write_clip
from vid2context.model_store import pull_model
from vid2context.options import Captioning, Settings, Transcript
from vid2context.patience import MOST_FAULTS
from vid2context.pipeline import Library, VisualIndexer
from vid2context.runners import runner_folder
from vid2context.segments import Segment
from vid2context.weights import model_folder
from vid2context.worker import WorkerCaptioner, WorkerEncoder, WorkerReader
from vid2context.worker_process import Worker
from vid2context.worker_script import PROTOCOL
from vid2context.worker_script import __file__ as SCRIPT

DOUBLE = Path(__file__).with_name("worker_double.py")
EVERY_SECOND = IndexWish(interval_s=1.0)
FRAMES, AT = 40, 37  # Of them this one is what a worker stumbles over
KINDS = {
    "ocr": ("ocr", "text_reader", WorkerReader),
    "caption": ("captioner", "captioner", WorkerCaptioner),
    "image": ("image_text_encoder", "encoder", WorkerEncoder),
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    return hue_clip(folder / "hues.mp4", seconds=FRAMES, each_s=1, fps=2)


def indexer_of(tmp_path, channel, way):
    "Give an indexer of which one model is a worker that misbehaves in a way."
    kind, option, provider = KINDS[channel]
    command = [sys.executable, DOUBLE, way, tmp_path / "state", AT]
    # Pictures are placed eight at a time, and may take eight times as long.
    worker = Worker(command, name="double", item_s=0.5 if channel == "image" else 1.0)
    more = {"dim": 3} if channel == "image" else {}
    register(kind, "double", provider(worker, **more))
    chosen = settings(**{option: "double"})
    chosen = replace(chosen, captioning=Captioning(per_window="no"))
    return VisualIndexer(tmp_path / "home", chosen), worker


def good_frames(frames, channel):
    return {
        "ocr": [f for f in frames if f.ocr_origin == "read"],
        "caption": [f for f in frames if f.caption_origin == "model"],
        "image": [f for f in frames if f.embedding_id],
    }[channel]


ONE = [
    ("ocr", "raises", "worker_error: double: ValueError: frame 37 is upside down"),
    ("ocr", "none", "provider_output_invalid: double sent no lines of text"),
    ("caption", "raises", "worker_error: double: ValueError: frame 37 is upside down"),
    ("caption", "empty", "caption_empty: double gave no usable caption"),
    ("caption", "none", "provider_output_invalid: double"),
    ("image", "raises", "worker_error: double: ValueError: frame 37 is upside down"),
    ("image", "short", "provider_output_invalid: The worker sent no 1 vectors of 3"),
    ("image", "nan", "provider_output_invalid: double"),
]


@pytest.mark.parametrize(("channel", "way", "says"), ONE)
def test_a_worker_that_stumbles_at_frame_37_costs_that_answer(
    tmp_path, clip, channel, way, says
):
    indexer, worker = indexer_of(tmp_path, channel, way)
    report = indexer.index_all([clip], wish=EVERY_SECOND).videos[0]
    assert (report.status, report.frames, worker.failed) == ("partial", FRAMES, None)
    with Library(indexer.home, settings=indexer.settings) as library:
        frames = library.frames(report.video_id)
        assert library.visual_search("written red" if channel != "ocr" else "plate 5")
    assert [n for n, f in enumerate(frames, 1) if f.issues] == [AT]
    assert frames[AT - 1].issues[0].startswith(f"{channel}: {says}")
    assert len(good_frames(frames, channel)) == FRAMES - 1
    again, _ = indexer_of(tmp_path, channel, "well")
    anew = again.index_all([clip], wish=EVERY_SECOND).videos[0]
    assert (anew.status, anew.calls[channel]) == ("indexed", 1)
    with Library(again.home, settings=again.settings) as library:
        frames = library.frames(anew.video_id)
    assert not any(f.issues for f in frames)
    assert len(good_frames(frames, channel)) == FRAMES


FOR_GOOD = [
    ("ocr", "dies", "ended. It said last: Segmentation fault, surely"),
    ("ocr", "hangs", "was silent for 1 s"),
    ("ocr", "no-json", "sent no JSON object"),
    ("caption", "dies", "ended. It said last: Segmentation fault, surely"),
    ("caption", "hangs", "was silent for 1 s"),
    ("image", "dies", "ended. It said last: Segmentation fault, surely"),
    ("image", "long-line", "sent a line of more than 1 MiB"),
]


@pytest.mark.parametrize(("channel", "way", "says"), FOR_GOOD)
def test_a_worker_that_breaks_twice_is_left_and_the_other_channels_go_on(
    tmp_path, clip, channel, way, says
):
    indexer, worker = indexer_of(tmp_path, channel, way)
    report = indexer.index_all([clip], wish=EVERY_SECOND).videos[0]
    assert (report.status, report.frames) == ("partial", FRAMES)
    assert worker.failed.code == "worker_failed" and says in worker.failed.message
    assert any(says in issue for issue in report.issues)
    with Library(indexer.home, settings=indexer.settings) as library:
        frames = library.frames(report.video_id)
        assert library.visual_search("written red" if channel != "ocr" else "plate 5")
    lost = [n for n, f in enumerate(frames, 1) if f.issues]
    assert AT in lost and min(lost) > FRAMES - 8 and max(lost) == FRAMES
    for number in lost:
        (issue,) = frames[number - 1].issues
        assert says in issue or f"{MOST_FAULTS} times in a row" in issue
    for other in set(KINDS) - {channel}:
        assert len(good_frames(frames, other)) == FRAMES
    again, _ = indexer_of(tmp_path, channel, "well")
    anew = again.index_all([clip], wish=EVERY_SECOND).videos[0]
    assert (anew.status, anew.issues) == ("indexed", ())
    assert anew.calls[channel] <= len(lost)
    with Library(again.home, settings=again.settings) as library:
        assert len(good_frames(library.frames(anew.video_id), channel)) == FRAMES


@pytest.mark.parametrize(
    ("channel", "way"),
    [
        ("ocr", "dies-once"),
        ("ocr", "prints"),
        ("ocr", "floods"),
        ("caption", "hangs-once"),
        ("image", "dies-once"),
        ("image", "hangs-once"),
    ],
)
def test_a_worker_that_breaks_once_or_prints_costs_nothing(
    tmp_path, clip, channel, way, capfd
):
    indexer, worker = indexer_of(tmp_path, channel, way)
    report = indexer.index_all([clip], wish=EVERY_SECOND).videos[0]
    assert (report.status, report.issues, worker.failed) == ("indexed", (), None)
    with Library(indexer.home, settings=indexer.settings) as library:
        assert len(good_frames(library.frames(report.video_id), channel)) == FRAMES
    assert capfd.readouterr().out == ""


class SoreEmbedder(FakeEmbedder):
    "Embed well, but for texts with a certain word."

    name = "sore"
    descriptor = ProviderDescriptor(id="sore", version="1", dim=31)

    def __init__(self, way, word="purple"):
        self.way, self.word = way, word

    def embed(self, texts, kind):
        rows = super().embed(texts, kind)
        if self.word and any(self.word in text for text in texts):
            if self.way == "raises":
                raise RuntimeError(f"no {self.word} today")
            if self.way == "hangs":
                threading.Event().wait()
            return rows[:, :-1] if self.way == "short" else rows * np.nan
        return rows


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("raises", "sore raised RuntimeError: no purple today"),
        ("short", "sore"),
        ("nan", "not finite"),
        ("hangs", "sore gave no answer for 1 s"),
    ],
)
def test_a_model_of_text_vectors_that_fails_costs_only_those(tmp_path, clip, way, says):
    register("embedder", "sore", SoreEmbedder(way))
    chosen = settings(embedder="sore", timeout_s=1.0 if way == "hangs" else 60.0)
    report = VisualIndexer(tmp_path / "home", chosen).index_all(
        [clip], wish=EVERY_SECOND
    )
    video = report.videos[0]
    assert (report.status, video.status, video.frames) == ("partial", "partial", FRAMES)
    assert any(issue.startswith("text: ") and says in issue for issue in video.issues)
    assert video.vectors == FRAMES
    register("embedder", "sore", SoreEmbedder("well", word=""))
    with Library(tmp_path / "home", settings=chosen) as library:
        assert library.visual_search("written red", channels=["ocr"])
        again = library.indexer.index_all([clip], wish=EVERY_SECOND)
        assert (again.status, again.videos[0].status) == ("ok", "indexed")
        assert again.videos[0].calls["ocr"] == 0
        hits = library.visual_search("written purple", channels=["dense_frame"])
        assert "purple" in hits[0].ocr_text


class Ears:
    "Hear the same words in every piece, or none at all."

    name = "ears"
    descriptor = ProviderDescriptor(id="ears", version="1")

    def __init__(self, deaf):
        self.deaf = deaf

    def transcribe(self, audio, language=None):
        yield Segment(0, 0.5, 1.5, "the tide turns")
        if self.deaf:
            raise RuntimeError("no ears today")


def test_a_model_of_speech_that_fails_costs_only_what_is_said(tmp_path):
    pixels = [np.full((90, 160, 3), HUES[0], np.uint8)] * 8
    noise = np.random.default_rng(0).normal(0, 0.1, 64_000).astype(np.float32)
    write_clip(tmp_path / "a.mp4", pixels, fps=2, audio=noise)
    chosen = replace(settings(), transcript=Transcript(recognizer="ears"))
    for deaf in (True, False):
        register("asr", "ears", Ears(deaf))
        with Library(tmp_path / "home", settings=chosen) as library:
            video = library.indexer.index_all([tmp_path / "a.mp4"]).videos[0]
            assert library.visual_search("written red", channels=["ocr"])
            heard = library.visual_search("tide", channels=["transcript"])
        if deaf:
            assert (video.status, video.speech, len(heard)) == ("partial", "none", 0)
            assert "ears raised RuntimeError: no ears today" in video.issues[0]
        else:
            assert (video.status, video.speech, len(heard)) == ("indexed", "asr", 1)


# Weights: none, wrong ones, those of another model behind the same name


@pytest.fixture
def seen(tmp_path, tiny_clip, monkeypatch):
    "A library whose pictures were placed by a model that was pulled by its name."
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path / "runtime"))
    pull_model("clip-small", source=tiny_clip)
    providers = replace(
        settings(encoder="clip-small").providers, precision="float32", threads=1
    )
    indexer = VisualIndexer(tmp_path / "home", Settings(providers=providers))
    path = hue_clip(tmp_path / "a.mp4", seconds=10)
    assert indexer.index(path, interval_s=1).vectors == 10
    return indexer, path


def ask(indexer):
    "Ask with a new library, as a new process would."
    with Library(indexer.home, settings=indexer.settings) as library:
        hits = library.visual_search("written red")
        codes = [w.code for w in hits.warnings if w.path == "visual"]
        images = [
            one for hit in hits for one in hit.channels if one.channel == "visual"
        ]
        told = " ".join(w.message for w in hits.warnings)
    assert hits and hits[0].ocr_text == "written red"
    return codes, images, told


def spoil(folder, what):
    file = folder / "open_clip_model.safetensors"
    data = bytearray(file.read_bytes())
    if what == "gone":
        file.unlink()
    elif what == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:  # As long as before, another number inside
        data[-1] ^= 64
        file.write_bytes(data)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("gone", "models pull clip-small"),
        ("cut", "is missing or cut; run `vid2context models pull clip-small`"),
        ("other", "models pull clip-small --force"),
    ],
)
def test_weights_that_are_gone_or_spoilt_silence_pictures_and_text_goes_on(
    seen, what, says
):
    indexer, path = seen
    codes, images, _ = ask(indexer)
    assert (codes, bool(images)) == ([], True)
    spoil(model_folder("clip-small"), what)
    codes, images, told = ask(indexer)
    assert (codes, images) == (["visual_search_unavailable"], []) and says in told
    anew = VisualIndexer(indexer.home, indexer.settings)
    with pytest.raises(Vid2ContextError) as stopped:
        anew.index(path, force=True)
    assert says in stopped.value.message
    assert ask(indexer)[0] == ["visual_search_unavailable"]


def test_another_model_pulled_under_the_name_is_stale_until_reindex(
    seen, tiny_clip, tmp_path
):
    import safetensors.numpy

    indexer, path = seen
    other = shutil.copytree(tiny_clip, tmp_path / "other")
    file = other / "open_clip_model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["visual.proj"] = np.roll(tensors["visual.proj"], 1, axis=1)
    safetensors.numpy.save_file(tensors, file)
    spoil(model_folder("clip-small"), "gone")
    with pytest.raises(Vid2ContextError, match="--force accepts"):
        pull_model("clip-small", source=other)
    pull_model("clip-small", source=other, force=True)
    codes, images, told = ask(indexer)
    assert (codes, images) == (["vectors_stale"], []) and "reindex" in told
    anew = VisualIndexer(indexer.home, indexer.settings)
    report = anew.index_all([path])
    assert (report.status, report.warnings[0].code) == ("partial", "vectors_stale")
    anew.reindex("image")
    codes, images, _ = ask(indexer)
    assert (codes, bool(images)) == ([], True)


def test_weights_that_only_fail_when_they_are_loaded_are_named(seen):
    indexer, path = seen
    folder = model_folder("clip-small")
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["width"] = 32
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    chosen = replace(
        indexer.settings.providers, encoder="open-clip", encoder_folder=str(folder)
    )
    broken = Settings(providers=chosen)
    with Library(indexer.home, settings=broken) as library:
        hits = library.visual_search("written red")
    assert hits[0].ocr_text == "written red" and hits.status == "partial"
    with pytest.raises(Vid2ContextError, match="size mismatch"):
        VisualIndexer(indexer.home.parent / "other", broken).index(path)


# The script that runners run, stopped and killed in the middle of a video


@pytest.fixture
def runner(tmp_path, monkeypatch):
    "A runner whose Python is this one, with the tiny Florence-2."
    pytest.importorskip("transformers", reason="the extra `vision` is not installed")
    from vid2context.tiny_florence import make_tiny_florence

    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path / "runtime"))
    pull_model("florence-2", source=make_tiny_florence(tmp_path / "florence"))
    folder = runner_folder("florence-2")
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    shutil.copy(SCRIPT, folder / "worker.py")
    state = {"status": "ready", "protocol": PROTOCOL, "python": "3.11"}
    state |= {"worker_sha256": sha256_file(Path(SCRIPT)), "installed_at": "2026"}
    (folder / "state.json").write_text(json.dumps(state))


@pytest.mark.slow  # Each start of the script imports torch
@pytest.mark.parametrize("sign", ["SIGSTOP", "SIGKILL"])
@pytest.mark.usefixtures("runner")
def test_a_runner_that_hangs_or_dies_in_the_middle_is_started_again(tmp_path, sign):
    "And every caption is the one of an unbroken run."
    clip = hue_clip(tmp_path / "a.mp4", seconds=8, each_s=1)
    chosen = settings(captioner="runner:florence-2", precision="float32", threads=1)
    chosen = replace(chosen, captioning=Captioning(per_window="no"))
    calm = VisualIndexer(tmp_path / "calm", chosen)
    calm.index_all([clip], wish=EVERY_SECOND)
    indexer = VisualIndexer(tmp_path / "home", chosen)
    worker = indexer.perception.captioner._worker
    worker._item_s = 10.0  # Not the minute that a runner has
    broken = []

    def progress(done, total):
        if done == 4:
            broken.append(worker._process.pid)
            os.kill(broken[0], getattr(signal, sign))

    report = indexer.index_all([clip], wish=EVERY_SECOND, progress=progress).videos[0]
    assert (report.status, report.frames, report.calls["caption"]) == ("indexed", 8, 8)
    assert not Path(f"/proc/{broken[0]}").exists()
    told = []
    for one in (calm, indexer):
        with Library(one.home, settings=one.settings) as library:
            frames = library.frames(report.video_id)
        told.append([(f.timestamp_s, f.caption, f.caption_origin) for f in frames])
    assert told[0] == told[1] and len(told[0]) == 8


# Videos without a picture, among others


def test_videos_without_a_picture_are_named_and_stop_no_other(tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    good = still_clip(folder / "b good.mp4", HUES[0], seconds=4)
    pixels = [np.zeros((90, 160, 3), np.uint8)] * 4
    sound = np.zeros(16_000, np.float32)
    write_clip(tmp_path / "both.mp4", pixels, fps=4, audio=sound)
    with (
        av.open(str(tmp_path / "both.mp4")) as source,
        av.open(str(folder / "a sound.mp4"), "w") as out,
    ):
        track = out.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux(audio=0):
            if packet.size:
                packet.stream = track
                out.mux(packet)
    data = bytearray(good.read_bytes())
    begin = data.index(b"mdat") + 4
    end = begin - 8 + int.from_bytes(data[begin - 8 : begin - 4])
    data[begin:end] = bytes(end - begin)  # Pictures of nothing but zeros
    (folder / "c zeros.mp4").write_bytes(data)
    indexer = VisualIndexer(tmp_path / "home", settings())
    report = indexer.index_all([folder])
    found = {one.file: (one.status, one.code) for one in report.videos}
    assert found == {
        "a sound.mp4": ("failed", "media.no_video"),
        "b good.mp4": ("indexed", None),
        "c zeros.mp4": ("failed", "media.undecodable"),
    }
    assert report.status == "partial"
    assert all(one.message for one in report.videos if one.code)
    with Library(indexer.home, settings=indexer.settings) as library:
        assert library.visual_search("written red")
        assert library.visual_stats().videos_indexed == 1
