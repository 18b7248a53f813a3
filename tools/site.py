"Build the site without Quarto: nbdev stages the pages, smalldocs renders them."

import os
import re
import sys
from pathlib import Path

from nbdev.config import get_config, nbpath2html
from nbdev.serve import proc_nbs
from smalldocs.site import build

SKIP = r"^[_.]|^(data|tests|tools|vid2context|demo|bundles)$|\.egg-info$"


def stage() -> Path:
    "Write processed pages to `_proc`, under the names that nbdev's links use."
    config = get_config()
    root = Path(proc_nbs(n_workers=0, force=True, skip_folder_re=SKIP))
    pages = sorted(root.rglob("*.ipynb"))
    names = {p.name: nbpath2html(p).with_suffix(".ipynb").name for p in pages}
    if len(set(names.values())) < len(pages):
        sys.exit("two notebooks would share one page name")
    url = f"{config.doc_host}{config.doc_baseurl}".rstrip("/") + "/"
    for page in [*pages, *root.rglob("*.qmd"), root / "_quarto.yml"]:
        text = page.read_text(encoding="utf-8")
        text = text if url == "/" else text.replace(url, "/")
        text = re.sub(r"output-file: \S+?\.html\\n", "", text)
        text = re.sub(r"[\w.-]+\.ipynb", lambda m: names.get(m[0], m[0]), text)
        page.unlink()
        target = page.with_name(names.get(page.name, page.name))
        target.write_text(text, encoding="utf-8")
    return root


if __name__ == "__main__":
    site = build(stage())
    print(*(f"warning: {w}" for w in site.warnings), sep="\n")
    sys.stdout.flush()
    # Each staged page leaves a shell, and each would collect garbage at a plain exit.
    os._exit(bool(site.warnings))
