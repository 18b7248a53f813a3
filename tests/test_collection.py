"""A collection survives writers that are killed, and writers at the same time."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from vid2context.collection import (
    collection_lock,
    install_package,
    put_entry,
    update_manifest,
)
from vid2context.core import Vid2ContextError
from vid2context.manifest import package_folder, read_manifest

ENTRY = {
    "video_id": "v",
    "slug": "s",
    "resources": {"context": True, "metadata": True},
}

WRITER = """
import sys
from pathlib import Path
from vid2context.collection import collection_lock, install_package, put_entry
root, name, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
flags = {"context": True, "metadata": True}
entry = {"video_id": name, "slug": name, "resources": flags}
for number in range(rounds):
    stage = root / ".staging" / name
    import shutil
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for part in range(3):
        (stage / f"{part}.txt").write_text(str(number))
    install_package(root, entry | {"stage": str(number)}, replace=True, timeout_s=60)
    print(number, flush=True)
"""


def start(root, name, rounds):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), name, str(rounds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def check_whole(root, name):
    "The package is one round in all its files, and the inventory says which."
    folder = root / "videos" / name
    rounds = {(folder / f"{part}.txt").read_text() for part in range(3)}
    stages = {entry.slug: entry.stage for entry in read_manifest(root).entries}
    assert rounds == {stages[name]}


def test_writers_at_the_same_time_lose_nothing(tmp_path):
    writers = [start(tmp_path, f"w{i}", 8) for i in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    for writer in writers:
        writer.stdout.close()
    assert [entry.slug for entry in read_manifest(tmp_path).entries] == [
        f"w{i}" for i in range(4)
    ]
    for i in range(4):
        check_whole(tmp_path, f"w{i}")


def test_a_killed_writer_leaves_a_whole_package(tmp_path):
    chance = random.Random(7)
    for _ in range(12):
        writer = start(tmp_path, "tides", 10_000)
        writer.stdout.readline()
        time.sleep(chance.random() * 0.05)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        raw = json.loads((tmp_path / "manifest.json").read_text())
        assert isinstance(raw["videos"], list)
        with collection_lock(tmp_path, timeout_s=5):
            check_whole(tmp_path, "tides")
    left = [*tmp_path.glob(".*"), *(tmp_path / ".staging").glob(".*")]
    assert [path.name for path in left] == [".staging"]


def test_a_failing_edit_changes_nothing(tmp_path):
    with collection_lock(tmp_path):
        put_entry(tmp_path, ENTRY)
        before = (tmp_path / "manifest.json").read_bytes()
        with pytest.raises(ZeroDivisionError):
            update_manifest(tmp_path, lambda videos: videos[1 // 0 :])
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_unknown_keys_and_sick_entries_are_kept(tmp_path):
    strange = {"schema_version": "1.7", "owner": {"name": "Ada"}, "videos": [7, ENTRY]}
    (tmp_path / "manifest.json").write_text(json.dumps(strange))
    with collection_lock(tmp_path):
        put_entry(tmp_path, ENTRY | {"video_id": "a", "slug": "a", "mark": "x"})
    raw = json.loads((tmp_path / "manifest.json").read_text())
    assert raw["owner"] == {"name": "Ada"} and raw["schema_version"] == "1.7"
    assert [v if v == 7 else v["slug"] for v in raw["videos"]] == ["a", "s", 7]
    assert raw["videos"][0]["mark"] == "x"


def stage(root, slug):
    (root / ".staging" / slug).mkdir(parents=True)


def test_collisions_have_names(tmp_path):
    stage(tmp_path, "s")
    install_package(tmp_path, ENTRY)
    cases = {
        "slug_taken": ENTRY | {"video_id": "other"},
        "already_packed": ENTRY | {"slug": "elsewhere"},
        "manifest_schema_invalid": ENTRY | {"slug": "../s"},
    }
    for code, entry in cases.items():
        if "/" not in entry["slug"]:
            stage(tmp_path, entry["slug"])
        with pytest.raises(Vid2ContextError) as caught:
            install_package(tmp_path, entry)
        assert caught.value.code == code
        for path in (tmp_path / ".staging").iterdir():
            path.rmdir()
    with pytest.raises(Vid2ContextError) as caught:
        install_package(tmp_path, ENTRY, replace=True)
    assert caught.value.code == "package_not_staged"
    assert (tmp_path / "videos" / "s").is_dir()


def test_a_link_out_of_the_collection_is_no_package(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "collection"
    (root / "videos").mkdir(parents=True)
    (root / "videos" / "s").symlink_to(outside)
    with pytest.raises(Vid2ContextError) as caught:
        package_folder(root, "s")
    assert caught.value.code == "path_escape"
