"Time alternatives side by side in one process, and print ratios."

import gc
import importlib
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

CACHE = Path(tempfile.gettempdir()) / "vid2context-bench"


def machine() -> str:
    "Say what the numbers were measured on, in one line."
    model = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text().splitlines()
        model = next((x.split(":")[1] for x in lines if x.startswith("model name")), "")
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    tuned = [name for name in os.environ if name.startswith("OPENBLAS_")]
    parts = [
        model.strip(),
        f"{os.cpu_count()} cores",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        load,
        *(f"{name}={os.environ[name]}" for name in tuned),
    ]
    return ", ".join(part for part in parts if part)


def optional(
    name: str,  # A module that only benchmarks use
) -> ModuleType | None:  # None where it is not installed
    "Import an alternative if it is here."
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def program(
    name: str,  # On the search path
) -> str | None:
    "Find a program if it is here."
    return shutil.which(name)


class Taken(dict[str, list[float]]):
    "Hold the seconds of each run, and beside them those of the processors."

    cpu: dict[str, list[float]]


def processor_s() -> float:
    "Read the processor time of this process and of its children that ended."
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def race(
    runners: Mapping[str, Callable[[], object] | None],  # None: not installed
    *,
    rounds: int,  # Each runs so often, in turn
    warm: bool = True,  # One round before, not counted
) -> Taken:  # Empty lists where nothing ran
    "Let the alternatives take turns, each first in its turn: A B C, B C A, …"
    taken = Taken((name, []) for name in runners)
    taken.cpu = {name: [] for name in runners}
    present = [(name, run) for name, run in runners.items() if run is not None]
    for i in range(rounds + warm):
        at = i % len(present)
        for name, run in present[at:] + present[:at]:
            gc.collect()
            began, spent = time.perf_counter(), processor_s()
            run()
            if i or not warm:
                taken[name].append(time.perf_counter() - began)
                taken.cpu[name].append(processor_s() - spent)
    return taken


def show(
    title: str,  # What was measured
    taken: Mapping[str, Sequence[float]],  # From `race`, ours first
    *,
    per: int = 1,  # Pieces of work in one run
    notes: Mapping[str, str] | None = None,  # Name → what else is to say
    reach: Mapping[str, float] | None = None,  # Name → ratio that is aimed at
) -> None:
    "Print medians, and how many times longer than ours each takes; best by best too."
    notes, reach = notes or {}, reach or {}
    first = next(iter(taken.values()))
    ours, quickest = statistics.median(first) / per, min(first) / per
    print(f"\n## {title}\n")
    cpu = getattr(taken, "cpu", {})
    print("| method | median ms | range ms | CPU ms | ÷ ours | ÷ ours, best | aim | |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name, runs in taken.items():
        note = notes.get(name, "")
        if not runs:
            print(f"| {name} | – | – | – | – | – | | {note or 'not installed'} |")
            continue
        values = [1000 * run / per for run in runs]
        middle = statistics.median(values)
        aim = f"{reach[name]:g}" if name in reach else ""
        span = f"{min(values):.3g}–{max(values):.3g}"
        ratio = middle / 1000 / ours
        spent = f"{1000 * statistics.median(cpu[name]) / per:.3g}" if cpu else "–"
        best = f"{min(values) / 1000 / quickest:.2f}"
        row = (name, f"{middle:.3g}", span, spent, f"{ratio:.2f}", best, aim, note)
        print(f"| {' | '.join(row)} |")
    rounds = max(map(len, taken.values()))
    print(f"\n{rounds} rounds, taking turns. {machine()}")
