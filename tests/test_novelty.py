"""Novelty, fakes and first answers: properties that the lessons cannot host."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vid2context.core import Vid2ContextError
from vid2context.fakes import FakeEmbedder, FakeEncoder
from vid2context.kinds import ProviderDescriptor, TextLine
from vid2context.look import look
from vid2context.novelty import (
    WINDOW_S,
    CaptionGate,
    ReadingGate,
    Sight,
    is_novel,
    word_set,
)
from vid2context.providers import register_provider, resolve

GREYS = [look(np.full((90, 160, 3), v, np.uint8)) for v in (40, 44, 90, 200)]
TEXTS = ["", "one", "copper tin lead", "copper tin lead prices", "zinc iron gold"]


@settings(max_examples=200, deadline=None)
@given(
    shots=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.floats(0, 40)), max_size=20
    ),
    per_window=st.booleans(),
)
def test_every_frame_has_one_plan_and_reuse_never_crosses_a_change(shots, per_window):
    at, sights = 0.0, []
    for number, (grey, text, step) in enumerate(shots):
        at += step
        words = word_set(TEXTS[text])
        sights.append(Sight(str(number), at, GREYS[grey], words))
    gate = CaptionGate(per_window=per_window)
    plans = [plan for sight in sights for plan in gate.add(sight)] + gate.close()
    assert [plan.key for plan in plans] == [sight.key for sight in sights]
    by_key = {sight.key: sight for sight in sights}
    own = [plan.key for plan in plans if plan.action == "caption"]
    for plan in plans:
        if plan.action == "reuse":
            assert plan.source in own and int(plan.source) < int(plan.key)
            assert not is_novel(by_key[plan.key], by_key[plan.source])
        if plan.action == "basic":
            assert per_window
    if per_window:
        windows = [by_key[key].at_s // WINDOW_S for key in own]
        assert len(set(windows)) == len(windows)


def test_a_still_picture_is_read_once_and_a_noisy_one_four_times_in_half_a_minute():
    gate = ReadingGate(duplicate=0.02)
    still = [gate.wants(GREYS[0], at_s=0.0)]
    gate.note(GREYS[0], at_s=0.0, text="a")
    still += [gate.wants(GREYS[0], at_s=float(s)) for s in range(5, 60, 5)]
    assert still == [True] + [False] * 11
    rng = np.random.default_rng(1)
    gate, read = ReadingGate(duplicate=0.02), []
    for second in range(0, 100, 5):
        pixels = np.full((90, 160, 3), 60) + rng.integers(0, 2, (90, 160, 1))
        pixels[:10, :10] += 8 * (second % 2 + second // 5 % 2)
        seen = look(pixels.astype(np.uint8))
        if gate.wants(seen, at_s=second):
            gate.note(seen, at_s=second, text="same")
            read.append(second)
    assert read[:4] == [0, 5, 10, 15] and len(read) <= 7


def test_the_encoder_finds_the_picture_that_a_text_names():
    encoder = resolve("image_text_encoder", "fake-encoder")
    colours = {"red": (220, 20, 20), "blue": (20, 40, 220), "green": (20, 200, 40)}
    pictures = {n: Image.new("RGB", (32, 18), c) for n, c in colours.items()}
    rows = np.array([encoder.encode_image(p) for p in pictures.values()])
    for i, name in enumerate(pictures):
        assert (rows @ np.array(encoder.encode_text(f"a {name} door"))).argmax() == i


def test_fakes_have_different_prime_sizes():
    sizes = (FakeEncoder.embedding_dim, FakeEmbedder.embedding_dim)
    assert len(set(sizes)) == 2
    assert all(size % k for size in sizes for k in range(2, size))


class Liar:
    requires_gpu = False
    descriptor = ProviderDescriptor(id="liar", version="1")
    embedding_dim, max_tokens, name = 3, 8, "liar"
    answer: object = None

    def embed(self, texts, kind):
        return self.answer

    def count_tokens(self, text, kind):
        return 1

    def caption(self, image, language="en"):
        return self.answer

    def read(self, image, language="en"):
        return self.answer


@pytest.mark.parametrize(
    ("kind", "call", "answer"),
    [
        ("embedder", ("embed", ["a"], "query"), [[1, 0, 0], [1, 0, 0]]),
        ("embedder", ("embed", ["a"], "query"), [[3, 0, 0]]),
        ("captioner", ("caption", None), "cafe\u0301"),
        ("ocr", ("read", None), [TextLine("a", ((0, 0),) * 3, 0.5)]),
    ],
)
def test_a_wrong_first_answer_is_refused(kind, call, answer):
    register_provider(kind, Liar, name="liar", replace=True)
    provider = resolve(kind, "liar")
    method, *args = call
    type.__setattr__(Liar, "answer", answer)
    for _ in range(2):
        with pytest.raises(Vid2ContextError) as caught:
            getattr(provider, method)(*args)
        assert caught.value.code == "provider_output_invalid"


def test_a_provider_is_watched_until_one_answer_passes():
    register_provider("captioner", Liar, name="liar", replace=True)
    provider = resolve("captioner", "liar")
    Liar.answer = "a gate"
    assert provider.caption(None) == "a gate"
    Liar.answer = 7
    assert provider.caption(None) == 7
