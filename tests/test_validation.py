"""The validator: every code can be provoked, all at once, and nothing crashes it."""

import datetime
import json
import os
import re
import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from package_kit import (
    copy_package,
    drop_video,
    edit_json,
    edit_text,
    make_package,
    read_ledger,
    write_ledger,
)
from PIL import Image

from vid2context import validation
from vid2context.core import UsageError, Vid2ContextError, pretty_json
from vid2context.findings import CODES
from vid2context.package_reader import (
    ANALYSIS,
    CONTEXT,
    COVERAGE,
    FRAMES,
    LEDGER,
    METADATA,
    RECEIPT,
    REVIEW,
    RULES,
    SEGMENTS,
    SOURCE_TXT,
    SOURCE_VTT,
    VALIDATION,
    Check,
)
from vid2context.review import CHECKLIST, read_checklist, record_ticks
from vid2context.review_files import Validation
from vid2context.schema import check
from vid2context.validation import (
    validate_collection,
    validate_package,
    validate_path,
    write_validation,
)

NAME = "making-a-violin"
ADAPTIVE = "adaptive-000000777ms.png"


@pytest.fixture(scope="session")
def whole(clips, tmp_path_factory):
    "A package with its video."
    folder = tmp_path_factory.mktemp("whole") / NAME
    return make_package(clips / "interview-luthier.mp4", folder)


@pytest.fixture(scope="session")
def light(whole, tmp_path_factory):
    "The same package without its video."
    folder = copy_package(whole, tmp_path_factory.mktemp("light") / NAME)
    drop_video(folder)
    return folder


@pytest.fixture
def package(light, tmp_path):
    "A copy to break."
    return copy_package(light, tmp_path / NAME)


def codes(report):
    return {finding.code for finding in report.findings}


def find(report, code):
    return [finding for finding in report.findings if finding.code == code]


def test_a_package_of_the_kit_passes(whole):
    report = validate_package(whole)
    assert report.result == "PASS", report.table().rows
    assert codes(report) <= {"review_pending", "context_too_short"}
    assert (report.origin, report.package_status) == ("native", "draft")
    assert report.skipped == ()
    assert report.summary["uniform_frames"] == 20
    assert check(Validation, report.to_json()).problems == ()
    assert not report.passes(strict=True)
    assert validate_package(whole, gate="reviewed").result == "FAIL"


def test_two_validations_are_equal_and_change_nothing(light, package):
    first, second = validate_package(light), validate_package(package)
    assert pretty_json(first.to_json()) == pretty_json(second.to_json())
    assert not (package / VALIDATION).exists()


# --- one defect for each code ------------------------------------------------


def analysis(change):
    return lambda p: edit_json(p / ANALYSIS, change)


def topic(**fields):
    return analysis(lambda a: a["topics"][0].update(fields))


def coverage(change):
    return lambda p: edit_json(p / COVERAGE, change)


def context(old, new):
    def change(text):
        assert old in text
        return text.replace(old, new, 1)

    return lambda p: edit_text(p / CONTEXT, change)


def rows(change):
    def edit(p):
        ledger = read_ledger(p)
        change(ledger)
        write_ledger(p, ledger)

    return edit


def segments(change):
    def edit(p):
        lines = [json.loads(x) for x in (p / SEGMENTS).read_text().splitlines()]
        change(lines)
        (p / SEGMENTS).write_text("".join(json.dumps(x) + "\n" for x in lines))

    return edit


def delete(name):
    return lambda p: (p / name).unlink()


def twin_frames(p):
    for second in (1, 2):
        Image.new("RGB", (64, 36), (9, 9, 9)).save(
            p / FRAMES / f"supplemental-{second}s.png"
        )


def rename(name):
    def move(p):
        p.rename(p.with_name(name))
        return p.with_name(name)

    return move


def with_id(p):
    name = f"talk-{json.loads((p / METADATA).read_text())['id']}"
    return rename(name)(p)


def swap_headings(text):
    one, two = "## Purpose", "## Analysis lens"
    return text.replace(one, "@").replace(two, one).replace("@", two)


def cut_tail(p):
    write_validation(p, validate_package(p, renewing=True))
    lines = (p / LEDGER).read_bytes().splitlines(keepends=True)
    (p / LEDGER).write_bytes(b"".join(lines[:-1]))


def after_writing(change):
    def edit(p):
        write_validation(p, validate_package(p, renewing=True))
        change(p)

    return edit


def stale_review(p):
    record_ticks(p, reviewer="Ada", ticks={"S01": "yes"})
    edit_text(p / CONTEXT, lambda text: text + "\nOne more line.\n")


def first_carrier(ledger):
    return next(row for row in ledger if row["class"] == "direct")


def empty_section(text):
    head, _, rest = text.partition("## Purpose\n")
    return head + "## Purpose\n\n" + rest[rest.index("## Analysis lens") :]


DEFECTS = {
    "file_missing": delete(f"{FRAMES}contact-sheet.jpg"),
    "file_empty": lambda p: (p / SOURCE_TXT).write_text(""),
    "file_unreadable": lambda p: os.mkfifo(p / "source" / "pipe"),
    "path_escape": lambda p: (p / "visual" / "link").symlink_to("/etc"),
    "text_not_utf8": lambda p: (p / CONTEXT).write_bytes(b"# \xff"),
    "json_invalid": lambda p: (p / ANALYSIS).write_text('{"a": 1, "a": 2}'),
    "jsonl_invalid": lambda p: edit_text(p / SEGMENTS, lambda t: t + "{oops\n"),
    "both_formats": lambda p: (p / RULES).write_text("{}"),
    "file_unlisted": lambda p: (p / "notes.txt").write_text("mine"),
    "segments_missing": delete(SEGMENTS),
    "ledger_missing": delete(LEDGER),
    "slug_invalid": rename("-violin-"),
    "slug_contains_id": with_id,
    "video_id_invalid": analysis(lambda a: a["source"].update(video_id="a b")),
    "video_id_mismatch": analysis(lambda a: a["source"].update(video_id="other")),
    "duration_mismatch": analysis(lambda a: a["source"].update(duration_seconds=60)),
    "language_mismatch": analysis(lambda a: a["source"].update(language="es")),
    "key_missing": analysis(lambda a: a.pop("summary") and None),
    "key_unknown": analysis(lambda a: a.update(mood="good")),
    "type_invalid": analysis(lambda a: a.update(topics={"t": 1})),
    "text_invalid": analysis(lambda a: a.update(summary=" padded ")),
    "enum_invalid": topic(evidence_class="opinion"),
    "version_invalid": analysis(lambda a: a.update(schema_version="3.0")),
    "list_empty": analysis(lambda a: a["assessment"].update(strengths=[])),
    "id_invalid": topic(id="-t-"),
    "id_duplicate": analysis(lambda a: a["topics"].append(dict(a["topics"][0]))),
    "timestamp_invalid": topic(timestamps=["soon"]),
    "timestamp_reversed": topic(timestamps=["00:20-00:10"]),
    "timestamp_out_of_range": topic(timestamps=["00:10-59:00"]),
    "front_matter_invalid": context("lens_chosen_by: ", "lens_chosen_by: [] #"),
    "front_matter_key_missing": context("creator: ", "maker: "),
    "front_matter_mismatch": context('analysis_lens: "', 'analysis_lens: "Not '),
    "heading_missing": context("## Purpose\n", "### Purpose\n"),
    "heading_order": lambda p: edit_text(p / CONTEXT, swap_headings),
    "heading_language": context("## Purpose\n", "## Propósito\n"),
    "heading_empty": context("## Purpose\n", "## Purpose\n\ntext\n\n##\n"),
    "section_empty": lambda p: edit_text(p / CONTEXT, empty_section),
    "context_too_short": lambda p: None,
    "uniform_frames": delete(f"{FRAMES}frame-35pct.png"),
    "frame_undecodable": lambda p: (p / FRAMES / "frame-35pct.png").write_bytes(
        (p / FRAMES / "frame-35pct.png").read_bytes()[:99]
    ),
    "frame_duplicate": twin_frames,
    "citation_unknown_frame": context(
        "## Purpose\n", f"## Purpose\n\nSee {ADAPTIVE}.\n"
    ),
    "visual_topic_without_frame": topic(
        evidence_class="visual", visual_evidence=["Nothing to see."]
    ),
    "sheet_missing": delete(f"{FRAMES}adaptive-contact-sheet-01.jpg"),
    "citation_malformed": context(
        "## General summary\n", "## General summary\n\nframe-05pct.jpg\n"
    ),
    "coverage_missing": delete(COVERAGE),
    "gap_target": coverage(
        lambda c: c["sampling"].update(target_max_gap_seconds=120.0)
    ),
    "gap_exceeded": coverage(lambda c: c.update(frames=c["frames"][:1])),
    "gap_misreported": coverage(
        lambda c: c["sampling"].update(max_observed_gap_seconds=1.0)
    ),
    "coverage_frame_missing": coverage(lambda c: c["frames"][1].update(file=ADAPTIVE)),
    "coverage_frame_time": coverage(
        lambda c: c["frames"][1].update(
            timestamp_seconds=c["frames"][1]["timestamp_seconds"] + 0.002
        )
    ),
    "coverage_frame_undeclared": coverage(lambda c: c["frames"].pop(1) and None),
    "vtt_invalid": lambda p: edit_text(
        p / SOURCE_VTT, lambda t: t + "\n00:03.000 --> 00:01.000\nback\n"
    ),
    "segments_invalid": segments(lambda s: s[2].update(i=7)),
    "transcript_mismatch": lambda p: edit_text(p / SOURCE_TXT, lambda t: t + "more\n"),
    "transcript_empty": lambda p: (p / SOURCE_TXT).write_text("# title: x\n\n"),
    "transcript_coverage": segments(lambda s: s.__setitem__(slice(2, None), [])),
    "transcript_rate": lambda p: edit_text(p / SOURCE_TXT, lambda t: t + "la " * 900),
    "ledger_not_canonical": lambda p: edit_text(
        p / LEDGER, lambda t: t.replace('"claim":', '"claim": ', 1)
    ),
    "ledger_row_invalid": rows(lambda r: r[1].update(confidence="sure")),
    "ledger_chain_broken": lambda p: edit_text(
        p / LEDGER, lambda t: t.replace('"claim":"', '"claim":"Not ', 2)
    ),
    "ledger_truncated": cut_tail,
    "ledger_quote_mismatch": segments(lambda s: s[0].update(text="Other words.")),
    "ledger_frame_changed": rows(
        lambda r: next(x for x in r if x["frames"])["frames"][0].update(sha256="0" * 64)
    ),
    "ledger_anchor_changed": rows(
        lambda r: r[0]["anchors"].update(segments_sha256="0" * 64)
    ),
    "ledger_ungrounded": rows(lambda r: first_carrier(r).update(transcript_spans=[])),
    "ledger_class_mismatch": topic(evidence_class="unverified"),
    "ledger_unmapped": topic(analyst_note="I doubt it."),
    "ledger_dangling": rows(lambda r: first_carrier(r)["supports"].append("topic:t99")),
    "metadata_private": lambda p: edit_json(
        p / METADATA, lambda m: m.update(http_headers={"Cookie": "a=b"})
    ),
    "metadata_extra": lambda p: edit_json(p / METADATA, lambda m: m.update(views=3)),
    "review_pending": lambda p: None,
    "review_stale": stale_review,
    "review_flag_unbacked": coverage(
        lambda c: c["manual_review"].update(timeline_coverage_reviewed=True)
    ),
}
ASKED = {
    "slug_mismatch": ({"expect_slug": "another-talk"}, lambda p: None),
    "profile_mismatch": ({"expect_profile": "visual-heavy"}, lambda p: None),
    "digest_changed": (
        {"verify": True},
        after_writing(lambda p: edit_text(p / CONTEXT, lambda t: t + "x\n")),
    ),
    "digest_missing": ({"verify": True}, after_writing(delete(SOURCE_VTT))),
    "digest_extra": (
        {"verify": True},
        after_writing(lambda p: (p / "source" / "new.srt").write_text("1\n")),
    ),
}
ELSEWHERE = {"slug_unicode_form", "manifest_mismatch", "check_failed"}


def test_each_code_has_its_defect():
    assert set(DEFECTS) | set(ASKED) | ELSEWHERE == set(CODES)


@pytest.mark.parametrize("code", DEFECTS)
def test_a_defect_is_found(package, code):
    moved = DEFECTS[code](package)
    report = validate_package(moved if isinstance(moved, Path) else package)
    found = find(report, code)
    assert found, sorted(codes(report))
    assert "check_failed" not in codes(report)
    if any(finding.severity == "error" for finding in found):
        assert report.result == "FAIL"
    assert check(Validation, report.to_json()).problems == ()


@pytest.mark.parametrize("code", ASKED)
def test_a_defect_of_the_question_is_found(package, code):
    options, change = ASKED[code]
    change(package)
    report = validate_package(package, **options)
    assert find(report, code) and report.result == "FAIL"


def test_another_unicode_form_is_a_warning(light, tmp_path):
    composed = unicodedata.normalize("NFC", "análisis")
    folder = copy_package(light, tmp_path / composed)
    other = unicodedata.normalize("NFD", composed)
    report = validate_package(folder, expect_slug=other)
    assert find(report, "slug_unicode_form")[0].severity == "warning"
    assert report.result == "PASS"


def test_a_crash_in_a_check_is_a_finding(package, monkeypatch):
    def explode(package, question):
        raise RecursionError("deep")

    broken = (Check("explode", explode), *validation.CHECKS)
    monkeypatch.setattr(validation.run_checks, "__kwdefaults__", {"checks": broken})
    report = validate_package(package)
    assert find(report, "check_failed")[0].field == "explode"
    assert "review_pending" in codes(report)


TWENTY = [
    "file_missing",
    "file_unlisted",
    "path_escape",
    "slug_contains_id",
    "video_id_mismatch",
    "duration_mismatch",
    "language_mismatch",
    "text_invalid",
    "timestamp_reversed",
    "front_matter_mismatch",
    "heading_language",
    "uniform_frames",
    "frame_undecodable",
    "citation_malformed",
    "sheet_missing",
    "gap_misreported",
    "vtt_invalid",
    "segments_invalid",
    "ledger_chain_broken",
    "metadata_private",
]


def test_twenty_planted_defects_are_found_at_once(package):
    elsewhere = {"slug_contains_id", "frame_undecodable"}
    for code in TWENTY:
        if code not in elsewhere:
            DEFECTS[code](package)
    (package / FRAMES / "frame-40pct.png").write_bytes(b"\x89PNG")
    report = validate_package(with_id_of(package, "other"))
    assert set(TWENTY) <= codes(report), sorted(set(TWENTY) - codes(report))
    assert report.result == "FAIL"
    ordered = [(f.file or "", f.field or "", f.code) for f in report.findings]
    assert ordered == sorted(ordered)


def with_id_of(package, word):
    return rename(f"talk-about-{word}-things")(package)


def test_places_are_exact(package):
    topic(evidence_class="opinion", timestamps=["00:01", "soon"])(package)
    segments(lambda s: s[3].update(kind="noise"))(package)
    report = validate_package(package)
    assert find(report, "enum_invalid")[0].field == "topics[0].evidence_class"
    assert find(report, "timestamp_invalid")[0].field == "topics[0].timestamps[1]"
    lines = {(f.file, f.line, f.field) for f in find(report, "enum_invalid")}
    assert (SEGMENTS, 4, "kind") in lines


def test_a_broken_input_skips_what_depends_on_it(package):
    coverage(lambda c: c["sampling"].update(scene_threshold="low"))(package)
    report = validate_package(package)
    assert report.skipped == ("gaps",)
    assert find(report, "type_invalid")[0].field == "sampling.scene_threshold"


def test_a_gap_with_a_named_cause_is_a_warning(package):
    def hole(report):
        report.update(frames=report["frames"][:1])
        report["sampling"]["max_observed_gap_seconds"] = 47.4
        report["gaps"] = [{"start_s": 1.0, "end_s": 47.0, "reason": "damaged"}]

    coverage(hole)(package)
    found = find(validate_package(package), "gap_exceeded")
    assert [f.severity for f in found] == ["warning"]


def test_a_video_of_another_length_is_measured(whole, clips, tmp_path):
    folder = copy_package(whole, tmp_path / NAME)
    video = next((folder / "source").glob("video.*"))
    others = sorted(clips.glob("*.mp4"), key=lambda p: p.stat().st_size)
    shutil.copy(next(p for p in others if p.name != "interview-luthier.mp4"), video)
    report = validate_package(folder)
    assert {"duration_mismatch", "ledger_anchor_changed"} <= codes(report)
    video.write_bytes(b"no video at all")
    found = find(validate_package(folder), "file_unreadable")
    assert found and found[0].file == f"source/{video.name}"


# --- foreign packages ---------------------------------------------------------


def make_foreign(package):
    for name in (SEGMENTS, LEDGER, RECEIPT):
        (package / name).unlink()
    shutil.rmtree(package / "evidence")
    lines = (package / CONTEXT).read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("generator:")]
    (package / CONTEXT).write_text("".join(kept))


def test_a_foreign_package_may_lack_what_is_ours(package):
    make_foreign(package)
    edit_json(package / METADATA, lambda m: m.update(formats=[], upload_date="2026"))
    analysis(lambda a: a.update(extra=1, schema_version="2.3"))(package)
    topic(timestamps=[], visual_evidence=[])(package)
    report = validate_package(package)
    assert (report.origin, report.result) == ("foreign", "PASS"), report.table().rows
    for code in ("segments_missing", "ledger_missing", "metadata_private"):
        assert [f.severity for f in find(report, code)] == ["info"]
    assert find(report, "text_invalid")[0].severity == "warning"
    coverage(lambda c: c["manual_review"].update(timeline_coverage_reviewed=True))(
        package
    )
    flagged = find(validate_package(package), "review_flag_unbacked")
    assert [f.severity for f in flagged] == ["info"]


def test_only_a_foreign_standard_package_may_lack_coverage(package):
    make_foreign(package)
    (package / COVERAGE).unlink()
    for profile, missing in (("standard", False), ("visual-heavy", True)):
        line = f"visual_profile: {profile}"
        edit_text(
            package / CONTEXT, lambda t, x=line: re.sub("(?m)^visual_profile: .*", x, t)
        )
        assert ("coverage_missing" in codes(validate_package(package))) is missing


def test_the_older_rules_format_is_read(package):
    video_id = json.loads((package / METADATA).read_text())["id"]
    make_foreign(package)
    (package / ANALYSIS).unlink()
    pattern = {
        "id": "p1",
        "name": "One",
        "principle": "Show it",
        "problem": "Hidden",
        "visual_evidence": ["frame-05pct.png"],
        "rules": ["a"],
        "avoid": [],
        "acceptance_criteria": [],
        "source_basis": {"direct": "said", "professional_extension": None},
    }
    rules = {
        "schema_version": "1.0",
        "source": {"video_id": video_id},
        "core_thesis": "Wood first",
        "evidence": {
            "transcript_file": "transcript/source.vtt",
            "frames_directory": "visual/frames",
            "contact_sheet": "visual/frames/contact-sheet.jpg",
            "frame_sampling": "20 uniform",
            "limitations": [],
        },
        "patterns": [pattern],
        "agent_workflow": ["look"],
    }
    (package / RULES).write_bytes(pretty_json(rules))
    edit_text(package / CONTEXT, lambda t: t.replace("## Purpose\n", ""))
    report = validate_package(package)
    assert report.result == "PASS", report.table().rows
    assert "heading_missing" not in codes(report)
    del pattern["source_basis"]["professional_extension"]
    pattern["visual_evidence"] = [ADAPTIVE]
    rules["evidence"]["contact_sheet"] = "visual/frames/gone.jpg"
    rules["patterns"].append(pattern)
    (package / RULES).write_bytes(pretty_json(rules))
    found = codes(validate_package(package))
    assert {"key_missing", "citation_unknown_frame", "id_duplicate"} <= found
    assert "sheet_missing" in found


# --- collections --------------------------------------------------------------


@pytest.fixture
def collection(light, tmp_path):
    "A collection of one package, as an installer leaves it."
    root = tmp_path / "talks"
    folder = copy_package(light, root / "videos" / NAME)
    video_id = json.loads((folder / METADATA).read_text())["id"]
    resources = {"context": True, "metadata": True, "analysis": True}
    entry = {"video_id": video_id, "slug": NAME, "resources": resources}
    manifest = {"schema_version": "1.0", "videos": [entry], "note": "kept"}
    (root / "manifest.json").write_bytes(pretty_json(manifest))
    return root


def test_a_sound_collection_passes(collection):
    reports = validate_path(collection)
    assert [r.name for r in reports] == ["talks", NAME]
    assert all(r.result == "PASS" for r in reports), reports[0].table().rows


def test_the_inventory_and_the_disk_are_compared(collection):
    def change(manifest):
        entry = manifest["videos"][0]
        entry["resources"] |= {"rules": True, "source_video": True}
        entry["validation_sha256"] = "0" * 64
        manifest["videos"] += [
            {"video_id": "v9", "slug": "gone", "resources": {"context": True}},
            {
                "video_id": "v9",
                "slug": "gone",
                "resources": entry["resources"] | {"rules": False},
            },
            dict(entry, slug="twin", resources={"context": True, "metadata": True}),
            7,
        ]

    edit_json(collection / "manifest.json", change)
    shutil.copytree(collection / "videos" / NAME, collection / "videos" / "stray")
    first, *others = validate_collection(collection)
    fields = {(f.code, f.field) for f in first.findings}
    assert ("key_missing", "videos[1].resources.metadata") in fields
    assert ("type_invalid", "videos[4]") in fields
    values = {f.value for f in find(first, "manifest_mismatch")}
    assert {"gone", "stray"} <= values
    assert [r.name for r in others] == [NAME, "stray"]


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"{", "json_invalid"), (b"[]", "type_invalid"), (b"\xff", "json_invalid")],
)
def test_a_broken_manifest_is_one_finding(collection, data, code):
    (collection / "manifest.json").write_bytes(data)
    first, *others = validate_collection(collection)
    assert codes(first) == {code} and len(others) == 1


def test_a_package_that_is_a_link_out_is_not_followed(collection, light):
    (collection / "videos" / "link").symlink_to(light)
    reports = validate_collection(collection)
    assert "link" not in [r.name for r in reports]


def test_writing_renews_the_entry(collection):
    folder = collection / "videos" / NAME
    digest = write_validation(folder, validate_package(folder, renewing=True))
    manifest = json.loads((collection / "manifest.json").read_text())
    assert manifest["videos"][0]["validation_sha256"] == digest
    assert manifest["videos"][0]["package_status"] == "draft"
    assert manifest["note"] == "kept"
    report = validate_package(folder, verify=True)
    assert report.result == "PASS", report.table().rows
    edit_json(folder / VALIDATION, lambda v: v["summary"].update(topics=0))
    changed = find(validate_package(folder), "manifest_mismatch")
    assert [f.field for f in changed] == ["validation_sha256"]


def test_a_cut_tail_is_never_written_over(package):
    cut_tail(package)
    before = (package / VALIDATION).read_bytes()
    report = validate_package(package, renewing=True)
    with pytest.raises(Vid2ContextError) as caught:
        write_validation(package, report)
    assert caught.value.code == "ledger_truncated"
    assert (package / VALIDATION).read_bytes() == before


def test_writing_does_not_leave_the_package(package, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(package / "evidence", outside)
    (package / "evidence").symlink_to(outside)
    report = validate_package(package)
    assert "path_escape" in codes(report) and "ledger_missing" in codes(report)
    with pytest.raises(Vid2ContextError) as caught:
        write_validation(package, report)
    assert caught.value.code == "path_escape"
    assert not (outside / "validation.json").exists()


# --- review -------------------------------------------------------------------


def tick_all(folder, **changes):
    ticks = dict.fromkeys(CHECKLIST, "yes") | changes
    return record_ticks(folder, reviewer="Ada Lovelace", ticks=ticks)


def test_a_full_review_makes_a_reviewed_package(collection):
    folder = collection / "videos" / NAME
    done = tick_all(folder, S07="not_applicable")
    assert (done.status, done.open) == ("reviewed", ())
    flags = json.loads((folder / COVERAGE).read_text())["manual_review"]
    assert flags["adaptive_sheets_inspected"] and flags["timeline_coverage_reviewed"]
    assert not flags["temporal_sequences_reviewed"]
    entry = json.loads((collection / "manifest.json").read_text())["videos"][0]
    assert entry["package_status"] == "reviewed"
    report = validate_package(folder, verify=True)
    assert report.result == "PASS" and report.package_status == "reviewed"
    strict = validate_package(folder, gate="reviewed")
    errors = {f.code for f in strict.findings if f.severity == "error"}
    assert errors == {"context_too_short"}


def test_a_changed_word_makes_the_review_stale(package):
    tick_all(package)
    edit_text(package / CONTEXT, lambda text: text + "\nNew.\n")
    report = validate_package(package)
    assert report.package_status == "draft" and "review_stale" in codes(report)
    again = record_ticks(package, reviewer="Ada", ticks={"S01": "yes"})
    assert len(again.dropped) == 16 and len(again.open) == 15
    flags = json.loads((package / COVERAGE).read_text())["manual_review"]
    assert not flags["adaptive_sheets_inspected"]


def test_calls_add_up_and_a_no_keeps_the_draft(package):
    record_ticks(package, reviewer="Ada", ticks={"S01": "yes"})
    noted = record_ticks(
        package, reviewer="Bo", ticks={"S02": "no"}, notes={"S02": "wrong speaker"}
    )
    assert [i.id for i in noted.items] == ["S01", "S02"]
    assert noted.status == "draft" and "S02" in noted.open
    fixed = record_ticks(package, reviewer="Bo", ticks={"S02": "yes"})
    assert "S02" not in fixed.open
    assert read_checklist(package).items == fixed.items


@pytest.mark.parametrize(
    "wrong",
    [
        {"ticks": {}},
        {"ticks": {"S99": "yes"}},
        {"ticks": {"S01": "maybe"}},
        {"ticks": {"S01": "no"}},
        {"ticks": {"S01": "no"}, "notes": {"S01": " \n"}},
        {"ticks": {"S01": "yes"}, "notes": {"S02": "x"}},
        {"ticks": {"S01": "yes"}, "reviewer": " "},
    ],
)
def test_a_wrong_tick_writes_nothing(package, wrong):
    with pytest.raises(UsageError) as caught:
        record_ticks(package, **({"reviewer": "Ada"} | wrong))
    assert caught.value.code == "tick_invalid"
    assert not (package / REVIEW).exists()


def test_a_review_carries_the_time_that_was_given(package):
    moment = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
    record_ticks(package, reviewer="Ada", ticks={"S01": "yes"}, reviewed_at=moment)
    review = json.loads((package / REVIEW).read_text())
    assert review["reviewed_at"] == "2026-03-01T12:00:00Z"
    (package / REVIEW).write_text("{}")
    with pytest.raises(Vid2ContextError, match="repair"):
        record_ticks(package, reviewer="Ada", ticks={"S02": "yes"})


# --- hostile shapes -----------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["00:10", "frame-05pct.png", "visual", "2.0", "\ud800", "a\0b"]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=8), inner, max_size=4),
    ),
    max_leaves=12,
)
NAMES = (ANALYSIS, COVERAGE, METADATA, RECEIPT, REVIEW, VALIDATION, RULES)


@pytest.fixture(scope="session")
def bare(light, tmp_path_factory):
    "A package with three frames, so that a validation takes milliseconds."
    folder = copy_package(light, tmp_path_factory.mktemp("bare") / NAME)
    for picture in sorted((folder / FRAMES).iterdir())[3:]:
        picture.unlink()
    record_ticks(folder, reviewer="Ada", ticks={"S01": "yes"})
    return folder


def places(value, path=()):
    "Give the path of every value in a JSON value."
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, one in inner:
        yield from places(one, (*path, key))


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def sound(report):
    "A report that can be written, whatever the package held."
    data = pretty_json(report.to_json())
    assert check(Validation, json.loads(data)).problems == ()
    assert all(len(str(f.value)) <= 220 for f in report.findings)
    assert "check_failed" not in codes(report), find(report, "check_failed")


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(NAMES), value=anything)
def test_no_shape_of_json_crashes_it(bare, tmp_path, name, value):
    folder = tmp_path / NAME
    shutil.rmtree(folder, ignore_errors=True)
    copy_package(bare, folder)
    (folder / name).write_text(json.dumps(value))
    report = validate_package(folder, verify=True)
    assert report.result == "FAIL"
    sound(report)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), name=st.sampled_from(NAMES[:-1]), value=anything)
def test_no_single_wrong_value_crashes_it(bare, tmp_path, data, name, value):
    folder = tmp_path / NAME
    shutil.rmtree(folder, ignore_errors=True)
    copy_package(bare, folder)
    raw = json.loads((folder / name).read_text())
    path = data.draw(st.sampled_from([p for p in places(raw) if p]))
    put(raw, path, value)
    (folder / name).write_text(json.dumps(raw))
    sound(validate_package(folder))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from((SEGMENTS, LEDGER)),
    line=st.integers(0, 5),
    field=st.sampled_from(
        [
            "i",
            "start_s",
            "end_s",
            "words",
            "origin",
            "anchors",
            "frames",
            "basis",
            "op",
            "transcript_spans",
            "supports",
            "target",
            "class",
            "seq",
            "row_sha256",
            "text",
        ]
    ),
    value=anything,
)
def test_no_wrong_line_crashes_it(bare, tmp_path, name, line, field, value):
    folder = tmp_path / NAME
    shutil.rmtree(folder, ignore_errors=True)
    copy_package(bare, folder)
    lines = [json.loads(x) for x in (folder / name).read_text().splitlines()]
    lines[line % len(lines)][field] = value
    (folder / name).write_text("".join(json.dumps(x) + "\n" for x in lines))
    sound(validate_package(folder))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from((CONTEXT, SOURCE_TXT, SOURCE_VTT, SEGMENTS, LEDGER)),
    data=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)),
)
def test_no_bytes_crash_it(bare, tmp_path, name, data):
    folder = tmp_path / NAME
    shutil.rmtree(folder, ignore_errors=True)
    copy_package(bare, folder)
    (folder / name).write_bytes(data)
    sound(validate_package(folder))


@pytest.mark.parametrize("name", [ANALYSIS, COVERAGE, METADATA, REVIEW, VALIDATION])
@pytest.mark.parametrize("depth", [400, 900, 100_000])
def test_bottomless_nesting_is_a_finding(package, name, depth):
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text('{"quality": ' + "[" * depth + "]" * depth + "}")
    report = validate_package(package)
    assert report.result == "FAIL"
    pretty_json(report.to_json())


def test_a_missing_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError) as caught:
        validate_package(tmp_path / "nothing")
    assert caught.value.code == "package_not_found"


def test_hostile_file_names_are_named(package):
    for name in (" a", "line\nbreak", "\u202egnp.exe", "b" * 240):
        (package / "source" / name).write_text("x")
    sound(validate_package(package))


def test_a_million_defects_are_counted(package):
    bad = "00:00:09.000 --> soon\n\n" * 30_000
    (package / SOURCE_VTT).write_text("WEBVTT\n\n" + bad)
    found = find(validate_package(package), "vtt_invalid")
    assert len(found) == 201 and found[-1].message == "and 29800 more of this kind"
