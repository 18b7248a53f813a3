"""The conformance suite: good providers pass, and each case catches its own fault."""

import itertools
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from vid2context.conformance import CASES, conformance_faults
from vid2context.fakes import FakeCaptioner, FakeEmbedder
from vid2context.kinds import ProviderDescriptor
from vid2context.plain_captions import BasicCaptioner

COUNTER = itertools.count()


class NoText(FakeCaptioner):
    def caption(self, image):
        return "a"


class Picky(FakeCaptioner):
    def caption(self, image, language="en"):
        if image.width < 2:
            raise ZeroDivisionError("too small")
        return "a"


class Fickle(FakeCaptioner):
    def caption(self, image, language="en"):
        return f"picture {next(COUNTER)}"


class Drifting(FakeCaptioner):
    @property
    def descriptor(self):
        return ProviderDescriptor(id="drifting", version=str(next(COUNTER)))


class Forgetful(FakeCaptioner):
    loaded = True

    def unload(self):
        self.loaded = False

    def caption(self, image, language="en"):
        return "a" if self.loaded else "b"


class Painter(FakeCaptioner):
    def caption(self, image, language="en"):
        image.putpixel((0, 0), (1, 2, 3))
        return "a"


class Loud(FakeCaptioner):
    def caption(self, image, language="en"):
        os.write(1, b"thinking")
        return "a"


class Caller(FakeCaptioner):
    def caption(self, image, language="en"):
        with socket.socket() as line:
            line.connect_ex(("127.0.0.1", 9))
            try:
                line.connect(("192.0.2.1", 80))
            except OSError:
                return "a"
        return "b"


class Batched(FakeEmbedder):
    def embed(self, texts, kind):
        rows = super().embed(texts, kind)
        return np.roll(rows, 1, axis=1) if len(texts) > 1 else rows


@pytest.mark.parametrize(
    ("kind", "provider", "case"),
    [
        ("captioner", NoText, "fits_its_protocol"),
        ("captioner", Picky, "bears_every_input"),
        ("captioner", Fickle, "answers_alike"),
        ("embedder", Batched, "answers_alike"),
        ("captioner", Drifting, "keeps_its_identity"),
        ("captioner", Forgetful, "works_after_unloading"),
        ("captioner", Painter, "changes_no_input"),
        ("captioner", Loud, "prints_nothing"),
        ("captioner", Caller, "opens_no_connection"),
    ],
)
@pytest.mark.breaks_promises  # One of the faults is a connection
def test_each_case_catches_its_fault(kind, provider, case):
    assert case in conformance_faults(kind, provider)


def test_a_sound_provider_has_no_faults():
    assert conformance_faults("captioner", BasicCaptioner) == {}


def test_the_plugin_is_inert_and_runs_when_named(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    base = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload"]
    base += ["-p", "vid2context.pytest_plugin"]
    for options, words in (
        ([], "1 passed"),
        (["--vid2context-provider", "ocr:fake-reader"], f"{len(CASES)} passed"),
        (["--vid2context-provider", "ocr:nobody"], f"{len(CASES)} failed"),
    ):
        run = subprocess.run(
            [*base, *options], cwd=tmp_path, capture_output=True, text=True
        )
        assert words in run.stdout, run.stdout[-800:]
