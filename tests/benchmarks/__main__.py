"Run the benchmarks that are named, or all of them."

import importlib
import sys

PARTS = ("vectors", "words", "fusion", "frames", "scan", "cuts", "models")

if __name__ == "__main__":
    wanted = sys.argv[1:] or PARTS
    if unknown := set(wanted) - set(PARTS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    for name in wanted:
        importlib.import_module(name).main()
