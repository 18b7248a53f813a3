"""One sound package, made once from a committed clip, for tests that break it."""

import json
import shutil
from pathlib import Path

from vid2context.captioning import read_frames
from vid2context.core import canonical_json, pretty_json
from vid2context.evidence import ZERO, row_digest
from vid2context.extraction import extract_frames
from vid2context.options import Settings
from vid2context.package import write_package
from vid2context.plain_captions import BasicCaptioner
from vid2context.sources import acquire
from vid2context.transcript import transcript_of


def make_package(video: Path, folder: Path, *, reader=None) -> Path:
    "Pack a video as the pipeline does, without installing it."
    settings = Settings()
    folder.mkdir(parents=True)
    source = acquire(video, folder / "source", settings=settings)
    frames = extract_frames(
        source.video, folder / "visual", profile="auto", settings=settings
    )
    transcript = transcript_of(
        source.captions, duration_s=frames.info.duration_s, settings=settings.transcript
    )
    looks = [f for f in frames.frames if not (f.black or f.duplicate_of)]
    paths = [folder / "visual" / "frames" / f.file for f in looks]
    readings = read_frames(paths, reader=reader, captioner=BasicCaptioner())
    write_package(
        folder,
        source=source,
        transcript=transcript,
        frames=frames,
        readings=readings,
        settings=settings,
    )
    return folder


def drop_video(folder: Path) -> None:
    "Keep the digest of the video and not its bytes, which makes validation quick."
    receipt = json.loads((folder / "source" / "receipt.json").read_text())
    (folder / "source" / receipt["media"]["file"]).unlink()
    receipt["media"]["file"] = None
    (folder / "source" / "receipt.json").write_bytes(pretty_json(receipt))


def edit_json(path: Path, change) -> None:
    "Let a function change a JSON file in place, or return another value."
    value = json.loads(path.read_text())
    changed = change(value)
    path.write_bytes(pretty_json(value if changed is None else changed))


def edit_text(path: Path, change) -> None:
    "Let a function change a text file."
    path.write_text(change(path.read_text()))


def read_ledger(folder: Path) -> list[dict]:
    "Give the rows of a ledger."
    data = (folder / "evidence" / "ledger.jsonl").read_text()
    return [json.loads(line) for line in data.splitlines()]


def write_ledger(folder: Path, rows: list[dict]) -> None:
    "Chain rows anew and write them, so that only the planted defect is one."
    previous, lines = ZERO, []
    for row in rows:
        row["prev_sha256"] = previous
        previous = row["row_sha256"] = row_digest(row)
        lines.append(canonical_json(row) + b"\n")
    (folder / "evidence" / "ledger.jsonl").write_bytes(b"".join(lines))


def copy_package(folder: Path, dest: Path) -> Path:
    "Copy a package so that a test can break it."
    shutil.copytree(folder, dest, symlinks=True)
    return dest
