"Twenty exact frames of a ten-minute film at 256×144, and a frame every five seconds."

import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from bench import Taken, optional, program, race, show
from films import SECONDS, film

from vid2context.guard import open_media
from vid2context.options import Media
from vid2context.reader import Reader

SIZE = (256, 144)
Runners = dict[str, Callable[[], object] | None]
PLAIN, GUARDED = Media(guarded=False), Media()
TWENTY = np.sort(np.random.default_rng(4).uniform(0, SECONDS, 20)).tolist()
EVERY = [5.0 * i for i in range(SECONDS // 5)]


def pyav_frames(
    path: Path, times_s: Sequence[float], *, threads: str = "AUTO"
) -> Iterator[np.ndarray]:
    "Seek to each time and decode forward, as PyAV's users write it."
    scaler = VideoReformatter()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = threads
        base = stream.time_base
        assert base is not None
        for at_s in times_s:
            container.seek(int(at_s / base), stream=stream)
            held = None
            for frame in container.decode(stream):
                if frame.pts is not None and frame.pts * base > at_s + 1e-6:
                    break
                held = frame
            assert held is not None
            small = scaler.reformat(held, *SIZE, format="rgb24", interpolation="AREA")
            yield small.to_ndarray()


def pyav_sequential(path: Path, times_s: Sequence[float]) -> Iterator[np.ndarray]:
    "Decode the whole film on all threads, and keep what is on screen at each time."
    scaler = VideoReformatter()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        base = stream.time_base
        assert base is not None
        due, held = iter(times_s), None
        at_s = next(due)
        for frame in container.decode(stream):
            while held is not None and frame.pts * base > at_s + 1e-6:
                small = scaler.reformat(
                    held, *SIZE, format="rgb24", interpolation="AREA"
                )
                yield small.to_ndarray()
                if (following := next(due, None)) is None:
                    return
                at_s = following
            held = frame


def opencv_sequential(path: Path, times_s: Sequence[float]) -> None:
    "Decode the whole film as OpenCV does, and keep what comes first after each time."
    cv2 = optional("cv2")
    assert cv2 is not None
    video = cv2.VideoCapture(str(path))
    for at_s in times_s:
        while video.grab() and video.get(cv2.CAP_PROP_POS_MSEC) < at_s * 1000:
            pass
        _, pixels = video.retrieve()
        cv2.resize(pixels, SIZE, interpolation=cv2.INTER_AREA)
    video.release()


def run_opencv(path: Path, times_s: Sequence[float]) -> None:
    cv2 = optional("cv2")
    assert cv2 is not None
    video = cv2.VideoCapture(str(path))
    for at_s in times_s:
        video.set(cv2.CAP_PROP_POS_MSEC, at_s * 1000)
        _, pixels = video.read()
        cv2.resize(pixels, SIZE, interpolation=cv2.INTER_AREA)
    video.release()


def run_ffmpeg(path: Path, times_s: Sequence[float]) -> None:
    for at_s in times_s:
        command = ["ffmpeg", "-v", "error", "-ss", f"{at_s:.3f}", "-i", str(path)]
        command += ["-frames:v", "1", "-s", f"{SIZE[0]}x{SIZE[1]}"]
        command += ["-pix_fmt", "rgb24", "-f", "rawvideo", "-"]
        subprocess.run(command, check=True, capture_output=True)


def drain(pictures: Callable[[], Iterator[object]]) -> Callable[[], int]:
    return lambda: sum(1 for _ in pictures())


def from_disk(path: Path, times_s: Sequence[float], settings: Media) -> int:
    with open_media(path, settings=settings) as reader:
        return sum(1 for _ in reader.at(times_s, size=SIZE))


def same_pixels(reader: Reader, path: Path, times_s: Sequence[float]) -> str:
    "Compare every picture with the plain seek."
    plain = pyav_frames(path, times_s)
    pairs = zip(reader.at(times_s, size=SIZE), plain, strict=True)
    same = sum(np.array_equal(picture.rgb, pixels) for picture, pixels in pairs)
    return f"{same}/{len(times_s)} identical to the plain seek"


def runners(reader: Reader, path: Path, times_s: Sequence[float]) -> Runners:
    "Name ours, opening included and guarded too."
    return {
        "ours, on an open reader": drain(lambda: reader.at(times_s, size=SIZE)),
        "ours, opening and survey included": lambda: from_disk(path, times_s, PLAIN),
        "ours, in the guarded child": lambda: from_disk(path, times_s, GUARDED),
    }


def rivals_by_seek(path: Path, times_s: Sequence[float]) -> Runners:
    "Name what seeks to each picture."
    return {
        "PyAV seek, threads AUTO": drain(lambda: pyav_frames(path, times_s)),
        "OpenCV seek": (lambda: run_opencv(path, times_s)) if optional("cv2") else None,
        "ffmpeg -ss, one process a frame": (
            (lambda: run_ffmpeg(path, times_s)) if program("ffmpeg") else None
        ),
    }


def rivals_in_order(path: Path, times_s: Sequence[float]) -> Runners:
    "Name what decodes the whole film."
    return {
        "PyAV sequential, threads AUTO": drain(lambda: pyav_sequential(path, times_s)),
        "OpenCV sequential": (
            (lambda: opencv_sequential(path, times_s)) if optional("cv2") else None
        ),
    }


def overhead(taken: Taken) -> str:
    "Compare guarded and plain decoding with what a guard may cost."
    names = ("ours, in the guarded child", "ours, opening and survey included")
    guarded_s, plain_s = (statistics.median(taken[name]) for name in names)
    bound_s = 1.15 * plain_s + 0.5
    told = "kept" if guarded_s <= bound_s else "MISSED"
    return f"1.15 × plain + 0.5 s = {1000 * bound_s:.0f} ms: {told}"


def main() -> None:
    plans = (
        ("20", TWENTY, 5, rivals_by_seek),
        ("every 5 s", EVERY, 3, rivals_in_order),
    )
    for gop in (250, 30):
        path = film(gop)
        for name, times_s, rounds, rivals in plans:
            with Reader(path, settings=PLAIN) as reader:
                entries = runners(reader, path, times_s) | rivals(path, times_s)
                taken = race(entries, rounds=rounds, warm=False)
                note = same_pixels(reader, path, times_s)
            show(
                f"Frames: {name} of {SECONDS // 60} min 720p, GOP {gop}",
                taken,
                notes={
                    "ours, on an open reader": note,
                    "ours, in the guarded child": overhead(taken),
                },
                reach={
                    "PyAV seek, threads AUTO": 1.4,
                    "ffmpeg -ss, one process a frame": 3,
                    "PyAV sequential, threads AUTO": 2,
                    "OpenCV sequential": 2,
                },
            )


if __name__ == "__main__":
    main()
