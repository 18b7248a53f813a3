"Find the planted cuts of the sample clips, beside PySceneDetect's two detectors."

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import optional
from scan import NEAR_S, SETTINGS, pyscenedetect
from tqdm.auto import tqdm

from vid2context.guard import open_media
from vid2context.options import Media
from vid2context.sampling import find_scenes, scan_video

CLIPS = Path(__file__).resolve().parents[2] / "data" / "clips"
VIDEOS = {".mp4", ".mkv", ".webm"}
EARLY_S = 0.05  # Detectors that count frames may round down


@dataclass
class Tally:
    "Add up what one detector did over all clips."

    found: int = 0
    missed: int = 0
    false: int = 0

    def add(self, times_s: Sequence[float], cuts_s: Sequence[float]) -> None:
        left = list(times_s)
        for cut_s in cuts_s:
            hits = [t for t in left if -EARLY_S <= t - cut_s <= NEAR_S + 0.1]
            if hits:
                left.remove(hits[0])
            self.found += bool(hits)
            self.missed += not hits
        self.false += len(left)


def ours(path: Path) -> list[float]:
    with open_media(path, settings=Media()) as reader:
        scan = scan_video(reader, settings=SETTINGS)
    return [scan.times_s[i] for i in find_scenes(scan, settings=SETTINGS)[0]]


def detectors() -> dict[str, Callable[[Path], list[float]]]:
    "Name what is compared; the library's detectors where it is installed."
    found: dict[str, Callable[[Path], list[float]]] = {"ours": ours}
    if optional("scenedetect"):
        for name in ("ContentDetector", "AdaptiveDetector"):
            found[f"PySceneDetect {name}"] = lambda p, n=name: pyscenedetect(p, n)
    return found


def main() -> None:
    truths = sorted(CLIPS.glob("*.truth.json"))
    tallies = {name: Tally() for name in detectors()}
    planted = {"cuts": 0, "flashes": 0, "dissolves": 0, "fades": 0}
    for file in tqdm(truths, desc="clips", disable=None):
        truth = json.loads(file.read_text())
        film = next(p for p in CLIPS.glob(f"{truth['name']}.*") if p.suffix in VIDEOS)
        for kind in planted:
            planted[kind] += len(truth[kind])
        for name, find in detectors().items():
            tallies[name].add(find(film), truth["cuts"])
    told = ", ".join(f"{count} {kind}" for kind, count in planted.items())
    print(f"\n## Planted cuts of {len(truths)} sample clips ({told})\n")
    print("| detector | found | missed | false |")
    print("| --- | ---: | ---: | ---: |")
    for name, tally in tallies.items():
        print(f"| {name} | {tally.found} | {tally.missed} | {tally.false} |")


if __name__ == "__main__":
    main()
