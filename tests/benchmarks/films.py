"Make the ten-minute films that the decoding benchmarks read."

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench import CACHE
from PIL import Image
from tqdm.auto import tqdm

from vid2context.media import write_clip

FPS, SECONDS = 25, 600
WIDTH, HEIGHT = 1280, 720
SHOTS, FLASHES = 84, 6


def plan() -> tuple[list[int], list[int]]:
    "Place 83 cuts and six flashes, never within three seconds of each other."
    random = np.random.default_rng(11)
    lengths = random.dirichlet(np.full(SHOTS, 6.0)) * (SECONDS - 3.2 * SHOTS) + 3.2
    cuts = [round(t * FPS) for t in np.cumsum(lengths)[:-1].tolist()]
    edges = np.array([0, *cuts, SECONDS * FPS])
    longest = np.sort(np.argsort(np.diff(edges))[-FLASHES:])
    flashes = [int(edges[i] + edges[i + 1]) // 2 for i in longest]
    return cuts, flashes


def scenery(random: np.random.Generator) -> np.ndarray:
    "Paint a textured wall that is wider than the screen."
    size = (WIDTH + 320, HEIGHT + 80)
    wall = np.zeros((size[1], size[0], 3))
    base, tint = random.uniform(30, 220, 3), random.uniform(0.3, 1, 3)
    for cells, depth in ((6, 60), (40, 30), (200, 14)):
        noise = random.integers(0, 256, (cells * 9 // 16 + 2, cells, 3), np.uint8)
        layer = Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)
        wall += (np.asarray(layer, float) / 127.5 - 1) * depth * tint
    return np.clip(base + wall, 0, 255).astype(np.uint8)


def there_and_back(steps: int, length: int) -> int:
    "Walk along a line and back."
    return length - abs(steps % (2 * length) - length)


def frames() -> Iterator[np.ndarray]:
    "Pan along one wall a shot; a flash is two white frames."
    random = np.random.default_rng(12)
    cuts, flashes = plan()
    starts, white = {0, *cuts}, {f + i for f in flashes for i in range(2)}
    wall, begun = np.zeros(0), 0
    for i in tqdm(range(SECONDS * FPS), desc="frames", disable=None):
        if i in starts:
            wall, begun = scenery(random), i
        x, y = there_and_back(2 * (i - begun), 318), there_and_back(i - begun, 79)
        yield (
            np.full((HEIGHT, WIDTH, 3), 250, np.uint8)
            if i in white
            else wall[y : y + HEIGHT, x : x + WIDTH]
        )


def film(
    gop: int,  # Frames from keyframe to keyframe
) -> Path:  # Made once, kept in the temp folder
    "Give a film of 15,000 frames of 1280×720, H.264 with B-frames."
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"film-gop{gop}.mp4"
    if not path.exists():
        print(f"making {path.name}, once", file=sys.stderr)
        options = {
            "preset": "veryfast",
            "crf": "26",
            "g": str(gop),
            "keyint_min": str(gop),
            "sc_threshold": "0",
            "bf": "3",
        }
        part = path.with_suffix(".part.mp4")
        write_clip(part, frames(), fps=FPS, options=options)
        part.rename(path)
    return path


def truth() -> tuple[list[float], list[float]]:  # Seconds of cuts, of flashes
    "Say where the cuts and flashes are."
    cuts, flashes = plan()
    return [i / FPS for i in cuts], [i / FPS for i in flashes]


if __name__ == "__main__":
    for gop in (250, 30):
        film(gop)
    print(json.dumps(truth()))
