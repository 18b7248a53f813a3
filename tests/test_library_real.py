"From clips on disk to a cited bundle, with the real embedder and the real reader."

import json
import time
from pathlib import Path

import pytest

from vid2context.captioning import RapidReader, read_frames
from vid2context.catalog import Catalog
from vid2context.collection import install_package
from vid2context.context import publish_bundle, read_bundle, retrieve
from vid2context.doctor import doctor
from vid2context.embedding import E5Embedder
from vid2context.extraction import extract_frames
from vid2context.indexes import open_indexes
from vid2context.ingest import Models
from vid2context.integrity import check_bundle, check_sources
from vid2context.options import Settings
from vid2context.package import manifest_entry, write_package
from vid2context.retrieval import Retriever
from vid2context.sources import acquire
from vid2context.sync import sync
from vid2context.transcript import transcript_of

SETTINGS = Settings()  # Guarded: OpenCV of the reader must not meet our decoder
CLIPS = ("lecture-fusion", "lecture-pan")


def pack(clip: Path, root: Path, reader: RapidReader) -> str:
    stage = root / ".staging" / clip.stem
    stage.mkdir(parents=True)
    source = acquire(clip, stage / "source", settings=SETTINGS)
    frames = extract_frames(
        source.video, stage / "visual", profile="auto", settings=SETTINGS
    )
    transcript = transcript_of(
        source.captions, duration_s=frames.info.duration_s, settings=SETTINGS.transcript
    )
    shown = [f.file for f in frames.frames if not (f.black or f.duplicate_of)]
    paths = [stage / "visual" / "frames" / name for name in shown[::4]]
    readings = read_frames(paths, reader=reader, captioner=None)
    write_package(
        stage,
        source=source,
        transcript=transcript,
        frames=frames,
        readings=readings,
        settings=SETTINGS,
    )
    install_package(root, manifest_entry(stage, slug=clip.stem))
    return source.video_id


@pytest.fixture(scope="module")
def library(tmp_path_factory, clips):
    folder = tmp_path_factory.mktemp("real")
    reader = RapidReader()
    ids = {
        name: pack(clips / f"{name}.mp4", folder / "talks", reader) for name in CLIPS
    }
    embedder = E5Embedder()
    report = sync(
        folder / "library",
        paths=[str(folder / "talks")],
        models=Models(embedder),
        settings=SETTINGS,
    )
    assert (report.status, report.published) == ("ok", ("lexical", "text"))
    return folder / "library", ids, embedder


def ask(library, query: str, **options):
    home, _, embedder = library
    models = {"text": embedder.descriptor.fingerprint}
    with Catalog.open(home) as catalog, open_indexes(catalog, models=models) as indexes:
        retriever = Retriever(catalog, indexes, embedder=embedder)
        bundle, _ = retrieve(retriever, query, settings=SETTINGS, **options)
        assert check_sources(bundle, catalog) == []
        return bundle


def test_what_the_package_writer_writes_is_read_whole(library):
    home, ids, _ = library
    with Catalog.open(home) as catalog:
        for name, video_id in ids.items():
            row = catalog.package("talks", video_id)
            units = catalog.units_of("talks", video_id)
            types = {unit.type for unit in units}
            assert row.slug == name and row.duration_s and row.title
            assert row.details["stage"] == "automatic_draft"
            assert types >= {
                "context_section",
                "analysis_topic",
                "transcript_window",
                "frame",
            }
            topics = [unit for unit in units if unit.type == "analysis_topic"]
            assert all(topic.structured["ledger_ids"] for topic in topics)
            read = [u for u in units if u.type == "frame" and u.searchable]
            assert read and all(unit.ocr for unit in read)
            frames = catalog.frames_of("talks", video_id)
            assert len(frames) >= 20
        assert catalog.package("talks", ids["lecture-pan"]).source_language == "es"


def test_golden_questions_find_their_video(library, root):
    ids = library[1]
    lines = (root / "data" / "golden" / "samples.jsonl").read_text().splitlines()
    golden = [json.loads(line) for line in lines]
    asked = found = 0
    for one in golden:
        videos = {row["video_id"] for row in one["relevant"]}
        if one["kind"] != "speech" or not videos or videos - set(CLIPS):
            continue
        bundle = ask(library, one["query"], depth="focused", abstain=False)
        asked += 1
        found += bool({ids[v] for v in videos} & {bundle.units[0].video_id})
    assert asked >= 3
    assert found / asked >= 0.8


def test_a_bundle_of_real_packages_is_whole_and_repeats(library, tmp_path):
    first = ask(library, "how do you fuse ranked lists", depth="deep", abstain=False)
    again = ask(library, "how do you fuse ranked lists", depth="deep", abstain=False)
    assert first.to_bytes() == again.to_bytes()
    paths = publish_bundle(tmp_path, first)
    assert check_bundle(*read_bundle(paths.context_path.parent)) == []
    assert first.metrics.estimated_tokens <= 64_000
    assert doctor(library[0], models=Models(library[2])).healthy


def test_a_second_sync_of_real_packages_takes_no_time_for_the_model(library):
    home, _, embedder = library
    calls = []
    real = embedder.embed

    def counting(texts, kind):
        calls.extend(texts)
        return real(texts, kind)

    embedder.embed = counting
    try:
        start = time.monotonic()
        report = sync(home, models=Models(embedder), settings=SETTINGS)
        assert time.monotonic() - start < 20
    finally:
        del embedder.embed
    assert report.status == "no_changes"
    assert len(calls) == 3  # Only the canaries
