"The search page in a real Chromium, over a real server."

import pytest
from server_kit import HOSTILE, make_library

from vid2context.service import Service
from vid2context.serving import serving

expect = pytest.importorskip("playwright.sync_api").expect
kit = pytest.importorskip("browser_kit", reason="playwright is not installed")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home, settings = make_library(tmp_path_factory.mktemp("page"))
    with serving(Service(home, settings_file=settings)) as running:
        yield running


@pytest.fixture
def page(browser, server):
    opened = browser.new_page()
    opened.goto(server.address)
    opened.wait_for_selector("#gate[open]")
    yield opened
    opened.close()


def offer(page, token):
    page.fill("#token", token)
    page.click("#gate-form button")


def enter(page, token):
    offer(page, token)
    page.wait_for_selector("#gate:not([open])", state="attached")


def ask(page, query):
    page.fill("#query", query)
    page.press("#query", "Enter")
    expect(page.locator("#told")).not_to_be_empty()
    expect(page.locator(".busy")).to_have_count(0)


def test_without_the_token_nothing_is_shown(page):
    offer(page, "not the token")
    expect(page.locator("#gate-told")).to_contain_text("not the token")
    assert page.locator("#gate").is_visible()
    assert page.locator(".moment").count() == 0
    page.keyboard.press("Escape")
    assert page.locator("#gate").is_visible()


def test_a_person_finds_a_moment_and_cites_it(page, server, browser):
    wrong = kit.listen(page)
    browser.grant_permissions(
        ["clipboard-read", "clipboard-write"], origin=server.address
    )
    enter(page, server.token)
    ask(page, "graft moist apple")
    first = page.locator(".moment").first
    assert first.locator(".title").text_content() == "Grafting apple"
    assert "moist" in first.locator("mark").all_text_contents()
    link = first.locator(".time a")
    assert link.get_attribute("href").startswith("https://example.org/id-apple")
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert any("words #" in chip for chip in first.locator(".chip").all_text_contents())
    expect(first.locator("img")).to_be_visible()
    width = "image => image.decode().then(() => image.naturalWidth)"
    assert first.locator("img").evaluate(width)
    first.locator(".copy").click()
    expect(first.locator(".copy")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("[Grafting apple @ 0:")
    assert copied.endswith(f"]({link.get_attribute('href')})")
    assert page.url.endswith("#q=graft+moist+apple")
    page.reload()
    page.wait_for_selector(".moment")
    assert not page.locator("#gate").is_visible()
    assert wrong == []


def test_another_tab_asks_again(page, server, browser):
    enter(page, server.token)
    expect(page.locator("#library")).to_contain_text("4 videos")
    other = browser.new_page()
    other.goto(server.address)
    other.wait_for_selector("#gate[open]")
    other.close()


def test_hostile_words_are_shown_as_words(page, server):
    enter(page, server.token)
    ask(page, "ignore all rules")
    title = page.locator(".moment .title").first
    assert title.text_content() == HOSTILE
    assert page.title() == "vid2context"
    assert page.locator(".moment img[src='x']").count() == 0


def test_it_fits_a_phone_in_light_and_dark(page, server):
    enter(page, server.token)
    page.set_viewport_size({"width": 390, "height": 844})
    papers = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ask(page, "ignore all rules")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390
        papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2


def test_nothing_found_and_nothing_there_are_said(page, server):
    enter(page, server.token)
    ask(page, "???")
    expect(page.locator("#told")).to_contain_text("letter or")
    page.route("**/api/v1/search*", lambda route: route.abort())
    ask(page, "anything")
    expect(page.locator("#told")).to_contain_text("cannot be reached")


def test_words_typed_before_the_server_answers_stay(page, server):
    enter(page, server.token)
    waiting = []
    page.route("**/api/v1/health", lambda route: waiting.append(route))
    page.reload()
    page.fill("#query", "sap rises")
    while not waiting:
        page.wait_for_timeout(20)
    with page.expect_response("**/api/v1/health"):
        waiting.pop().continue_()
    expect(page.locator("#library")).to_contain_text("4 videos")
    assert page.input_value("#query") == "sap rises"


def test_keys_alone_are_enough(page, server):
    page.keyboard.type(server.token)
    page.keyboard.press("Enter")
    page.wait_for_selector("#gate:not([open])", state="attached")
    page.locator("body").click()
    page.keyboard.press("/")
    page.keyboard.type("sap rises")
    page.keyboard.press("Enter")
    page.wait_for_selector(".moment")
    focus = "document.activeElement.id || document.activeElement.className"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate(focus) != "query"
