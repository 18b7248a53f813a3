"The catalogue: damage, upgrades, filters against brute force, bare videos."

import json
import random
import shutil
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library_kit import WordModel, make_collection

from vid2context import database
from vid2context.caches import store_vectors
from vid2context.catalog import Catalog
from vid2context.core import Span, Vid2ContextError
from vid2context.database import connect
from vid2context.doctor import doctor, status
from vid2context.indexes import open_indexes
from vid2context.ingest import Models
from vid2context.publish import publish
from vid2context.records import (
    Document,
    Filters,
    FrameRow,
    PackageRow,
    Unit,
    document_id,
    unit_id,
)
from vid2context.selection import where
from vid2context.sync import sync
from vid2context.writing import open_writer


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalog")
    make_collection(folder / "talks", "apples", "pears")
    sync(folder / "library", paths=[str(folder / "talks")], models=Models(WordModel()))
    db = connect(folder / "library")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return folder / "library"


def read_everything(home: Path) -> int:
    with Catalog.open(home) as catalog:
        total = sum(catalog.counts().values())
        for package in catalog.packages():
            total += len(catalog.units_of(package.source, package.video_id))
            total += len(catalog.frames_of(package.source, package.video_id))
        total += len(list(catalog.text_rows())) + len(catalog.vector_rows("text")[0])
        return total + len(catalog.library_digest())


def test_a_damaged_database_is_a_named_error_or_reads_on(library, tmp_path):
    whole = (library / "catalog.sqlite").read_bytes()
    assert read_everything(library)
    chance = random.Random(20260810)
    refused = 0
    for turn in range(60):
        home = tmp_path / str(turn)
        home.mkdir()
        shutil.copy(library / "meta.json", home)
        data = bytearray(whole)
        if turn % 2:
            del data[chance.randrange(len(data)) :]
        for _ in range(8):
            data[chance.randrange(len(data))] = chance.randrange(256) if data else 0
        (home / "catalog.sqlite").write_bytes(data)
        try:
            read_everything(home)
        except Vid2ContextError:
            refused += 1
        checks = doctor(home).checks
        assert len(checks) >= 8
    assert refused > 20


def test_a_crash_in_an_upgrade_leaves_the_old_version(library, tmp_path, monkeypatch):
    home = tmp_path / "library"
    shutil.copytree(library, home)
    before = read_everything(home)
    steps = [*database.STEPS, "CREATE TABLE one (a); CREATE TABLE one (b)"]
    monkeypatch.setattr(database, "STEPS", steps)
    with pytest.raises(Vid2ContextError):
        connect(home)
    monkeypatch.setattr(database, "STEPS", steps[:1])
    assert read_everything(home) == before
    copy = sqlite3.connect(home / "catalog.sqlite.v1.bak")
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()


def test_two_upgrades_at_once_take_each_step_once(library, tmp_path, monkeypatch):
    home = tmp_path / "library"
    shutil.copytree(library, home)
    step = "CREATE TABLE more (a); INSERT INTO more VALUES (1)"
    monkeypatch.setattr(database, "STEPS", [*database.STEPS, step])
    errors = []

    def upgrade() -> None:
        try:
            connect(home).close()
        except Vid2ContextError as error:
            errors.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    db = connect(home)
    assert db.execute("SELECT count(*) FROM more").fetchone()[0] == 1
    assert errors == []
    db.close()


def test_one_catalogue_may_be_read_by_many_threads(library):
    wrong = []
    with Catalog.open(library) as catalog:
        expected = catalog.library_digest()

        def read() -> None:
            for _ in range(20):
                with catalog.snapshot():
                    units = catalog.unit_ids(Filters())
                    if len(catalog.units(units)) != len(units):
                        wrong.append(units)
                if catalog.library_digest() != expected:
                    wrong.append(expected)

        threads = [threading.Thread(target=read) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


TIMES = st.lists(
    st.tuples(st.integers(0, 8), st.none() | st.integers(0, 4)).map(
        lambda t: [t[0] / 2, None if t[1] is None else t[0] / 2 + t[1] / 2]
    ),
    max_size=3,
)


def overlaps(time: list, span: Span) -> bool:
    start, end = time
    if end is None or end == start:
        return span.start_s <= start < span.end_s or start == span.start_s
    return start < max(span.end_s, span.start_s + 1e-9) and end > span.start_s


@settings(max_examples=200, deadline=None)
@given(st.lists(TIMES, max_size=6), st.integers(0, 10), st.integers(0, 6))
def test_a_filter_by_time_equals_brute_force(rows, start, length):
    span = Span(start / 2, (start + length) / 2)
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE units (place, timestamps)")
    db.executemany(
        "INSERT INTO units VALUES (?, ?)",
        [(i, json.dumps(times)) for i, times in enumerate(rows)],
    )
    condition, values = where(Filters(between=span))
    sql = f"SELECT place FROM units WHERE {condition} ORDER BY 1"
    kept = [row[0] for row in db.execute(sql, values)]
    db.close()
    expected = [
        i for i, times in enumerate(rows) if any(overlaps(t, span) for t in times)
    ]
    assert kept == expected


def test_a_video_without_a_package_is_found_by_word_and_by_picture(tmp_path):
    home = tmp_path / "library"
    paper = Document(
        document_id("bare", "clip", "visual"), "bare", "clip", "visual", "", "0" * 64
    )
    row = PackageRow(
        "bare", "clip", "", "A clip", None, None, None, None, None, 9.0, "e", "d"
    )
    root = Unit(
        unit_id=unit_id("bare", "clip", "visual", "root"),
        document_id=paper.document_id,
        parent_id=None,
        source="bare",
        video_id="clip",
        type="visual_document",
        family="frame",
        depth=0,
        ordinal=0,
        title="A clip",
        content="A clip",
        searchable=False,
    )
    units, frames = [root], []
    for place, (second, words) in enumerate(((0.0, "HARBOUR"), (5.0, ""))):
        name = unit_id("bare", "clip", "visual", f"frame:{int(second * 1000):09d}")
        units.append(
            Unit(
                unit_id=name,
                document_id=paper.document_id,
                parent_id=root.unit_id,
                source="bare",
                video_id="clip",
                type="frame",
                family="frame",
                depth=1,
                ordinal=place + 1,
                title="",
                content=words or "Nothing was read.",
                timestamps=((second, None),),
                evidence_class="visual",
                searchable=bool(words),
                ocr=words,
            )
        )
        picture = f"picture-{place}"
        frames.append(
            FrameRow(name, "bare", "clip", "", second, second, None, None, picture)
        )
    vectors = {f"picture-{i}": np.eye(3)[i] for i in range(2)}
    with open_writer(home, create=True) as writer:
        store_vectors(writer, vectors, fingerprint="eye", dtype="f16")
        writer.use_model("image", "eye")
        writer.replace(row, paper, *units, *frames)
        publish(writer)
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        found = indexes.text.search("harbour", family="frame", limit=5)
        assert [unit for unit, _ in found] == [units[1].unit_id]
        best = indexes.vectors["image"].search(np.eye(3, dtype=np.float32)[1], limit=1)
        assert best[0][0] == units[2].unit_id
        assert catalog.unit_ids(Filters()) == sorted(u.unit_id for u in units[1:])
        assert catalog.unit_ids(Filters(sources=("bare",), between=Span(4, 6))) == [
            units[2].unit_id
        ]
        assert catalog.count_without_language(Filters(languages=("en",))) == 1
    told = status(home).counts
    named = ("sources", "packages", "bare_videos", "frames")
    assert [told[name] for name in named] == [0, 0, 1, 2]
    with open_writer(home) as writer:
        assert writer.delete("bare", "clip")
        assert not writer.delete("bare", "clip")
        assert writer.unregister("bare") == 0
    with Catalog.open(home) as catalog:
        assert [source.name for source in catalog.sources()] == ["bare"]
        assert catalog.counts()["frames"] == 0
