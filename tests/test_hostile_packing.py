"Hostile files in a batch are refused with their reason; the run goes on, memory flat."

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vid2context.core import sha256_bytes
from vid2context.media import opened, packets_of, write_clip
from vid2context.options import Media, Settings
from vid2context.packing import Packer
from vid2context.settings import load_settings
from vid2context.validation import validate_collection


def resident_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith("VmRSS")).split()[1])


def waves(count: int, size: tuple[int, int] = (160, 90)) -> Iterator[np.ndarray]:
    rows = np.arange(size[1])[:, None, None]
    for i in range(count):
        picture = np.broadcast_to((3 * rows + 7 * i) % 256, (size[1], size[0], 3))
        yield picture.astype(np.uint8)


def write_bomb(path: Path) -> None:
    "Write a few kilobytes of FFV1 that claim 16000x16000 pixels."
    write_clip(path, waves(1, (512, 512)), codec="ffv1")
    data = path.read_bytes()
    for key in (b"\xb0", b"\xba"):
        said = key + b"\x82\x02\x00"
        assert data.count(said) == 1
        data = data.replace(said, key + b"\x82" + (16_000).to_bytes(2, "big"))
    path.write_bytes(data)
    assert len(data) < 62_000


@pytest.fixture
def quick() -> Settings:
    settings = load_settings()
    return replace(settings, providers=replace(settings.providers, text_reader="off"))


@contextlib.contextmanager
def killer(ref: str) -> Iterator[list[int]]:
    "Kill the first decoder that works on a video."
    word = f"get-{sha256_bytes(ref.encode())[:16]}".encode()
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not killed and not over.wait(0.01):
            for entry in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if word in (entry / "cmdline").read_bytes():
                        os.kill(int(entry.name), signal.SIGKILL)
                        killed.append(int(entry.name))
                        break

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_hostile_files_stop_nothing_and_cost_nothing(
    quick: Settings, tmp_path: Path
) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    write_clip(videos / "a-first.mp4", waves(20), fps=5)
    packer = Packer(tmp_path / "evidence", settings=quick)
    assert packer.pack([str(videos)]).counts["packed"] == 1
    before = resident_kib()
    write_bomb(videos / "bomb.mkv")
    (videos / "list.mp4").write_text("ffconcat version 1.0\nfile a-first.mp4\n")
    (videos / "page.webm").write_text("<!DOCTYPE html><title>404</title>")
    write_clip(videos / "victim.mp4", waves(400), fps=25)
    write_clip(videos / "z-last.mp4", waves(25), fps=5)
    with killer(str(videos / "victim.mp4")) as killed:
        report = packer.pack([str(videos)])
    told = {Path(item.ref).name: item.code or item.status for item in report.items}
    assert told == {
        "a-first.mp4": "unchanged",
        "bomb.mkv": "media.limit.pixels",
        "list.mp4": "media.not_media",
        "page.webm": "media.not_media",
        "victim.mp4": "media.crashed",
        "z-last.mp4": "packed",
    }
    assert len(killed) == 1
    assert resident_kib() - before < 40 * 1024
    assert {r.result for r in validate_collection(packer.collection)} == {"PASS"}
    again = packer.pack([str(videos / "victim.mp4")])
    assert again.counts["packed"] == 1


def test_damage_is_told_where_a_reader_looks(quick: Settings, tmp_path: Path) -> None:
    clip = tmp_path / "hurt.mkv"
    write_clip(clip, waves(60), fps=10, options={"g": "1"})
    with opened(clip, settings=Media()) as container:
        packets = packets_of(container, container.streams.video)
        bodies = [bytes(packet) for packet in packets if packet.size]
    data = clip.read_bytes()
    for body in bodies[20:25]:
        data = data.replace(body, b"\xff" * len(body))
    clip.write_bytes(data)
    packer = Packer(tmp_path / "evidence", settings=quick)
    assert packer.pack([str(clip)]).items[0].result.startswith("PASS")
    package = packer.collection / "videos" / "hurt"
    page = (package / "deliverables" / "context.md").read_text()
    assert "Undecodable pictures: 0.5 s in all, places: 1, the first at 00:02" in page
    receipt = json.loads((package / "source" / "receipt.json").read_bytes())
    assert receipt["warnings"] == ["undecodable: 2.000-2.500 s"]
