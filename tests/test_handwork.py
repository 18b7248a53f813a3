"People add rows, frames and ticks to a package; nothing is half done or lost."

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from package_kit import drop_video, edit_text, read_ledger

from vid2context import captures, handwork
from vid2context.building import PackWish
from vid2context.captures import add_frames
from vid2context.core import UsageError, Vid2ContextError
from vid2context.handwork import add_rows, withdraw_row
from vid2context.media import write_clip
from vid2context.options import Providers, Settings
from vid2context.packing import Packer
from vid2context.review import read_checklist, record_ticks
from vid2context.validation import validate_package

QUIET = Settings(providers=Providers(text_reader="off"))
SAID = "WEBVTT\n\n00:00.200 --> 00:03.800\nThe light comes from the east today.\n"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    "A collection with one package, and the video beside it."
    place = tmp_path_factory.mktemp("dawn")
    grey = [np.full((90, 160, 3), 40 + 5 * n, np.uint8) for n in range(40)]
    write_clip(place / "dawn.mp4", grey, fps=10)
    (place / "dawn.en.vtt").write_text(SAID)
    report = Packer(place / "evidence", settings=QUIET).pack([str(place / "dawn.mp4")])
    assert report.items[0].status == "packed"
    return place


@pytest.fixture
def place(packed, tmp_path):
    return shutil.copytree(packed, tmp_path / "dawn")


@pytest.fixture
def package(place):
    return place / "evidence" / "videos" / "dawn"


def row(**more):
    line = {
        "claim": "The light is said to come from the east.",
        "class": "direct",
        "transcript_spans": [{"quote": "from the east"}],
    }
    return json.dumps(line | more).encode()


def content(folder):
    "Every file of a package with its bytes."
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def tick_all(package):
    ticks = dict.fromkeys(read_checklist(package).open, "yes")
    done = record_ticks(package, reviewer="Ines", ticks=ticks)
    assert (done.status, done.report.result) == ("reviewed", "PASS")


def entry(package):
    manifest = json.loads((package.parents[1] / "manifest.json").read_bytes())
    return manifest["videos"][0]


def codes(package, **asked):
    return {f.code for f in validate_package(package, **asked).findings}


def vid2context(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "vid2context", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_three_processes_append_at_once_and_no_row_is_lost(place, package):
    for n in range(3):
        (place / f"{n}.jsonl").write_bytes(row(claim=f"Claim {n}."))
    before = len(read_ledger(package))
    running = [
        vid2context("ledger", "add", package, place / f"{n}.jsonl", "--json")
        for n in range(3)
    ]
    told = [process.communicate() for process in running]
    assert [p.returncode for p in running] == [0, 0, 0], told
    rows = read_ledger(package)
    added = {r["claim"] for r in rows[before:]}
    assert added == {"Claim 0.", "Claim 1.", "Claim 2."}
    report = validate_package(package, verify=True)
    assert report.result == "PASS"


def test_a_review_is_stale_and_the_manifest_knows(package):
    tick_all(package)
    flag = "adaptive_sheets_inspected"
    coverage = package / "visual" / "coverage.json"
    assert json.loads(coverage.read_bytes())["manual_review"][flag] is True
    change = add_rows(package, row())
    assert (change.package_status, entry(package)["package_status"]) == ("draft",) * 2
    assert "review_stale" in codes(package, verify=True)
    add_frames(package, settings=QUIET, at_s=[1.0])
    assert json.loads(coverage.read_bytes())["manual_review"][flag] is False
    tick_all(package)
    assert entry(package)["package_status"] == "reviewed"


def test_an_edit_in_progress_is_not_vouched_for(package):
    tick_all(package)
    stored = (package / "evidence" / "validation.json").read_bytes()
    edit_text(package / "deliverables" / "context.md", lambda t: t + "\nOne more.\n")
    change = add_rows(package, row())
    assert (change.renewed, change.result) == (False, None)
    assert (package / "evidence" / "validation.json").read_bytes() == stored
    assert "manifest_mismatch" not in codes(package)
    assert "digest_changed" in codes(package, verify=True)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "row_draft_invalid"),
        (b"\xff\xfe", "text_not_utf8"),
        (b"[" * 5000, "json_invalid"),
        (row() + b"\n{}", "row_draft_invalid"),
        (row(seq=3), "row_draft_invalid"),
        (row(transcript_spans=[{"quote": "from the west"}]), "ledger_quote_mismatch"),
        (row(transcript_spans=[{"quote": "e"}]), "quote_ambiguous"),
        (row(transcript_spans=[]), "ledger_ungrounded"),
        (row(frames=[{"file": "supplemental-9s.png"}]), "ledger_frame_changed"),
        (row(frames=[{"file": "../../etc/passwd"}]), "row_draft_invalid"),
        (row(supports=["topic:nowhere"]), "ledger_dangling"),
        (
            row(**{"class": "unverified"}, limit="hearsay", supports=["topic:t01"]),
            "ledger_class_mismatch",
        ),
        (row(target="L9999"), "ledger_dangling"),
        (row(op="replace"), "ledger_row_invalid"),
        (row(basis=["L0001"]), "ledger_dangling"),
    ],
)
def test_a_row_that_does_not_stand_changes_nothing(package, data, code):
    before = content(package)
    with pytest.raises(Vid2ContextError) as caught:
        add_rows(package, data)
    assert caught.value.code == code
    assert content(package) == before


def test_one_bad_line_keeps_the_good_ones_out(package):
    before = content(package)
    with pytest.raises(Vid2ContextError, match="Line 2"):
        add_rows(package, row() + b"\n" + row(transcript_spans=[]))
    assert content(package) == before


def test_withdrawing_appends_and_says_what_the_dossier_still_claims(package):
    before = (package / "evidence" / "ledger.jsonl").read_bytes()
    change = withdraw_row(package, "L0002", reason="Misheard.")
    after = (package / "evidence" / "ledger.jsonl").read_bytes()
    assert after.startswith(before) and after.count(b"\n") == before.count(b"\n") + 1
    assert change.open and "ledger_unmapped" in codes(package)
    with pytest.raises(Vid2ContextError) as caught:
        withdraw_row(package, "L0002", reason="Again.")
    assert caught.value.code == "ledger_dangling"


def test_a_ledger_that_lost_rows_takes_no_more(package):
    add_rows(package, row())
    ledger = package / "evidence" / "ledger.jsonl"
    cut = b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1])
    ledger.write_bytes(cut)
    with pytest.raises(Vid2ContextError) as caught:
        add_rows(package, row(claim="Another."))
    assert (caught.value.code, ledger.read_bytes()) == ("ledger_truncated", cut)


def test_hand_work_survives_a_second_pack(place, package):
    add_rows(package, row())
    packer = Packer(place / "evidence", settings=QUIET)
    wish = PackWish(context_language="es", force=True)
    again = packer.pack([str(place / "dawn.mp4")], wish=wish)
    assert again.items[0].code == "hand_work"


def test_a_capture_that_dies_anywhere_leaves_a_sound_package(package, monkeypatch):
    class Killed(BaseException):
        pass

    real, done = captures.write_atomic, []
    wanted = {"at_s": [1.0], "sequences": {"turn": 2.0}}
    for lives in (0, 1, 2, 5, 11):
        done.clear()

        def write(path, data, lives=lives):
            if len(done) == lives:
                raise Killed
            done.append(path.name)
            real(path, data)

        monkeypatch.setattr(captures, "write_atomic", write)
        with pytest.raises(Killed):
            add_frames(package, settings=QUIET, **wanted)
        assert validate_package(package).result == "PASS"
    monkeypatch.setattr(captures, "write_atomic", real)
    frames = add_frames(package, settings=QUIET, **wanted)
    assert len(frames.added) == 10
    assert validate_package(package).result == "PASS"
    with pytest.raises(UsageError, match="exists"):
        add_frames(package, settings=QUIET, at_s=[1.2])


def test_a_package_without_its_video_or_its_collection(place, package, tmp_path):
    alone = shutil.copytree(package, tmp_path / "alone")
    drop_video(alone)
    with pytest.raises(UsageError) as caught:
        add_frames(alone, settings=QUIET, at_s=[1.0])
    assert caught.value.code == "video_not_kept"
    change = add_frames(alone, settings=QUIET, at_s=[1.0], video=place / "dawn.mp4")
    assert change.added == ("supplemental-1s.png",)
    assert add_rows(alone, row(frames=[{"file": "supplemental-1s.png"}])).added
    assert handwork.read_ledger(alone).live[-1].frames[0].at_ms == 1000
    assert validate_package(alone).result == "PASS"


def test_the_commands_in_their_own_processes(place, package):
    (place / "row.jsonl").write_bytes(row())
    for words, code in (
        (("capture", package, "--sequence", "turn@0:02", "--at", "1,3"), 0),
        (("ledger", "withdraw", package, "L0003", "--reason", "Said twice."), 0),
        (("validate", package, "--verify"), 0),
        (("review", package, "--reviewer", "Ines", "--tick", "S01=no"), 2),
    ):
        process = vid2context(*words, "--json")
        out, err = process.communicate()
        assert process.returncode == code, (words, out, err)
        assert out.count("\n") == 1 and json.loads(out)["schema_version"] == "1.0"
