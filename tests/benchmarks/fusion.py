"Fuse four lists of 200 ids by reciprocal rank."

import random
from collections import defaultdict

import numpy as np
from bench import optional, race, show

from vid2context.fusion import fuse, fuse_rows

TIMES = 50  # Calls in one run


def lists_of(seed: int) -> dict[str, list[str]]:
    "Draw four lists that overlap as channels do."
    draw = random.Random(seed)
    pool = [f"u{i:04d}" for i in range(500)]
    return {name: draw.sample(pool, 200) for name in ("a", "b", "c", "d")}


def by_dict(lists: dict[str, list[str]], k: float) -> list[str]:
    scores: dict[str, float] = defaultdict(float)
    for ids in lists.values():
        for rank, name in enumerate(ids, 1):
            scores[name] += 1 / (k + rank)
    ranked = sorted(scores.items(), key=lambda item: (-round(item[1], 12), item[0]))
    return [name for name, _ in ranked]


def main() -> None:
    lists = lists_of(3)
    weights = dict.fromkeys(lists, 1.0)
    ids = sorted({name for found in lists.values() for name in found})
    row = {name: i for i, name in enumerate(ids)}
    numbers = {n: np.array([row[u] for u in found]) for n, found in lists.items()}
    expected = by_dict(lists, 60.0)
    rows, _ = fuse_rows(numbers, weights, k=60.0)
    assert [ids[i] for i in rows.tolist()] == expected
    assert [f.id for f in fuse(lists, weights, k=60.0)] == expected
    ranx = optional("ranx")
    runs = []
    if ranx is not None:
        runs = [
            ranx.Run({"q": {u: 1 / (i + 1) for i, u in enumerate(found)}})
            for found in lists.values()
        ]
    taken = race(
        {
            "ours, row numbers": lambda: [
                fuse_rows(numbers, weights, k=60.0) for _ in range(TIMES)
            ],
            "ours, ids, and who gave what": lambda: [
                fuse(lists, weights, k=60.0) for _ in range(TIMES)
            ],
            "a dict of ids": lambda: [by_dict(lists, 60.0) for _ in range(TIMES)],
            "ranx rrf": (
                (
                    lambda: [
                        ranx.fuse(runs=runs, method="rrf", params={"k": 60})
                        for _ in range(TIMES)
                    ]
                )
                if ranx is not None
                else None
            ),
        },
        rounds=5,
    )
    show(
        "Fusion of 4 lists of 200",
        taken,
        per=TIMES,
        notes={"ours, row numbers": "same order as the dict"},
        reach={"a dict of ids": 2.5, "ranx rrf": 50},
    )
    by_ids = {name: runs for name, runs in taken.items() if name != "ours, row numbers"}
    show("The same, by ids", by_ids, per=TIMES, reach={"a dict of ids": 2.5})


if __name__ == "__main__":
    main()
