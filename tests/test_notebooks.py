"Every notebook runs from top to bottom, as its author's `nbdev-test` does."

import gc
from pathlib import Path

import pytest
from execnb.shell import CaptureShell
from nbdev.config import get_config
from nbdev.test import test_nb as run_nb  # renamed, or pytest collects it

ROOT = Path(__file__).resolve().parents[1]
CFG = get_config(ROOT)
NBS = sorted((ROOT / "nbs").rglob("[!_.]*.ipynb"))

PICKLES = {"00_core.ipynb"}  # Shows that errors cross to a worker and back


def cases():
    for nb in NBS:
        marks = [pytest.mark.breaks_promises] if nb.name in PICKLES else []
        yield pytest.param(nb, marks=marks, id=str(nb.relative_to(ROOT)))


@pytest.mark.parametrize("nb", [*cases()])
def test_notebook(nb):
    flags = CFG.tst_flags.split()
    ok, _ = run_nb(nb, flags, basepath=ROOT, cell_timeout=CFG.cell_timeout)
    close_shells()
    assert ok


def close_shells():
    "Close the shells of earlier notebooks: each holds a thread and three files."
    for found in gc.get_objects():
        if isinstance(found, CaptureShell) and not found.loop.is_closed():
            found.close()
            found.loop.close()
