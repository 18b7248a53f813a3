"Memory does not grow with the length of a video; only its transcript does."

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vid2context.kinds import ProviderDescriptor
from vid2context.listening import listen
from vid2context.media import write_clip
from vid2context.segments import Segment

PACK = """
import sys
from dataclasses import replace
from pathlib import Path
from vid2context.packing import Packer
from vid2context.settings import load_settings
settings = load_settings()
settings = replace(settings, providers=replace(settings.providers, text_reader="off"))
packer = Packer(Path(sys.argv[1]), settings=settings)
for ref in sys.argv[2:]:
    report = packer.pack([ref])
    assert report.counts["packed"] == 1, report.items
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(x for x in lines if x.startswith("VmHWM")).split()[1])
"""


class Listener:
    "Hear one word in each piece, and keep nothing."

    name = "listener"
    descriptor = ProviderDescriptor(id="listener", version="1")

    def transcribe(self, audio, language=None):
        yield Segment(0, 0.5, 0.9, f"heard {len(audio)}", lang="en")


def test_an_hour_is_heard_in_the_room_of_a_piece(tmp_path: Path) -> None:
    minute = np.random.default_rng(1).normal(0, 0.1, 60 * 16_000).astype(np.float32)
    minute[-16_000:] = 0

    def hour() -> Iterator[np.ndarray]:
        for _ in range(60):
            yield minute.copy()

    tracemalloc.start()
    found = listen(
        Listener(), hour(), duration_s=3600.0, piece_s=300, checkpoints=tmp_path
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.segments) == 12
    assert peak < 100 * 2**20 < 3600 * minute.nbytes / 60


def slides(seconds: int) -> Iterator[np.ndarray]:
    columns = np.arange(320, dtype=np.uint8)[None, :, None]
    for i in range(seconds):
        yield np.broadcast_to(columns // 2 + 17 * (i // 30) % 128, (180, 320, 3))


def test_half_an_hour_is_packed_in_the_room_of_a_minute(tmp_path: Path) -> None:
    refs = []
    for name, seconds in (("first", 60), ("second", 1800)):
        refs.append(str(tmp_path / f"{name}.mp4"))
        write_clip(refs[-1], slides(seconds), fps=1, options={"preset": "ultrafast"})
    command = [sys.executable, "-c", PACK, str(tmp_path / "evidence"), *refs]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    short_kib, long_kib = map(int, told.split())
    assert long_kib - short_kib < 30 * 1024, told
