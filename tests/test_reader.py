"Seek and whole pass agree, and facts are those of the file, on made and real files."

import bisect
import gc
import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vid2context import seeking
from vid2context.core import Vid2ContextError
from vid2context.guard import open_media, probe
from vid2context.media import Converter, opened, packets_of, write_clip
from vid2context.options import Media
from vid2context.reader import Reader
from vid2context.seeking import rendered, step_through

PLAIN, GUARDED = Media(guarded=False), Media()
REFUSED = {
    "full_blocks.mkv": "media.no_video",
    "invalid-bitstream.webm": "media.undecodable",
    "sample_audio_only.mp4": "media.no_video",
    "empty.mp4": "media.empty",
    "text_renamed.mp4": "media.not_media",
    "zero_length.webm": "media.empty",
    "aonly.mov": "media.no_video",
    "nostreams.mp4": "media.no_streams",
    "silent.mp4": "media.no_video",
    "speech_to_text_test.mp4": "media.no_video",
}


def numbered(i):
    "Paint a number as eight stripes over a gradient that moves."
    bits = [(i >> k) & 1 for k in range(8)]
    stripes = np.repeat(np.array(bits, np.uint8) * 235 + 10, 16)
    picture = np.repeat(np.tile(stripes, (96, 1))[..., None], 3, axis=2)
    picture[64:] = (np.arange(128)[:, None] + 3 * i) % 256
    return picture


def open_files():
    "Count the open files of this process."
    return len(list(Path("/proc/self/fd").iterdir()))


def number(rgb):
    middles = rgb[rgb.shape[0] // 4, rgb.shape[1] // 16 :: rgb.shape[1] // 8, 0]
    return sum(int(v > 127) << k for k, v in enumerate(middles))


def overwrite(path, choose):
    "Fill the bodies of some packets of the first track with ones."
    with opened(path, settings=PLAIN) as container:
        packets = packets_of(container, container.streams.video)
        bodies = [bytes(packet) for packet in packets if packet.size]
    data = bytearray(path.read_bytes())
    for body in choose(bodies):
        at = data.index(body)
        data[at : at + len(body)] = b"\xff" * len(body)
    path.write_bytes(data)


STEPS = np.random.default_rng(7).choice([0.02, 0.05, 0.05, 0.3], size=160)
BUMPY = [round(float(t), 3) for t in np.cumsum(STEPS)]
SOUND = 0.2 * np.sin(np.arange(16_000 * 16) * 0.05).astype(np.float32)
VP9 = {"deadline": "realtime", "cpu-used": "8", "g": "30"}
HEVC = {"x265-params": "log-level=none:open-gop=1:keyint=20:bframes=3:pools=none"}
PLANS = {
    "even.mp4": {"fps": 10, "options": {"g": "25"}},
    "edit-list.mp4": {"fps": 10, "start_s": 4.0, "audio": SOUND},
    "bumpy.mp4": {"times_s": BUMPY, "options": {"g": "25"}},
    "bumpy.mkv": {"times_s": BUMPY, "options": {"g": "25", "bf": "3"}},
    "late.ts": {"fps": 10, "start_s": 5.0, "options": {"g": "25", "bf": "3"}},
    "late-sound.ts": {"fps": 10, "start_s": 5.0, "audio": SOUND},
    "vp9.webm": {"fps": 10, "codec": "libvpx-vp9", "options": VP9},
    "open-gop.ts": {"fps": 10, "codec": "libx265", "options": HEVC},
    "open-gop.mp4": {"fps": 10, "codec": "libx265", "options": HEVC},
    "mpeg4.avi": {"fps": 10, "codec": "mpeg4", "options": {"g": "12"}},
}


@pytest.mark.parametrize("name", PLANS)
def test_a_seek_shows_what_the_whole_pass_shows(name, tmp_path):
    write_clip(tmp_path / name, map(numbered, range(160)), **PLANS[name])
    with Reader(tmp_path / name, settings=PLAIN) as reader:
        passed = [
            (p.shown_s, p.until_s, p.pts, number(p.rgb), p.rgb.tobytes())
            for p in reader.frames()
        ]
        starts = [p[0] for p in passed]
        end_s = reader.info.duration_s
        times = [*np.sort(np.random.default_rng(1).uniform(0, end_s, 12)), end_s + 9]
        together = list(reader.at(times))
        alone = [next(iter(reader.at([t]))) for t in times[::3]]
    assert [p[3] for p in passed] == list(range(160))
    assert starts == sorted(starts)
    for picture in [*together, *alone]:
        i = max(0, bisect.bisect_right(starts, picture.asked_s + 1e-6) - 1)
        got = (picture.shown_s, picture.until_s, picture.pts, number(picture.rgb))
        assert got == passed[i][:4]
        assert picture.rgb.tobytes() == passed[i][4]


SKIMMED = {
    **PLANS,
    "pyramid.mp4": {
        "fps": 10,
        "options": {"g": "60", "bf": "8", "x264-params": "b-pyramid=normal:ref=6"},
    },
    "bumpy-b.mp4": {"times_s": BUMPY, "options": {"g": "25", "bf": "3"}},
    "open-avc.mkv": {
        "fps": 10,
        "options": {"g": "20", "bf": "3", "x264-params": "open-gop=1"},
    },
    "open-avc.ts": {
        "fps": 10,
        "start_s": 7.0,
        "options": {"g": "20", "bf": "3", "x264-params": "open-gop=1"},
    },
    "fields.ts": {
        "fps": 10,
        "options": {"g": "20", "bf": "3", "x264-params": "interlaced=1"},
    },
    "slices.mp4": {
        "fps": 10,
        "options": {"g": "30", "bf": "3", "x264-params": "slices=4"},
    },
    "refresh.mp4": {
        "fps": 10,
        "options": {"g": "20", "x264-params": "intra-refresh=1"},
    },
}


def seen(film, times_s, *, ways):
    "Answer in every way, with all that an answer shows."

    def tell():
        converter = Converter()
        return lambda a: (
            a.at_s,
            a.item.pts,
            a.item.at_s,
            a.until_s,
            a.substituted,
            converter.convert(a.item.frame).tobytes(),
        )

    if ways == "steps":
        return list(map(tell(), step_through(film, times_s)))
    lanes = {"one": 10**9, "two": 1}
    return list(rendered(film, times_s, render=tell, picture_bytes=lanes[ways]))


@pytest.mark.parametrize("name", SKIMMED)
def test_skimming_shows_the_pixels_that_stepping_shows(name, tmp_path, monkeypatch):
    write_clip(tmp_path / name, map(numbered, range(160)), **SKIMMED[name])
    with Reader(tmp_path / name, settings=PLAIN) as reader:
        film, end_s = reader._film, reader.info.duration_s
    assert film.times is not None
    random = np.sort(np.random.default_rng(5).uniform(0, end_s, 9)).tolist()
    plans = [[*random, end_s + 9], [i / 2 for i in range(int(end_s * 2))], [0.0, 0.0]]
    expected = [seen(film, plan, ways="steps") for plan in plans]
    doubts = []

    def step_and_tell(film, times_s):
        doubts.extend(times_s)
        return step_through(film, times_s)

    monkeypatch.setattr(seeking, "step_through", step_and_tell)
    monkeypatch.setattr(seeking, "_SPAN_S", 3.0)
    for plan, truth in zip(plans, expected, strict=True):
        assert seen(film, plan, ways="one") == truth
        assert seen(film, plan, ways="two") == truth
    # A picture that is refreshed bit by bit has no keyframe to begin with.
    assert bool(doubts) == (name == "refresh.mp4")


def test_skimming_decodes_less(tmp_path):
    clip = tmp_path / "clip.mp4"
    options = {"g": "80", "bf": "3", "x264-params": "b-adapt=0"}
    write_clip(clip, map(numbered, range(240)), fps=10, options=options)
    counts = {}
    for ways in ("steps", "one", "two"):
        with Reader(clip, settings=PLAIN) as reader:
            seen(reader._film, [7.5, 15.5, 23.5], ways=ways)
            counts[ways] = reader.decode_counts["decoded"]
    assert counts["one"] == counts["two"] <= 0.67 * counts["steps"]


def test_damage_is_told_the_same_when_skimming(tmp_path):
    clip = tmp_path / "hurt.mkv"
    write_clip(clip, map(numbered, range(200)), fps=10, options={"g": "20", "bf": "0"})
    overwrite(clip, lambda bodies: [*bodies[50:56], bodies[121]])
    asked = [i / 2 for i in range(40)]
    told = {}
    for ways in ("steps", "one", "two"):
        with Reader(clip, settings=PLAIN) as reader:
            film = reader._film
            assert film.times is not None
            told[ways] = seen(film, asked, ways=ways), reader.gaps
    assert told["one"] == told["steps"]
    assert told["two"] == told["steps"]
    assert told["steps"][1]


STILLS = {"codec": "mjpeg", "fps": 10, "options": {"pix_fmt": "yuvj420p"}}


def test_packets_that_tell_no_times_are_not_trusted(tmp_path):
    write_clip(tmp_path / "stills.mkv", map(numbered, range(20)), **STILLS)
    with Reader(tmp_path / "stills.mkv", settings=PLAIN) as reader:
        assert reader._film.times is None
        assert [number(p.rgb) for p in reader.at([0.55, 1.2])] == [5, 12]


def test_lanes_that_nobody_listens_to_end_at_once(tmp_path):
    clip = tmp_path / "long.mp4"
    write_clip(clip, map(numbered, range(600)), fps=10, options={"g": "150"})
    before = open_files(), threading.active_count()
    for settings in (PLAIN, GUARDED):
        with open_media(clip, settings=settings) as reader:
            pictures = reader.at([i / 2 for i in range(120)])
            assert number(next(pictures).rgb) == 0
            pictures.close()
            assert [number(p.rgb) for p in reader.at([1.0, 20.0])] == [10, 200]
    gc.collect()
    assert (open_files(), threading.active_count()) == before


def test_an_error_in_a_lane_reaches_the_caller(tmp_path):
    clip = tmp_path / "fast.mp4"
    write_clip(clip, map(numbered, range(200)), fps=10, options={"g": "50"})
    with Reader(clip, settings=PLAIN) as reader:
        reader._film = replace(reader._film, settings=replace(PLAIN, max_frames=20))
        with pytest.raises(Vid2ContextError) as caught:
            list(reader.at([4.9, 9.9, 14.9, 19.9]))
    assert caught.value.code == "media.limit.frames"
    assert not [t for t in threading.enumerate() if t.name.startswith("lane")]


def test_times_are_those_that_were_written(tmp_path):
    plans = {k: PLANS[k] for k in ("bumpy.mp4", "bumpy.mkv")}
    for name, plan in plans.items():
        write_clip(tmp_path / name, map(numbered, range(160)), **plan)
        with Reader(tmp_path / name, settings=PLAIN) as reader:
            starts = [p.shown_s for p in reader.frames(size=(16, 12))]
        written = [t - BUMPY[0] for t in BUMPY]
        assert starts == pytest.approx(written, abs=0.0011)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_pictures_stand_upright(turn, tmp_path):
    picture = np.zeros((64, 96, 3), np.uint8)
    picture[:32, :32] = (250, 20, 20)
    write_clip(tmp_path / "turned.mp4", [picture] * 3, rotation_deg=turn)
    with Reader(tmp_path / "turned.mp4", settings=PLAIN) as reader:
        native = next(reader.frames()).rgb
        small = next(reader.frames(size=native.shape[1::-1])).rgb
    assert (reader.info.width, reader.info.height) == native.shape[1::-1]
    assert reader.info.rotation_deg == turn
    want = np.rot90(picture, turn // 90).astype(int)
    assert np.abs(native.astype(int) - want).mean() < 4
    assert np.abs(small.astype(int) - want).mean() < 4


def test_sound_that_outlasts_the_picture_shows_the_last_picture(tmp_path):
    clip = tmp_path / "podcast.mp4"
    write_clip(clip, map(numbered, range(10)), fps=10, audio=SOUND[: 16_000 * 6])
    with Reader(clip, settings=PLAIN) as reader:
        assert reader.info.duration_s == pytest.approx(6.0, abs=0.1)
        assert [p.shown_s for p in reader.at([3.0, 5.7, 6.0])] == [0.9] * 3
        assert [gap.reason for gap in reader.gaps] == ["end"]
        heard = reader.audio()
    assert len(heard) / 16_000 == pytest.approx(6.0, abs=0.1)
    assert np.abs(heard[16_000:80_000]).max() == pytest.approx(0.2, abs=0.05)


def test_slow_pictures_last_as_long_as_they_are_shown(tmp_path):
    times = [0.0, 0.04, 40.0, 40.04, 70.0, 90.0]
    write_clip(tmp_path / "screen.mkv", map(numbered, range(6)), times_s=times)
    with Reader(tmp_path / "screen.mkv", settings=PLAIN) as reader:
        shown = [number(p.rgb) for p in reader.at([39, 41, 69.9, 71, 85.5])]
        assert shown == [1, 3, 3, 4, 4]
        assert reader.info.duration_s == pytest.approx(90.04, abs=0.05)
        assert len(list(reader.frames(size=(16, 12)))) == 6


def test_a_header_that_lies_is_corrected(tmp_path):
    whole = tmp_path / "whole.mkv"
    write_clip(whole, map(numbered, range(120)), fps=10)
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    info = probe(cut, settings=PLAIN)
    assert "ends_early" in info.issues
    assert 3 < info.duration_s < 9
    with Reader(cut, settings=PLAIN) as reader:
        last = next(reader.at([11.4]))
    assert last.shown_s == info.last_s


def test_what_has_no_index_or_is_a_page_is_one_clear_error(tmp_path):
    whole = tmp_path / "whole.mp4"
    write_clip(whole, map(numbered, range(60)), fps=10)
    data = whole.read_bytes()
    made = {
        "no-index.mp4": data[: data.index(b"moov") - 4],
        "page.mp4": b"<!DOCTYPE html><title>Not found</title>",
        "empty.mp4": b"",
    }
    for name, body in made.items():
        (tmp_path / name).write_bytes(body)
        for settings in (PLAIN, GUARDED):
            with pytest.raises(Vid2ContextError) as caught:
                probe(tmp_path / name, settings=settings)
            wanted = "media.empty" if name == "empty.mp4" else "media.not_media"
            assert caught.value.code == wanted and name in caught.value.message


def test_lost_pictures_are_counted_and_named(tmp_path):
    clip = tmp_path / "hurt.mkv"
    write_clip(clip, map(numbered, range(100)), fps=10, options={"g": "1"})
    overwrite(clip, lambda bodies: [bodies[20], *bodies[50:75]])
    for settings in (PLAIN, GUARDED):
        with open_media(clip, settings=settings) as reader:
            whole = [number(p.rgb) for p in reader.frames()]
            assert len(whole) == 74
            assert reader.decode_counts["failed"] == 26
            gaps = [(g.start_s, g.end_s) for g in reader.gaps]
            assert gaps == [(2.0, 2.1), (5.0, 7.5)]
            near = [(p.shown_s, p.substituted) for p in reader.at([2.03, 5.2, 7.4])]
            assert near == [(2.1, True), (4.9, True), (7.5, True)]
            with pytest.raises(Vid2ContextError, match=r"within 1 s of 6\.200 s"):
                list(reader.at([6.2]))
            assert [p.asked_s for p in reader.at([1, 6.2, 8], strict=False)] == [1, 8]


def test_a_pass_that_is_given_up_says_so(tmp_path):
    clip = tmp_path / "hurt.mkv"
    write_clip(clip, map(numbered, range(200)), fps=10, options={"g": "1"})
    overwrite(clip, lambda bodies: bodies[60:140])
    with Reader(clip, settings=PLAIN) as reader:
        assert reader.info.duration_s == pytest.approx(20.0)
        assert len(list(reader.frames(size=(16, 12)))) == 60
        assert [(g.start_s, g.end_s) for g in reader.gaps] == [(6.0, 20.0)]
        assert [p.substituted for p in reader.at([5.95, 6.2, 15.0])] == [
            False,
            True,
            False,
        ]
        with pytest.raises(Vid2ContextError, match="within 1 s"):
            list(reader.at([9.0]))


def test_joined_broadcasts_keep_their_order(tmp_path):
    parts = []
    for first, size in ((0, (128, 96)), (100, (64, 48))):
        clip = tmp_path / f"{first}.ts"
        pictures = (
            numbered(first + i)[:: 96 // size[1], :: 128 // size[0]] for i in range(50)
        )
        write_clip(clip, pictures, fps=10, start_s=2.0)
        parts.append(clip.read_bytes())
    (tmp_path / "joined.ts").write_bytes(b"".join(parts))
    with Reader(tmp_path / "joined.ts", settings=PLAIN) as reader:
        assert reader.info.sequential
        assert "clock_restarts" in reader.info.issues
        passed = [(p.shown_s, number(p.rgb)) for p in reader.frames()]
        shown = [number(p.rgb) for p in reader.at([4.05, 6.05, 9.0])]
    assert [n for _, n in passed] == [*range(50), *range(100, 150)]
    assert [t for t, _ in passed] == sorted(t for t, _ in passed)
    assert shown == [40, 110, 140]


def test_a_cover_is_no_video(tmp_path):
    import av

    clip = tmp_path / "song.mp4"
    with av.open(str(clip), "w") as out:
        sound = out.add_stream("aac", rate=16_000, layout="mono")
        cover = out.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        out.mux(cover.encode(frame))
        out.mux(cover.encode(None))
        for at in range(0, 16_000, 1024):
            piece = av.AudioFrame.from_ndarray(
                SOUND[None, at : at + 1024], "flt", "mono"
            )
            piece.sample_rate = 16_000
            out.mux(sound.encode(piece))
        out.mux(sound.encode(None))
    for settings in (PLAIN, GUARDED):
        with pytest.raises(Vid2ContextError) as caught:
            probe(clip, settings=settings)
        assert caught.value.code == "media.no_video"
    (tmp_path / "song.mp3").write_bytes(b"ID3\x04" + bytes(200))
    with pytest.raises(Vid2ContextError) as caught:
        probe(tmp_path / "song.mp3", settings=PLAIN)
    assert caught.value.code == "media.no_video"


def test_reading_again_and_again_leaks_nothing(tmp_path):
    clip = tmp_path / "clip.mp4"
    write_clip(clip, map(numbered, range(30)), fps=10)

    def once():
        with Reader(clip, settings=PLAIN) as reader:
            return [number(p.rgb) for p in reader.at([0.5, 2.5])]

    def resident_kib():
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(x for x in lines if x.startswith("VmRSS")).split()[1])

    gc.disable()
    try:
        for i in range(300):
            assert once() == [5, 25]
            if i == 20:
                before = open_files(), resident_kib()
        after = open_files(), resident_kib()
    finally:
        gc.enable()
    assert after[0] - before[0] <= 2
    assert after[1] - before[1] <= 60 * 1024
    alive = threading.active_count()
    threads = [
        threading.Thread(target=lambda: [once() for _ in range(60)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert threading.active_count() == alive


def test_an_error_in_the_loop_closes_the_file(tmp_path):
    clip = tmp_path / "clip.mp4"
    write_clip(clip, map(numbered, range(30)), fps=10)
    before = open_files()
    for settings in (PLAIN, GUARDED):
        with (
            pytest.raises(ZeroDivisionError),
            open_media(clip, settings=settings) as reader,
        ):
            for _ in reader.frames():
                1 / 0  # noqa: B018
    gc.collect()
    assert open_files() <= before


def test_real_files_are_what_they_are_or_refused(real_data):
    facts = json.loads((real_data / "videos/probe.json").read_text())
    for name, fact in facts.items():
        path = real_data / name
        code = REFUSED.get(path.name)
        try:
            with open_media(path, settings=GUARDED) as reader:
                info = reader.info
                pictures = sum(1 for _ in reader.frames(size=(32, 18)))
                counts = reader.decode_counts
        except Vid2ContextError as error:
            assert error.code == code, path.name
            continue
        assert code is None, path.name
        video = next(s for s in fact["streams"] if s["type"] == "video")
        size = (video["w"], video["h"])
        if fact["rotation"] % 180:
            size = size[::-1]
        assert (info.width, info.height) == size, path.name
        assert info.rotation_deg == fact["rotation"] % 360, path.name
        assert counts["decoded"] == fact["decoded"] == pictures + counts["corrupt"]
        assert counts["failed"] == fact["errors"], path.name
        told = fact["duration"]
        early = "ends_early" in info.issues
        if told is not None:
            assert early == (info.duration_s < told - 1), path.name
            assert early or abs(info.duration_s - told) <= 1, path.name
        last_s = fact["last_pts"] - (fact["start_time"] or 0)
        tail = {"annex-b.mp4": 0.1}.get(path.name, 1e-3)
        assert info.last_s == pytest.approx(last_s, abs=tail), path.name
