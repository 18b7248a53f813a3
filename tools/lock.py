"""Write `vid2context/locks/vision.txt`: what an isolated runner installs, with hashes.

    python tools/lock.py

pip resolves the requirements once for each version of Python and installs nothing.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "vid2context" / "locks" / "vision.txt"
VERSIONS = ("3.11", "3.12", "3.13")
WANTED = (
    "open_clip_torch>=3.3",
    "pillow>=12",
    "torch>=2.14,<2.15",
    "torchvision>=0.29,<0.30",
    "transformers>=5,<6",
)
Wheel = tuple[str, str, str]  # Name, version, SHA-256


def resolved(version: str) -> set[Wheel]:
    "Ask pip what it would install."
    with tempfile.TemporaryDirectory() as temp:
        report = Path(temp) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary", ":all:", "--target", temp]
        command += ["--python-version", version, "--report", str(report), *WANTED]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text())["install"]
    return {
        (
            one["metadata"]["name"].lower(),
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
    }


def lock_text(wheels: set[Wheel]) -> str:
    "Write one line a release, with the hash of each wheel."
    lines = ["# Made by tools/lock.py for Linux x86-64. Do not edit.\n"]
    for name, version in sorted({wheel[:2] for wheel in wheels}):
        hashes = sorted(w[2] for w in wheels if w[:2] == (name, version))
        given = " \\\n".join(f"    --hash=sha256:{digest}" for digest in hashes)
        lines.append(f"{name}=={version} \\\n{given}\n")
    return "".join(lines)


if __name__ == "__main__":
    text = lock_text({wheel for version in VERSIONS for wheel in resolved(version)})
    LOCK.parent.mkdir(exist_ok=True)
    LOCK.write_text(text, encoding="utf-8")
