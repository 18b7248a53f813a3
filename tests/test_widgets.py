"Each view in a real JupyterLab, driven by a real Chromium; what is shown is read."

import json
import shutil

import pytest

from vid2context.media import write_clip
from vid2context.options import Providers, Settings
from vid2context.packing import Packer
from vid2context.pipeline import Library
from vid2context.review import read_checklist

pytestmark = pytest.mark.browser
PAYLOAD = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'
SETTINGS = Settings(providers=Providers(encoder="off"))
BLIND = Settings(providers=Providers(encoder="off", text_reader="off"))


@pytest.fixture(scope="module")
def shelf(lab, clips):
    "A library of two clips beside the notebooks, and a title that attacks."
    home = lab.folder
    for name, settings in (("review-ana", BLIND), ("lecture-tides", SETTINGS)):
        shutil.copy(clips / f"{name}.mp4", home)
        for side in clips.glob(f"{name}.*.vtt"):
            shutil.copy(side, home)
        packer = Packer(home / "evidence", settings=settings)
        packer.pack([str(home / f"{name}.mp4")])
    with Library(home / "library", settings=SETTINGS) as library:
        library.sync(home / "evidence")
        ids = {row.title: row.video_id for row in library.catalog.packages()}
    return ids


OPEN = """
from pathlib import Path
from vid2context.options import Providers, Settings
from vid2context.pipeline import Library
settings = Settings(providers=Providers(encoder="off"))
library = Library("library", settings=settings)
ids = {row.title: row.video_id for row in library.catalog.packages()}
videos = {video: Path(f"{title}.mp4") for title, video in ids.items()}
"""


def test_the_inspector_moves_through_frames_and_asks(lab, browser, shelf):
    cells = [OPEN, """
from vid2context.frame_inspector import frame_inspector
frame_inspector(library, ids["lecture-tides"], query="slack water")
"""]  # fmt: skip
    page = lab.open(browser, "inspector.ipynb", cells)
    lab.run(page)
    card = page.locator(".v2c-frame")
    card.get_by_text("Lasts 20 minutes").wait_for()
    assert page.locator(".v2c-timeline svg rect").count() > 20
    before = page.locator(".v2c-timeline .v2c-head").inner_text()
    page.locator(".v2c-place .noUi-handle").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "old => document.querySelector('.v2c-timeline .v2c-head').innerText !== old",
        arg=before,
    )
    page.locator(".v2c-query input").fill("spring and neap tides")
    page.keyboard.press("Enter")
    card.get_by_text("Cycle: 14.8 days").wait_for()
    shown = card.locator("img").first
    assert shown.evaluate("image => image.naturalWidth") > 100
    page.close()


def test_the_explorer_compares_lists_and_plays_a_moment(lab, browser, shelf):
    cells = [OPEN, """
from vid2context.retrieval_explorer import retrieval_explorer
retrieval_explorer(library, "how long does the battery last", videos=videos)
"""]  # fmt: skip
    page = lab.open(browser, "explorer.ipynb", cells)
    lab.run(page)
    page.locator(".v2c-why").get_by_text("outlived my phone").wait_for()
    assert page.locator(".v2c-chart polyline").count() >= 2
    heads = page.locator(".v2c-columns .v2c-list > strong").all_inner_texts()
    assert {"lexical transcript", "dense transcript", "fused"} <= set(heads)
    assert "battery" in page.locator(".v2c-why mark").all_inner_texts()
    page.locator("button.v2c-play").click()
    page.locator(".v2c-why video").wait_for()
    page.wait_for_function("document.querySelector('.v2c-why video').duration > 2")
    page.locator(".v2c-query input").fill("where do pilots wait")
    page.keyboard.press("Enter")
    page.locator(".v2c-chart").get_by_text("“where do pilots wait”").wait_for()
    page.close()


def test_judging_needs_nothing_but_keys(lab, browser, shelf):
    video = shelf["lecture-tides"]
    cells = [OPEN, f"""
from vid2context.judging import judge
from vid2context.pools import PoolEntry
pool = [PoolEntry("q1", {PAYLOAD!r}, f"evidence:{video}#{{a}}000-{{a + 8}}000",
                  {video!r}, a, a + 8) for a in (0, 19, 43)]
judge(library, pool, path="decisions.jsonl", assessor="ana", videos=videos)
"""]  # fmt: skip
    page = lab.open(browser, "judging.ipynb", cells)
    lab.run(page)
    task = page.locator(".v2c-task")
    task.get_by_text("1 of 3, ana").wait_for()
    assert PAYLOAD in task.inner_text()
    assert page.evaluate("window.hit") is None
    assert "rank" not in task.inner_text() and "dense" not in task.inner_text()
    page.locator(".v2c-keys input").focus()
    for key, place in (("1", "2 of 3"), ("u", "1 of 3"), ("0", "2 of 3"), ("2", "3")):
        page.keyboard.press(key)
        task.get_by_text(place).first.wait_for()
    page.locator("button.v2c-grade-3").click()
    task.get_by_text("All 3 graded, and written.").wait_for()
    rows = (lab.folder / "decisions.jsonl").read_text().splitlines()
    assert [json.loads(row)["grade"] for row in rows] == [0, 2, 3]
    page.close()


def test_failure_cards_show_causes_and_hostile_names_as_text(lab, browser, shelf):
    video = shelf["review-ana"]
    cells = [OPEN, f"""
from vid2context.failure_views import failure_cards_view
from vid2context.failures import CardHit, FailureCard
truth = CardHit(0, {video!r}, {PAYLOAD!r}, 24.0, 30.0, True, False, 0.0, {{}})
hit = CardHit(1, {video!r}, "javascript:window.hit=1", 0.0, 9.0, False, True, 0.03,
              {{"dense": (2, 0.016)}})
card = FailureCard("p1", "n1", {PAYLOAD!r}, "on_screen", 0.0, "nDCG@10", (truth,),
                   (hit,), "confident", "fused_away", b"<svg onload='window.hit=1'/>")
failure_cards_view([card], videos=videos)
"""]  # fmt: skip
    page = lab.open(browser, "failures.ipynb", cells)
    lab.run(page)
    front = page.locator(".v2c-card-in-front")
    front.get_by_text("fused_away: a list had it").wait_for()
    assert PAYLOAD in front.inner_text() and "trap" in front.inner_text()
    page.get_by_role("button", name="▶ truth").click()
    front.locator("video").wait_for()
    assert page.evaluate("window.hit") is None
    assert front.locator("a, script, svg image, [onload], [onerror]").count() == 0
    page.close()


def test_the_checklist_is_ticked_in_the_notebook(lab, browser, tmp_path):
    import numpy as np

    frames = [np.full((90, 160, 3), 8 * i, np.uint8) for i in range(25)]
    write_clip(tmp_path / "grey.mp4", frames, fps=5)
    root = lab.folder / "drafts"
    Packer(root, settings=BLIND).pack([str(tmp_path / "grey.mp4")])
    cells = ["""
from vid2context.review_checklist import ReviewChecklist
ReviewChecklist("drafts/videos/grey")
"""]  # fmt: skip
    page = lab.open(browser, "review.ipynb", cells)
    lab.run(page)
    rows = page.locator(".v2c-item")
    rows.first.wait_for()
    assert rows.count() == 16
    rows.nth(0).get_by_role("button", name="yes").click()
    rows.nth(1).get_by_role("button", name="no", exact=True).click()
    page.locator(".v2c-reviewer input").fill("Ana")
    page.keyboard.press("Enter")
    page.locator("button.v2c-record").click()
    page.locator(".v2c-told").get_by_text("needs a note").wait_for()
    assert not (root / "videos" / "grey" / "evidence" / "review.json").exists()
    rows.nth(1).locator(".v2c-note input").fill("it is cut short")
    page.keyboard.press("Enter")
    page.locator("button.v2c-record").click()
    page.locator(".v2c-review-head").get_by_text("nothing waits").wait_for()
    states = {i.state: i.note for i in read_checklist(root / "videos" / "grey").items}
    assert states == {"yes": None, "no": "it is cut short"}
    page.close()
