"A passage is short, holds what it can of the question, and is the text's own."

import re

from hypothesis import given
from hypothesis import strategies as st

from vid2context.passages import passage
from vid2context.text import one_line

WORDS = st.lists(st.text("abcdeé…$ ", min_size=1, max_size=9), max_size=60)


@given(WORDS, st.text("abcdeé ", max_size=30), st.integers(2, 90))
def test_it_fits_and_adds_nothing(words, query, limit):
    line = one_line(" ".join(words))
    shown = passage(line, query, limit)
    assert len(shown) <= limit
    assert shown.removeprefix("…").removesuffix("…").strip() in line or shown in line


def test_it_moves_to_where_most_words_are():
    text = "glue " + "filler " * 40 + "hide glue lets the next repairer in " + "x " * 99
    shown = passage(text, "how does hide glue help repairers", 60)
    assert "hide glue lets the next repairer" in shown and shown.startswith("…")
    assert not re.search(r"\S…\S", shown[1:])


def test_equals_go_to_the_earliest():
    text = "first glue here " + "filler " * 40 + "second glue there " + "filler " * 40
    assert passage(text, "glue", 40).startswith("first glue")


def test_accents_and_capitals_do_not_matter():
    text = "filler " * 40 + "la sesión empieza en MÁLAGA hoy " + "filler " * 40
    assert "MÁLAGA" in passage(text, "malaga", 50)
