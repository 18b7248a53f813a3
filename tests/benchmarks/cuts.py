"Find the planted cuts of the sample clips, beside PySceneDetect's two detectors."

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from bench import optional
from scan import NEAR_S, SETTINGS, pyscenedetect
from tqdm.auto import tqdm

from vid2context.guard import open_media
from vid2context.options import Media, Sampling
from vid2context.sampling import find_scenes, scan_video

CLIPS = Path(__file__).resolve().parents[2] / "data" / "clips"
VIDEOS = {".mp4", ".mkv", ".webm"}
DETAILS = replace(SETTINGS, detail_changes=True)
LATE_S = NEAR_S + 0.1
EARLY_S = 0.05  # Detectors that count frames may round down


@dataclass
class Tally:
    "Add up what one detector did over all clips."

    found: int = 0
    missed: int = 0
    gradual: int = 0  # Beside a dissolve or a fade
    flash: int = 0
    false: int = 0

    def add(self, times_s: Sequence[float], truth: Mapping[str, Any]) -> None:
        left = list(times_s)
        for cut_s in truth["cuts"]:
            hits = [t for t in left if -EARLY_S <= t - cut_s <= LATE_S]
            if hits:
                left.remove(hits[0])
            self.found += bool(hits)
            self.missed += not hits
        slow = [*truth["dissolves"], *truth["fades"]]
        for at_s in left:
            if any(inside(at_s, span) for span in slow):
                self.gradual += 1
            elif any(inside(at_s, span) for span in truth["flashes"]):
                self.flash += 1
            else:
                self.false += 1


def inside(at_s: float, span: Mapping[str, float]) -> bool:
    "Tell whether a time lies in a span or just behind it."
    return span["start_s"] - EARLY_S <= at_s <= span["end_s"] + LATE_S


def ours(path: Path, settings: Sampling) -> list[float]:
    with open_media(path, settings=Media()) as reader:
        scan = scan_video(reader, settings=settings)
    scenes = find_scenes(scan, settings=settings)[0]
    return sorted({*(scan.times_s[i] for i in scenes), *scan.details})


def detectors() -> dict[str, Callable[[Path], list[float]]]:
    "Name what is compared; the library's detectors where it is installed."
    found: dict[str, Callable[[Path], list[float]]] = {
        "ours": lambda path: ours(path, SETTINGS),
        "ours, with detail_changes": lambda path: ours(path, DETAILS),
    }
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
            tallies[name].add(find(film), truth)
    told = ", ".join(f"{count} {kind}" for kind, count in planted.items())
    print(f"\n## Planted cuts of {len(truths)} sample clips ({told})\n")
    columns = [field.name for field in fields(Tally)]
    print(f"| detector | {' | '.join(columns)} |")
    print(f"| --- |{' ---: |' * len(columns)}")
    for name, tally in tallies.items():
        print(f"| {name} | {' | '.join(str(n) for n in astuple(tally))} |")
    print("\nMost of what is missed are slides of one template with other words on it.")


if __name__ == "__main__":
    main()
