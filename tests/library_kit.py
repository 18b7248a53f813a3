"Small collections and models for the tests of the library."

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vid2context.core import canonical_json, pretty_json, sha256_bytes
from vid2context.evidence import Anchors, FrameEvidence, MadeBy, quote_of
from vid2context.kinds import ProviderDescriptor
from vid2context.ledger import Ledger
from vid2context.marks import UNIFORM_FRAMES

MADE_BY = MadeBy(kind="code", name="tests", version="1")
SENTENCES = (
    "Cut above the second bud with a sharp knife.",
    "The graft must stay moist until it has taken.",
    "Bind it with raffia and seal it with wax.",
    "In spring the sap rises and the buds swell.",
)


class WordModel:
    "Embed a text as the sum of one fixed random direction a word; needs no weights."

    name, embedding_dim, max_tokens = "words", 24, 48

    def __init__(self, *, version: str = "1", salt: str = "") -> None:
        self.descriptor = ProviderDescriptor(id="words", version=version, dim=24)
        self.salt = salt
        self.texts = 0

    def embed(self, texts: Sequence[str], kind: str) -> np.ndarray:
        self.texts += len(texts)
        rows = np.stack([self._sum(text) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def count_tokens(self, text: str, kind: str) -> int:
        return len(text.split()) + 2

    def _sum(self, text: str) -> np.ndarray:
        words = text.lower().split() or [""]
        return sum((self._direction(word) for word in words), np.zeros(24))

    def _direction(self, word: str) -> np.ndarray:
        seed = hashlib.sha256(f"{self.salt}{word.strip('.,:')}".encode()).digest()[:4]
        return np.random.default_rng(int.from_bytes(seed)).normal(size=24)


class LightModel:
    "Place a picture by how light its three colours are."

    name, embedding_dim = "light", 4
    descriptor = ProviderDescriptor(id="light", version="1", dim=4)

    def __init__(self) -> None:
        self.images = 0

    def encode_image(self, image: Image.Image) -> np.ndarray:
        self.images += 1
        return self._unit(*np.asarray(image, np.float64).mean((0, 1)) / 255)

    def encode_text(self, text: str) -> np.ndarray:
        return self._unit(*(len(text) % n / n for n in (3, 5, 7)))

    def _unit(self, *numbers: float) -> np.ndarray:
        row = np.array([1.0, *numbers])
        return (row / np.linalg.norm(row)).astype(np.float32)


def segments(count: int = 8, *, speech: Sequence[str] = SENTENCES) -> list[dict]:
    "Make segments of 15 s each."
    origin = {
        "kind": "manual",
        "track": "en",
        "format": "vtt",
        "file_sha256": "0" * 64,
        "engine": None,
    }
    return [
        {
            "i": i,
            "start_s": 15.0 * i,
            "end_s": 15.0 * i + 14.5,
            "text": speech[i % len(speech)],
            "kind": "speech",
            "lang": "en",
            "speaker": None,
            "confidence": None,
            "markers": [],
            "flags": [],
            "words": None,
            "origin": origin,
        }
        for i in range(count)
    ]


def analysis(video_id: str, title: str, **changes: Any) -> dict[str, Any]:
    "Make an analysis of one topic, one note and one recommendation."
    topic = {
        "id": "t01",
        "title": "The cut",
        "what_the_source_says": f"{title}: {SENTENCES[0]}",
        "evidence_class": "direct",
        "timestamps": ["00:00-00:15"],
        "visual_evidence": ["frame-05pct.png shows the knife."],
        "analyst_note": "No brand of knife is named.",
    }
    advice = {
        "id": "r01",
        "recommendation": "Buy a sharp knife.",
        "rationale": "A torn cut does not heal.",
        "confidence": "medium",
    }
    return {
        "schema_version": "2.0",
        "source": {
            "video_id": video_id,
            "title": title,
            "url": f"https://example.org/{video_id}",
            "creator": "The Orchard",
            "duration_seconds": 120,
            "language": "en",
        },
        "analysis_lens": {"lens": "Craft", "rationale": "Asked.", "chosen_by": "user"},
        "summary": f"{title} shown from cut to wax.",
        "topics": [topic],
        "recommendations": [advice],
        "assessment": {
            "strengths": ["Every step is shown."],
            "weaknesses": ["Nothing on tools."],
            "verdict": "Worth an hour.",
            "basis": "Transcript and frames.",
        },
        "evidence_boundary": {
            "transcript": "All of it.",
            "frames": "Twenty, and no more.",
            "analyst_opinion": "Marked as such.",
            "unverified": "Nothing.",
        },
    } | changes


def context(video_id: str, title: str, purpose: str) -> str:
    "Make a context of three sections."
    front = {"title": title, "video_id": video_id, "context_language": "en"}
    lines = [f"{key}: {json.dumps(value)}" for key, value in front.items()]
    return "\n".join(
        [
            "---",
            *lines,
            "---",
            "# Autonomous context for an agent",
            "## Purpose",
            purpose,
            "# What the source covers",
            "## The knife",
            f"{title} begins at 00:10, see frame-05pct.png.",
            "# Recommendations",
            "Sharpen the knife before the first cut.",
            "",
        ]
    )


def ledger(video_id: str, lines: bytes, frames: Path) -> bytes:
    "Make a ledger of one quote, one reading, one judgement, one recommendation."
    anchors = Anchors(
        video_id=video_id,
        duration_ms=120_000,
        segments_sha256=sha256_bytes(lines),
        media_sha256="1" * 64,
    )
    book = Ledger.create(anchors, "Grafting", made_by=MADE_BY)
    quote = quote_of(SENTENCES[0], start_s=0.0, end_s=14.5, first=0, last=0)
    picture = frames / "frame-05pct.png"
    seen = FrameEvidence(
        file=picture.name,
        at_ms=6000,
        sha256=sha256_bytes(picture.read_bytes()),
        reading="GRAFTING KNIFE",
        reader="rapidocr 3 abc",
    )
    said = book.add(
        "The cut is above the second bud.",
        evidence_class="direct",
        made_by=MADE_BY,
        spans=[quote],
        supports=["topic:t01"],
        confidence="high",
    )
    book.add(
        "The slide names the knife.",
        evidence_class="visual",
        made_by=MADE_BY,
        frames=[seen],
    )
    judged = {"evidence_class": "analyst_judgment", "made_by": MADE_BY}
    book.add(
        "No brand.", supports=["topic:t01#analyst_note"], basis=[said.id], **judged
    )
    book.add("Good.", supports=["section:assessment"], basis=[said.id], **judged)
    book.add(
        "Buy a knife.",
        evidence_class="recommendation",
        made_by=MADE_BY,
        basis=[said.id],
        supports=["recommendation:r01"],
        confidence="medium",
    )
    return book.to_bytes()


def write_package(
    root: Path,
    slug: str,
    *,
    video_id: str | None = None,
    title: str = "Grafting",
    purpose: str = "To graft an apple tree.",
    speech: Sequence[str] = SENTENCES,
    frames: Sequence[str] = ("frame-05pct.png", "frame-50pct.png"),
    shade: int = 40,
) -> dict[str, Any]:
    "Write a package and give its manifest entry."
    video_id = video_id or f"id-{slug}"
    folder = root / "videos" / slug
    pictures = folder / "visual" / "frames"
    for part in ("deliverables", "transcript", "source", "evidence", "visual/frames"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(frames):
        colour = (shade, 60 + 40 * i % 190, 200 - 30 * i % 190)
        Image.new("RGB", (32, 18), colour).save(pictures / name)
    rows = segments(speech=speech)
    lines = b"".join(canonical_json(row) + b"\n" for row in rows)
    metadata = {"id": video_id, "title": title, "uploader": "The Orchard"}
    metadata |= {"webpage_url": f"https://example.org/{video_id}", "duration": 120}
    files = {
        "deliverables/context.md": context(video_id, title, purpose).encode(),
        "deliverables/analysis.json": pretty_json(analysis(video_id, title)),
        "transcript/segments.jsonl": lines,
        "source/metadata.json": pretty_json(metadata | {"language": "en"}),
    }
    if frames:
        files["evidence/ledger.jsonl"] = ledger(video_id, lines, pictures)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return {
        "video_id": video_id,
        "slug": slug,
        "source_language": "en",
        "dossier_language": "en",
        "stage": "automatic_draft",
        "package_status": "draft",
        "resources": {"context": True, "metadata": True, "analysis": True},
    }


def write_manifest(root: Path, *entries: Any) -> None:
    "Write the manifest of a collection."
    (root / "videos").mkdir(parents=True, exist_ok=True)
    body = {"schema_version": "1.0", "videos": list(entries)}
    (root / "manifest.json").write_bytes(pretty_json(body))


def make_collection(root: Path, *slugs: str) -> list[dict[str, Any]]:
    "Write a collection of packages that differ in title and purpose."
    entries = [
        write_package(
            root,
            slug,
            title=f"Grafting {slug}",
            purpose=f"To graft {slug} trees.",
            speech=[f"{s} We speak of {slug}." for s in SENTENCES],
            shade=20 * i + 10,
        )
        for i, slug in enumerate(slugs)
    ]
    write_manifest(root, *entries)
    return entries


def tree_digest(root: Path) -> dict[str, tuple[str, int, int]]:
    "Digest every file of a folder, with size and time of change."
    return {
        str(path.relative_to(root)): (
            sha256_bytes(path.read_bytes()),
            path.stat().st_size,
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


ALL_UNIFORM = tuple(UNIFORM_FRAMES)
