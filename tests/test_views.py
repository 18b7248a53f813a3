"What people are shown: one of a thing is not many, and a table fits its terminal."

import io

import pytest
from rich.console import Console

import vid2context.cli  # noqa: F401  Registers every view
from vid2context.requests import Receipt
from vid2context.views import show


def shown(command, data, width=80):
    screen = Console(file=io.StringIO(), width=width)
    show(Receipt(command, "ok", data=data), console=screen)
    return screen.file.getvalue()


STATUS = {
    "counts": {"sources": 1, "packages": 1, "units": 1, "bare_videos": 0},
    "generation": 7,
    "library_id": "c" * 32,
    "sources": [
        {
            "source_name": "talks",
            "path": "/videos/talks",
            "packages": 1,
            "units": 1,
            "last_run": "ok",
        }
    ],
    "models": {"text": "a" * 64},
}
ANSWER = {"cited": 0, "sentences": 1, "sentences_without_citation": 1}
CHECKED = {"result": "PASS", "citations": 1, "sources": 1, "findings": []}
STATS = {"videos_indexed": 1, "frames_total": 1, "storage_mb": 0.5}
RELEVANCE = {"relevance": {"verdict": "weak"}, "warnings": []}
SYNCED = {"source_name": "talks", "status": "ok", "issues": []}
ONE = {
    "status": (STATUS, "1 source, 1 package, 1 unit"),
    "check": (CHECKED | {"answer": None}, "1 citation, 1 package"),
    "sync": (
        {"results": [SYNCED | {"counters": {"packages_seen": 1, "failed": 1}}]},
        "1 package seen, 1 failed",
    ),
    "retrieve": (
        RELEVANCE
        | {"units": [], "estimated_tokens": 1, "sources_used": 1}
        | {"context_path": "c", "result_path": "r"},
        "1 token from 1 package",
    ),
    "extract": (
        {"notes": [], "data": {}, "unverified": [], "uncited": []}
        | {"citations": [{"pointer": "/a", "videoId": "v", "startSec": 1}]},
        "1 citation, 0 refused",
    ),
    "reindex": (
        {"channel": "image", "videos": [], "warnings": [], "stats": STATS},
        "1 bare video, 1 frame, 0.50 MB in all",
    ),
    "export-triples": ({"triples": 1, "path": "t", "left_out": 1}, "1 triple in t"),
}


@pytest.mark.parametrize("command", sorted(ONE))
def test_one_of_a_thing_is_told_as_one(command):
    data, expected = ONE[command]
    if command == "extract":
        data["citations"][0]["source_text"] = "as it was said"
    assert expected in shown(command, data)


def test_a_status_names_what_the_user_made_and_no_long_digest():
    told = shown("status", STATUS)
    assert "without a package" not in told
    assert "a" * 12 in told
    assert "a" * 13 not in told
    bare = {"source_name": "bare", "path": None, "packages": 2, "units": 9}
    counts = STATUS["counts"] | {"bare_videos": 2}
    rows = [bare | {"last_run": "ok"}, *STATUS["sources"]]
    told = shown("status", STATUS | {"counts": counts, "sources": rows})
    assert "\n2 videos indexed without a package\n" in told
    assert "bare" not in told


def test_statistics_show_short_digests():
    stats = STATS | {"captions": {}, "ocr_read": 1, "vectors": 0, "thumbs": 1}
    stats |= {"embeddings_dim": None, "bytes": {}, "stale_channels": []}
    told = shown("stats", {"stats": stats | {"providers": [f"caption: x {'b' * 64}"]}})
    assert "b" * 12 in told
    assert "b" * 13 not in told


def test_an_answer_without_a_citation_is_told_so():
    told = shown("check", CHECKED | {"answer": ANSWER})
    assert "answer: 0 citations in 1 sentence" in told
    cited = {"cited": 2, "sentences": 3, "sentences_without_citation": 1}
    told = shown("check", CHECKED | {"answer": cited})
    assert "answer: cites 2 blocks in 3 sentences, 1 without a citation" in told


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_long_name_is_cut_and_the_state_beside_it_is_not(width):
    rows = [
        {"status": "unchanged", "slug": "-".join(["harbour"] * 15), "result": None},
        {"status": "packed", "slug": "tides", "result": "PASS, 12 warnings"},
    ]
    counts = {"packed": 1, "unchanged": 1, "failed": 0}
    data = {
        "items": rows,
        "counts": counts,
        "collection": "e",
        "playlists": [],
        "cleared": 0,
    }
    head, first, second, *rest = shown("pack", data, width).splitlines()
    assert first.startswith("unchanged  harbour")
    assert first.rstrip().endswith("…")
    assert second.startswith("packed     tides")
    assert second.rstrip().endswith("PASS, 12 warnings")
    assert max(map(len, (head, first, second))) <= width
    assert len(rest) == 1
