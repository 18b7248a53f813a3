"Half an hour of lecture at 720p: OCR, basic captions, a tiny CLIP, thumbnails."

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench import CACHE, machine, processor_s
from PIL import Image, ImageDraw, ImageFont
from tqdm.auto import tqdm

from vid2context.captioning import RapidReader
from vid2context.guard import open_media
from vid2context.index_reports import IndexWish, VideoReport
from vid2context.media import write_clip
from vid2context.options import Providers, Settings
from vid2context.pipeline import VisualIndexer
from vid2context.sampling import every_targets, sample
from vid2context.tiny_models import train_tiny_clip

MINUTES = int(os.environ.get("LECTURE_MINUTES", "30"))  # Fewer for a quick look
FPS, SECONDS, WIDTH, HEIGHT = 10, 60 * MINUTES, 1280, 720
SLIDES, INTERVAL_S = MINUTES, 5.0
AIMS = {"wall s": 120.0, "overhead": 1.15, "MB": 5.0, "OCR runs": 150}
WORDS = """rank fusion adds reciprocal places tide gauge lowest neap spring harbour
pilot proof bread oven crumb graft bud knife wax raffia sap merge bisect commit branch
quote evidence ledger frame caption vector cosine recall window segment speech slide
copper price chart axis legend median spread outlier sample seed""".split()  # noqa: SIM905


def slide(random: np.random.Generator, number: int) -> np.ndarray:
    "Draw a title and five lines of text."
    import matplotlib

    folder = Path(matplotlib.get_data_path(), "fonts/ttf")
    paper = tuple(int(v) for v in random.integers(225, 256, 3))
    image = Image.new("RGB", (WIDTH, HEIGHT), paper)
    pen = ImageDraw.Draw(image)
    title = ImageFont.truetype(str(folder / "DejaVuSans-Bold.ttf"), 52)
    body = ImageFont.truetype(str(folder / "DejaVuSans.ttf"), 32)
    pen.text((70, 50), f"{number}. {' '.join(random.choice(WORDS, 3))}", "navy", title)
    for line in range(5):
        words = " ".join(random.choice(WORDS, 5))
        pen.text((90, 170 + 80 * line), f"• {words}", (30, 30, 30), body)
    return np.asarray(image)


def frames() -> Iterator[np.ndarray]:
    "Show a slide a minute, with a speaker who moves in a corner."
    random = np.random.default_rng(5)
    shown = [slide(random, n + 1) for n in range(SLIDES)]
    face = random.integers(60, 200, (150, 110, 3), np.uint8)
    for n in tqdm(range(SECONDS * FPS), desc="lecture", disable=None):
        pixels = shown[n * SLIDES // (SECONDS * FPS)].copy()
        x = 1080 + int(30 * np.sin(n / 17)) + int(8 * np.sin(n / 3.1))
        y = 520 + int(12 * np.sin(n / 11))
        pixels[500:720, 1020:1280] = (70, 74, 80)
        pixels[y : y + 150, x : x + 110] = face
        yield pixels


def lecture() -> Path:
    "Write the lecture once."
    path = CACHE / f"lecture-{SECONDS}s-{FPS}fps.mp4"
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}")
        options = {"preset": "superfast", "g": str(10 * FPS)}
        write_clip(draft, frames(), fps=FPS, options=options)
        draft.rename(path)
    return path


def median_s(call: Callable[[], object], rounds: int = 5) -> float:
    "Time a call."
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def bare_costs(
    path: Path, report: VideoReport, indexer: VisualIndexer
) -> dict[str, float]:
    "Time decoding alone, and each model on a frame of every slide, times its calls."
    with open_media(path, settings=indexer.settings.media) as reader:
        began = time.perf_counter()
        targets = every_targets(reader.info.duration_s, interval_s=INTERVAL_S)
        taken = [one.image() for one in sample(reader, targets)]
        taken = taken[:: len(targets) // SLIDES]
        decode = time.perf_counter() - began
    ocr, eye = RapidReader(indexer.settings), indexer.models.encoder
    assert eye is not None
    ocr.read(taken[0]), eye.encode_image(taken[0])
    read = statistics.mean([median_s(lambda i=i: ocr.read(i), 1) for i in taken])
    seen = statistics.mean([median_s(lambda i=i: eye.encode_image(i)) for i in taken])
    calls = report.calls
    text = indexer.models.embedder
    assert text is not None
    line = " ".join(WORDS[:28])
    told = median_s(lambda: text.embed([line], "passage"))
    return {
        "decode": decode,
        "OCR": calls["ocr"] * read,
        "image vectors": calls["image"] * seen,
        "text vectors": calls["ocr"] * told,
    }


def main() -> None:
    "Index the lecture into an empty library, and hold it against its parts."
    path, folder = lecture(), Path(tempfile.mkdtemp())
    clip = (
        train_tiny_clip(CACHE / "tiny-clip")
        if not (CACHE / "tiny-clip").is_dir()
        else CACHE / "tiny-clip"
    )
    chosen = Providers(
        captioner="basic",
        encoder="open-clip",
        encoder_folder=str(clip),
        precision="float32",
        keep_loaded=True,
    )
    settings = replace(Settings(), providers=chosen)
    indexer = VisualIndexer(folder, settings)
    indexer.models.encoder.encode_text("warm")
    began, cpu = time.perf_counter(), processor_s()
    video = indexer.index_all([path], wish=IndexWish(INTERVAL_S)).videos[0]
    wall, cpu = time.perf_counter() - began, processor_s() - cpu
    stats, bare = indexer.stats(), bare_costs(path, video, indexer)
    overhead = video.seconds["all"] / sum(bare.values())
    print(f"\n## {SECONDS // 60} min at 720p, {FPS} frames a second, one every 5 s\n")
    print("| stage | in the run, s | bare, s |\n| --- | ---: | ---: |")
    names = {"ocr": "OCR", "image": "image vectors"}
    for stage, spent in sorted(video.seconds.items(), key=lambda one: -one[1]):
        alone = bare.get(names.get(stage, stage))
        shown = "" if alone is None else f"{alone:.2f}"
        print(f"| {names.get(stage, stage)} | {spent:.2f} | {shown} |")
    found = {
        "wall s": wall,
        "overhead": overhead,
        "MB": stats.storage_mb,
        "OCR runs": video.calls["ocr"],
    }
    print("\n| measure | found | aim |\n| --- | ---: | ---: |")
    for name, value in found.items():
        print(f"| {name} | {value:.2f} | {AIMS[name]:g} |")
    print(f"| times real time | {SECONDS / wall:.1f} | 15 |")
    kept, rows = stats.vectors, stats.frames_total
    print(f"\n{rows} frames, {kept} kept, captions {stats.captions}, CPU {cpu:.0f} s.")
    print(f"Bytes {stats.bytes}. {machine()}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
