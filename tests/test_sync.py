"Sync over whole collections: what changes, what stays, what is told."

import json
import shutil
from itertools import permutations
from pathlib import Path

import pytest
from library_kit import (
    SENTENCES,
    LightModel,
    WordModel,
    make_collection,
    tree_digest,
    write_manifest,
    write_package,
)

from vid2context.catalog import Catalog
from vid2context.core import UsageError, Vid2ContextError
from vid2context.indexes import open_indexes
from vid2context.ingest import Models
from vid2context.inventory import find_source
from vid2context.kinds import TextLine
from vid2context.options import Settings, Sync
from vid2context.rebuild import rebuild
from vid2context.records import Filters
from vid2context.sync import add_source, remove_source, sync
from vid2context.writing import Counts


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "talks"
    make_collection(root, "apples", "pears")
    return root


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "library"


def page(root: Path, slug: str) -> Path:
    return root / "videos" / slug / "deliverables" / "context.md"


def search(home: Path, query: str, family: str = "dossier") -> set[str]:
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        hits = indexes.text.search(query, family=family, limit=50)
        units = catalog.units(unit for unit, _ in hits)
        return {unit.video_id for unit in units.values()}


def rows(home: Path, sql: str) -> list[tuple]:
    with Catalog.open(home) as catalog:
        return [tuple(row) for row in catalog.rows(sql)]


def test_root_and_videos_folder_are_one_source(root, home):
    first = sync(home, paths=[str(root)])
    second = sync(home, paths=[str(root / "videos")])
    assert [r.source_name for r in first.results + second.results] == ["talks"] * 2
    assert second.status == "no_changes"


def test_no_byte_and_no_time_of_a_source_changes(root, home):
    before = tree_digest(root)
    models = Models(embedder=WordModel(), encoder=LightModel())
    sync(home, paths=[str(root)], models=models)
    search(home, "knife")
    rebuild(home, confirm=True, models=models)
    assert tree_digest(root) == before


def test_a_read_only_collection_syncs(root, home):
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert sync(home, paths=[str(root)]).status == "ok"
    finally:
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_second_sync_embeds_nothing_and_writes_no_unit(root, home):
    models = Models(embedder=WordModel(), encoder=LightModel())
    sync(home, paths=[str(root)], models=models)
    units = rows(home, "SELECT rowid, unit_id FROM units")
    texts, images = models.embedder.texts, models.encoder.images
    again = sync(home, models=models)
    assert (again.status, again.published) == ("no_changes", ())
    assert again.results[0].counters == Counts(2, 2, 0, 0, 0)
    canaries = (3, 3)
    assert models.embedder.texts - texts == canaries[0]
    assert models.encoder.images - images == canaries[1]
    assert rows(home, "SELECT rowid, unit_id FROM units") == units


def test_an_edit_reindexes_one_package_and_keeps_its_ids(root, home):
    model = WordModel()
    sync(home, paths=[str(root)], models=Models(embedder=model))
    ids = rows(home, "SELECT unit_id FROM units ORDER BY 1")
    others = rows(home, "SELECT rowid FROM units WHERE video_id = 'id-pears'")
    text = page(root, "apples").read_text()
    page(root, "apples").write_text(text.replace("apples trees", "quince trees"))
    before = model.texts
    report = sync(home, models=Models(embedder=model))
    assert report.results[0].counters == Counts(2, 1, 1, 0, 0)
    assert model.texts - before == 3 + 1  # Canaries, and the one text that is new
    assert rows(home, "SELECT unit_id FROM units ORDER BY 1") == ids
    sql = "SELECT rowid FROM units WHERE video_id = 'id-pears'"
    assert rows(home, sql) == others
    assert search(home, "quince") == {"id-apples"}


def test_a_renamed_heading_makes_another_unit(root, home):
    sync(home, paths=[str(root)])
    ids = {row[0] for row in rows(home, "SELECT unit_id FROM units")}
    text = page(root, "apples").read_text()
    page(root, "apples").write_text(text.replace("## The knife", "## The blade"))
    sync(home)
    now = {row[0] for row in rows(home, "SELECT unit_id FROM units")}
    assert (len(now - ids), len(ids - now)) == (1, 1)


def test_a_broken_package_keeps_its_last_version(root, home):
    sync(home, paths=[str(root)])
    before = rows(home, "SELECT * FROM units")
    page(root, "apples").write_bytes(b"\xff\xfe")
    report = sync(home)
    (issue,) = report.results[0].issues
    assert (report.status, issue.code) == ("partial", "document_utf8_invalid")
    assert (issue.video_id, issue.entry) == ("id-apples", 0)
    assert issue.file == "deliverables/context.md"
    assert rows(home, "SELECT * FROM units") == before
    assert search(home, "apples") == {"id-apples"}


@pytest.mark.parametrize(
    ("name", "data", "code", "field"),
    [
        ("deliverables/context.md", b"---\na: [1\n", "context_invalid", None),
        ("deliverables/analysis.json", b"[]", "analysis_schema_invalid", None),
        (
            "deliverables/analysis.json",
            b'{"a": 1, "a": 2}',
            "document_json_invalid",
            None,
        ),
        ("source/metadata.json", b'{"id": "x"}', "metadata_video_id_mismatch", "id"),
        ("evidence/ledger.jsonl", b"{}\n", "ledger_invalid", None),
        ("transcript/segments.jsonl", b'{"i": 0}\n', "document_json_invalid", None),
        ("visual/coverage.json", b"{}", "coverage_schema_invalid", None),
    ],
)
def test_each_defect_is_told_with_its_file(root, home, name, data, code, field):
    path = root / "videos" / "apples" / name
    path.write_bytes(data)
    (issue,) = sync(home, paths=[str(root)]).results[0].issues
    assert (issue.code, issue.file) == (code, name)
    assert field is None or issue.field == field
    assert rows(home, "SELECT video_id FROM packages") == [("id-pears",)]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        (
            lambda a: a["topics"].append(a["topics"][0]),
            "duplicate_topic_id",
            "topics[1].id",
        ),
        (
            lambda a: a["recommendations"].append(a["recommendations"][0]),
            "duplicate_recommendation_id",
            "recommendations[1].id",
        ),
        (
            lambda a: a["topics"][0].update(evidence_class="sure"),
            "analysis_schema_invalid",
            "topics[0].evidence_class",
        ),
        (
            lambda a: a["source"].update(video_id="else"),
            "analysis_video_id_mismatch",
            "source.video_id",
        ),
    ],
)
def test_a_defect_of_the_analysis_is_told_with_its_field(
    root, home, change, code, field
):
    path = root / "videos" / "apples" / "deliverables" / "analysis.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))
    (issue,) = sync(home, paths=[str(root)]).results[0].issues
    assert (issue.code, issue.field) == (code, field)


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"videos": {}}', b'{"schema_version": "2"}']
)
def test_an_unusable_manifest_deletes_nothing(root, home, data):
    sync(home, paths=[str(root)])
    before = rows(home, "SELECT * FROM units")
    (root / "manifest.json").write_bytes(data)
    report = sync(home)
    assert report.status == "failed"
    assert report.results[0].issues[0].code.startswith("manifest_")
    assert rows(home, "SELECT * FROM units") == before


def test_a_vanished_collection_deletes_nothing(root, home):
    sync(home, paths=[str(root)])
    root.rename(root.with_name("away"))
    report = sync(home)
    assert report.status == "failed"
    assert report.results[0].issues[0].code == "manifest_read_failed"
    assert len(rows(home, "SELECT * FROM packages")) == 2


def test_a_dropped_entry_deletes_just_that_package(root, home):
    entries = json.loads((root / "manifest.json").read_text())["videos"]
    sync(home, paths=[str(root)], models=Models(embedder=WordModel()))
    write_manifest(root, entries[1])
    report = sync(home, models=Models(embedder=WordModel()))
    assert report.results[0].counters == Counts(1, 1, 0, 0, 1)
    assert search(home, "knife") == {"id-pears"}
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        videos = {unit.split(":")[2] for unit in indexes.vectors["text"].units}
    assert videos == {"id-pears"}


@pytest.mark.parametrize(
    "bad",
    [
        {"video_id": "id-apples"},
        {"slug": "apples", "video_id": 7},
        {"video_id": "id-apples", "slug": "pears", "resources": {}},
        None,
    ],
)
def test_an_entry_that_turns_invalid_keeps_its_package(root, home, bad):
    entries = json.loads((root / "manifest.json").read_text())["videos"]
    sync(home, paths=[str(root)])
    write_manifest(root, entries[1], bad)
    assert sync(home).status == "partial"
    packages = rows(home, "SELECT video_id FROM packages ORDER BY 1")
    assert packages == [("id-apples",), ("id-pears",)]


def test_each_bad_entry_is_located_and_the_good_one_syncs(root, home):
    good = json.loads((root / "manifest.json").read_text())["videos"][0]
    flags = good["resources"]
    bad = [
        good | {"slug": "again"},
        good | {"video_id": "id-other"},
        good | {"video_id": "id-a", "slug": "a", "resources": flags | {"context": 1}},
        good | {"video_id": "../b", "slug": "b"},
        good | {"video_id": "id-c", "slug": "c", "resources": flags | {"rules": True}},
    ]
    write_manifest(root, good, *bad)
    (result,) = sync(home, paths=[str(root)]).results
    assert (result.status, result.counters.indexed) == ("partial", 1)
    told = [(i.code, i.entry, i.field) for i in result.issues]
    assert told == [
        ("manifest_entry_duplicate", 1, "video_id"),
        ("manifest_entry_duplicate", 2, "slug"),
        ("manifest_entry_schema_invalid", 3, "resources.context"),
        ("manifest_entry_schema_invalid", 4, "video_id"),
        ("manifest_entry_schema_invalid", 5, "resources.rules"),
    ]


def test_packages_indexed_in_any_order_make_one_library(tmp_path):
    found = set()
    for number, order in enumerate(permutations(["apples", "pears", "plums"])):
        home, root = tmp_path / f"library-{number}", tmp_path / str(number) / "talks"
        entries = {
            e["slug"]: e for e in make_collection(root, "apples", "pears", "plums")
        }
        models = Models(embedder=WordModel(), encoder=LightModel())
        for count in range(1, 4):
            write_manifest(root, *(entries[slug] for slug in order[:count]))
            sync(home, paths=[str(root)], models=models)
        with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
            hits = tuple(indexes.text.search("knife wax", family="dossier", limit=9))
            ids = tuple(indexes.vectors["text"].ids)
            found.add(
                (catalog.library_digest(), hits, ids, indexes.backgrounds["text"])
            )
    assert len(found) == 1


def test_the_digest_forgets_what_was_there_before(root, home, tmp_path):
    sync(home, paths=[str(root)])
    with Catalog.open(home) as catalog:
        first = catalog.library_digest()
    text = page(root, "apples").read_text()
    page(root, "apples").write_text(text + "\nMore.\n")
    sync(home)
    page(root, "apples").write_text(text)
    sync(home)
    with Catalog.open(home) as catalog:
        assert catalog.library_digest() == first
        assert catalog.generation > 2


def test_without_a_model_words_are_found_and_with_one_meanings_too(root, home):
    sync(home, paths=[str(root)])
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        assert (set(indexes.vectors), indexes.warnings) == (set(), [])
    sync(home, models=Models(embedder=WordModel(), encoder=LightModel()))
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        assert set(indexes.vectors) == {"text", "image"}
        assert len(indexes.vectors["image"]) == 4
        assert len(indexes.vectors["text"]) == len(catalog.row_units("text"))


def test_another_model_makes_all_vectors_anew_and_old_ones_are_stale(root, home):
    old, new = WordModel(), WordModel(version="2", salt="other")
    sync(home, paths=[str(root)], models=Models(embedder=old))
    wanted = {"text": new.descriptor.fingerprint}
    with Catalog.open(home) as catalog, open_indexes(catalog, models=wanted) as indexes:
        assert [w.code for w in indexes.warnings] == ["vectors_stale"]
        assert (indexes.vectors, indexes.text is not None) == ({}, True)
    report = sync(home, models=Models(embedder=new))
    assert report.results[0].counters.indexed == 2
    with Catalog.open(home) as catalog, open_indexes(catalog, models=wanted) as indexes:
        assert (indexes.warnings, indexes.vectors["text"].identity) == (
            [],
            wanted["text"],
        )


def test_a_model_that_drifted_under_its_name_embeds_anew(root, home):
    sync(home, paths=[str(root)], models=Models(embedder=WordModel()))
    with Catalog.open(home) as catalog:
        _, _, before = catalog.vector_rows("text")
    drifted = WordModel(salt="drift")
    sync(home, models=Models(embedder=drifted))
    with Catalog.open(home) as catalog:
        ids, _, after = catalog.vector_rows("text")
        assert len(ids) == len(catalog.row_units("text"))
    assert abs(before - after).max() > 0.1


def test_longer_windows_reindex_and_ids_say_where_they_start(root, home):
    sync(home, paths=[str(root)])
    count = "SELECT count(*) FROM units WHERE type = 'transcript_window'"
    assert rows(home, count) == [(6,)]
    report = sync(home, settings=Settings(sync=Sync(window_s=60.0)))
    assert report.results[0].counters.indexed == 2
    assert rows(home, count) == [(4,)]


def test_a_long_unit_is_cut_into_fragments_that_fit(root, home):
    model = WordModel()
    long = " ".join(f"Sentence {i} about the stock." for i in range(80))
    write_package(root, "apples", purpose=long)
    sync(home, paths=[str(root)], models=Models(embedder=model))
    with Catalog.open(home) as catalog:
        unit = next(
            u for u in catalog.units_of("talks", "id-apples") if u.title == "Purpose"
        )
        fragments = catalog.fragments(unit.unit_id)
        texts = [unit.content[f.start : f.stop] for f in fragments]
    assert len(texts) > 5
    assert all(model.count_tokens(text, "passage") <= 48 for text in texts)
    assert " ".join(texts).split() == long.split()


def test_every_unit_has_its_evidence(root, home):
    sync(home, paths=[str(root)])
    with Catalog.open(home) as catalog:
        units = catalog.units_of("talks", "id-apples")
        by_type = {unit.type: unit for unit in units}
        documents = {d.document_id: d for d in catalog.documents("talks", "id-apples")}
    topic, note = by_type["analysis_topic"], by_type["analysis_note"]
    assert (topic.evidence_class, topic.confidence) == ("direct", "high")
    assert topic.timestamps == ((0.0, 15.0),)
    assert topic.frames == ("visual/frames/frame-05pct.png",)
    assert topic.structured["ledger_ids"] == ["L0002"]
    assert note.evidence_class == "analyst_judgment"
    assert by_type["analysis_recommendation"].confidence == "medium"
    window = next(u for u in units if u.type == "transcript_window")
    assert (window.evidence_class, window.structured["ledger_ids"]) == (
        "direct",
        ["L0002"],
    )
    read = next(u for u in units if u.type == "frame" and u.searchable)
    assert (read.ocr, read.evidence_class) == ("GRAFTING KNIFE", "visual")
    assert {unit.document_id for unit in units} <= documents.keys()
    assert all(len(document.sha256) == 64 for document in documents.values())


def test_source_txt_stands_in_for_segments(root, home):
    (root / "videos" / "apples" / "transcript" / "segments.jsonl").unlink()
    (root / "videos" / "apples" / "evidence" / "ledger.jsonl").unlink()
    text = "# title: x\n\n[00:00:00-00:00:31] Good morning.\n[00:00:31-00:00:50] Cut.\n"
    (root / "videos" / "apples" / "transcript" / "source.txt").write_text(text)
    assert sync(home, paths=[str(root)]).status == "ok"
    sql = """SELECT content FROM units WHERE video_id = 'id-apples'
        AND type = 'transcript_window' ORDER BY ordinal"""
    assert rows(home, sql) == [("Good morning.",), ("Cut.",)]


def test_crlf_and_bom_change_nothing_that_is_said(root, home):
    sync(home, paths=[str(root)])
    before = rows(home, "SELECT unit_id, content FROM units ORDER BY 1")
    for name in ("context.md", "analysis.json"):
        path = page(root, "apples").with_name(name)
        data = path.read_bytes().replace(b"\n", b"\r\n")
        path.write_bytes(b"\xef\xbb\xbf" + data)
    assert sync(home).results[0].counters.indexed == 1
    assert rows(home, "SELECT unit_id, content FROM units ORDER BY 1") == before


@pytest.mark.parametrize(
    "name", ["deliverables/context.md", "visual/frames/frame-05pct.png"]
)
def test_a_link_out_of_the_package_costs_the_package(root, home, tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text("# Purpose\n\nA secret.\n")
    path = root / "videos" / "apples" / name
    path.unlink()
    path.symlink_to(secret)
    (issue,) = sync(home, paths=[str(root)]).results[0].issues
    assert issue.code == "package_path_invalid"
    assert search(home, "secret") == set()


def test_a_frame_that_is_no_picture_costs_the_package_only_with_an_encoder(root, home):
    (root / "videos" / "apples" / "visual" / "frames" / "frame-50pct.png").write_bytes(
        b"x"
    )
    assert sync(home, paths=[str(root)]).status == "ok"
    report = sync(home, models=Models(encoder=LightModel()))
    assert [issue.code for issue in report.results[0].issues] == ["frame_undecodable"]


def test_frames_that_nobody_read_are_read_by_the_library_once(root, home):
    class Reader:
        name, requires_gpu = "reader", False
        descriptor = WordModel(version="r").descriptor
        calls = 0

        def read(self, image, language="en"):
            self.calls += 1
            box = ((0, 0), (9, 0), (9, 9), (0, 9))
            return [TextLine(text="RAFFIA", box=box, confidence=0.9)]

    (root / "videos" / "apples" / "evidence" / "ledger.jsonl").unlink()
    reader = Reader()
    models = Models(reader=reader)
    sync(home, paths=[str(root)], models=models)
    assert search(home, "raffia", family="frame") == {"id-apples"}
    calls = reader.calls
    rebuild(home, confirm=True, models=models)
    assert reader.calls == calls > 0


def test_rebuild_mends_damage_keeps_history_and_leaves_no_phantom(root, home):
    models = Models(embedder=WordModel(), encoder=LightModel())
    sync(home, paths=[str(root)], models=models)
    with Catalog.open(home) as catalog:
        digest = catalog.library_digest()
        runs = len(catalog.runs(50))
    for victim in [*home.glob("text/g*/*"), *home.glob("vectors/*/g*/*")]:
        if victim.is_file():
            victim.write_bytes(b"broken")
    shutil.rmtree(root / "videos" / "pears")
    entries = json.loads((root / "manifest.json").read_text())["videos"]
    write_manifest(root, entries[0])
    texts = models.embedder.texts
    rebuild(home, confirm=True, models=models)
    assert models.embedder.texts - texts == 3
    assert search(home, "knife") == {"id-apples"}
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        assert indexes.warnings == []
        assert len(catalog.runs(50)) == runs + 1
        assert {u.split(":")[2] for u in indexes.vectors["image"].units} == {
            "id-apples"
        }
        sql = "SELECT count(*) FROM vectors WHERE instr(fingerprint, ':') = 0"
        keys = {f for f in catalog.row_units("text")} | {
            u for u in catalog.row_units("image")
        }
        assert catalog.rows(sql)[0][0] <= len(keys)
        assert catalog.library_digest() != digest


def test_a_damaged_index_is_rebuilt_by_whoever_opens_it(root, home):
    sync(home, paths=[str(root)], models=Models(embedder=WordModel()))
    for victim in home.glob("vectors/text/g*/vectors.f32"):
        victim.write_bytes(victim.read_bytes()[:-4])
    with Catalog.open(home) as catalog, open_indexes(catalog) as indexes:
        assert (indexes.warnings, set(indexes.vectors)) == ([], {"text"})


def test_an_index_of_another_library_is_never_searched(root, home, tmp_path):
    sync(home, paths=[str(root)])
    other = tmp_path / "other"
    make_collection(tmp_path / "else", "cherries", "plums")
    sync(other, paths=[str(tmp_path / "else")])
    shutil.rmtree(home / "text")
    shutil.copytree(other / "text", home / "text")
    assert search(home, "cherries") == set()
    assert search(home, "apples") == {"id-apples"}


def test_unknown_names_and_paths_make_no_library(home, tmp_path):
    with pytest.raises(UsageError) as caught:
        sync(home, paths=[str(tmp_path / "nothing")])
    assert caught.value.code == "source_path_not_found"
    with pytest.raises(Vid2ContextError) as missing:
        sync(home)
    assert missing.value.code == "library_not_found"
    assert not home.exists()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("bare", "reserved_source"),
        ("a b", "invalid_identifier"),
        ("talks", "duplicate_source"),
    ],
)
def test_names_that_no_new_source_may_have(root, home, tmp_path, name, code):
    sync(home, paths=[str(root)])
    make_collection(tmp_path / "more", "plums")
    with pytest.raises(UsageError) as caught:
        add_source(home, str(tmp_path / "more"), name=name)
    assert caught.value.code == code


def test_a_folder_is_registered_once(root, home):
    sync(home, paths=[str(root)])
    with pytest.raises(UsageError) as caught:
        add_source(home, str(root / "videos"), name="twice")
    assert caught.value.code == "duplicate_source"


def test_removing_a_source_removes_its_units_and_keeps_its_runs(root, home):
    sync(home, paths=[str(root)])
    assert remove_source(home, "talks") == 2
    assert search(home, "knife") == set()
    with Catalog.open(home) as catalog:
        assert [run["source"] for run in catalog.runs()] == ["talks"]
        assert catalog.unit_ids(Filters()) == []
    with pytest.raises(UsageError):
        remove_source(home, "talks")


def test_paths_that_coincide_are_no_collection(tmp_path):
    root = tmp_path / "loop"
    root.mkdir()
    (root / "manifest.json").write_text("{}")
    (root / "videos").symlink_to(root)
    with pytest.raises(UsageError) as caught:
        find_source(str(root), name="loop")
    assert caught.value.code in ("invalid_source_layout", "ambiguous_source_layout")


def test_hostile_texts_are_stored_as_they_are(root, home):
    hostile = "[S99] ### [S01] '; DROP TABLE units; -- ``` \u202e \U0001f600"
    write_package(root, "apples", purpose=hostile, title=hostile)
    assert sync(home, paths=[str(root)]).status == "ok"
    with Catalog.open(home) as catalog:
        contents = [u.content for u in catalog.units_of("talks", "id-apples")]
    assert hostile in contents
    assert any(SENTENCES[0] in text for text in contents)
