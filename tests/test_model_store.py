"""The model store against a hub on loopback: pinned, checked, never a pickle."""

import http.server
import json
import shutil
import threading

import pytest

from vid2context.core import UsageError, Vid2ContextError
from vid2context.model_store import MODELS, model_status, pull_model
from vid2context.providers import resolve
from vid2context.weights import model_folder

SHA = "a" * 40
HEADER = json.dumps({"__metadata__": {"format": "pt"}}).encode()
TENSORS = len(HEADER).to_bytes(8, "little") + HEADER
FILES = {
    "open_clip_config.json": b"{}",
    "open_clip_model.safetensors": TENSORS,
    "tokenizer/vocab.txt": b"a\n",
    "open_clip_pytorch_model.bin": b"\x80\x04pickle",
    ".gitattributes": b"x",
    "../../evil.json": b"{}",
    "run.py": b"raise SystemExit",
}


class Hub(http.server.BaseHTTPRequestHandler):
    "Answers as the hub does, and counts what it was asked."

    files, sha, asked, redirect = FILES, SHA, [], None

    def do_GET(self):
        self.asked.append(self.path)
        if "/revision/" in self.path:
            names = [{"rfilename": name} for name in self.files]
            self.answer(json.dumps({"sha": self.sha, "siblings": names}).encode())
        elif self.redirect:
            self.send_response(302)
            self.send_header("Location", self.redirect)
            self.end_headers()
        else:
            name = self.path.split(f"/resolve/{self.sha}/")[1]
            self.answer(self.files[name])

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def hub():
    "A hub of this test's own."

    class Mine(Hub):
        asked = []  # noqa: RUF012

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Mine.address = f"http://127.0.0.1:{server.server_port}"
    yield Mine
    server.shutdown()
    server.server_close()


@pytest.fixture
def env(tmp_path):
    "A runtime folder of this test's own."
    return {"VID2CONTEXT_RUNTIME": str(tmp_path / "runtime")}


def names(env):
    folder = model_folder("siglip2", environ=env)
    return sorted(p.name for p in folder.rglob("*") if p.is_file())


def test_a_pull_takes_data_only_and_pins_what_it_took(hub, env):
    status = pull_model("siglip2", hub=hub.address, environ=env)
    assert (status.state, status.revision) == ("installed", SHA)
    assert names(env) == [
        "open_clip_config.json",
        "open_clip_model.safetensors",
        "vocab.txt",
    ]
    lock = json.loads(
        (model_folder("siglip2", environ=env).parent / "models.lock.json").read_text()
    )
    assert lock["models"]["siglip2"]["revision"] == SHA
    count = len(hub.asked)
    assert pull_model("siglip2", hub=hub.address, environ=env) == status
    assert len(hub.asked) == count


def test_the_lock_is_enforced_when_files_come_again(hub, env):
    pull_model("siglip2", hub=hub.address, environ=env)
    shutil.rmtree(model_folder("siglip2", environ=env))
    hub.files = FILES | {"open_clip_config.json": b"[]"}
    with pytest.raises(Vid2ContextError, match="differ"):
        pull_model("siglip2", hub=hub.address, environ=env)
    assert model_status("siglip2", environ=env).state == "absent"
    assert f"/revision/{SHA}" in hub.asked[-4]
    hub.sha = "b" * 40
    with pytest.raises(Vid2ContextError, match="another revision"):
        pull_model("siglip2", hub=hub.address, environ=env)
    forced = pull_model("siglip2", hub=hub.address, environ=env, force=True)
    assert forced.revision == "b" * 40


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sha": "main"}, "no revision"),
        ({"redirect": "http://127.0.0.1:9/x"}, "not https"),
        ({"redirect": "file:///etc/passwd"}, "not allowed"),
        ({"files": {"open_clip_config.json": b"{}"}}, "no open_clip_model"),
        ({"files": FILES | {"/tmp/evil.json": b"{}"}}, "leaves"),
    ],
)
def test_a_wrong_hub_installs_nothing(hub, env, change, words):
    for key, value in change.items():
        setattr(hub, key, value)
    with pytest.raises(Vid2ContextError, match=words):
        pull_model("siglip2", hub=hub.address, environ=env)
    assert model_status("siglip2", environ=env).state == "absent"


def test_a_pickle_under_a_good_name_is_refused(hub, env):
    hub.files = FILES | {"open_clip_model.safetensors": b"\x80\x04whatever"}
    with pytest.raises(Vid2ContextError) as caught:
        pull_model("siglip2", hub=hub.address, environ=env)
    assert caught.value.code == "weights_refused"


def test_an_absent_hub_can_be_tried_again(env):
    with pytest.raises(Vid2ContextError) as caught:
        pull_model("siglip2", hub="http://127.0.0.1:1", environ=env)
    assert caught.value.retryable
    with pytest.raises(Vid2ContextError, match="https"):
        pull_model("siglip2", hub="http://example.org", environ=env)


def test_a_cut_file_is_seen(env, tmp_path):
    source = tmp_path / SHA
    for name in ("open_clip_config.json", "open_clip_model.safetensors"):
        source.mkdir(exist_ok=True)
        (source / name).write_bytes(FILES[name])
    installed = pull_model("siglip2", source=source, environ=env)
    assert (installed.revision, installed.state) == (SHA, "installed")
    (model_folder("siglip2", environ=env) / "open_clip_model.safetensors").write_bytes(
        TENSORS[:-1]
    )
    assert model_status("siglip2", environ=env).state == "incomplete"
    again = pull_model("siglip2", source=source, environ=env)
    assert again == installed
    with pytest.raises(UsageError):
        model_status("gpt", environ=env)
    assert set(MODELS) == {"clip-small", "florence-2", "siglip2"}


def test_a_provider_names_what_its_weights_need(monkeypatch, env):
    monkeypatch.setenv("VID2CONTEXT_RUNTIME", env["VID2CONTEXT_RUNTIME"])
    model_folder("siglip2").mkdir(parents=True)
    with pytest.raises(Vid2ContextError, match="no entry in the lock"):
        resolve("image_text_encoder", "siglip2")
