"Run the benchmarks that are named, or all but the largest."

import importlib
import sys

PARTS = (
    "vectors",
    "words",
    "fusion",
    "search",
    "frames",
    "scan",
    "cuts",
    "models",
    "quotes",
    "serve",
    "visual",
)
BY_NAME = ("million",)  # Too large to run unasked

if __name__ == "__main__":
    wanted, known = sys.argv[1:] or PARTS, (*PARTS, *BY_NAME)
    if unknown := set(wanted) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    for name in wanted:
        importlib.import_module(name).main()
