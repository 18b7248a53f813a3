"""Registry, plug-ins, weights: found by metadata, refused by rule, never unasked."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from vid2context.core import UsageError, Vid2ContextError
from vid2context.kinds import (
    PROVIDER_KINDS,
    ProviderDescriptor,
    TextLine,
    check_lines,
    check_vectors,
    provider_problems,
)
from vid2context.plugins import Plugin, plugin_refusal
from vid2context.providers import (
    AUTO,
    BUILTINS,
    list_providers,
    register_provider,
    resolve,
)
from vid2context.weights import model_folder, pickle_reason, runtime_home

PLUGIN = """
    import pathlib
    from vid2context.kinds import ProviderDescriptor
    pathlib.Path(__file__).with_name("imported").touch()

    class Poet:
        name, requires_gpu = "poet", False
        descriptor = ProviderDescriptor(id="poet", version="3")
        def caption(self, image, language="en"):
            return "an ode"

    class Broken:
        name = "broken"

    def explode():
        raise RuntimeError("no muse")
"""
SHOW = """
    import json, sys
    from vid2context.providers import list_providers, resolve
    from vid2context.core import Vid2ContextError
    if sys.argv[1] == "list":
        rows = [r for r in list_providers().rows if r["origin"] == "plugin"]
        print(json.dumps(rows))
    else:
        try:
            print(json.dumps(resolve("captioner", sys.argv[1]).descriptor.id))
        except Vid2ContextError as e:
            print(json.dumps([e.code, e.message]))
"""


@pytest.fixture
def plugin(tmp_path):
    """A package as an installer would leave it, found through the path."""

    def ask(what, requires="vid2context>=0.1", **env):
        site = tmp_path / "site"
        info = site / "Kino_Models-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (site / "kino.py").write_text(textwrap.dedent(PLUGIN))
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: Kino.Models\nVersion: 1.0\n"
            f"Requires-Dist: {requires}\n"
        )
        (info / "entry_points.txt").write_text(
            "[vid2context.captioners]\npoet = kino:Poet\nbroken = kino:Broken\n"
            "gone = kino:Gone\nexplode = kino:explode\n"
        )
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SHOW), what],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(site), **env},
        )
        return json.loads(run.stdout), (site / "imported").exists()

    return ask


def test_an_unnamed_plugin_is_listed_and_never_runs(plugin):
    rows, imported = plugin("list")
    assert [r["name"] for r in rows] == [
        f"kino-models:{n}" for n in ("broken", "explode", "gone", "poet")
    ]
    assert all(r["available"] for r in rows) and not imported
    answer, imported = plugin("basic")
    assert answer == "basic" and not imported


def test_a_named_plugin_runs(plugin):
    assert plugin("Kino_Models:poet") == ("poet", True)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("kino-models:broken", "provider_invalid", "no method `caption`"),
        ("kino-models:gone", "provider_unavailable", "Gone"),
        ("kino-models:explode", "provider_unavailable", "no muse"),
        ("kino-models:none", "provider_unknown", "kino-models:poet"),
        ("poet", "provider_unknown", "distribution:name"),
    ],
)
def test_a_bad_plugin_fails_loudly(plugin, name, code, words):
    (found, message), _ = plugin(name)
    assert found == code and words in message


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"VID2CONTEXT_PLUGINS": "0"}, "PLUGINS=0"),
        ({"VID2CONTEXT_PROVIDERS_DENY": "other:*, kino-models:*"}, "DENY"),
        ({"VID2CONTEXT_PROVIDERS_ALLOW": "other:*"}, "ALLOW"),
        (
            {
                "VID2CONTEXT_PROVIDERS_ALLOW": "*",
                "VID2CONTEXT_PROVIDERS_DENY": "kino-models:poet",
            },
            "DENY",
        ),
    ],
)
def test_a_refused_plugin_is_not_imported(plugin, env, words):
    (code, message), imported = plugin("kino-models:poet", **env)
    assert code == "provider_unavailable" and words in message and not imported


def test_a_plugin_for_another_version_is_refused(plugin):
    (code, message), imported = plugin("kino-models:poet", "vid2context>=99")
    assert code == "provider_unavailable" and ">=99" in message and not imported
    junk = Plugin("ocr", "kino", "x", "kino:X", ("vid2context @@ 1",))
    assert "cannot be read" in plugin_refusal(junk, environ={})


class Shouter:
    name, requires_gpu = "shouter", False
    descriptor = ProviderDescriptor(id="shouter", version="1")

    def __init__(self, settings=None):
        self.settings = settings

    def caption(self, image, language="en"):
        return "HELLO"


def test_a_taken_name_is_an_error():
    register_provider("captioner", Shouter, name="test-shouter")
    made = resolve("captioner", "test-shouter")
    assert made.settings is not None
    with pytest.raises(UsageError) as caught:
        register_provider("captioner", Shouter, name="test-shouter")
    assert caught.value.code == "provider_taken"
    register_provider("captioner", Shouter, name="test-shouter", replace=True)
    for name in ("basic", "auto", "a:b", "", " x"):
        with pytest.raises(UsageError):
            register_provider("captioner", Shouter, name=name, replace=True)
    with pytest.raises(UsageError):
        register_provider("smell", Shouter, name="nose")


def test_all_faults_are_told_at_once():
    class Wrong:
        name = "wrong"
        descriptor = ProviderDescriptor(id="w", version="1", dim=3)
        embedding_dim, max_tokens = 0, True

        def embed(self, texts):
            return []

    faults = provider_problems("embedder", Wrong())
    assert len(faults) == 5
    assert any("count_tokens" in f for f in faults)


def test_builtins_resolve_without_torch_when_auto_chooses():
    code = (
        "import sys\n"
        "from vid2context.providers import resolve, list_providers\n"
        "list_providers()\n"
        "print(resolve('captioner', 'auto').name, 'torch' in sys.modules)\n"
    )
    env = {**os.environ, "VID2CONTEXT_RUNTIME": "/nonexistent"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env
    )
    assert run.stdout.split() == ["basic", "False"], run.stderr
    assert all((kind, n) in BUILTINS for kind, names in AUTO.items() for n in names)


def test_a_named_builtin_without_weights_fails_loudly(monkeypatch, tmp_path):
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path))
    with pytest.raises(Vid2ContextError, match="models pull siglip2"):
        resolve("image_text_encoder", "siglip2")
    with pytest.raises(Vid2ContextError, match="clip-small"):
        resolve("image_text_encoder", "auto")
    row = next(r for r in list_providers().rows if r["name"] == "florence-2")
    assert not row["available"] and "models pull florence-2" in row["reason"]


def test_probing_shows_fingerprints(monkeypatch, tmp_path):
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path))
    rows = {r["name"]: r for r in list_providers(probe=True).rows}
    assert len(rows["e5-small"]["fingerprint"]) == 64
    assert rows["sentence-transformers"]["available"] is False


@pytest.mark.parametrize(
    "vectors",
    [
        [[1, 0], [1, 0]],
        [[1, 0, 0]],
        [[2, 0]],
        [[float("inf"), 0]],
        [["a", "b"]],
        [[1], [1, 0]],
        None,
        7,
        [[10**400, 0]],
    ],
)
def test_wrong_vectors_are_refused(vectors):
    with pytest.raises(Vid2ContextError) as caught:
        check_vectors(vectors, count=1, dim=2)
    assert caught.value.code == "provider_output_invalid"


def test_right_vectors_pass_and_so_does_the_row_of_an_empty_text():
    assert check_vectors([], count=0, dim=4).shape == (0, 4)
    rows = check_vectors([[0.6, 0.8], [0, 0]], count=2, dim=2)
    assert rows.dtype == np.float32


@pytest.mark.parametrize(
    "lines",
    [
        None,
        ["text"],
        [TextLine("a", ((0, 0),) * 3, 0.5)],
        [TextLine("a", ((0, 0),) * 4, 1.5)],
        [TextLine("a", ((0, 0),) * 4, float("nan"))],
        [TextLine("cafe\u0301", ((0, 0),) * 4, 0.5)],
    ],
)
def test_wrong_lines_are_refused(lines):
    with pytest.raises(Vid2ContextError):
        check_lines(lines)


def test_every_kind_has_a_group_of_its_own():
    groups = [rule.group for rule in PROVIDER_KINDS.values()]
    assert len(set(groups)) == 5
    assert all(g.startswith("vid2context.") for g in groups)


def test_the_runtime_folder_follows_the_environment(tmp_path):
    env = {"VID2CONTEXT_RUNTIME": str(tmp_path)}
    assert model_folder("m", environ=env) == tmp_path / "models" / "m"
    blank = {"VID2CONTEXT_RUNTIME": " ", "XDG_DATA_HOME": str(tmp_path)}
    assert runtime_home(blank) == tmp_path / "vid2context"


@pytest.mark.parametrize("name", ["m.bin", "m.PT", "m.ckpt", "m.pkl", "m.npy"])
def test_a_name_of_a_pickle_is_enough(tmp_path, name):
    (tmp_path / name).write_bytes(b"harmless")
    assert pickle_reason(tmp_path / name)


@pytest.mark.parametrize("start", [b"\x80\x02", b"\x80\x05", b"PK\x03\x04", b"cos\nsy"])
def test_the_first_bytes_of_a_pickle_are_enough(tmp_path, start):
    (tmp_path / "model.safetensors").write_bytes(start + b"xxxxxxxxxx")
    assert pickle_reason(tmp_path / "model.safetensors")
