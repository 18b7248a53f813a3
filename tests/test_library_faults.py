"What breaks under a library: doctor names it, what is whole answers, a cure restores."

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from library_kit import LightModel, WordModel, make_collection, write_package

from vid2context.catalog import Catalog
from vid2context.core import Vid2ContextError
from vid2context.doctor import doctor
from vid2context.indexes import open_indexes
from vid2context.ingest import Models
from vid2context.rebuild import rebuild
from vid2context.sync import sync

HERE = Path(__file__).parent


def all_models() -> Models:
    return Models(embedder=WordModel(), encoder=LightModel())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_collection(tmp_path / "talks", "apples", "pears")
    return tmp_path / "talks"


@pytest.fixture
def home(root: Path, tmp_path: Path) -> Path:
    sync(tmp_path / "library", paths=[str(root)], models=all_models())
    return tmp_path / "library"


def state(home: Path) -> tuple[str, list, list]:
    "Give the digest of a library and what words and vectors find in it."
    model = WordModel()
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        words = indexes.text.search("grafting apples knife", limit=50)
        asked = model.embed(["grafting apples"], "query")[0]
        return (
            catalog.library_digest(),
            words,
            indexes.vectors["text"].search(asked, limit=50),
        )


def told(home: Path) -> dict[str, str]:
    "Ask doctor; codes that are not fine, with what it says."
    report = doctor(home, models=all_models())
    return {c.code: c.message for c in report.checks if c.status != "ok"}


def largest(home: Path, pattern: str) -> Path:
    return max(home.glob(pattern), key=lambda path: path.stat().st_size)


def cut(pattern: str) -> Callable[[Path], object]:
    "Take the last third of a file away."

    def harm(home: Path) -> None:
        path = largest(home, pattern)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])

    return harm


def flip(pattern: str) -> Callable[[Path], object]:
    "Turn one bit in the middle of a file."

    def harm(home: Path) -> None:
        path = largest(home, pattern)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    return harm


def lose(pattern: str) -> Callable[[Path], object]:
    return lambda home: largest(home, pattern).unlink()


def alter(statement: str) -> Callable[[Path], object]:
    "Change the catalogue behind the program's back."

    def harm(home: Path) -> None:
        db = sqlite3.connect(home / "catalog.sqlite")
        db.execute(statement)
        db.commit()
        db.close()

    return harm


FAULTS = {
    "a cut segment of Tantivy": (cut("text/g*/*.store"), "text_index"),
    "a bit in the postings": (flip("text/g*/*.idx"), "text_index"),
    "a lost segment": (lose("text/g*/*.term"), "text_index"),
    "a cut list of files": (cut("text/g*/.managed.json"), "text_index"),
    "a stamp that is no JSON": (cut("text/g*/stamp.json"), "text_index"),
    "a cut vector file": (cut("vectors/text/g*/vectors.f32"), "vector_index"),
    "a bit in a vector": (flip("vectors/text/g*/vectors.f32"), "vector_index"),
    "lost row names": (lose("vectors/text/g*/rows.jsonl"), "vector_index"),
    "a cut file of picture vectors": (
        cut("vectors/image/g*/vectors.f16"),
        "vector_index",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_damaged_index_is_named_and_made_again(home, name):
    harm, code = FAULTS[name]
    whole = state(home)
    assert told(home) == {}
    harm(home)
    assert set(told(home)) == {code}
    rebuild(home, confirm=True, indexes_only=True)
    assert told(home) == {}
    assert state(home) == whole


LOSSES = {
    "a lost unit": "DELETE FROM units WHERE unit_id LIKE '%topic:%'",
    "lost frames": "DELETE FROM frames",
    "text that someone changed": "UPDATE units SET content = 'no' WHERE family='frame'",
    "a vector cut short": "UPDATE vectors SET vector = x'0000803f'",
    "vectors of zeros": "UPDATE vectors SET vector = zeroblob(length(vector))",
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_the_catalogue_lost_comes_back_from_the_sources(home, name):
    whole = state(home)
    alter(LOSSES[name])(home)
    rebuild(home, confirm=True, models=all_models())
    assert told(home) == {}
    assert state(home) == whole


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (
            "UPDATE schema_meta SET value = '9' WHERE key = 'version'",
            "library_too_new",
        ),
        ("DELETE FROM schema_meta WHERE key = 'version'", "unversioned_schema"),
        (
            "UPDATE schema_meta SET value = 'x' WHERE key = 'library_id'",
            "database_integrity_error",
        ),
    ],
)
def test_a_catalogue_of_another_version_is_left_alone(home, root, statement, code):
    whole = state(home)
    alter(statement)(home)
    before = (home / "catalog.sqlite").read_bytes()
    for work in (
        lambda: sync(home, paths=[str(root)], models=all_models()),
        lambda: rebuild(home, confirm=True, models=all_models()),
        lambda: state(home),
    ):
        with pytest.raises(Vid2ContextError) as caught:
            work()
        assert caught.value.code == code
    assert "schema_version" in told(home)
    assert (home / "catalog.sqlite").read_bytes() == before
    shutil.rmtree(home)
    sync(home, paths=[str(root)], models=all_models())
    assert state(home) == whole


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from library_kit import LightModel, WordModel
from vid2context.core import Vid2ContextError
from vid2context.ingest import Models
from vid2context.sync import sync

limit = int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
models = Models(embedder=WordModel(), encoder=LightModel())
try:
    report = sync(Path(sys.argv[2]), paths=[sys.argv[3]], models=models)
    print("ok", report.status)
except Vid2ContextError as error:
    print("told", error.code, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize("limit", [40_000, 120_000, 250_000])
def test_a_full_disk_loses_nothing(root, home, tmp_path, limit):
    write_package(root, "apples", title="Grafting apples", purpose="Of quinces.")
    for path in home.glob("catalog.sqlite*"):
        assert path.stat().st_size < 10_000_000
    old = state(home)[0]
    command = [sys.executable, "-c", FULL, str(HERE), str(home), str(root), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    word = done.stdout.split()[0]
    assert word in {"ok", "told"} and "Traceback" not in done.stderr
    between = state(home)[0]
    sync(home, models=all_models())
    new = state(home)
    assert between in {old, new[0]}
    fresh = tmp_path / "fresh"
    sync(fresh, paths=[str(root)], models=all_models())
    assert new == state(fresh)
    assert told(home) == {}


def test_the_faults_are_real(home):
    "Each harm changes a file; otherwise its test would prove nothing."
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    for name, (harm, _) in FAULTS.items():
        harm(home)
        now = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
        assert now != files, name
        for path, data in files.items():
            path.write_bytes(data)
    assert json.loads((home / "meta.json").read_text())["library_id"]
