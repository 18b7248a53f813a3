"""Reading text and captioning: shapes, modes, colour order, reuse, offline."""

import json
import socket
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from vid2context.captioning import RapidReader, read_frames, reading_order
from vid2context.core import Vid2ContextError
from vid2context.kinds import ProviderDescriptor, TextLine, provider_problems
from vid2context.options import Captioning, Settings
from vid2context.plain_captions import BasicCaptioner, caption_problem, picture_facts

FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"


def draw(
    text, size=(640, 200), *, ink=(0, 0, 0), back=(255, 255, 255), px=40, mode="RGB"
):
    picture = Image.new(mode, size, back)
    font = ImageFont.truetype(FONT, px)
    ImageDraw.Draw(picture).text((30, size[1] // 3), text, ink, font=font)
    return picture


def squeezed(lines):
    return "".join(line.text for line in lines).replace(" ", "").lower()


@pytest.fixture(scope="module")
def reader():
    return RapidReader()


def test_it_fits_its_kind_and_says_what_it_reads(reader):
    assert provider_problems("ocr", reader) == []
    assert provider_problems("captioner", BasicCaptioner()) == []
    assert not {"ru", "he", "hi", "th", "ko"} & set(reader.descriptor.languages)
    assert reader.descriptor.weights_sha256 and not reader.descriptor.network


def test_pictures_of_every_mode_give_their_text(reader):
    red_on_clear = Image.new("RGBA", (640, 200), (0, 0, 0, 0))
    font = ImageFont.truetype(FONT, 40)
    ImageDraw.Draw(red_on_clear).text((30, 60), "Red gate 7", (180, 0, 0), font=font)
    grey = draw("Red gate 7", mode="L", ink=0, back=255)
    for picture in (red_on_clear, grey, grey.convert("1"), grey.convert("P")):
        assert squeezed(reader.read(picture)) == "redgate7"


def test_the_order_of_colours_does_not_matter(reader):
    picture = draw("Silver price 9316", ink=(200, 30, 20), back=(20, 30, 90))
    turned = Image.fromarray(np.asarray(picture)[:, :, ::-1].copy())
    assert squeezed(reader.read(picture)) == squeezed(reader.read(turned))


@pytest.mark.parametrize("size", [(1, 1), (2, 700), (4000, 16), (16, 4000)])
def test_empty_pictures_of_any_shape_give_no_line(reader, size):
    assert reader.read(Image.new("RGB", size, (128, 128, 128))) == []


def test_a_thin_strip_is_read_and_its_box_lies_inside(reader):
    strip = draw("Train to Aarhus leaves 09:20 from track 3", (2400, 40), px=26)
    found = reader.read(strip)
    assert squeezed(found) == "traintoaarhusleaves09:20fromtrack3"
    for x, y in found[0].box:
        assert 0 <= x <= 2400 and 0 <= y <= 40


def test_faint_text_is_missed_and_not_guessed(reader):
    faint = draw("Silver price 9316", ink=(120, 120, 120), back=(123, 123, 123))
    assert squeezed(reader.read(faint)) in ("", "silverprice9316")


def test_spanish_accents_survive_in_nfc(reader):
    found = reader.read(draw("Mañana a las 10, reunión", px=40))
    assert squeezed(found) == "mañanaalas10,reunión"


def test_lines_under_the_limit_are_dropped():
    strict = RapidReader(Settings(captioning=Captioning(min_confidence=1.0)))
    assert strict.read(draw("Silver price 9316")) == []
    assert strict.descriptor.fingerprint != RapidReader().descriptor.fingerprint


def test_reading_opens_no_connection_and_changes_no_input(monkeypatch, capfd):
    def refuse(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    fresh = RapidReader()
    picture = draw("Silver price 9316")
    before = picture.tobytes()
    first, second = fresh.read(picture), fresh.read(picture)
    fresh.unload()
    assert first == second == fresh.read(picture)
    assert picture.tobytes() == before
    assert capfd.readouterr().out == ""


def test_rows_are_read_left_to_right():
    def line(text, x, y):
        return TextLine(text, ((x, y), (x + 50, y), (x + 50, y + 20), (x, y + 20)), 1.0)

    shuffled = [
        line("d", 300, 103),
        line("b", 90, 4),
        line("c", 5, 100),
        line("a", 3, 0),
    ]
    assert [x.text for x in reading_order(shuffled)] == ["a", "b", "c", "d"]


def test_a_basic_caption_states_facts_only():
    box = ((0, 0), (9, 0), (9, 9), (0, 9))
    lines = [TextLine("word " * 60, box, 0.9), TextLine("</s> $<x>", box, 0.9)]
    night = Image.new("RGB", (64, 36), (2, 2, 4))
    english = BasicCaptioner().caption_read(night, lines, "de")
    spanish = BasicCaptioner().caption_read(night, lines, "es")
    assert english.startswith("Very dark picture. 2 lines of text: “word")
    assert spanish.startswith("Imagen muy oscura. 2 líneas de texto: «word")
    assert len(english.split("“")[1]) <= 121
    assert BasicCaptioner().caption_read(night, []) == (
        "Very dark picture. No text was read."
    )


@pytest.mark.parametrize(
    ("colour", "hue"),
    [
        ((220, 20, 20), "red"),
        ((255, 140, 0), "orange"),
        ((240, 230, 20), "yellow"),
        ((20, 200, 40), "green"),
        ((0, 220, 230), "cyan"),
        ((20, 40, 220), "blue"),
        ((130, 20, 220), "purple"),
        ((240, 20, 150), "pink"),
    ],
)
def test_each_hue_has_its_name(colour, hue):
    assert picture_facts(Image.new("RGB", (320, 180), colour))[1] == (hue,)


def test_a_hue_needs_its_share():
    picture = Image.new("RGB", (100, 100), (200, 200, 200))
    picture.paste((220, 20, 20), (0, 0, 100, 14))
    assert picture_facts(picture)[1] == ()
    picture.paste((220, 20, 20), (0, 0, 100, 18))
    assert picture_facts(picture)[1] == ("red",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a green bus in a depot", None),
        ("", "caption_empty"),
        (" \n", "caption_empty"),
        ("</s><s><s>", "caption_markup"),
        ("<DETAILED_CAPTION>", "caption_markup"),
        ("the the the", "caption_repeats"),
        ("we see a map we see a map we see a map", "caption_repeats"),
        ("a map of a map of a", None),
        ("b " * 5000, "caption_repeats"),
    ],
)
def test_the_filter_knows_junk(text, problem):
    assert caption_problem(text) == problem


class Model:
    name, requires_gpu = "model", False
    descriptor = ProviderDescriptor(id="model", version="1", weights_sha256="0" * 64)

    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def caption(self, image, language="en"):
        self.calls += 1
        return self.answer


def save(folder, **pictures):
    paths = []
    for name, picture in pictures.items():
        picture.save(folder / f"{name}.png")
        paths.append(folder / f"{name}.png")
    return paths


def test_a_look_is_described_once_and_a_refused_caption_is_none(tmp_path):
    slide, other = draw("One"), draw("Two", back=(30, 60, 160))
    dot = slide.copy()
    dot.putpixel((600, 10), (200, 0, 0))
    paths = save(tmp_path, a=slide, b=dot, c=other, d=slide)
    model, junk = Model("a white slide"), Model("<pad>")
    readings = read_frames(paths, reader=None, captioner=model)
    assert [r.reused_from for r in readings] == [None, "a.png", None, "a.png"]
    assert [r.caption_origin for r in readings] == ["model"] * 4 and model.calls == 2
    refused = read_frames(paths[:1], reader=None, captioner=junk)[0]
    assert (refused.caption, refused.issue) == (None, "caption_markup")
    assert refused.caption_origin == "none"


def test_the_cache_is_keyed_by_frame_and_model(tmp_path):
    paths = save(tmp_path, a=draw("One"), b=draw("Two", back=(30, 60, 160)))
    cache = {}
    model = Model("a slide")
    first = read_frames(paths, reader=None, captioner=model, cache=cache)
    assert first == read_frames(paths, reader=None, captioner=model, cache=cache)
    assert model.calls == 2
    read_frames(paths, reader=None, captioner=model, language="es", cache=cache)
    assert model.calls == 4
    (tmp_path / "a.png").rename(tmp_path / "z.png")
    moved = read_frames([tmp_path / "z.png"], reader=None, captioner=model, cache=cache)
    assert moved[0].file == "z.png" and model.calls == 4
    assert all(json.loads(value)["caption"] == "a slide" for value in cache.values())


def test_a_wrong_answer_is_refused(tmp_path):
    paths = save(tmp_path, a=draw("One"))
    for answer in (None, 7, "cafe\u0301"):
        with pytest.raises(Vid2ContextError) as caught:
            read_frames(paths, reader=None, captioner=Model(answer))
        assert caught.value.code == "provider_output_invalid"


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 60])
def test_a_file_that_is_no_picture_is_named(tmp_path, data):
    (tmp_path / "f.png").write_bytes(data)
    with pytest.raises(Vid2ContextError, match=r"f\.png is no whole") as caught:
        read_frames([tmp_path / "f.png"], reader=None, captioner=None)
    assert caught.value.code == "frame_unreadable"


def test_a_decompression_bomb_is_refused(tmp_path):
    Image.new("1", (60_000, 4_000)).save(tmp_path / "f.png")
    with pytest.raises(Vid2ContextError):
        read_frames([tmp_path / "f.png"], reader=None, captioner=None)
