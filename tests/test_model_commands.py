"""`providers`, `models` and `runners` as a user types them."""

import json

import pytest

from vid2context.cli import main
from vid2context.model_store import MODELS
from vid2context.runners import RUNNERS


@pytest.fixture
def say(tmp_path, monkeypatch, capsys):
    """Run a command in an empty runtime folder: exit code, JSON, standard error."""
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", str(tmp_path / "runtime"))

    def run(*words):
        code = main([*words, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out or err.splitlines()[-1]), err

    return run


def test_everything_that_lacks_something_says_what_to_run(say):
    code, answer, _ = say("providers", "list", "--no-fingerprints")
    rows = {(row["kind"], row["name"]): row for row in answer["providers"]}
    assert code == 0 and rows["captioner", "basic"]["available"]
    for kind, name in (("captioner", "florence-2"), ("image_text_encoder", "siglip2")):
        assert f"models pull {name}" in rows[kind, name]["reason"]
        runner = rows[kind, f"runner:{name}"]
        assert f"runners install {name}" in runner["reason"]
        assert runner["origin"] == "runner"


def test_a_model_is_pulled_from_a_folder_checked_and_found_spoiled(say, tmp_path):
    pytest.importorskip("transformers")
    from vid2context.tiny_florence import make_tiny_florence

    source = make_tiny_florence(tmp_path / "model")
    code, answer, _ = say("models", "pull", "florence-2", "--from", str(source))
    row = answer["models"][0]
    assert (code, answer["status"], row["state"]) == (0, "ok", "installed")
    assert row["bytes"] > 400_000 and len(row["weights_sha256"]) == 64
    code, answer, _ = say("models", "pull", "florence-2", "--from", str(source))
    assert (code, answer["status"]) == (0, "no_changes")
    assert say("models", "check")[0] == 0
    _, answer, _ = say("providers", "list")
    rows = {row["name"]: row for row in answer["providers"]}
    assert len(rows["florence-2"]["fingerprint"]) == 64
    weights = tmp_path / "runtime" / "models" / "florence-2" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    code, answer, _ = say("models", "check")
    assert code == 1 and "has changed" in answer["models"][0]["reason"]
    code, answer, _ = say(
        "models", "pull", "florence-2", "--from", str(source), "--force"
    )
    assert code == 0 and say("models", "check")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("models", "pull", "gpt"), 2, "model_unknown"),
        (
            ("models", "pull", "siglip2", "--from", "/nowhere"),
            1,
            "model_install_failed",
        ),
        (("models", "check", "siglip2"), 1, None),
        (("runners", "install", "gpt"), 2, "runner_unknown"),
        (("runners", "install", "siglip2", "--python", "false"), 2, "runner_python"),
        (("runners", "install", "siglip2", "--lock", "/nowhere"), 2, "runner_lock"),
        (("runners", "status", "gpt"), 2, "runner_unknown"),
    ],
)
def test_what_cannot_be_done_is_an_error_of_its_own(say, words, code, said):
    found, answer, _ = say(*words)
    assert found == code
    assert answer.get("error", {}).get("code") == said


def test_lists_name_everything(say, capsys):
    _, answer, _ = say("models", "list")
    assert [row["name"] for row in answer["models"]] == sorted(MODELS)
    _, answer, _ = say("runners", "status")
    assert [row["name"] for row in answer["runners"]] == sorted(RUNNERS)
    _, answer, _ = say("runners", "remove", "siglip2")
    assert answer["status"] == "no_changes"
    for words in (("models", "list"), ("runners", "status"), ("providers", "list")):
        assert main([*words]) == 0
        assert "siglip2" in capsys.readouterr().out
