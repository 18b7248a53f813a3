"A pack that is killed anywhere leaves a sound collection, and the next one goes on."

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vid2context.manifest import read_manifest
from vid2context.media import write_clip
from vid2context.validation import validate_collection

NAMES = ("high-water", "low-water")
KILLS = 10

# One process loads the kit; each line makes it fork a run, which may be killed.
RUNNER = """
import os, signal, sys, time
from dataclasses import replace
from pathlib import Path
from vid2context.building import PackWish
from vid2context.packing import Packer
from vid2context.settings import load_settings
folder = Path(sys.argv[1])
settings = load_settings()
providers = replace(settings.providers, text_reader="off")
packer = Packer(folder / "evidence", settings=replace(settings, providers=providers))
refs = [str(folder / "videos")]
for line in sys.stdin:
    language, moment_s = line.split()
    worker = os.fork()
    if not worker:
        wish = PackWish(context_language=language, force=True)
        began = time.monotonic()
        report = packer.pack(refs, wish=wish)
        states = ",".join(f"{i.status}:{i.code or ''}" for i in report.items)
        print("done", states, time.monotonic() - began, flush=True)
        os._exit(0)
    if moment_s != "never":
        time.sleep(float(moment_s))
        os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    print("over", flush=True)
"""


class Runs:
    "Start runs of `pack`, and let them end or kill them."

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            text=True,
            bufsize=1,
        )

    def _hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, language: str, *, killed_after_s: float | None = None) -> Any:
        "Give the states and the seconds of a whole run; None for a killed one."
        assert self.process.stdin is not None
        moment = "never" if killed_after_s is None else f"{killed_after_s:.4f}"
        self.process.stdin.write(f"{language} {moment}\n")
        told = self._hear()
        if told == "over":
            return None
        assert self._hear() == "over"
        _, states, taken_s = told.split()
        return states.split(","), float(taken_s)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    (tmp_path / "videos").mkdir()
    for k, name in enumerate(NAMES):
        rows = np.arange(90)[:, None, None]
        pictures = (
            np.broadcast_to((rows * (2 + k) + 9 * n) % 256, (90, 160, 3)).astype("u1")
            for n in range(10)
        )
        write_clip(tmp_path / "videos" / f"{name}.mp4", pictures, fps=5)
        told = f"WEBVTT\n\n00:01.000 --> 00:02.000\nIt is {name} at noon.\n"
        (tmp_path / "videos" / f"{name}.en.vtt").write_text(told)
    started = Runs(tmp_path)
    yield started
    started.process.stdin.close()
    started.process.wait(timeout=60)
    started.process.stdout.close()


def check_sound(collection: Path) -> list[str]:
    "Every listed package is whole and passes, and nothing else lies beside them."
    if not (collection / "manifest.json").exists():
        assert not list(collection.glob("videos/*"))
        return []
    reports = validate_collection(collection, verify=True)
    faults = [f"{r.name}: {f.code} {f.file}" for r in reports for f in r.findings]
    assert {r.result for r in reports} == {"PASS"}, faults
    listed = [entry.slug for entry in read_manifest(collection).entries]
    assert sorted(p.name for p in (collection / "videos").iterdir()) == sorted(listed)
    return listed


def test_ten_kills_at_any_moment_leave_nothing_half_done(
    runs: Runs, tmp_path: Path
) -> None:
    collection, chance = tmp_path / "evidence", random.Random(5)
    states, taken_s = runs.run("en")
    assert states == ["packed:", "packed:"]
    kills = 0
    for attempt in range(5 * KILLS):
        if kills == KILLS // 2:
            shutil.rmtree(collection, ignore_errors=True)
        language = ("es", "en")[attempt % 2]
        moment_s = chance.uniform(0, 0.9 * taken_s)
        kills += runs.run(language, killed_after_s=moment_s) is None
        check_sound(collection)
        if kills == KILLS:
            break
    assert kills == KILLS
    assert set(runs.run("es")[0]) <= {"packed:", "unchanged:"}
    assert runs.run("es")[0] == ["unchanged:", "unchanged:"]
    assert check_sound(collection) == list(NAMES)
    assert not list((collection / ".staging").iterdir())
    page = collection / "videos" / NAMES[0] / "deliverables" / "context.md"
    assert "Contexto autónomo" in page.read_text()
