"One journey from video to bundle, twice, elsewhere: same bytes, own folders only."

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CLIP = "review-ana"
RECORD = """
import json, os, sys
touched = set()
def add(path, folder=-1):
    if isinstance(path, int):
        return
    here = folder in (-1, None)
    base = os.getcwd() if here else os.readlink(f"/proc/self/fd/{folder}")
    touched.add(os.path.normpath(os.path.join(base, os.fsdecode(path))))
def hook(event, args):
    if event == "open" and args[0] is not None:
        if (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            add(args[0])
    elif event in ("os.remove", "os.rmdir"):
        add(args[0], args[1])
    elif event == "os.mkdir":
        add(args[0], args[2])
    elif event in ("os.rename", "os.link"):
        add(args[0], args[2])
        add(args[1], args[3])
    elif event in ("os.truncate", "os.symlink"):
        add(args[1] if event == "os.symlink" else args[0])
sys.addaudithook(hook)
from vid2context.__main__ import main
code = main()
print(json.dumps(sorted(touched)), file=sys.stderr)
sys.exit(code)
"""


class Journey:
    "pack, sync, search and retrieve in one folder, each in a process of its own."

    def __init__(self, root: Path, clips: Path, *, zone: str, seed: str) -> None:
        self.root, self.videos = root, root / "videos"
        self.videos.mkdir(parents=True)
        for name in (f"{CLIP}.mp4", f"{CLIP}.en.vtt"):
            (self.videos / name).write_bytes((clips / name).read_bytes())
        (root / "tmp").mkdir()
        keep = {k: v for k, v in os.environ.items() if not k.startswith("VID2CONTEXT")}
        places = {"HOME": str(root / "user"), "TMPDIR": str(root / "tmp")}
        self.env = keep | places | {"TZ": zone, "PYTHONHASHSEED": seed}
        self.env |= {"PYTHONDONTWRITEBYTECODE": "1"}
        self.touched: set[str] = set()
        self.videos_before = stamps(self.videos)
        self.run("pack", "videos", "--collection", "evidence")
        self.evidence_before = stamps(root / "evidence")
        self.run("sync", "evidence", "--home", "library")
        question = ("how long does the battery last", "--home", "library")
        self.found = self.run("search", *question)
        self.run("retrieve", *question, "--no-abstain")

    def run(self, *words: str) -> dict:
        done = subprocess.run(
            [sys.executable, "-c", RECORD, *words, "--json"],
            cwd=self.root,
            env=self.env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.touched.update(json.loads(done.stderr.splitlines()[-1]))
        return json.loads(done.stdout)

    def digests(self, folder: str) -> dict[str, str]:
        found = sorted((self.root / folder).rglob("*"))
        return {
            str(p.relative_to(self.root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in found
            if p.is_file()
        }


def stamps(folder: Path) -> dict[str, tuple[int, bytes]]:
    "Give time and content of every file."
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture(scope="module")
def journeys(tmp_path_factory, clips):
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    first = Journey(here / "a", clips, zone="UTC", seed="1")
    second = Journey(there / "somewhere else", clips, zone="Asia/Kathmandu", seed="2")
    return first, second


@pytest.mark.parametrize("folder", ["evidence", "bundles"])
def test_the_same_input_gives_the_same_bytes(journeys, folder):
    first, second = (one.digests(folder) for one in journeys)
    assert first
    assert first == second


def test_search_answers_alike(journeys):
    first, second = (one.found["moments"] for one in journeys)
    assert first
    assert first == second


def test_sources_never_change(journeys):
    for journey in journeys:
        assert stamps(journey.videos) == journey.videos_before
        assert stamps(journey.root / "evidence") == journey.evidence_before


def test_every_path_stays_under_its_root(journeys):
    for journey in journeys:
        outside = {
            path
            for path in journey.touched
            if not Path(path).is_relative_to(journey.root)
            and not path.startswith(("/dev/", "/proc/"))
        }
        assert len(journey.touched) > 50
        assert outside == set()
