"Ask a running server: first byte of a warm search, then fifty clients at once."

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
from bench import machine

from vid2context.demo import QUESTIONS, clip_ids
from vid2context.service import Service

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from server_kit import serve  # noqa: E402

CLIENTS = 50
LASTS_S = float(os.environ.get("SERVE_SECONDS", "30"))
WORDS = ("tide", "harbour", "glue", "megavatios", "rank fusion", "the camera", "k")


def make(folder: Path) -> Path:
    "Pack and sync the sample clips."
    clips = ROOT / "data" / "clips"
    videos = [str(p) for p in sorted(clips.iterdir()) if p.stem in clip_ids(clips)]
    media = [v for v in videos if Path(v).suffix in (".mp4", ".mkv", ".webm")]
    service = Service(folder / "library")
    service.pack(media, collection=folder / "evidence")
    service.sync([folder / "evidence"])
    service.close()
    return folder / "library"


def first_byte(ask: httpx.Client, query: str) -> float:
    "Milliseconds until the first byte of an answer."
    start = time.perf_counter()
    with ask.stream("GET", "/api/v1/search", params={"q": query}) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        taken = time.perf_counter() - start
        assert answer.status_code == 200
        for _ in chunks:
            pass
    return taken * 1000


async def load(address: str, token: str) -> tuple[list[float], dict[int, int]]:
    "Let many clients ask, each as fast as it is answered."
    queries = [query for _, query, _ in QUESTIONS] + list(WORDS)
    headers = {"authorization": f"Bearer {token}"}
    taken: list[float] = []
    codes: dict[int, int] = {}
    end = time.perf_counter() + LASTS_S

    async def one(n: int, ask: httpx.AsyncClient) -> None:
        while time.perf_counter() < end:
            start = time.perf_counter()
            params = {"q": queries[n % len(queries)]}
            answer = await ask.get("/api/v1/search", params=params)
            taken.append((time.perf_counter() - start) * 1000)
            codes[answer.status_code] = codes.get(answer.status_code, 0) + 1
            n += 1

    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(
        base_url=address, headers=headers, timeout=120, limits=limits
    ) as ask:
        await asyncio.gather(*(one(n, ask) for n in range(CLIENTS)))
    return taken, codes


def main() -> None:
    named = os.environ.get("SERVE_LIBRARY", "")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        home = Path(named) if named else make(folder)
        settings = folder / "settings.ini"
        settings.write_text("[vid2context]\nversion = 1\n")
        with serve(home, settings, "--workers", "0") as (running, token):
            headers = {"authorization": f"Bearer {token}"}
            with httpx.Client(
                base_url=running.address, headers=headers, timeout=120
            ) as ask:
                queries = [query for _, query, _ in QUESTIONS]
                for query in queries * 4:
                    first_byte(ask, query)
                alone = [first_byte(ask, query) for query in queries * 20]
            taken, codes = asyncio.run(load(running.address, token))
    print(machine())
    alone.sort()
    taken.sort()
    print(
        f"first byte of a warm search: p50 {statistics.median(alone):.1f} ms, "
        f"p95 {alone[int(0.95 * len(alone))]:.1f} ms ({len(alone)} asked)"
    )
    print(
        f"{CLIENTS} clients for {LASTS_S:g} s: {len(taken)} answers, "
        f"{len(taken) / LASTS_S:.0f}/s, p50 {statistics.median(taken):.0f} ms, "
        f"p95 {taken[int(0.95 * len(taken))]:.0f} ms, by status {codes}"
    )
