"Clean notebooks: nbdev's rules, and outputs without traces of one run."

import re
import sys
from pathlib import Path

from fastcore.nbio import nb2str, read_nb
from nbdev.clean import clean_nb
from nbdev.config import get_config

WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "python3", "language": "python", "name": "python3"}
TRACES = [
    (re.compile(r" at 0x[0-9a-f]+"), ""),
    (re.compile(r"[^\s'\"<>]*/tmp[\w.-]*/[^\s'\"<>]*"), "…"),
    (re.compile(r"(?m)^(CPU times|Wall time):.*\n?"), ""),
]


def scrub(text):
    "Drop addresses, temporary paths and timings from an output's text."
    whole = text if isinstance(text, str) else "".join(text)
    for pattern, instead in TRACES:
        whole = pattern.sub(instead, whole)
    return whole if isinstance(text, str) else whole.splitlines(True)


def scrub_output(out):
    "Scrub one output; None when nothing stable is left of it."
    data = out.get("data")
    if data is not None:
        data.pop(WIDGET, None)
        if "text/markdown" in data:
            data.pop("text/plain", None)  # the same value again, with its paths
        for kind in data:
            if kind.startswith("text/"):
                data[kind] = scrub(data[kind])
        return out if data else None
    if "text" in out:
        out["text"] = scrub(out["text"])
        return out if "".join(out["text"]) else None
    return out


def clean(path: Path, config) -> str:
    "Give the clean text of a notebook."
    book = read_nb(path)
    clean_nb(
        book,
        allowed_cell_metadata_keys=config.allowed_cell_metadata_keys,
        clean_ids=config.clean_ids,
        allowed_out_metadata_keys=config.allowed_out_metadata_keys,
    )
    book["metadata"].pop("widgets", None)
    book["metadata"]["kernelspec"] = dict(KERNEL)
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            kept = [scrub_output(out) for out in cell["outputs"]]
            cell["outputs"] = [out for out in kept if out]
    return nb2str(book)


def main(words: list[str]) -> int:
    "Clean the named notebooks or folders; with --check only name the unclean ones."
    config = get_config()
    unclean = 0
    for place in [w for w in words if w != "--check"] or ["nbs"]:
        start = Path(place)
        books = [start] if start.is_file() else sorted(start.rglob("[!_.]*.ipynb"))
        for path in books:
            text = clean(path, config)
            if text == path.read_text(encoding="utf-8"):
                continue
            unclean += 1
            if "--check" in words:
                print(f"{path} is not clean: run tools/clean.py", file=sys.stderr)
            else:
                path.write_text(text, encoding="utf-8")
    return int("--check" in words and unclean > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
