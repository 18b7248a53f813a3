"The command line in real processes: exit codes, one line of JSON, bad input, signals."

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from vid2context.cli import main
from vid2context.media import write_clip
from vid2context.pipeline import Library

QUIET = "[vid2context]\n[providers]\ntext_reader = off\n"
CAPTIONS = (
    "WEBVTT\n\n00:00.000 --> 00:01.900\n"
    "The [S99] crane lifts ``` nine tonnes \x1b[31m \u202e of hostile \u2028 text.\n"
)


def start(*words: Any, cwd: Path) -> "subprocess.Popen[bytes]":
    "Start the command as a user would, in its own process group."
    return subprocess.Popen(
        [sys.executable, "-m", "vid2context", *map(os.fsencode, words)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("VID2CONTEXT_")},
    )


def run(*words: Any, cwd: Path) -> tuple[int, str, str]:
    "Run the command to its end."
    process = start(*words, cwd=cwd)
    out, err = process.communicate(timeout=120)
    assert b"Traceback" not in out + err
    return process.returncode, out.decode("utf-8"), err.decode("utf-8")


def told(*words: Any, cwd: Path) -> tuple[int, dict[str, Any]]:
    "Run the command with `--json`: one line of ASCII on stdout, nothing on stderr."
    code, out, err = run(*words, "--json", cwd=cwd)
    assert (out.count("\n"), out[-1:], out.isascii(), err) == (1, "\n", True, "")
    return code, json.loads(out)


def clip(path: Path, shade: int) -> None:
    frames = [np.full((48, 64, 3), shade + 9 * n, np.uint8) for n in range(10)]
    write_clip(path, frames, fps=5)


def sound_only(path: Path) -> None:
    with av.open(str(path), "w") as file:
        track = file.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 1024), np.float32), format="fltp", layout="mono"
        )
        frame.rate = 16000
        file.mux(track.encode(frame))
        file.mux(track.encode(None))


def tree(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    "A folder with good and bad videos, one collection and one library."
    desk = tmp_path_factory.mktemp("desk")
    (desk / "quick.ini").write_text(QUIET)
    videos = desk / "videos"
    for name in ("a", "b"):
        (videos / name).mkdir(parents=True)
    clip(videos / "a" / "talk.mp4", 20)
    (videos / "a" / "talk.en.vtt").write_text(CAPTIONS)
    clip(videos / "b" / "talk.mp4", 90)
    clip(videos / "cut.mp4", 60)
    whole = (videos / "cut.mp4").read_bytes()
    (videos / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    (videos / "empty.mp4").touch()
    (videos / "notes.mp4").write_text("no video at all\n" * 40)
    sound_only(videos / "sound.mp4")
    return desk


@pytest.fixture(scope="module")
def first(desk: Path) -> tuple[int, dict[str, Any]]:
    "The receipt of packing everything, a missing file and an empty folder too."
    (desk / "nothing").mkdir()
    words = ("videos", "missing.mp4", "nothing", "videos/a/talk.mp4")
    return told(
        "pack", *words, "--collection", "ev", "--settings", "quick.ini", cwd=desk
    )


@pytest.fixture(scope="module")
def library(desk: Path, first: tuple[int, dict[str, Any]]) -> Path:
    code, receipt = told("sync", "ev", cwd=desk)
    assert (code, receipt["status"]) == (0, "ok")
    return desk / ".vid2context"


def test_a_batch_tells_the_reason_of_each_and_goes_on(
    desk: Path, first: tuple[int, dict[str, Any]]
) -> None:
    code, receipt = first
    assert (code, receipt["status"]) == (1, "partial")
    found = [(i["ref"], i["code"] or i["status"]) for i in receipt["items"]]
    assert found == [
        ("videos/a/talk.mp4", "packed"),
        ("videos/b/talk.mp4", "slug_taken"),
        ("videos/cut.mp4", "media.not_media"),
        ("videos/empty.mp4", "media.empty"),
        ("videos/notes.mp4", "media.not_media"),
        ("videos/sound.mp4", "media.no_video"),
        ("missing.mp4", "source_not_found"),
        ("nothing", "source_not_found"),
        ("videos/a/talk.mp4", "unchanged"),
    ]
    assert receipt["counts"] == {"packed": 1, "unchanged": 1, "failed": 7}
    assert all(i["message"] for i in receipt["items"] if i["status"] == "failed")
    assert sorted(p.name for p in (desk / "ev").iterdir()) == [
        ".staging",
        "manifest.json",
        "manifest.lock",
        "videos",
    ]
    assert not list((desk / "ev" / ".staging").iterdir())
    assert [p.name for p in (desk / "ev" / "videos").iterdir()] == ["talk"]


def test_a_folder_that_holds_its_own_collection_is_not_packed_twice(
    desk: Path, first: tuple[int, dict[str, Any]]
) -> None:
    before = tree(desk / "ev")
    words = ("pack", "ev", "--collection", "ev")
    code, receipt = told(*words, "--settings", "quick.ini", cwd=desk)
    assert (code, receipt["error"]["code"]) == (2, "source_not_found")
    assert tree(desk / "ev") == before


def test_people_get_a_line_for_each_failure(
    desk: Path, first: tuple[int, dict[str, Any]]
) -> None:
    words = ("pack", "videos/empty.mp4", "videos/sound.mp4", "--collection", "none")
    code, out, err = run(*words, "--settings", "quick.ini", cwd=desk)
    pattern = r"failed  empty\.mp4  [\d.]+ s\nfailed  sound\.mp4  [\d.]+ s\n"
    assert code == 1
    assert re.fullmatch(pattern, err)
    lines = out.splitlines()
    assert lines[0] == (
        "failed  videos/empty.mp4: 'empty.mp4' has no bytes. (media.empty)"
    )
    assert lines[1].startswith("failed  videos/sound.mp4: ")
    assert not (desk / "none").exists()


WRONG = [
    ("search", "invalid_query"),
    ("search tide --within 5", "invalid_arguments"),
    ("nonsense", "invalid_arguments"),
    ("search crane --top-k many", "invalid_arguments"),
    ("search crane --top-k 0", "invalid_limit"),
    ("search ?!", "invalid_query"),
    ("search crane --video a/b", "video_not_found"),
    ("search crane --source nowhere", "source_not_found"),
    ("search crane --between 2:00-1:00", "invalid_arguments"),
    ("search crane --unit-type transcript", "invalid_arguments"),
    ("search crane --evidence-class true", "invalid_arguments"),
    ("search crane --channel smell", "invalid_arguments"),
    ("retrieve crane --max-tokens 0", "invalid_budget"),
    ("retrieve crane --depth bottomless", "invalid_arguments"),
    ("explain crane nothing", "invalid_identifier"),
    ("check nowhere", "bundle_not_found"),
    ("verify nowhere.json talk", "file_not_found"),
    ("validate nowhere", "package_not_found"),
    ("validate ev --gate golden", "invalid_arguments"),
    ("sync nowhere", "source_path_not_found"),
    ("sync videos", "invalid_source_layout"),
    ("source add ev --name a/b", "invalid_identifier"),
    ("source add ev --name bare", "reserved_source"),
    ("source remove nowhere", "source_not_found"),
    ("rebuild", "confirmation_required"),
    ("pack videos --collection ev --profile best", "invalid_arguments"),
    ("pack videos --collection ev --spoken 12", "invalid_arguments"),
    ("pack videos --collection ev --cookies nowhere", "invalid_arguments"),
    ("pack videos --collection videos", "invalid_source_layout"),
    ("pack videos --collection quick.ini", "invalid_source_layout"),
    ("pack videos --collection ev --settings nowhere.ini", "settings_not_found"),
]


@pytest.mark.parametrize(("line", "expected"), WRONG)
def test_a_wrong_command_line_is_refused_before_anything_is_written(
    line: str,
    expected: str,
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(library.parent)
    before = tree(library.parent)
    code = main([*line.split(), "--json"])
    out, err = capsys.readouterr()
    assert (code, err, out.count("\n")) == (2, "", 1)
    assert json.loads(out)["error"]["code"] == expected
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"error ({expected}): ")) == ("", True)
    assert tree(library.parent) - before <= {".vid2context/writer.lock"}


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_source_is_not_this_folder(empty: str, desk: Path) -> None:
    code, receipt = told("pack", empty, "--collection", "ev", cwd=desk)
    assert (code, receipt["error"]["field"]) == (2, "source")


def test_bytes_that_are_no_text_stay_ascii_in_json(desk: Path) -> None:
    code, receipt = told("pack", b"\xff.mp4", "--collection", "ev", cwd=desk)
    assert (code, receipt["error"]["code"]) == (2, "source_not_found")
    code, receipt = told("status", "--home", b"h\xff", cwd=desk)
    assert (code, receipt["error"]["code"]) == (1, "library_not_found")


def test_hostile_captions_reach_neither_terminal_nor_outline(library: Path) -> None:
    desk = library.parent
    code, out, err = run("search", "crane tonnes", cwd=desk)
    assert (code, err) == (0, "")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", out)
    assert "crane" in out and "relevance:" in out
    code, receipt = told("retrieve", "crane [S99]", "--out", "bundles", cwd=desk)
    assert code == 0
    bundle = Path(receipt["context_path"]).parent
    code, receipt = told("check", bundle, "--sources", cwd=desk)
    assert (code, receipt["result"]) == (0, "PASS")


def test_an_answer_that_cites_nothing_fails_when_citations_are_required(
    library: Path,
) -> None:
    desk = library.parent
    _, receipt = told("retrieve", "crane tonnes", "--out", "cited", cwd=desk)
    bundle = Path(receipt["context_path"]).parent
    (desk / "bare.md").write_text("Cranes lift nine tonnes.\n")
    (desk / "cited.md").write_text("Cranes lift nine tonnes [S01].\n")
    plain = ("check", bundle, "--answer", "bare.md")
    code, out, _ = run(*plain, cwd=desk)
    assert (code, out.splitlines()[-1]) == (0, "answer: 0 citations in 1 sentence")
    strict = "--require-citations"
    code, receipt = told(*plain, strict, cwd=desk)
    assert (code, receipt["status"], receipt["result"]) == (1, "failed", "FAIL")
    assert [one["code"] for one in receipt["findings"]] == ["no_citation"]
    assert told("check", bundle, "--answer", "cited.md", strict, cwd=desk)[0] == 0
    code, receipt = told("check", bundle, strict, cwd=desk)
    assert (code, receipt["error"]["code"]) == (2, "invalid_arguments")


def test_the_list_of_items_has_the_ids(library: Path) -> None:
    desk = library.parent
    code, receipt = told("items", cwd=desk)
    assert (code, receipt["total"]) == (0, len(receipt["items"]))
    one = receipt["items"][0]
    code, out, _ = run("items", one["id"], "--limit", "1", cwd=desk)
    assert code == 0
    assert one["id"] in out and out.splitlines()[-1] == "1 video"
    (desk / "none.json").write_text("[]")
    for words in ("brief nosuch", "remove nosuch", "verify none.json nosuch"):
        code, receipt = told(*words.split(), cwd=desk)
        assert code != 0
        assert "items` " in receipt["error"]["message"], words
    assert told("items", "--limit", "0", cwd=desk)[0] == 2


def test_a_refused_quote_shows_the_time_that_was_given(library: Path) -> None:
    desk = library.parent
    video = told("items", cwd=desk)[1]["items"][0]["id"]
    quote = "crane lifts nine tonnes of hostile text"
    claims = [
        {"videoId": video, "quote": quote, "startSec": at} for at in (900, "soon")
    ]
    (desk / "claims.json").write_text(json.dumps(claims))
    code, out, _ = run("verify", "claims.json", video, cwd=desk)
    assert code == 1
    first, second = (line for line in out.splitlines() if line.startswith("refused"))
    assert "at 15:00  said at 0:00" in first
    assert "quote-at-other-time" in first
    assert "at 'soon'" in second
    assert "bad-timestamp" in second
    (desk / "claims.json").write_text("[]")
    code, out, _ = run("verify", "claims.json", video, cwd=desk)
    assert (code, out.split(":")[0]) == (0, "nothing to check")
    claims[1]["quote"] = "half \ud800"
    (desk / "claims.json").write_text(json.dumps(claims))
    code, receipt = told("verify", "claims.json", video, cwd=desk)
    assert (code, receipt["error"]["field"]) == (2, "claims[1].quote")
    code, _, err = run("verify", "nosuch.json", video, cwd=desk)
    assert (code, err.count("nosuch.json"), "does not exist" in err) == (2, 1, True)


def test_libraries_in_a_bad_state_are_named(library: Path, tmp_path: Path) -> None:
    def status(alter: str) -> tuple[int, str]:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(library, copy)
        db = sqlite3.connect(copy / "catalog.sqlite")
        db.execute(alter)
        db.commit()
        db.close()
        code, receipt = told("status", "--home", copy, cwd=tmp_path)
        return code, receipt["error"]["code"]

    newer = "UPDATE schema_meta SET value = '9' WHERE key = 'version'"
    assert status(newer) == (1, "library_too_new")
    assert status("DELETE FROM schema_meta") == (1, "unversioned_schema")
    code, receipt = told("doctor", "--home", "copy", cwd=tmp_path)
    assert (code, receipt["status"]) == (1, "failed")
    (tmp_path / "copy" / "catalog.sqlite").write_bytes(b"")
    code, receipt = told("search", "crane", "--home", "copy", cwd=tmp_path)
    assert (code, receipt["error"]["code"]) == (1, "database_integrity_error")
    (tmp_path / "file").touch()
    code, receipt = told("init", "--home", "file", cwd=tmp_path)
    assert code == 1 and "in the place of a folder" in receipt["error"]["message"]


@pytest.mark.parametrize("wait_s", [0.2, 1.0])
def test_an_interrupt_ends_with_130_and_one_line(wait_s: float, desk: Path) -> None:
    words = ("pack", "videos/b/talk.mp4", "--collection", "stopped", "--json")
    process = start(*words, "--settings", "quick.ini", cwd=desk)
    time.sleep(wait_s)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("it was quicker than the interrupt")
    assert b"Traceback" not in err
    assert process.returncode == 130
    assert json.loads(out)["error"]["code"] == "interrupted"


def test_a_killed_pack_leaves_no_package_and_goes_on(desk: Path) -> None:
    words = ("pack", "videos/b/talk.mp4", "--collection", "killed")
    stage = desk / "killed" / ".staging"
    process = start(*words, "--settings", "quick.ini", cwd=desk)
    while process.poll() is None and not list(stage.glob("get-*/source/video.mp4")):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not list((desk / "killed").glob("videos/*"))
    code, receipt = told(*words, "--settings", "quick.ini", cwd=desk)
    assert (code, receipt["items"][0]["status"]) == (0, "packed")
    assert not list(stage.iterdir())
    assert told("validate", "killed", "--verify", cwd=desk)[0] == 0


def test_what_another_killed_pack_left_is_told_and_cleared_away(desk: Path) -> None:
    pack = ("pack", "--collection", "left", "--settings", "quick.ini")
    assert told(*pack, "videos/a/talk.mp4", cwd=desk)[0] == 0
    assert told("sync", "left", "--home", "left-library", cwd=desk)[0] == 0
    staging = desk / "left" / ".staging"
    process = start(*pack, "videos/b/talk.mp4", "--label", "other", cwd=desk)
    while process.poll() is None and not list(staging.glob("get-*/source/video.mp4")):
        time.sleep(0.01)
    doctor = ("doctor", "--home", "left-library")
    os.killpg(process.pid, signal.SIGSTOP)
    checks = [one["code"] for one in told(*doctor, cwd=desk)[1]["checks"]]
    assert "half_packed" not in checks  # Somebody works on it
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert list(staging.glob("get-*"))
    code, receipt = told(*doctor, cwd=desk)
    found = [one for one in receipt["checks"] if one["code"] == "half_packed"]
    assert (code, [one["status"] for one in found]) == (0, ["warning"])
    assert "1 video half packed in 'left'" in found[0]["message"]
    code, out, _ = run(*pack, "videos/a/talk.mp4", cwd=desk)
    assert code == 0
    assert "cleared away: 1 video that a killed run left half packed\n" in out
    assert not list(staging.iterdir())
    checks = [one["code"] for one in told(*doctor, cwd=desk)[1]["checks"]]
    assert "half_packed" not in checks


def test_the_same_bytes_under_another_name_are_told_where_they_are(desk: Path) -> None:
    twin = desk / "twin"
    twin.mkdir()
    shutil.copy(desk / "videos/a/talk.mp4", twin / "keynote.mp4")
    pack = ("pack", "--collection", "twins", "--settings", "quick.ini")
    assert told(*pack, "videos/a/talk.mp4", cwd=desk)[0] == 0
    code, receipt = told(*pack, "twin/keynote.mp4", cwd=desk)
    assert (code, receipt["error"]["code"]) == (2, "already_packed")
    said = "The same video is packed already, as talk from talk.mp4, with other"
    assert said in receipt["error"]["message"]
    shutil.copy(desk / "videos/a/talk.en.vtt", twin / "keynote.en.vtt")
    code, receipt = told(*pack, "twin/keynote.mp4", cwd=desk)
    named = {k: receipt["items"][0][k] for k in ("status", "slug")}
    assert (code, named) == (0, {"status": "unchanged", "slug": "talk"})


def test_without_a_terminal_each_video_gets_a_line(desk: Path) -> None:
    shutil.copytree(desk / "videos" / "a", desk / "two" / "a")
    (desk / "two" / "notes.mp4").write_text("no video at all\n" * 40)
    ini = ("--settings", "quick.ini")
    packed = run("pack", "two", "--collection", "lines", *ini, cwd=desk)
    synced = run("sync", "lines", "--home", "lines-library", cwd=desk)
    again = run("sync", "lines", "--home", "lines-library", cwd=desk)
    indexed = run("index", "two", "--home", "bare-library", *ini, cwd=desk)
    lines = [re.sub(r"\d+\.\d s", "N s", one[2]) for one in (packed, synced, again)]
    assert lines[0] == "packed  talk.mp4  N s\nfailed  notes.mp4  N s\n"
    assert lines[1:] == ["indexed  talk  N s\n", ""]
    pattern = r"indexed  talk\.mp4  \d+\.\d s\nfailed  notes\.mp4  \d+\.\d s\n"
    assert re.fullmatch(pattern, indexed[2])
    assert " s\n" not in packed[1]


def test_a_reader_that_goes_away_costs_no_traceback(library: Path) -> None:
    for words in (("status", "--json"), ("status",)):
        process = start(*words, cwd=library.parent)
        assert process.stdout and process.stderr
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=60)
        assert err == b"", err


def test_help_fits_eighty_columns_and_is_cut_nowhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    listed = page.partition("Evidence:")[2]
    names = re.findall(r"^  ([a-z-]+)  +\S", listed, re.M)
    assert {"pack", "sync", "search", "retrieve", "source"} <= set(names)
    assert "More:" not in page
    assert not re.search(r"[a-z]\.\.\.$", page, re.M)
    for name in names:
        assert main([name, "--help"]) == 0
        page += capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert main([]) == 2
    assert "Evidence:" in capsys.readouterr().err


def test_captions_that_cannot_be_used_are_told_where_they_are_packed(
    tmp_path: Path,
) -> None:
    clip(tmp_path / "talk.mp4", 50)
    late = "".join(
        f"{n}\n00:0{n}:00,000 --> 00:0{n}:02,000\nNever heard.\n\n" for n in range(1, 5)
    )
    (tmp_path / "talk.en.srt").write_text(late)
    (tmp_path / "quick.ini").write_text(QUIET)
    words = ("pack", "talk.mp4", "--collection", "ev", "--settings", "quick.ini")
    code, receipt = told(*words, cwd=tmp_path)
    (item,) = receipt["items"]
    assert (code, item["status"], len(item["unread"])) == (0, "packed", 1)
    assert "4 of 4 cues" in item["unread"][0]
    shutil.rmtree(tmp_path / "ev")
    _, out, _ = run(*words, cwd=tmp_path)
    assert "captions not read" in out and "4 of 4 cues" in out


def test_a_claim_may_only_show_frames_of_its_bundle(desk: Path, library: Path) -> None:
    code, found = told("retrieve", "crane", "--out", "shown", cwd=desk)
    assert code == 0
    bundle = (desk / found["context_path"]).parent
    units = json.loads((bundle / "result.json").read_text())["units"]
    frames = {
        f["path"].rpartition("/")[2]: f["at_s"] for u in units for f in u["frames"]
    }
    (video,) = {unit["video_id"] for unit in units}
    whole = {p.name for p in (desk / "ev").rglob("frame-*pct.png")}
    kept = min(frames)
    left = min(whole - frames.keys())
    claims = [
        {"videoId": video, "quote": "crane lifts nine tonnes"}
        | {"startSec": frames[kept], "frame": frame}
        for frame in (kept, left, "frame-99pct.png")
    ]
    (desk / "claims.json").write_text(json.dumps(claims))
    words = ("verify", "claims.json", f"ev:{video}", "--bundle")
    code, receipt = told(*words, bundle.relative_to(desk), cwd=desk)
    seen = [(c["accepted"], c["frame"]["reason"]) for c in receipt["claims"]]
    assert (code, receipt["status"], seen[0]) == (1, "failed", (True, None))
    assert seen[1:] == [(False, "frame-not-served"), (False, "frame-not-found")]
    code, receipt = told(*words[:3], cwd=desk)
    assert {c["frame"]["served"] for c in receipt["claims"]} == {"unknown"}
    code, receipt = told(*words, "nothing-here", cwd=desk)
    assert (code, receipt["error"]["code"]) == (1, "bundle_not_found")


def test_a_library_that_cannot_be_written_answers_the_same(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(library, copy)
    for lock in [*copy.rglob("*.lock"), *copy.rglob(".*.lock")]:
        lock.unlink(missing_ok=True)
    before = {p: p.stat().st_mtime_ns for p in copy.rglob("*")}
    usual = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: mode != os.W_OK and usual(path, mode)
    )
    with Library(copy) as frozen:
        found = frozen.search("crane").to_json()
    monkeypatch.undo()
    assert {p: p.stat().st_mtime_ns for p in copy.rglob("*")} == before
    with Library(library) as free:
        assert free.search("crane").to_json() == found
    assert found["moments"] and not found["warnings"]
