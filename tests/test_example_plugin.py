"""The example plug-in, installed as a stranger's package is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).with_name("example_plugin")


def test_a_provider_is_found_by_its_installed_entry_point(tmp_path):
    pytest.importorskip("setuptools", reason="it builds the plug-in")
    shutil.copytree(PLUGIN, tmp_path / "plugin")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--no-build-isolation", "--target", tmp_path / "site", tmp_path / "plugin"]
    subprocess.run(pip, check=True, capture_output=True)
    code = (
        "import sys\n"
        "from vid2context.conformance import conformance_faults\n"
        "from vid2context.providers import list_providers, resolve\n"
        "rows = [r['name'] for r in list_providers().rows if r['origin'] == 'plugin']\n"
        "name = 'vid2context-palette:palette'\n"
        "assert rows == [name] and 'palette_captioner' not in sys.modules\n"
        "make = lambda: resolve('captioner', name)\n"
        "assert conformance_faults('captioner', make) == {}\n"
        "print(make().descriptor.identity)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    assert ran.stdout.startswith("palette 1.0 "), ran.stderr
