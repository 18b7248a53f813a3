"Samplers find every hard cut and nothing else, and every frame says its true time."

import itertools
import time
from dataclasses import replace

import av
import numpy as np
import pytest

from vid2context.core import UsageError
from vid2context.look import change_score, look, look_changed, near_duplicate
from vid2context.media import write_clip
from vid2context.options import Media, Sampling
from vid2context.reader import Reader
from vid2context.sampling import (
    Scan,
    adaptive_targets,
    every_targets,
    find_scenes,
    resolve_profile,
    sample,
    sample_every,
    scan_video,
    sequence_targets,
    uniform_targets,
)

PLAIN = Media(guarded=False)
OPTIONS = Sampling()


def texture(seed, step=0, size=(160, 90)):
    "Paint soft coloured blobs that slide."
    rng = np.random.default_rng(seed)
    cells = rng.uniform(0, 255, (5, 8, 1)) * rng.uniform(0.3, 1, 3)
    grown = np.kron(cells, np.ones((size[1] // 5, size[0] // 8, 1)))
    return np.roll(grown, step // 3, axis=1).astype(np.uint8)


def hills(seed):
    "Paint smooth light."
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.linspace(0, 3, 160), np.linspace(0, 2, 90))
    light = np.stack([np.sin(x * rng.uniform(1, 2) + y + c) for c in range(3)], -1)
    return 120 + 70 * light


def scan_of(path, pictures, *, fps=25, settings=OPTIONS, **more):
    "Write a clip and scan it."
    write_clip(path, pictures, fps=fps, **more)
    with Reader(path, settings=PLAIN) as reader:
        return scan_video(reader, settings=settings)


def scenes_of(scan):
    return [scan.times_s[i] for i in find_scenes(scan, settings=OPTIONS)[0]]


def test_hard_cuts_are_found_once_each(tmp_path):
    cuts = (3.2, 7.75, 12.1, 12.6, 20.4)
    pictures = (
        texture(sum(i / 25 >= c - 1e-9 for c in cuts), i) for i in range(25 * 24)
    )
    scan = scan_of(tmp_path / "cuts.mp4", pictures)
    found = scenes_of(scan)
    late = [f - c for f, c in zip(found, (3.2, 7.75, 12.1, 20.4), strict=True)]
    assert all(0 <= late_s <= 0.54 for late_s in late)
    high = sorted(scan.scores)[-5:]
    assert min(high) >= 0.45
    assert sorted(scan.scores)[-6] <= 0.05


def test_a_picture_that_never_changes_is_one_scene(tmp_path):
    scan = scan_of(tmp_path / "still.mp4", [texture(1)] * 150)
    assert scenes_of(scan) == []
    targets = adaptive_targets(scan, scenes=[], max_gap_s=20.0)
    assert [t.reasons for t in targets] == [("start",), ("end",)]


def test_a_flash_and_a_dropout_are_no_cut_and_no_picture(tmp_path):
    flash = [texture(1) if i < 75 else texture(2) for i in range(150)]
    flash[36] = flash[37] = np.full((90, 160, 3), 255, np.uint8)
    flash[60] = np.zeros((90, 160, 3), np.uint8)
    for shift in (0, 1):
        clip = tmp_path / f"flash{shift}.mp4"
        scan = scan_of(clip, flash[shift:])
        assert [round(t, 1) for t in scenes_of(scan)] == [3.0]
        scenes = find_scenes(scan, settings=OPTIONS)[0]
        targets = adaptive_targets(scan, scenes=scenes, max_gap_s=20.0)
        with Reader(clip, settings=PLAIN) as reader:
            found = list(sample(reader, targets))
        assert not any(s.look.black or s.look.flat for s in found)


def test_cuts_of_slides_that_last_a_minute_have_their_true_times(tmp_path):
    times = [0.0, 0.04, 33.0, 33.04, 81.5, 90.0]
    pictures = [texture(seed) for seed in (1, 1, 5, 5, 9, 9)]
    clip = tmp_path / "slides.mkv"
    scan = scan_of(clip, pictures, times_s=times)
    assert scenes_of(scan) == [33.0, 81.5]
    scenes = find_scenes(scan, settings=OPTIONS)[0]
    targets = adaptive_targets(scan, scenes=scenes, max_gap_s=20.0)
    with Reader(clip, settings=PLAIN) as reader:
        shown = [p.shown_s for p in reader.at([32.9, 80.0, 81.5])]
        taken = [s.picture.shown_s for s in sample(reader, targets)]
        assert reader.info.duration_s == pytest.approx(90.04, abs=0.05)
    assert shown == pytest.approx([0.04, 33.04, 81.5], abs=0.0011)
    assert {round(t, 2) for t in taken} <= set(times)


def test_a_scan_that_skips_pictures_scores_as_one_that_decodes_all(tmp_path):
    clip, seeds = tmp_path / "cuts.mp4", [3, 5, 9, 4, 8]
    pictures = (texture(seeds[i // 150], i) for i in range(750))
    write_clip(clip, pictures, fps=25, options={"g": "100", "bf": "3"})
    with Reader(clip, settings=PLAIN) as reader:
        skipping = scan_video(reader, settings=OPTIONS)
        skipped = reader.decode_counts["decoded"]
    with Reader(clip, settings=PLAIN) as reader:
        reader._film = replace(reader._film, times=None)
        stepping = scan_video(reader, settings=OPTIONS)
        stepped = reader.decode_counts["decoded"]
    assert skipping == stepping
    assert skipped < 0.8 * stepped
    assert len(find_scenes(skipping, settings=OPTIONS)[0]) == 4


def test_a_flash_on_a_sample_is_no_scene(tmp_path):
    pictures = [texture(1, i) for i in range(200)]
    pictures[100] = np.full((90, 160, 3), 255, np.uint8)
    scan = scan_of(tmp_path / "flash.mp4", pictures)
    assert scan.score_at(4.0) >= 0.2
    assert scan.score_at(4.5) >= 0.2
    assert scenes_of(scan) == []


def test_a_fade_is_covered_by_anchors(tmp_path):
    a, b = (hills(seed) for seed in (1, 5))
    mix = [min(max((i - 1000) / 50, 0), 1) for i in range(0, 2000, 5)]
    grain = np.random.default_rng(0).normal(0, 14, (90, 160, 3))
    faded = (a * (1 - m) + b * m + grain for m in mix)
    pictures = (p.clip(0, 255).astype(np.uint8) for p in faded)
    scan = scan_of(tmp_path / "fade.mp4", pictures, fps=5)
    assert scenes_of(scan) == []
    targets = adaptive_targets(scan, scenes=[], max_gap_s=20.0)
    assert [t.at_s for t in targets][:4] == [0.0, 20.0, 40.0, 60.0]


def test_a_new_line_is_a_detail_and_a_talking_head_is_none(tmp_path):
    options = replace(OPTIONS, detail_changes=True)
    page = np.full((90, 160, 3), 18, np.uint8)
    page[10:13, 8:70:2] = 220
    more = page.copy()
    more[20:23, 8:70:2] = 220
    pictures = [page if i < 60 else more for i in range(150)]
    typed = scan_of(tmp_path / "typed.mp4", pictures, fps=15, settings=options)
    assert scenes_of(typed) == []
    assert typed.details == (4.0,)
    rng = np.random.default_rng(5)
    heads = []
    for _ in range(150):
        head = texture(3)
        x, y = rng.integers(50, 80), rng.integers(20, 40)
        head[y : y + 30, x : x + 24] = rng.integers(90, 200)
        heads.append(head)
    talk = scan_of(tmp_path / "talk.mp4", heads, fps=15, settings=options)
    assert talk.details == ()


def test_the_cap_keeps_the_strongest(tmp_path):
    pictures = (texture(i // 2) for i in range(400))
    scan = scan_of(tmp_path / "many.mp4", pictures, fps=2)
    kept, dropped = find_scenes(scan, settings=OPTIONS)
    assert len(kept) == 160
    assert len(dropped) >= 30
    assert kept == sorted(kept)
    weakest = min(scan.scores[i] for i in kept)
    assert all(scan.scores[i] <= weakest for i in dropped)


def test_the_profile_follows_the_cuts():
    calm = Scan(
        times_s=tuple(i / 2 for i in range(118)),
        scores=(0.0,) * 118,
        returns=(1.0,) * 118,
        details=(),
        duration_s=59.0,
        last_s=58.96,
    )
    told = [
        resolve_profile(calm, scenes=n, requested="auto", settings=OPTIONS)
        for n in (0, 1, 2)
    ]
    assert told == ["standard", "standard", "visual-heavy"]
    moving = replace(calm, scores=(0.0, *(0.055,) * 117))
    assert resolve_profile(moving, scenes=0, requested="auto", settings=OPTIONS) == (
        "visual-heavy"
    )
    with pytest.raises(UsageError, match="standard or visual-heavy"):
        resolve_profile(calm, scenes=0, requested="dense", settings=OPTIONS)


def test_reasons_of_one_millisecond_merge():
    scan = Scan(
        times_s=(0.0, 10.0, 20.0),
        scores=(0.0, 0.5, 0.1),
        returns=(1.0, 1.0, 1.0),
        details=(),
        duration_s=20.5,
        last_s=20.0,
    )
    targets = adaptive_targets(scan, scenes=[1], max_gap_s=10.0, chapters_s=[10.0004])
    told = [(t.at_ms, t.reasons, t.score) for t in targets]
    assert told == [
        (0, ("start",), 0.0),
        (10_000, ("scene-change", "timeline-anchor"), 0.5),
        (20_000, ("end",), 0.1),
    ]


@pytest.mark.parametrize("last_s", [0.0, 0.3, 9.6, 19.99, 20.0, 61.2])
@pytest.mark.parametrize("gap_s", [10.0, 20.0])
def test_no_stretch_is_longer_than_promised(last_s, gap_s):
    duration_s = last_s + 0.04
    times = [t.at_s for t in every_targets(duration_s, interval_s=0.5)]
    scan = Scan(
        times_s=tuple(times),
        scores=(0.0,) * len(times),
        returns=(1.0,) * len(times),
        details=(),
        duration_s=duration_s,
        last_s=last_s,
    )
    marks = [t.at_s for t in adaptive_targets(scan, scenes=[], max_gap_s=gap_s)]
    marks = [0.0, *marks, duration_s]
    assert max(b - a for a, b in itertools.pairwise(marks)) <= gap_s + 0.05


def test_plans_are_exact():
    assert len(uniform_targets(0.28)) == 20
    assert [t.at_s for t in every_targets(15.0, interval_s=5)] == [0, 5, 10]
    assert [t.at_s for t in every_targets(0.2, interval_s=5)] == [0]
    assert len(every_targets(0.1 * 3, interval_s=0.1)) == 3
    assert sequence_targets(9.8, duration_s=10.0)[0].at_s == 7.8
    assert len(sequence_targets(5.0, duration_s=10.0)) == 9
    with pytest.raises(UsageError, match="above 0"):
        every_targets(5.0, interval_s=0)


def stripes(i):
    bits = np.repeat(
        np.array([(i >> k) & 1 for k in range(8)], np.uint8) * 235 + 10, 16
    )
    return np.repeat(np.tile(bits, (72, 1))[..., None], 3, axis=2)


def number(rgb):
    middles = rgb[rgb.shape[0] // 2, rgb.shape[1] // 16 :: rgb.shape[1] // 8, 0]
    return sum(int(v > 127) << k for k, v in enumerate(middles))


@pytest.mark.parametrize("name", ["even.mp4", "bumpy.mkv", "late.ts"])
def test_every_sampler_shows_the_picture_of_its_time(name, tmp_path):
    steps = np.random.default_rng(2).choice([0.04, 0.1, 0.4], 250)
    times = [round(float(t), 3) for t in np.cumsum(steps) - steps[0]]
    plan = {"times_s": times} if name.startswith("bumpy") else {"fps": 10}
    plan |= {"start_s": 5.0} if name.startswith("late") else {}
    write_clip(tmp_path / name, map(stripes, range(250)), **plan)
    starts = times if "times_s" in plan else [i / 10 for i in range(250)]
    with Reader(tmp_path / name, settings=PLAIN) as reader:
        end_s = reader.info.duration_s
        scan = scan_video(reader, settings=OPTIONS)
        scenes = find_scenes(scan, settings=OPTIONS)[0]
        for targets in (
            uniform_targets(end_s),
            every_targets(end_s, interval_s=1.7),
            sequence_targets(7.3, duration_s=end_s),
            adaptive_targets(scan, scenes=scenes, max_gap_s=10.0),
        ):
            found = list(sample(reader, targets))
            assert [s.target for s in found] == targets
            for one in found:
                i = number(one.picture.rgb)
                assert one.picture.shown_s == pytest.approx(starts[i], abs=0.0011)
                assert one.picture.shown_s <= one.target.at_s + 0.0011
                later = one.picture.until_s
                assert later is None or later > one.target.at_s - 0.0011


def test_sampling_in_memory_keeps_one_picture(tmp_path):
    write_clip(tmp_path / "clip.mp4", map(stripes, range(100)), fps=10)
    for settings in (PLAIN, Media()):
        found = [
            (s.target.at_s, number(s.picture.rgb))
            for s in sample_every(tmp_path / "clip.mp4", 2.5, settings=settings)
        ]
        assert found == [(0.0, 0), (2.5, 25), (5.0, 50), (7.5, 75)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["clip.mp4"]


def test_the_small_picture_agrees_with_that_of_the_scaler(tmp_path):
    pictures = [texture(i // 10, i, (640, 360)) for i in range(40)]
    write_clip(tmp_path / "clip.mp4", pictures, fps=10)
    with Reader(tmp_path / "clip.mp4", settings=PLAIN) as reader:
        native = [look(p.rgb) for p in reader.frames()]
        small = [look(p.rgb) for p in reader.frames(size=(160, 90))]
    for i in range(1, 40):
        ours = change_score(native[i - 1], native[i])
        scaled = change_score(small[i - 1], small[i])
        assert ours == pytest.approx(scaled, abs=0.02)


def test_measures_tell_slides_terminals_and_faces_apart():
    slide = texture(4)
    assert near_duplicate(look(slide), look(slide), threshold=0.02)
    assert not look_changed(look(slide), look(slide))
    assert look_changed(look(slide), look(texture(5)))
    gray = look(np.full((90, 160, 3), 120, np.uint8))
    dark = look(np.full((90, 160, 3), 31, np.uint8))
    assert (gray.black, gray.flat, dark.black) == (False, True, True)
    assert look(np.full((1, 1, 3), 9, np.uint8)).gray.shape == (90, 160)
    assert look(np.full((3000, 200, 3), 9, np.uint8)).gray.shape == (90, 160)


def test_seeking_costs_less_than_decoding_everything(tmp_path):
    rng = np.random.default_rng(0)
    base = np.kron(
        rng.integers(30, 255, (18, 32, 3), dtype=np.uint8),
        np.ones((20, 20, 1), np.uint8),
    )
    noise = rng.integers(0, 8, (4, 360, 640, 1), dtype=np.uint8)
    pictures = (np.roll(base, 2 * i, 1) // 2 + noise[i % 4] for i in range(600))
    clip = tmp_path / "long.mp4"
    options = {"g": "208", "preset": "ultrafast", "bf": "2"}
    write_clip(clip, pictures, fps=25, options=options)

    def cost(work):
        spent = []
        for _ in range(2):
            began = time.process_time()
            for _ in work():
                pass
            spent.append(time.process_time() - began)
        return min(spent)

    def bare():
        with av.open(str(clip)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 2
            yield from container.decode(stream)

    with Reader(clip, settings=PLAIN) as reader:
        whole = cost(bare)
        keys = cost(lambda: reader.frames(size=(16, 9), keyframes=True))
        every_10 = cost(lambda: reader.at([0, 10, 20], size=(160, 90)))
        scan = cost(lambda: [scan_video(reader, settings=OPTIONS)])
    assert keys / whole <= 0.15
    assert every_10 / whole <= 0.6
    assert scan / whole <= 2.0
