"Paths and the optional real files that several tests share."

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promises
import pytest

ROOT = Path(__file__).resolve().parents[1]
WATCH = promises.Watch()
WATCH.install()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # In the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def kept_promises(request):
    "No test connects to another machine, none reads a pickle."
    WATCH.broken.clear()
    yield
    if not request.node.get_closest_marker("breaks_promises"):
        assert WATCH.broken == []


@pytest.fixture(scope="session")
def root() -> Path:
    "The repository."
    return ROOT


@pytest.fixture(scope="session")
def clips() -> Path:
    "The committed sample clips."
    return ROOT / "data" / "clips"


@pytest.fixture(scope="session")
def real_data() -> Path:
    "Real files named by VID2CONTEXT_REAL_DATA; the test is skipped without them."
    folder = os.environ.get("VID2CONTEXT_REAL_DATA", "")
    if not folder:
        pytest.skip("VID2CONTEXT_REAL_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    "A real Chromium, headless, with an empty profile; skipped where there is none."
    kit = pytest.importorskip("browser_kit", reason="playwright is not installed")
    if kit.find_chromium() is None:
        pytest.skip("no Chromium: apt-get install chromium, or VID2CONTEXT_CHROMIUM")
    with kit.open_browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    "A real JupyterLab on loopback, with a token."
    kit = pytest.importorskip("browser_kit", reason="playwright is not installed")
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    server = kit.Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def tiny_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    "Folder of a small CLIP that learned the places of the samples: about 15 s, once."
    pytest.importorskip("open_clip", reason="the extra `vision` is not installed")
    from vid2context.tiny_models import train_tiny_clip

    return train_tiny_clip(
        tmp_path_factory.mktemp("models") / "clip",
        scenes="samples",
        pictures=1200,
        steps=400,
    )


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    "A copy of the repository with its site in `_proc`, and what the builder printed."
    folder = tmp_path_factory.mktemp("site")
    skip = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "clips", "runs")
    for name in ("nbs", "vid2context", "tools", "data"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for name in ("_quarto.yml", "index.qmd", "pyproject.toml", "settings.ini"):
        shutil.copy(ROOT / name, folder)
    done = subprocess.run(
        [sys.executable, "tools/site.py"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "IN_TEST"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return folder, done.stdout.strip()
