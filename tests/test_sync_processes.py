"Sync among processes: killed at every step, run twice at once, taken over by force."

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from library_kit import (
    LightModel,
    WordModel,
    make_collection,
    write_manifest,
    write_package,
)

from vid2context.catalog import Catalog
from vid2context.core import Vid2ContextError
from vid2context.database import connect
from vid2context.doctor import doctor
from vid2context.indexes import open_indexes
from vid2context.ingest import Models
from vid2context.sync import sync
from vid2context.writing import open_writer

HERE = Path(__file__).parent

# A sync that kills itself before or after the nth call of a function.
VICTIM = """
import importlib, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from library_kit import LightModel, WordModel
from vid2context.ingest import Models
from vid2context.sync import sync

home, root, owner, name, when, nth = sys.argv[2:]
module, _, cls = owner.partition(":")
place = importlib.import_module(f"vid2context.{module}")
place = getattr(place, cls) if cls else place
real, calls = getattr(place, name), 0

def deadly(*args, **kwargs):
    global calls
    calls += 1
    if calls == int(nth) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args, **kwargs)
    if calls == int(nth) and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(place, name, deadly)
models = Models(embedder=WordModel(), encoder=LightModel())
sync(Path(home), paths=[root], models=models)
"""

STEPS = [
    ("sync", "start_run", "after", 1),
    ("fragments", "store_vectors", "after", 2),
    ("ingest", "store_vectors", "after", 1),
    ("writing", "_delete", "after", 1),
    ("writing:Writer", "replace", "before", 1),
    ("writing:Writer", "replace", "after", 1),
    ("writing:Writer", "delete", "after", 1),
    ("sync", "finish_run", "before", 1),
    ("sync", "publish", "before", 1),
    ("publish", "write_atomic", "before", 1),
    ("publish", "_publish_one", "after", 1),
    ("publish", "_clean", "before", 1),
    ("publish", "_publish_one", "after", 2),
    ("publish", "_sync_disk", "before", 5),
]


def all_models() -> Models:
    return Models(embedder=WordModel(), encoder=LightModel())


def found(home: Path, query: str) -> set[str]:
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        hits = indexes.text.search(query, family="dossier", limit=50)
        live = [unit for unit, _ in hits if unit not in indexes.stale]
        return {unit.video_id for unit in catalog.units(live).values()}


def change(root: Path) -> None:
    "Edit one package, drop another, add a third."
    write_package(root, "apples", title="Grafting apples", purpose="Of quinces.")
    entries = json.loads((root / "manifest.json").read_text())["videos"]
    plums = write_package(root, "plums", title="Grafting plums", purpose="Of plums.")
    write_manifest(root, entries[0], plums)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> str:
    "The digest of a library that saw no crash."
    folder = tmp_path_factory.mktemp("calm")
    make_collection(folder / "talks", "apples", "pears")
    change(folder / "talks")
    sync(folder / "library", paths=[str(folder / "talks")], models=all_models())
    with Catalog.open(folder / "library") as catalog:
        return catalog.library_digest()


@pytest.mark.parametrize("step", STEPS, ids=lambda s: f"{s[2]}-{s[1]}-{s[3]}")
def test_a_kill_at_any_step_loses_nothing(tmp_path, step, after):
    root, home = tmp_path / "talks", tmp_path / "library"
    make_collection(root, "apples", "pears")
    sync(home, paths=[str(root)], models=all_models())
    with Catalog.open(home) as catalog:
        before = {unit.unit_id for unit in catalog.units_of("talks", "id-pears")}
    change(root)
    owner, name, when, nth = step
    command = [sys.executable, "-c", VICTIM, str(HERE), str(home), str(root)]
    victim = subprocess.run(
        [*command, owner, name, when, str(nth)], capture_output=True, text=True
    )
    assert victim.returncode == -signal.SIGKILL, victim.stderr
    apples = found(home, "apples quinces")
    assert apples >= {"id-apples"}  # The old text or the new, never neither
    with Catalog.open(home) as catalog:
        pears = {unit.unit_id for unit in catalog.units_of("talks", "id-pears")}
        assert pears in (before, set())
        vectors = len(catalog.row_units("text")), len(catalog.vector_rows("text")[0])
        assert vectors[0] == vectors[1]
    model = WordModel()
    report = sync(home, models=Models(embedder=model, encoder=LightModel()))
    assert report.status in ("ok", "no_changes")
    assert found(home, "quinces") == {"id-apples"}
    assert found(home, "plums") == {"id-plums"}
    with Catalog.open(home) as catalog:
        assert catalog.library_digest() == after
        states = {run["status"] for run in catalog.runs()}
        assert "running" not in states
    assert doctor(home).healthy
    hidden = [p for p in home.rglob(".*") if p.parent.name in ("text", "image")]
    assert hidden == []


def test_vectors_computed_before_a_kill_are_not_computed_again(tmp_path):
    root, home = tmp_path / "talks", tmp_path / "library"
    make_collection(root, "apples")
    command = [sys.executable, "-c", VICTIM, str(HERE), str(home), str(root)]
    subprocess.run([*command, "writing:Writer", "replace", "before", "1"], check=False)
    model = WordModel()
    sync(home, paths=[str(root)], models=Models(embedder=model, encoder=LightModel()))
    assert model.texts == 3 + 64  # Canaries and everyday queries, no text of a package


HOLDER = """
import sys, time
from pathlib import Path
from vid2context.writing import open_writer, start_run
with open_writer(Path(sys.argv[1]), create=True) as writer:
    start_run(writer, "talks")
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(home: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(home), str(seconds)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout and holder.stdout.readline() == "held\n"
    return holder


@pytest.fixture
def library(tmp_path: Path) -> tuple[Path, Path]:
    root, home = tmp_path / "talks", tmp_path / "library"
    make_collection(root, "apples")
    sync(home, paths=[str(root)])
    return root, home


def test_the_second_of_two_syncs_is_refused_and_may_wait(library):
    root, home = library
    holder = hold(home, 2.5)
    try:
        with pytest.raises(Vid2ContextError) as caught:
            sync(home)
        assert (caught.value.code, caught.value.retryable) == (
            "sync_already_running",
            True,
        )
        with pytest.raises(Vid2ContextError):
            sync(home, lock_timeout_s=0.2)
        assert found(home, "apples") == {"id-apples"}
        write_package(root, "apples", title="Grafting apples", purpose="Of quinces.")
        report = sync(home, lock_timeout_s=30.0)
        assert report.results[0].counters.indexed == 1
        assert found(home, "quinces") == {"id-apples"}
    finally:
        holder.wait()


def test_a_refused_sync_leaves_no_transaction_open(library):
    _, home = library
    with open_writer(home):
        with pytest.raises(Vid2ContextError):
            sync(home)
        other = connect(home)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()


def test_a_killed_writer_blocks_nobody(library):
    root, home = library
    holder = hold(home, 60)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (home / "writer.lock").exists()
    write_package(root, "apples", title="Grafting apples", purpose="Of quinces.")
    assert sync(home).status == "ok"
    with Catalog.open(home) as catalog:
        sql = "SELECT code FROM sync_issues"
        assert [row[0] for row in catalog.rows(sql)] == ["run_superseded"]


def test_force_takes_over_from_a_silent_writer_only(library):
    _, home = library
    holder = hold(home, 60)
    try:
        with pytest.raises(Vid2ContextError):
            sync(home, force=True)
        holder.send_signal(signal.SIGSTOP)
        db = connect(home)
        db.execute("UPDATE library_state SET heartbeat_s = heartbeat_s - 121")
        assert [c.status for c in doctor(home).checks if c.code == "stale_run"] == [
            "error"
        ]
        assert sync(home, force=True).status == "no_changes"
        rows = db.execute("SELECT status FROM sync_runs ORDER BY run_id").fetchall()
        assert [row[0] for row in rows] == ["ok", "failed", "no_changes"]
        codes = db.execute("SELECT code FROM sync_issues").fetchall()
        assert [row[0] for row in codes] == ["run_superseded"]
        db.close()
    finally:
        holder.kill()
        holder.wait()


def test_of_two_forced_takeovers_one_wins(library):
    _, home = library
    holder = hold(home, 60)
    holder.send_signal(signal.SIGSTOP)
    db = connect(home)
    db.execute("UPDATE library_state SET heartbeat_s = heartbeat_s - 500")
    db.close()
    code = """
import sys, time
from pathlib import Path
from vid2context.core import Vid2ContextError
from vid2context.writing import open_writer
try:
    with open_writer(Path(sys.argv[1]), force=True):
        time.sleep(2)
    print("won")
except Vid2ContextError as error:
    print(error.code)
"""
    try:
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(home)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        words = sorted(run.communicate()[0].strip() for run in runs)
    finally:
        holder.kill()
        holder.wait()
    assert words == ["sync_already_running"] * 2 + ["won"]


def test_two_processes_that_create_a_library_agree_on_its_name(tmp_path):
    code = """
import sys
from pathlib import Path
from vid2context.catalog import Catalog
with Catalog.open(Path(sys.argv[1]), create=True) as catalog:
    print(catalog.library_id)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "library")]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    names = {run.communicate()[0].strip() for run in runs}
    assert len(names) == 1 and names != {""}


def test_readers_see_a_whole_package_while_it_is_replaced(library):
    root, home = library
    code = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from library_kit import write_package
from vid2context.sync import sync
home, root = Path(sys.argv[1]), Path(sys.argv[2])
for i in range(6):
    write_package(root, "apples", title="Grafting apples", purpose=f"Turn {i % 2}.")
    sync(home)
"""
    command = [sys.executable, "-c", code, str(home), str(root), str(HERE)]
    writer = subprocess.Popen(command)
    counts = set()
    while writer.poll() is None:
        with Catalog.open(home) as catalog, catalog.snapshot():
            units = catalog.units_of("talks", "id-apples")
            counts.add((len(units), len(list(catalog.text_rows()))))
        assert found(home, "knife") in ({"id-apples"}, set())
        time.sleep(0.02)
    assert writer.returncode == 0
    assert len(counts) == 1
    assert found(home, "knife") == {"id-apples"}


def test_what_was_indexed_is_found_at_once_and_what_was_removed_is_not(tmp_path):
    root, home = tmp_path / "talks", tmp_path / "library"
    lamps = ["gamma lamp", "delta lamp"]
    entry = write_package(root, "a", speech=lamps, frames=())
    write_manifest(root, entry)
    sync(home, paths=[str(root)], models=all_models())

    def hits(query: str) -> int:
        with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
            return len(indexes.text.search(query, family="transcript", limit=50))

    assert hits("gamma") == hits("lamp") > 0
    assert sync(home, models=all_models()).status == "no_changes"
    write_package(root, "a", speech=["gamma torch"], frames=())
    sync(home, models=all_models())
    assert (hits("lamp"), hits("torch") > 0) == (0, True)
    other = write_package(root, "b", speech=["epsilon lamp"], frames=())
    write_manifest(root, entry, other)
    command = [sys.executable, "-c", VICTIM, str(HERE), str(home), str(root)]
    subprocess.run([*command, "writing", "_delete", "before", "1"], check=False)
    assert (hits("epsilon"), hits("torch") > 0) == (0, True)
    write_manifest(root)
    sync(home, models=all_models())
    assert hits("torch") == 0
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        assert len(indexes.vectors["text"]) == len(indexes.text) == 0


def test_a_lock_is_not_inherited_by_child_processes(library):
    _, home = library
    with open_writer(home):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])
    try:
        with open_writer(home) as writer:
            assert writer.is_current()
    finally:
        child.kill()
        child.wait()


def test_the_lock_file_is_ours_alone(library):
    _, home = library
    assert (home / "writer.lock").stat().st_mode & 0o777 == 0o644 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
