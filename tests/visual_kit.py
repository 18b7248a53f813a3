"Small videos and moody models for the tests of the visual index."

import contextlib
import hashlib
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vid2context.fakes import FakeCaptioner, FakeEncoder, FakeReader
from vid2context.kinds import ProviderDescriptor, TextLine
from vid2context.media import write_clip
from vid2context.options import Providers, Settings
from vid2context.providers import register_provider

HUES = ((200, 40, 30), (30, 60, 210), (30, 160, 60), (230, 210, 60), (160, 60, 190))


def hue_clip(path: Path, *, seconds: int = 60, each_s: int = 5, fps: int = 5) -> Path:
    "Write a clip whose hue changes every few seconds, with a bar that moves."
    frames = []
    for n in range(seconds * fps):
        at_s = n / fps
        hue = HUES[int(at_s // each_s) % len(HUES)]
        pixels = np.full((90, 160, 3), hue, np.uint8)
        left = int(at_s * 11) % 137
        pixels[30:60, left : left + 20] = 245
        frames.append(pixels)
    write_clip(path, frames, fps=fps)
    return path


def still_clip(path: Path, colour: tuple[int, int, int], seconds: float = 20) -> Path:
    "Write a clip of one colour."
    count = max(1, round(seconds * 2))
    write_clip(path, [np.full((90, 160, 3), colour, np.uint8)] * count, fps=2)
    return path


def text_clip(path: Path, *slides: str, each_s: int = 6) -> Path:
    "Write a clip of slides with a real font, accents and all."
    import matplotlib

    font = Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")
    frames = []
    for text in slides:
        image = Image.new("RGB", (640, 360), (250, 250, 245))
        letters = ImageFont.truetype(str(font), 34)
        ImageDraw.Draw(image).text((40, 140), text, (20, 20, 20), font=letters)
        frames += [np.asarray(image)] * (each_s * 2)
    write_clip(path, frames, fps=2)
    return path


def settings(**chosen: Any) -> Settings:
    "Choose fakes for all that is not named."
    names = {
        "captioner": "fake-captioner",
        "text_reader": "fake-reader",
        "embedder": "fake-embedder",
        "encoder": "fake-encoder",
    }
    return Settings(providers=Providers(**{**names, **chosen}))


class PlainEncoder(FakeEncoder):
    "Place a picture by its pixels, so that no two look alike."

    name = "plain-eye"
    embedding_dim = 17
    descriptor = ProviderDescriptor(id="plain-eye", version="1", dim=17)

    def encode_image(self, image: Image.Image) -> list[float]:
        digest = hashlib.sha256(np.asarray(image).tobytes()).digest()
        row = np.frombuffer(digest, np.uint8)[:17].astype(np.float64) + 1
        return list(row / np.linalg.norm(row))

    def encode_text(self, text: str) -> list[float]:
        digest = hashlib.sha256(text.encode()).digest()
        row = np.frombuffer(digest, np.uint8)[:17].astype(np.float64) + 1
        return list(row / np.linalg.norm(row))


class MoodyReader(FakeReader):
    "Read well, but for one call, or from one call on."

    name = "moody"

    def __init__(self, mood: str, *, at: int = 3) -> None:
        self.mood, self.at, self.calls = mood, at, 0
        self.descriptor = ProviderDescriptor(id="moody", version=f"{mood}{at}")

    def read(self, image: Image.Image, language: str = "en") -> list[TextLine]:
        self.calls += 1
        if self.mood == "prints":
            print("loading shard 1 of 7")
            os.write(1, b"shard 2 of 7\n")
        if self.calls == self.at:
            if self.mood == "raises":
                raise RuntimeError("no more patience")
            if self.mood == "hangs":
                threading.Event().wait()
            if self.mood == "dies":
                os._exit(9)
            if self.mood == "none":
                return None  # type: ignore[return-value]
        return super().read(image, language)


class MoodyEncoder(PlainEncoder):
    "Encode well, but for one picture."

    name = "moody-eye"

    def __init__(self, mood: str, *, at: int = 3) -> None:
        self.mood, self.at, self.calls = mood, at, 0

    def encode_image(self, image: Image.Image) -> list[float]:
        self.calls += 1
        good = super().encode_image(image)
        # Three canaries and the first answer come before the frames.
        if self.calls != self.at + 3:
            return good
        wrong = {"short": good[:5], "nan": [float("nan"), *good[1:]]}
        wrong |= {"zeros": [0.0] * 17, "long": [2 * x for x in good]}
        if self.mood in wrong:
            return wrong[self.mood]
        raise RuntimeError("out of memory")


class MoodyCaptioner(FakeCaptioner):
    "Say something else than a caption."

    name = "moody-mouth"

    def __init__(self, says: object) -> None:
        self.says = says
        self.descriptor = ProviderDescriptor(id="moody-mouth", version=repr(says))

    def caption(self, image: Image.Image, language: str = "en") -> str:
        return self.says  # type: ignore[return-value]


def register(kind: str, name: str, provider: Any) -> str:
    "Register a made provider, and give its name."
    register_provider(kind, lambda: provider, name=name, replace=True)
    return name


def index_once(home: Path, clip: str, *, die_at: int = 0) -> int:
    """Index with fakes, and end this process at a step: a commit or a change of files.

    Gives the number of steps there were."""
    from vid2context.visual_index import VisualIndexer
    from vid2context.writing import Writer

    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == die_at:
            os._exit(9)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        changes = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")
        if event in changes and str(home) in str(args[0]):
            step()

    transaction = Writer.transaction

    @contextlib.contextmanager
    def counted(self: Writer, *args: Any, **options: Any) -> Any:
        with transaction(self, *args, **options) as db:
            yield db
            step()  # All is written, and nothing committed
        step()

    Writer.transaction = counted  # type: ignore[method-assign]
    sys.addaudithook(hook)
    VisualIndexer(home, settings()).index(clip, interval_s=1)
    return steps


def kill_everywhere(folder: Path, clip: str, tries: int) -> None:
    "Kill a first index at steps from the first to the last, then let it end."

    def child(work: Any) -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(work())
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    steps = child(lambda: index_once(folder / "clean", clip))
    for n in range(tries):
        at = 1 + round(n * (steps - 1) / (tries - 1))
        home = folder / f"killed-{at:03d}"
        assert child(lambda: index_once(home, clip, die_at=at)) == 9, at  # noqa: B023
        shutil.copytree(home, folder / f"left-{at:03d}") if home.exists() else None
        assert child(lambda: 0 * index_once(home, clip)) == 0, at  # noqa: B023


if __name__ == "__main__":  # Processes that are killed at a step
    if sys.argv[1] == "everywhere":
        kill_everywhere(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        sys.exit()
    from vid2context.visual_index import VisualIndexer

    home, clip, mood, at = sys.argv[1:5]
    name = register("ocr", "moody", MoodyReader(mood, at=int(at)))
    indexer = VisualIndexer(Path(home), settings(text_reader=name))
    indexer.index(clip, interval_s=1)
