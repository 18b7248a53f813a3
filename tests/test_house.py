"What is committed is clean, current and complete."

import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from smalldocs.api import gaps, package_modules

from vid2context.options import SECTIONS, Settings
from vid2context.settings import settings_text

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
TOP = {
    ".ci", ".gitattributes", ".gitconfig", ".gitignore", "CHANGELOG.md", "LICENSE",
    "Makefile", "README.md", "_quarto.yml", "data", "index.qmd", "nbs",
    "pyproject.toml", "settings.ini", "tests", "tools", "vid2context",
}  # fmt: skip
TREE = ["nbs", "vid2context", "tools", "data", "_quarto.yml", "index.qmd",
        "pyproject.toml", "settings.ini", "README.md"]  # fmt: skip


def run(*words, cwd, **more):
    env = {k: v for k, v in os.environ.items() if k != "IN_TEST"}
    return subprocess.run(
        [str(w) for w in words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        **more,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    "A copy of the repository, for commands that write into it."
    folder = tmp_path_factory.mktemp("copy")
    for name in TREE:
        path = ROOT / name
        if path.is_dir():
            skip = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "clips")
            shutil.copytree(path, folder / name, ignore=skip)
        else:
            shutil.copy(path, folder)
    return folder


def test_the_top_level_is_the_house():
    done = run("git", "ls-tree", "--name-only", "HEAD", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == TOP


def test_settings_ini_lists_every_option_at_its_default():
    assert (ROOT / "settings.ini").read_text() == settings_text()


def test_notebooks_are_clean(copy):
    done = run(sys.executable, "tools/clean.py", "--check", cwd=copy)
    assert (done.returncode, done.stderr) == (0, "")


def test_readme_is_current(copy):
    done = run(sys.executable, "tools/readme.py", "--check", cwd=copy)
    assert done.returncode == 0, done.stderr


def test_a_stale_readme_is_noticed(copy):
    text = (copy / "README.md").read_text()
    (copy / "README.md").write_text(text + "stale\n")
    done = run(sys.executable, "tools/readme.py", "--check", cwd=copy)
    (copy / "README.md").write_text(text)
    assert done.returncode == 1 and "stale" in done.stderr


def test_the_site_builds_without_a_warning(built_site):
    folder, told = built_site
    assert told == ""
    pages = {p.name for p in (folder / "_proc" / "_site").rglob("*.html")}
    assert {"index.html", "core.html", "first_video.html", "cli.html"} <= pages
    links = run(BIN / "smalldocs", "check", "_proc", cwd=folder)
    assert links.returncode == 0, links.stdout + links.stderr


def test_every_public_name_is_typed_and_documented():
    "But for private names, and what the checker cannot see."
    unseen = r"\(options\): no docment|kinds:Provider\(k?w?args\)"
    by_effect = r"vid2context\.options:.*: no docment"
    missing = [
        gap
        for module in package_modules("vid2context")
        for name, found in gaps(module).items()
        for gap in found
        if not re.search(r"(^|\.)_", name)
        and not re.search(f"{unseen}|{by_effect}", gap)
    ]
    assert missing == []
    options = [f for s in SECTIONS for f in fields(getattr(Settings(), s))]
    assert all(option.metadata["effect"] for option in options)


def test_the_sidebar_names_every_notebook():
    site = (ROOT / "_quarto.yml").read_text()
    pages = sorted((ROOT / "nbs").rglob("[!_.]*.ipynb"))
    names = [str(p.relative_to(ROOT)) for p in pages]
    assert [n for n in names if f" {n}\n" not in site] == []


@pytest.mark.skipif(not shutil.which("quarto"), reason="Quarto is not installed")
def test_nbdev_builds_the_site_with_quarto(copy):
    done = run(BIN / "nbdev-docs", cwd=copy)
    assert done.returncode == 0, done.stderr
