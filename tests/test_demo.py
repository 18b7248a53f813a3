"What `make demo` does, from a fresh clone, with no way out to a network."

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    "What is committed, and nothing else."
    folder = tmp_path_factory.mktemp("fresh") / "clone"
    words = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this is no git checkout: {done.stderr.strip()[-200:]}")
    return folder


def offline(*words, cwd):
    "Run in a network namespace without a route where the system lets us."
    alone = ["unshare", "-rn"] if shutil.which("unshare") else []
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        alone = []
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VID2CONTEXT_")}
    env = kept | {"PYTHONPATH": str(cwd), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [*alone, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=600
    )


def test_make_demo_installs_the_light_base_and_runs_the_demo():
    steps = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert steps.returncode == 0, steps.stderr
    lines = steps.stdout.splitlines()
    assert any("pip install" in one and "[" not in one.split("&&")[-1] for one in lines)
    assert lines[-1].endswith("vid2context demo")


def test_the_demo_holds_in_a_fresh_clone(clone):
    done = offline(sys.executable, "-m", "vid2context", "demo", "--json", cwd=clone)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    receipt = json.loads(done.stdout)
    assert receipt["status"] == "ok"
    packages = sorted((clone / "demo" / "evidence" / "videos").iterdir())
    clips = json.loads((clone / "data" / "clips" / "clips.json").read_text())
    assert len(packages) == len(clips)
    for place in receipt["paths"].values():
        assert Path(place).exists() and Path(place).is_relative_to(clone)
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True
    )
    assert status.stdout == ""

    again = offline(
        sys.executable, "-m", "vid2context", "pack", "data/clips",
        "--collection", "demo/evidence", "--json", cwd=clone,
    )  # fmt: skip
    assert json.loads(again.stdout)["counts"]["unchanged"] == len(clips)
