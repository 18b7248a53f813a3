"The site in a real browser, and the commands that its pages name."

import functools
import json
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = "net::ERR_FAILED"  # Fonts and formulas come from the web; here nothing does
WIDER = "document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="module")
def site(built_site):
    "The pages of the site."
    return built_site[0] / "_proc" / "_site"


@pytest.fixture(scope="module")
def address(site):
    "The site, served on loopback."

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def pages(site):
    return sorted(str(p.relative_to(site)) for p in site.rglob("*.html"))


def walk(site, address, browser, names):
    "Open pages one by one on a phone and say what is wrong with them."
    from browser_kit import PHONE, listen

    page = browser.new_page()
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.route(lambda url: not url.startswith(address), lambda route: route.abort())
    told = listen(page)
    bad = []
    for name in names:
        told.clear()
        page.goto(f"{address}/{name}", wait_until="load")
        wrong = [t for t in told if OUTSIDE not in t]
        wrong = [t for t in wrong if not t.startswith("not loaded") or address in t]
        wider = page.evaluate(WIDER)
        wrong += [f"{wider} px wider than a phone"] if wider > 1 else []
        wrong += [] if page.locator("h1").count() else ["no heading"]
        bad += [(name, wrong)] if wrong else []
    page.close()
    return bad


@pytest.mark.browser
def test_pages_open_without_an_error_and_fit_a_phone(site, address, browser):
    "All that people read first, and every twelfth page of the reference."
    names = pages(site)
    first = [n for n in names if n.count("/") != 1 or "glossary" in n or "how_to" in n]
    others = [n for n in names if n not in first]
    assert first and others
    assert walk(site, address, browser, [*first, *others[::12]]) == []


@pytest.mark.slow
@pytest.mark.browser
def test_every_page_opens_without_an_error_and_fits_a_phone(site, address, browser):
    assert walk(site, address, browser, pages(site)) == []


@pytest.mark.browser
def test_search_theme_and_widgets_twins_work(address, browser):
    page = browser.new_page()
    page.goto(f"{address}/nbs/tutorials/judging_a_golden_set.html")
    twin = page.locator(".v2c-panel").first
    twin.wait_for()
    assert twin.locator("svg").first.bounding_box()["width"] > 300
    paper = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert page.evaluate(paper) != light
    page.close()


def test_llms_txt_lists_every_page(site):
    text = (site / "llms.txt").read_text()
    for name in ("glossary", "how_to", "core", "judging_a_golden_set"):
        assert re.search(rf"{name}\.llms\.md", text), name


def commands():
    "Yield (page, words) of each vid2context line in the pages' shell blocks."
    for path in [*sorted((ROOT / "nbs").rglob("[!_.]*.ipynb"))]:
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "markdown":
                for block in re.findall(
                    r"```bash\n(.*?)```", "".join(cell["source"]), re.S
                ):
                    for line in block.splitlines():
                        line = line.split(" #")[0].strip()
                        if line.startswith("vid2context "):
                            yield path.name, line.split()[1:]


def test_commands_and_options_that_pages_name_exist():
    import typer

    import vid2context.cli  # noqa: F401  registers the commands
    from vid2context.__main__ import _add_servers
    from vid2context.shell import app

    _add_servers()
    root = typer.main.get_command(app)
    bad, seen = [], 0
    for page, words in commands():
        group = root
        for word in words:
            if word in getattr(group, "commands", {}):
                group = group.commands[word]
        named = [w.split("=")[0] for w in words if w.startswith("--")]
        known = {o for p in group.params for o in (*p.opts, *p.secondary_opts)}
        seen += 1
        missing = [name for name in named if name not in known]
        if group is root or missing:
            bad.append((page, " ".join(words), missing))
    assert seen > 20 and bad == []
