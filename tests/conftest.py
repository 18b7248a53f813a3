"Paths and the optional real files that several tests share."

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


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
