"Time a whole search by stage, over some 3,000 units."

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench import CACHE, machine
from serve import make

from vid2context.latency import Ask, stage_table, time_warm, timing_frame
from vid2context.pipeline import Library
from vid2context.service import Service

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "golden" / "samples.jsonl"
COPIES = (15, 15, 5)  # Packages of each copy of the sample clips
ROUNDS = 5
AIM_MS = 5.0


def build(home: Path) -> Path:
    "Index the sample clips once more under other names, as often as it takes."
    library = make(home)
    for n, count in enumerate(COPIES):
        copy = home / f"copy-{n}"
        shutil.copytree(home / "evidence", copy)
        manifest = copy / "manifest.json"
        listed = json.loads(manifest.read_text())
        listed["videos"] = listed["videos"][:count]
        manifest.write_text(json.dumps(listed))
        service = Service(library)
        service.sync([copy])
        service.close()
    return library


class Remembering:
    "Embed every text once."

    def __init__(self, embedder: Any) -> None:
        self.embedder = embedder
        self.made: dict[str, np.ndarray] = {}

    def embed(self, texts: list[str], kind: str) -> np.ndarray:
        (text,) = texts
        if text not in self.made:
            self.made[text] = self.embedder.embed(texts, kind)
        return self.made[text]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)


def stages(library: Library) -> Ask:
    "Time a search, and what it does beside its channels."

    def ask(query: str) -> dict[str, float]:
        start = time.perf_counter()
        ranking = library.retriever.search(query, abstain=False).ranking
        rest = time.perf_counter() - start - sum(ranking.seconds.values())
        return {**ranking.seconds, "fuse, join, show": rest}

    return ask


def main() -> None:
    "Ask the golden questions, again and again."
    home = CACHE / "search"
    library = home / "library"
    if not library.is_dir():
        draft = home.with_name(".search")
        shutil.rmtree(draft, ignore_errors=True)
        build(draft)
        draft.rename(home)
    queries = [json.loads(line)["query"] for line in GOLDEN.open()] * ROUNDS
    with Library(library) as asked, Library(library) as known:
        units = asked.catalog.counts()["units"]
        known.retriever.engine.embedder = Remembering(asked.retriever.engine.embedder)
        systems = {"vectors known": stages(known), "model between": stages(asked)}
        for query in set(queries):
            known.retriever.search(query)
        timings = time_warm(systems, queries, seed=5)
    places = {(t.system, t.query): t.ms for t in timings if t.stage == "embed"}
    timings += [
        replace(t, stage="without embedding", ms=t.ms - places[t.system, t.query])
        for t in timings
        if t.stage == "total"
    ]
    print(f"\n## A whole search over {units:,} units, {len(queries)} queries\n")
    print(stage_table(timing_frame(timings))._repr_markdown_())
    print(f"\nAim: p50 of {AIM_MS:g} ms without the embedding. {machine()}")


if __name__ == "__main__":
    main()
