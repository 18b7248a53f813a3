"""Frames that are chosen, libraries that differ in nothing else, and what they cost."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vid2context.building import Perception
from vid2context.catalog import Catalog
from vid2context.chosen_frames import SAMPLERS, Sampler
from vid2context.core import local_id, sha256_file
from vid2context.guard import open_media
from vid2context.index_reports import IndexWish
from vid2context.ingest import Models
from vid2context.labels import name_crosses
from vid2context.measurement_requests import RUNS
from vid2context.options import Media, Providers, Settings
from vid2context.sampling_studies import (
    Trial,
    clip_files,
    make_sampling_runs,
    read_talk,
)
from vid2context.stored_lists import read_lists, read_rows
from vid2context.visual_index import VisualIndexer
from vid2context.workshop import Workshop
from vid2context.writing import open_writer

ROOT = Path(__file__).resolve().parents[1]
CLIPS = ROOT / "data" / "clips"
BLIND = Settings(
    media=Media(guarded=False),
    providers=Providers(
        text_reader="off", captioner="basic", embedder="off", encoder="off"
    ),
)


def sampler(name: str) -> Sampler:
    return next(one for one in SAMPLERS if one.name == name)


def rows_of(home: Path) -> tuple[list[Any], list[Any]]:
    "Read every unit and frame of a library, as they are stored."
    with Catalog.open(home) as catalog:
        units = catalog.rows("SELECT * FROM units ORDER BY unit_id", [])
        frames = catalog.rows("SELECT * FROM frames ORDER BY unit_id", [])
        return [dict(row) for row in units], [dict(row) for row in frames]


@pytest.mark.parametrize("clip", ["lecture-pan.mp4", "screencast-copias.mkv"])
def test_the_default_way_fills_the_library_that_index_fills(clip, tmp_path) -> None:
    file = CLIPS / clip
    with open_writer(tmp_path / "trial", create=True) as writer:
        trial = Trial(
            writer,
            sampler("every-5-s-gated"),
            settings=BLIND,
            models=Models(captioner=Perception(BLIND).captioner),
        )
        row = trial.take(file, talk=read_talk(file, BLIND))
        trial.finish()
    VisualIndexer(tmp_path / "index", BLIND).index_all([file], wish=IndexWish())
    assert rows_of(tmp_path / "trial") == rows_of(tmp_path / "index")
    assert row["video_id"] == local_id(sha256_file(file))
    assert len(row["at_s"]) == len(rows_of(tmp_path / "trial")[1])


@pytest.mark.parametrize("clip", ["montage-seasons.webm", "silent-shapes.mkv"])
def test_chosen_times_ascend_within_the_clip(clip) -> None:
    with open_media(CLIPS / clip, settings=BLIND.media) as reader:
        wanted = {one.name: one.choose(reader, BLIND.sampling) for one in SAMPLERS}
        length_s = reader.info.duration_s
    for name, times_s in wanted.items():
        assert [*times_s] == sorted(set(times_s)), name
        assert all(0 <= t <= length_s for t in times_s), name
    assert wanted["uniform-20"] == [length_s * i / 20 for i in range(20)]
    assert {*wanted["uniform-20"], *wanted["adaptive"]} == {
        *wanted["uniform-and-adaptive"]
    }


def test_runs_hold_costs_and_lists_of_every_sampler(tmp_path, tiny_clip) -> None:
    pytest.importorskip("ir_measures")
    shop, names = small_shop(tmp_path, tiny_clip), ("no-frames", "adaptive-gated")
    chosen = [sampler(name) for name in names]
    place = make_sampling_runs(shop, seed=5, samplers=chosen)
    head, *rows = read_rows(place / "costs.jsonl.gz")
    assert head["machine"]["cores"] >= 1
    taken = [row for row in rows if "video_id" in row]
    assert len(taken) == len(names)
    by_name = {row["sampler"]: row for row in rows if "bytes" in row}
    assert set(by_name) == set(names)
    for row in taken:
        assert set(row["seconds"]) == {"choose", "look", "store"}
        assert all(min(pair) >= 0 for pair in row["seconds"].values())
        assert bool(row["at_s"]) == (row["sampler"] != "no-frames")
    sizes = {name: sum(row["bytes"].values()) for name, row in by_name.items()}
    assert sizes["no-frames"] < sizes["adaptive-gated"]
    lists = {name: read_lists(place / name) for name in names}
    assert set(lists["no-frames"].found) == set(shop.golden.needs())
    pictures = {
        name: sum(place.image for place in one.places.values())
        for name, one in lists.items()
    }
    assert pictures["no-frames"] == 0 < pictures["adaptive-gated"]
    text = json.dumps(rows)
    assert str(tmp_path) not in text


def small_shop(folder: Path, encoder: Path) -> Workshop:
    "Lay out one clip and the golden queries on it, with a trained encoder."
    data, kept = folder / "data", {"silent-shapes"}
    (data / "clips").mkdir(parents=True)
    (data / "golden").mkdir()
    for file in CLIPS.iterdir():
        if file.name.split(".")[0] in kept:
            shutil.copy(file, data / "clips")
    ids = json.loads((CLIPS / "clips.json").read_text())
    mine = {name: row for name, row in ids.items() if name in kept}
    (data / "clips" / "clips.json").write_text(json.dumps(mine))
    rows = []
    for line in (ROOT / "data/golden/samples.jsonl").read_text().splitlines():
        row = json.loads(line)
        spans = [*row["relevant"], *row.get("must_not", []), *row.get("judged", [])]
        if row["relevant"] and {one["video_id"] for one in spans} <= kept:
            rows.append(line)
    assert len(rows) >= 3
    (data / "golden" / "samples.jsonl").write_text("\n".join(rows) + "\n")
    shop = Workshop(data, folder / "work")
    shutil.copytree(encoder, shop.work / "encoder")
    assert clip_files(data / "clips") == sorted(clip_files(data / "clips"))
    return shop


def test_names_of_a_scatter_cover_neither_each_other_nor_a_cross() -> None:
    pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
    plt.close(figure)
    axis.set(xlim=(0, 20), ylim=(0, 1))
    points = [
        {"name": f"a longer name {i}", "x": x, "y_low": y - 0.1, "y_high": y + 0.1}
        for i, (x, y) in enumerate([(5, 0.5), (5.2, 0.55), (5.9, 0.5), (6.4, 0.45)])
    ]
    boxes = name_crosses(figure, axis, points, ["black"] * len(points))
    place = axis.transData.transform
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        for one in points:
            x, low = place((one["x"], one["y_low"]))
            high = place((one["x"], one["y_high"]))[1]
            assert not (box.x0 <= x <= box.x1 and box.y0 <= high and low <= box.y1)
    assert [text.get_text() for text in axis.texts] == [p["name"] for p in points]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git checkout")
def test_runs_of_a_user_are_no_files_of_the_repository() -> None:
    place = RUNS / "before" / "manifest.json"
    call = ["git", "-C", str(ROOT), "check-ignore", "--quiet", str(place)]
    assert subprocess.run(call, check=False).returncode == 0
