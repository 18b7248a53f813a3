"""Workers that print, hang, flood, die or lie, in real processes; and a real runner."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vid2context.canary import canary_images
from vid2context.conformance import conformance_faults
from vid2context.core import UsageError, Vid2ContextError
from vid2context.model_store import pull_model
from vid2context.options import Providers, Settings
from vid2context.providers import resolve
from vid2context.runners import (
    LOCK,
    find_python,
    install_runner,
    list_runners,
    remove_runner,
    runner_command,
    runner_folder,
    runner_status,
)
from vid2context.worker import WorkerCaptioner, WorkerEncoder, WorkerReader
from vid2context.worker_process import RING_LINES, Worker, WorkerDown
from vid2context.worker_script import Channel, serve
from vid2context.worker_script import __file__ as SCRIPT

DOUBLE = Path(__file__).with_name("worker_double.py")
PICTURE = Image.new("RGB", (8, 4), (1, 2, 3))


def double(way, *more, item_s=60.0, start_s=60.0):
    command = [sys.executable, DOUBLE, way, *more]
    return Worker(command, name=way, item_s=item_s, start_s=start_s)


def gone(pid):
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("way", ["good", "prints", "floods", "floods-without-lines"])
def test_what_a_worker_prints_never_reaches_the_protocol(way):
    with double(way) as worker:
        assert worker.ask("caption", images=[PICTURE]) == [96]
        assert worker.ask("caption", images=[PICTURE] * 3) == [3 * 96]
    assert worker.failed is None


def test_the_error_stream_is_kept_in_a_ring():
    with double("floods") as worker:
        worker.ask("ping")
        time.sleep(0.3)
        assert len(worker._said) == RING_LINES
        assert worker._said[-1].startswith("warning 19999")


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("dies", "ended. It said last: Segmentation fault, surely"),
        ("wrong-number", "answered request 999"),
        ("long-line", "more than 1 MiB"),
        ("no-json", "no JSON object: b'{broken'"),
        ("no-object", "no JSON object: b'[1]'"),
        ("wrong-protocol", "speaks protocol 2, not 1"),
        ("junk-hello", "no JSON object: b'Loading model...'"),
    ],
)
def test_a_broken_worker_gets_one_more_chance_and_then_fails_for_good(way, words):
    with double(way) as worker:
        with pytest.raises(Vid2ContextError) as caught:
            worker.ask("caption", images=[PICTURE])
        assert caught.value.code == "worker_failed" and words in caught.value.message
        began = time.monotonic()
        with pytest.raises(Vid2ContextError) as again:
            worker.ask("caption", images=[PICTURE])
        assert again.value is caught.value and time.monotonic() - began < 0.05


@pytest.mark.parametrize(("way", "limit_s"), [("dies-once", 60), ("hangs-once", 2)])
def test_a_second_process_answers_for_one_that_broke(way, limit_s, tmp_path):
    with double(way, tmp_path / "seen", item_s=limit_s) as worker:
        assert worker.ask("caption", images=[PICTURE]) == [96]
        assert worker.failed is None


@pytest.mark.parametrize("way", ["hangs", "never-reads"])
def test_a_silent_worker_is_ended_with_its_children(way):
    big = Image.new("RGB", (1000, 700))
    with double(way, item_s=0.5) as worker:
        worker.start()
        group = worker._process.pid
        with pytest.raises(WorkerDown, match=r"silent for 0\.5 s"):
            worker._once({"op": "caption", "sizes": [big.size]}, big.tobytes(), 1)
        assert gone(group)
        with pytest.raises(ProcessLookupError):
            for _ in range(100):
                os.killpg(group, 0)
                time.sleep(0.05)


def test_a_worker_that_never_starts_is_ended():
    with double("never-starts", start_s=0.5) as worker, pytest.raises(Vid2ContextError):
        worker.ask("ping")


def test_an_error_of_the_model_is_an_answer_and_the_worker_lives():
    with double("raises") as worker:
        for _ in range(2):
            with pytest.raises(Vid2ContextError, match="frame 37 is upside down") as e:
                worker.ask("caption", images=[PICTURE])
            assert e.value.code == "worker_error"
        assert worker.failed is None


def test_one_process_answers_until_it_is_unloaded():
    with double("pid") as worker:
        first, second = worker.ask("caption"), worker.ask("caption")
        worker.close()
        third = worker.ask("caption")
    assert first == second != third
    assert gone(first[0]) and gone(third[0])


def test_the_end_of_the_parent_ends_the_worker():
    code = (
        "import sys, os; from vid2context.worker_process import Worker\n"
        f"w = Worker([sys.executable, {str(DOUBLE)!r}, 'pid'], name='x')\n"
        "print(w.ask('caption')[0], flush=True); os._exit(0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert gone(int(ran.stdout))


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(Vid2ContextError, match="nobody cannot be started"):
        Worker(["/no/nobody"], name="x").ask("ping")


def test_no_key_of_this_process_is_handed_on(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    show = "import os, sys; sys.exit(' '.join(sorted(os.environ)))"
    with (
        Worker([sys.executable, "-c", show], name="x") as worker,
        pytest.raises(Vid2ContextError) as caught,
    ):
        worker.ask("ping")
    assert "HF_HUB_OFFLINE" in caught.value.message
    assert "API_KEY" not in caught.value.message


def test_answers_of_the_wrong_form_are_refused():
    for made, ask in (
        (WorkerCaptioner(double("good")), lambda p: p.caption(PICTURE)),
        (WorkerReader(double("good")), lambda p: p.read(PICTURE)),
        (WorkerEncoder(double("good"), dim=4), lambda p: p.encode_image(PICTURE)),
        (WorkerEncoder(double("good"), dim=4), lambda p: p.encode_text("tide")),
    ):
        with pytest.raises(Vid2ContextError) as caught:
            ask(made)
        assert caught.value.code == "provider_output_invalid"
        made.unload()


def test_lines_of_text_come_back_whole():
    reader = WorkerReader(double("reads"))
    (line,) = reader.read(PICTURE, "en")
    assert (line.text, line.box[2], line.confidence) == ("TIDE", (8.0, 4.0), 0.9)
    assert reader.descriptor.identity.startswith("double 1 ")
    reader.unload()


def test_a_silent_parent_and_a_cut_picture_end_the_script():
    asked, answers = os.pipe(), os.pipe()
    assert Channel(asked[0], answers[1], idle_s=0.05).line() is None
    os.write(
        asked[1], b'{"id": 1, "op": "caption", "sizes": [[8, 4]], "payload": 96}\n'
    )
    os.write(asked[1], bytes(40))
    os.close(asked[1])
    serve(Channel(asked[0], answers[1]), object())
    os.close(answers[1])
    assert os.read(answers[0], 100) == b""


def script_worker(name, **options):
    options = {"provider": name, "precision": "float32", "threads": 1, **options}
    start = runner_command(Path("/unused"), options)[1:]
    start[start.index("/unused/worker.py")] = SCRIPT
    return Worker([sys.executable, *start], name=f"runner:{name}")


def test_the_script_places_pictures_as_the_encoder_does(tiny_clip):
    pytest.importorskip("open_clip")
    from vid2context.clip_encoder import ClipEncoder

    settings = Settings(providers=Providers(precision="float32", threads=1))
    here = ClipEncoder(tiny_clip, settings=settings)
    with script_worker("siglip2", folder=str(tiny_clip)) as worker:
        there = WorkerEncoder(worker, dim=32)
        assert there.descriptor.precision == "float32"
        pictures, texts = canary_images(), ["a red bus", "", "a\0b"]
        assert np.allclose(there.encode_images(pictures), here.encode_images(pictures))
        assert np.allclose(there.encode_texts(texts), here.encode_texts(texts))
        worker.ask("unload")
        assert there.encode_image(pictures[0]) == there.encode_image(pictures[0])


def test_the_script_captions_as_the_captioner_does(tmp_path):
    pytest.importorskip("transformers")
    from vid2context.florence import FlorenceCaptioner
    from vid2context.tiny_florence import make_tiny_florence

    folder = make_tiny_florence(tmp_path / "florence")
    settings = Settings(providers=Providers(precision="float32", threads=1))
    here = FlorenceCaptioner(folder, settings=settings)
    options = {"folder": str(folder), "task": "<CAPTION>", "tokens": 32}
    with script_worker("florence-2", **options) as worker:
        there = WorkerCaptioner(worker)
        for picture in (*canary_images(), Image.new("L", (1, 1))):
            assert there.caption(picture) == here.caption(picture)
        with pytest.raises(Vid2ContextError, match="does not know 'read'"):
            WorkerReader(worker).read(PICTURE)
        assert there.descriptor.preprocess == here.descriptor.preprocess


def test_a_runner_is_ready_only_when_its_file_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path))
    assert {row["state"] for row in list_runners().rows} == {"absent"}
    with pytest.raises(Vid2ContextError, match="runners install florence-2"):
        resolve("captioner", "runner:florence-2")
    folder = runner_folder("florence-2")
    folder.mkdir(parents=True)
    for text in ("", "[]", '{"status": "ready"}'):
        (folder / "state.json").write_text(text)
        assert runner_status("florence-2").state == "incomplete"
    state = {"status": "ready", "protocol": 1, "worker_sha256": "0" * 64}
    state |= {"python": "3.11", "installed_at": "2026-01-01T00:00:00Z"}
    (folder / "state.json").write_text(json.dumps(state))
    assert "another version" in runner_status("florence-2").reason
    assert remove_runner("florence-2") and not remove_runner("florence-2")
    for kind, name in (("captioner", "runner:siglip2"), ("ocr", "runner:nobody")):
        with pytest.raises(UsageError):
            resolve(kind, name)
    with pytest.raises(UsageError, match="--python"):
        find_python("/bin/true")


def test_a_package_that_is_not_on_the_list_is_not_installed(tmp_path):
    environ = {"VID2CONTEXT_RUNTIME": str(tmp_path)}
    wheel = tmp_path / "evil-1-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    lock = tmp_path / "lock.txt"
    lock.write_text(f"evil @ {wheel.as_uri()} --hash=sha256:{'0' * 64}\n")
    with pytest.raises(Vid2ContextError) as caught:
        install_runner("florence-2", lock=lock, environ=environ)
    assert caught.value.code == "runner_install_failed" and caught.value.retryable
    assert "hash" in caught.value.message.lower()
    assert runner_status("florence-2", environ=environ).state == "incomplete"


def test_every_line_of_our_list_has_a_hash():
    releases = LOCK.read_text().replace("\\\n", " ").splitlines()[1:]
    assert len(releases) > 30
    assert all("==" in line and "--hash=sha256:" in line for line in releases)


@pytest.mark.slow
def test_a_real_runner_is_built_and_captions_frames(tmp_path, monkeypatch, clips):
    from vid2context.options import Media
    from vid2context.sampling import sample_every
    from vid2context.tiny_florence import make_tiny_florence

    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path / "runtime"))
    pull_model("florence-2", source=make_tiny_florence(tmp_path / "florence"))
    state = install_runner("florence-2")
    assert state.state == "ready" and state.python in ("3.11", "3.12", "3.13")
    settings = Settings(providers=Providers(precision="float32"))
    captioner = resolve("captioner", "runner:florence-2", settings)
    here = resolve("captioner", "florence-2", settings)
    clip = clips / "silent-day.mp4"
    for sample in sample_every(clip, 15.0, settings=Media()):
        assert captioner.caption(sample.image()) == here.caption(sample.image())
    captioner.unload()
    assert conformance_faults("captioner", lambda: captioner) == {}
    captioner.unload()
