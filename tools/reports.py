"""Make the runs of the reports anew, then run their notebooks and keep the outputs.

python tools/reports.py [PART ...]   none: all of them

Times belong to the machine and to its load: run
sampling, latency and exact when nothing else runs.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "nbs" / "reports").glob("[0-9]*_study.ipynb"))


def run_pages() -> None:
    "Run every report from the stored runs."
    from nbdev.test import test_nb

    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    for page in PAGES:
        start = time.monotonic()
        flags = ["notest", "slow"]
        ok, _ = test_nb(page, flags, basepath=ROOT, cell_timeout=600, save=True)
        print(
            f"{page.name}: {'ok' if ok else 'FAILED'}, {time.monotonic() - start:.0f} s"
        )
        if not ok:
            sys.exit(1)
    names = [str(page) for page in PAGES]
    subprocess.run([sys.executable, "tools/clean.py", *names], cwd=ROOT, check=True)


def steps() -> dict[str, Callable[[], object]]:
    "Name what the slow cells of the reports do."
    from vid2context import quote_studies, sampling_studies, serving_studies, studies
    from vid2context.options import Settings
    from vid2context.workshop import Workshop

    shop = Workshop(ROOT / "data", ROOT / "build" / "reports")
    seed = Settings().evaluation.seed
    rows, script = shop.runs / "exact-search.jsonl.gz", ROOT / "tests" / "benchmarks"
    return {
        "retrieval": lambda: studies.make_retrieval_runs(shop),
        "sampling": lambda: sampling_studies.make_sampling_runs(shop, seed=seed),
        "quotes": lambda: quote_studies.make_quote_run(
            shop.runs / "quotes", n=quote_studies.QUOTES, seed=seed
        ),
        "bundles": lambda: serving_studies.make_bundle_runs(shop, seed=seed),
        "latency": lambda: serving_studies.make_latency_runs(shop, seed=seed),
        "exact": lambda: serving_studies.make_exact_run(
            rows, script / "exact_search.py"
        ),
        "pages": run_pages,
    }


if __name__ == "__main__":
    known = steps()
    unknown = sorted(set(sys.argv[1:]) - set(known))
    if unknown:
        sys.exit(f"{unknown[0]!r} is no part; the parts are {', '.join(known)}")
    for name in sys.argv[1:] or known:
        start = time.monotonic()
        known[name]()
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
