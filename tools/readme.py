"Write README.md from nbs/index.ipynb; `--check` says whether it is current."

import os
import re
import sys
from pathlib import Path

from nbdev.process import NBProcessor

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "nbs" / "index.ipynb"


def hidden(cell) -> bool:
    "Tell whether a cell is kept from readers."
    marks = cell.directives_
    include = marks.get("include", marks.get("include:", "true"))
    return "hide" in marks or "false" in str(include).lower()


def outputs(cell) -> list[str]:
    "Give the outputs of a code cell: Markdown as it is, text in a fence."
    parts = []
    for out in cell.get("outputs", []):
        data = out.get("data", {})
        if "text/markdown" in data:
            parts.append("".join(data["text/markdown"]))
        elif text := "".join(out.get("text", data.get("text/plain", ""))).rstrip():
            parts.append(f"```text\n{text}\n```")
    return parts


def relative(text: str) -> str:
    "Make links that are relative to nbs/ relative to the root."

    def fix(found: re.Match) -> str:
        target = found[2]
        if re.match(r"[a-z]+:|#|/", target):
            return found[0]
        return f"{found[1]}({os.path.normpath(f'nbs/{target}')})"

    return re.sub(r"(\[[^\]]*\])\(([^)\s]+)\)", fix, text)


def readme() -> str:
    "Compose the README of the index notebook."
    book = NBProcessor(INDEX, rm_directives=True, process=True).nb
    parts = ["<!-- Generated from nbs/index.ipynb by `make readme`. -->"]
    for cell in book.cells:
        if cell.cell_type == "raw" or hidden(cell) or not cell.source.strip():
            continue
        if cell.cell_type == "markdown":
            parts.append(relative(cell.source.strip()))
        else:
            parts += [f"```python\n{cell.source.strip()}\n```", *outputs(cell)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    target = ROOT / "README.md"
    if "--check" in sys.argv[1:]:
        current = target.read_text(encoding="utf-8") == readme()
        sys.exit(0 if current else "README.md is stale: run `make readme`")
    target.write_text(readme(), encoding="utf-8")
