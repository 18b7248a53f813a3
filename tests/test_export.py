"The package is what its notebooks export, module by module."

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PKG, BY_HAND = "vid2context", ("__init__.py", "__main__.py")


def modules(root):
    return {p.relative_to(root): p.read_bytes() for p in (root / PKG).rglob("*.py")}


def test_export_agrees(tmp_path):
    shutil.copytree(ROOT / "nbs", tmp_path / "nbs")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / PKG).mkdir()
    for name in BY_HAND:
        shutil.copy(ROOT / PKG / name, tmp_path / PKG)
    env = {k: v for k, v in os.environ.items() if k != "IN_TEST"}
    code = "from nbdev.doclinks import nbdev_export as e; e.__wrapped__()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    have, want = modules(ROOT), modules(tmp_path)
    assert have.keys() == want.keys()  # no stale module, none missing
    assert [p for p in want if have[p] != want[p]] == []
