"Each limit of guarded decoding stops the attack that it is for, and the parent lives."

import contextlib
import gc
import os
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from vid2context.core import UsageError, Vid2ContextError
from vid2context.guard import GuardedReader, open_media, probe
from vid2context.media import write_clip
from vid2context.options import Media

GUARDED = Media()


def waves(count, size=(96, 64)):
    "Yield pictures of a sliding gradient."
    row = np.arange(size[0]) * 2
    for i in range(count):
        line = ((row + 5 * i) % 256).astype(np.uint8)
        yield np.repeat(np.broadcast_to(line, size[::-1])[..., None], 3, axis=2)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("guard") / "clip.mp4"
    write_clip(path, waves(100), fps=25)
    return path


def refusal(path, **limits):
    "Open and read a file and give the code of the refusal."
    with (
        pytest.raises(Vid2ContextError) as caught,
        open_media(path, settings=Media(**limits)) as reader,
    ):
        for _ in reader.frames(size=(16, 16)):
            pass
    return caught.value.code


def open_files():
    "Count the open files of this process."
    return len(list(Path("/proc/self/fd").iterdir()))


def children():
    "Count the running children of this process."
    own, count = os.getpid(), 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text()
            state, parent = stat.rpartition(")")[2].split()[:2]
            count += int(parent) == own and state != "Z"
    return count


LISTS = {
    "neighbour": "ffconcat version 1.0\nfile clip.mp4\n",
    "absolute": "ffconcat version 1.0\nfile /etc/hostname\n",
    "url": "ffconcat version 1.0\nfile http://127.0.0.1:9/x.mp4\n",
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nclip.mp4\n#EXT-X-ENDLIST\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" '
    'type="static" mediaPresentationDuration="PT3S"><Period><AdaptationSet>'
    '<Representation id="1"><BaseURL>clip.mp4</BaseURL></Representation>'
    "</AdaptationSet></Period></MPD>",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
    "m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("guarded", [True, False])
def test_a_list_that_calls_itself_a_video_is_refused(kind, guarded, clip):
    fake = clip.with_name(f"{kind}.mp4")
    fake.write_text(LISTS[kind])
    assert refusal(fake, guarded=guarded) == "media.not_media"


def test_only_regular_local_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    assert refusal(tmp_path / "pipe.mp4") == "media.not_file"
    assert refusal("/dev/zero") == "media.not_file"
    assert refusal(tmp_path) == "media.not_file"
    for path in ("http://127.0.0.1:9/a.mp4", "pipe:0", "concat:a.mp4|b.mp4", "a\0b"):
        assert refusal(path) == "media.not_found"


def test_a_process_with_very_many_open_files_reads_on(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("the system allows fewer than 2048 open files")
    path = tmp_path / "clip.mp4"
    write_clip(path, [np.zeros((64, 64, 3), np.uint8)] * 5)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert probe(path, settings=Media()).width == 64
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_name_with_a_colon_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_clip("http:clip.mp4", waves(5))
    assert probe("http:clip.mp4", settings=GUARDED).width == 96


def test_large_pictures_are_refused_by_size(tmp_path):
    big = [np.zeros((4000, 8000, 3), np.uint8)] * 2
    write_clip(tmp_path / "big.mp4", big, options={"preset": "ultrafast"})
    write_clip(tmp_path / "big.mkv", big[:1], codec="ffv1")
    for name in ("big.mp4", "big.mkv"):
        for guarded in (True, False):
            code = refusal(tmp_path / name, max_pixels=10**7, guarded=guarded)
            assert code == "media.limit.pixels"
    assert probe(tmp_path / "big.mkv", settings=GUARDED).width == 8000


def test_memory_has_a_wall_and_the_parent_stays_flat(tmp_path):
    huge = [np.zeros((7000, 7000, 3), np.uint8)]
    write_clip(tmp_path / "huge.mkv", huge, codec="ffv1")
    del huge
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = refusal(tmp_path / "huge.mkv", max_pixels=10**8, memory_bytes=2**28)
    assert code == "media.limit.memory"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_a_size_that_jumps_later_ends_the_stream(tmp_path):
    parts = []
    for name, size in (("small.ts", (96, 64)), ("large.ts", (1920, 1080))):
        write_clip(tmp_path / name, waves(60, size), options={"preset": "ultrafast"})
        parts.append((tmp_path / name).read_bytes())
    (tmp_path / "jump.ts").write_bytes(b"".join(parts))
    limits = Media(max_pixels=100_000)
    with open_media(tmp_path / "jump.ts", settings=limits) as reader:
        shapes = {p.rgb.shape for p in reader.frames()}
        assert reader.decode_counts["failed"] >= 50
    assert shapes == {(64, 96, 3)}


def test_many_streams_are_refused(tmp_path):
    import av

    with av.open(str(tmp_path / "many.mkv"), "w") as out:
        tracks = [out.add_mux_stream("subrip") for _ in range(60)]
        video = out.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
        packets = video.encode(av.VideoFrame(64, 64, "yuv420p"))
        for packet in [*packets, *video.encode(None)]:
            out.mux(packet)
        assert len(tracks) == 60
    assert refusal(tmp_path / "many.mkv").startswith("media.")
    assert refusal(tmp_path / "many.mkv", max_streams=30).startswith("media.")
    assert probe(tmp_path / "many.mkv", settings=Media(max_streams=80)).width == 64


def test_counts_stop_a_stream_that_does_not_end(tmp_path):
    write_clip(tmp_path / "fast.mkv", waves(2600, (16, 16)), fps=1000)
    assert refusal(tmp_path / "fast.mkv") == "media.limit.rate"
    write_clip(tmp_path / "long.mkv", waves(50, (16, 16)), fps=1)
    assert refusal(tmp_path / "long.mkv", max_duration_s=20) == "media.limit.duration"
    assert refusal(tmp_path / "long.mkv", max_frames=30) == "media.limit.frames"
    assert refusal(tmp_path / "long.mkv", max_file_bytes=99) == "media.limit.file"


def test_endless_subtitles_stop_at_their_cap(tmp_path):
    cues = [(i / 20, i / 20 + 0.01, "x" * 10**6) for i in range(36)]
    write_clip(tmp_path / "talk.mkv", waves(3, (16, 16)), fps=1, subtitles=cues)
    with open_media(tmp_path / "talk.mkv", settings=GUARDED) as reader:
        with pytest.raises(Vid2ContextError) as caught:
            reader.subtitles(1)
        assert caught.value.code == "media.limit.subtitles"
    with open_media(tmp_path / "talk.mkv", settings=GUARDED) as reader:
        assert len(list(reader.frames())) == 3
        with pytest.raises(UsageError, match="no subtitles"):
            reader.subtitles(0)
        assert len(list(reader.frames())) == 3


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGXCPU, signal.SIGKILL])
def test_a_child_that_dies_is_an_error_and_no_more(how, clip):
    want = "media.limit.cpu" if how == signal.SIGXCPU else "media.crashed"
    with open_media(clip, settings=GUARDED) as reader:
        pictures = reader.frames()
        next(pictures)
        os.kill(reader._jail.process.pid, how)
        with pytest.raises(Vid2ContextError) as caught:
            list(pictures)
        assert caught.value.code == want
        with pytest.raises(Vid2ContextError):
            list(reader.frames())


def test_a_child_that_cannot_start_blames_no_file(clip):
    with pytest.raises(Vid2ContextError) as caught:
        open_media(clip, settings=Media(memory_bytes=2**26))
    assert caught.value.code == "media.no_decoder"
    assert "not at fault" in caught.value.message


def test_a_child_that_hangs_is_ended(clip):
    with open_media(clip, settings=Media(stall_s=1)) as reader:
        os.kill(reader._jail.process.pid, signal.SIGSTOP)
        with pytest.raises(Vid2ContextError) as caught:
            list(reader.at([1.0]))
    assert caught.value.code == "media.limit.stall"
    assert reader._jail.process.poll() is not None


def test_nothing_stays_behind(clip):
    gc.collect()
    files, running = open_files(), children()
    for _ in range(3):
        with open_media(clip, settings=GUARDED) as reader:
            next(reader.frames())
            next(reader.at([2.0]))
    forgotten = GuardedReader(clip, settings=GUARDED)
    left = forgotten.frames()
    next(left)
    del left, forgotten, reader
    gc.collect()
    assert (open_files(), children()) == (files, running)


def test_an_abandoned_pass_leaves_the_reader_usable(clip):
    with open_media(clip, settings=GUARDED) as reader:
        want = [p.rgb.tobytes() for p in reader.frames(size=(32, 24))]
        for stop in (1, 2, 5, 30):
            for i, _ in enumerate(reader.frames()):
                if i == stop:
                    break
            assert [p.rgb.tobytes() for p in reader.frames(size=(32, 24))] == want
        first = reader.frames()
        next(first)
        list(reader.at([0.0]))
        with pytest.raises(UsageError, match="one pass at a time"):
            next(first)
        assert len(list(reader.at([0.5, 3.0]))) == 2


def test_readers_in_threads_do_not_mix(clip):
    found = []

    def read():
        with open_media(clip, settings=GUARDED) as reader:
            found.append([p.shown_s for p in reader.at([0.1, 1.0, 3.2])])

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [[0.08, 1.0, 3.2]] * 6


def test_damaged_bytes_never_crash_or_hang(clip, tmp_path):
    rng = np.random.default_rng(11)
    whole = clip.read_bytes()
    began = time.monotonic()
    for i in range(24):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 1 + 4 * i):
            data[at] = int(rng.integers(256))
        hurt = tmp_path / f"{i}.mp4"
        hurt.write_bytes(data[: len(data) - 100 * i] if i % 2 else data)
        try:
            with open_media(hurt, settings=Media(stall_s=10)) as reader:
                list(reader.at([0.0, 1.0, 2.0], strict=False))
                reader.audio()
        except Vid2ContextError as error:
            assert error.code.startswith("media."), error
            assert error.code != "media.crashed"
    assert time.monotonic() - began < 120


def test_the_child_gets_no_secrets(clip, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "sk-planted")
    with open_media(clip, settings=GUARDED) as reader:
        told = Path(f"/proc/{reader._jail.process.pid}/environ").read_bytes()
    assert b"sk-planted" not in told
    assert b"PATH=" in told


def test_the_child_writes_no_file_and_keeps_stdout_clean(clip, capfd):
    with open_media(clip, settings=GUARDED) as reader:
        limits = Path(f"/proc/{reader._jail.process.pid}/limits").read_text()
        next(reader.frames())
    size = next(x for x in limits.splitlines() if x.startswith("Max file size"))
    space = next(x for x in limits.splitlines() if x.startswith("Max address space"))
    assert size.split()[3:5] == ["0", "0"]
    assert space.split()[3] == str(2**31)
    assert capfd.readouterr() == ("", "")
