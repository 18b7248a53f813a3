"Find the 83 cuts of a ten-minute film, and leave its six flashes alone."

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import optional, race, show
from films import film, truth

from vid2context.guard import open_media
from vid2context.options import Media, Sampling
from vid2context.reader import Reader
from vid2context.sampling import Scan, find_scenes, scan_video
from vid2context.seeking import step_through

SETTINGS = Sampling()
PLAIN, GUARDED = Media(guarded=False), Media()
KEEN = replace(SETTINGS, scene_threshold=0.1)
NEAR_S = SETTINGS.step_s + 0.04


def scanned(path: Path, settings: Media) -> Scan:
    with open_media(path, settings=settings) as reader:
        return scan_video(reader, settings=SETTINGS)


def cuts_of(scan: Scan, settings: Sampling) -> list[float]:
    scenes, over = find_scenes(scan, settings=settings)
    return [scan.times_s[i] for i in sorted([*scenes, *over])]


def every_picture(path: Path) -> int:
    "Decode as the scan did before it skipped anything."
    with Reader(path, settings=PLAIN) as reader:
        asked = [i * SETTINGS.step_s for i in range(int(reader.info.duration_s * 2))]
        return sum(1 for _ in step_through(reader._film, asked))


def pyscenedetect(path: Path, detector: str) -> list[float]:
    library = optional("scenedetect")
    assert library is not None
    found = library.detect(str(path), getattr(library, detector)())
    return [start.get_seconds() for start, _ in found][1:]


def verdict(found: Sequence[float]) -> str:
    "Count cuts that were found, flashes taken for cuts, and anything else."
    cuts, flashes = truth()
    hit = sum(any(0 <= t - cut <= NEAR_S for t in found) for cut in cuts)
    fooled = sum(any(0 <= t - f <= NEAR_S for t in found) for f in flashes)
    known = [*cuts, *flashes]
    other = sum(not any(0 <= t - k <= NEAR_S for k in known) for t in found)
    return f"{hit}/{len(cuts)} cuts, {fooled}/{len(flashes)} flashes, {other} others"


def both_verdicts(scan: Scan) -> str:
    "Judge one scan at the threshold of packages and at a keener one."
    return "; ".join(
        f"threshold {settings.scene_threshold:g}: {verdict(cuts_of(scan, settings))}"
        for settings in (KEEN, SETTINGS)
    )


def main() -> None:
    path = film(250)
    found: dict[str, list[float]] = {}
    scans: dict[str, Scan] = {}
    runners: dict[str, Callable[[], object] | None] = {
        "ours": lambda: scans.update({"ours": scanned(path, PLAIN)}),
        "ours, in the guarded child": lambda: scans.update(
            {"ours, in the guarded child": scanned(path, GUARDED)}
        ),
        "decoding every picture, no scores": lambda: every_picture(path),
    }
    for detector in ("ContentDetector", "AdaptiveDetector"):
        name = f"PySceneDetect {detector}"

        def run(name: str = name, detector: str = detector) -> None:
            found[name] = pyscenedetect(path, detector)

        runners[name] = run if optional("scenedetect") else None
    taken = race(runners, rounds=3, warm=False)
    show(
        "Scene scan of 15,000 frames 720p, survey included",
        taken,
        notes={name: verdict(times) for name, times in found.items()}
        | {name: both_verdicts(scan) for name, scan in scans.items()},
        reach={"PySceneDetect ContentDetector": 2.5},
    )


if __name__ == "__main__":
    main()
