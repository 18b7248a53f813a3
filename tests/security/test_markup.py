"Foreign text in a card or a widget is shown, never run."

import io
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vid2context.core import UsageError
from vid2context.frame_timeline import Inspection, SeenFrame
from vid2context.glimpses import Glimpse
from vid2context.markup import MOST_PIXELS, jpeg, link, panel, picture, tag
from vid2context.rank_changes import Exploration, Listed, Share, Shown

PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202etxt.exe<b>\x00</b>",
    "<!--<iframe src=//a.example>-->",
]
CALM = {"style", "div", "p", "span", "strong", "svg", "g", "rect", "line", "text",
        "title", "circle", "polyline", "img", "table", "thead", "tbody", "tr", "td",
        "th", "ol", "li", "br", "mark", "details", "summary", "a", "video"}  # fmt: skip


class Reader(HTMLParser):
    "Collect elements, attributes and text as a browser would."

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.words = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)


def check(html, payload):
    page = Reader(html)
    assert page.tags <= CALM
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    for name, value in page.attributes:
        if name in {"href", "src"}:
            assert value.startswith(("https://", "http://", "data:image/jpeg;base64,"))
    return page


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_card_shows_a_payload_as_text(payload):
    frame = SeenFrame(0.0, 1.0, payload, payload, payload, payload, payload,
                      {"dense": 0.5}, {"dense": 1}, payload.encode())  # fmt: skip
    shown = Shown(1, payload, payload, 0.0, 1.0, 0.1, {"dense": Share(1, 0.5, 0.1)},
                  payload, payload, payload, (payload,), payload,
                  payload.encode())  # fmt: skip
    listed = Listed(1, 0.5, payload, 0.0, payload, 1)
    values = [
        Inspection(payload, payload, 2.0, payload, ("dense",), (frame,), ((0, 1),)),
        Exploration(payload, payload, 1.0, {"dense": 1.0}, {"dense": (listed,)},
                    (shown,), (payload,)),
        Glimpse(payload, payload, 0.0, 1.0, payload, (payload,), (payload,),
                ((0.0, payload.encode()),), payload),
    ]  # fmt: skip
    for value in values:
        page = check(value._repr_html_(), payload)
        letters = "".join(c for c in payload if c.isalnum())
        seen = "".join(c for c in "".join(page.words) if c.isalnum())
        assert letters in seen


@settings(deadline=None)
@given(st.text(), st.text())
def test_any_text_comes_back_from_an_element_and_an_attribute(words, title):
    page = Reader(panel(tag("p", words, title=title)).html)
    assert page.tags <= {"style", "div", "p"}
    shown = [value for name, value in page.attributes if name == "title"]
    assert len(shown) == 1 and "\x00" not in shown[0]


@settings(deadline=None)
@given(st.text())
def test_no_text_becomes_a_link_that_is_not_of_the_web(address):
    page = Reader(link(address, "here").html)
    for name, value in page.attributes:
        if name == "href":
            assert value.lower().startswith(("http://", "https://"))


@pytest.mark.parametrize(
    "data",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"GIF89a<script>alert(1)</script>",
        b"\x89PNG\r\n\x1a\n" + b"\x00" * 64,
        b"",
    ],
)
def test_what_is_no_picture_leaves_no_image(data):
    assert jpeg(data) is None
    assert "<img" not in picture(data, alt="a").html


def test_metadata_of_a_picture_is_left_behind():
    exif = Image.Exif()
    exif[0x010E] = "<script>secret</script>"
    out = io.BytesIO()
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(out, "JPEG", exif=exif)
    assert b"secret" in out.getvalue() and b"secret" not in jpeg(out.getvalue())


def test_a_picture_of_too_many_pixels_is_not_opened():
    side = int(MOST_PIXELS**0.5) + 1
    out = io.BytesIO()
    Image.new("1", (side, side)).save(out, "PNG")
    assert jpeg(out.getvalue()) is None


def test_only_a_film_of_ours_is_a_film():
    from vid2context.markup import film

    with pytest.raises(UsageError):
        film(b"<html>", label="x")
