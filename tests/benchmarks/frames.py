"Twenty exact frames of a ten-minute film at 256×144, and a frame every five seconds."

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from bench import optional, program, race, show
from films import SECONDS, film

from vid2context.guard import open_media
from vid2context.options import Media
from vid2context.reader import Reader

SIZE = (256, 144)
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


def main() -> None:
    for gop in (250, 30):
        path = film(gop)
        for name, times_s, rounds in (("20", TWENTY, 5), ("every 5 s", EVERY, 3)):
            with Reader(path, settings=PLAIN) as reader:
                wanted = (reader, times_s)
                taken = race(
                    {
                        "ours, on an open reader": drain(
                            lambda w=wanted: w[0].at(w[1], size=SIZE)
                        ),
                        "ours, opening and survey included": lambda p=path, t=times_s: (
                            from_disk(p, t, PLAIN)
                        ),
                        "ours, in the guarded child": lambda p=path, t=times_s: (
                            from_disk(p, t, GUARDED)
                        ),
                        "PyAV seek, threads AUTO": drain(
                            lambda p=path, t=times_s: pyav_frames(p, t)
                        ),
                        "OpenCV seek": (
                            (lambda p=path, t=times_s: run_opencv(p, t))
                            if optional("cv2")
                            else None
                        ),
                        "ffmpeg -ss, one process a frame": (
                            (lambda p=path, t=times_s: run_ffmpeg(p, t))
                            if program("ffmpeg")
                            else None
                        ),
                    },
                    rounds=rounds,
                    warm=False,
                )
                note = same_pixels(reader, path, times_s)
            show(
                f"Frames: {name} of {SECONDS // 60} min 720p, GOP {gop}",
                taken,
                notes={"ours, on an open reader": note},
                reach={
                    "PyAV seek, threads AUTO": 1.4,
                    "ffmpeg -ss, one process a frame": 3,
                },
            )


if __name__ == "__main__":
    main()
