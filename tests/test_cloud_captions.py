"""Captions from elsewhere: nothing leaves unless all three conditions hold."""

import base64
import io
import socket

import pytest
from PIL import Image

from vid2context.cloud_eyes import open_cloud_captioner
from vid2context.core import Vid2ContextError
from vid2context.options import Cloud, Providers, Rung, Settings
from vid2context.pipeline import Library
from vid2context.scripted_llm import ScriptedServer, Turn
from vid2context.settings import load_settings

KEY = {"EYES_KEY": "planted-key-8412"}
PICTURE = Image.new("RGB", (1280, 720), "navy")


def settings_for(url, *, allow=True, name="eyes", price=0.01):
    rung = Rung(
        "eyes", kind="paid", base_url=url, model="big-eyes-2", api_key_env="EYES_KEY"
    )
    return Settings(
        providers=Providers(captioner="cloud", encoder="off", text_reader="off"),
        cloud=Cloud(allow_network=allow, rung=name, picture_price=price),
        rungs=(rung,),
    )


def pictures_of(server):
    for request in server.requests:
        if "messages" not in (request["body"] or {}):
            continue
        text, image = request["body"]["messages"][0]["content"]
        head, _, data = image["image_url"]["url"].partition(",")
        assert head == "data:image/jpeg;base64"
        yield text["text"], Image.open(io.BytesIO(base64.b64decode(data)))


def test_an_index_asks_for_novel_frames_only_and_says_the_price_first(
    tmp_path, clips, capfd, monkeypatch
):
    monkeypatch.setenv(*next(iter(KEY.items())))
    order = []

    def answer(request):
        order.append(capfd.readouterr().err)
        return Turn("A drawn scene.\n")

    with ScriptedServer(answer) as server:
        settings = settings_for(server.base_url)
        with Library(tmp_path / "lib", settings=settings) as library:
            stats = library.index(clips / "silent-day.mp4", interval_s=2)
            frames = [
                frame for row in stats_videos(library) for frame in library.frames(row)
            ]
        sent = list(pictures_of(server))
        keys = {
            {k.lower(): v for k, v in r["headers"].items()}.get("authorization")
            for r in server.requests
        }
    host = server.base_url.split("/")[2]
    assert (
        f"At most 23 pictures go to big-eyes-2 at {host}: 23 × 0.01 = 0.23" in order[0]
    )
    assert 1 <= len(sent) < 23 and max(max(p.size) for _, p in sent) <= 512
    assert all("language en" in text and not p.getexif() for text, p in sent)
    assert keys == {f"Bearer {KEY['EYES_KEY']}"}
    made = [f for f in frames if f.caption_origin == "model"]
    assert len(made) == len(sent)
    assert all(frame.caption.startswith("A drawn scene") for frame in made)
    assert any("cloud big-eyes-2" in provider for provider in stats.providers)


def stats_videos(library):
    from vid2context.catalog import Catalog

    with Catalog.open(library.home) as catalog:
        return [row.video_id for row in catalog.packages()]


@pytest.mark.parametrize("short", ["key", "network", "rung"])
def test_one_condition_short_opens_no_socket(short, tmp_path, clips, monkeypatch):
    def connect(self, address):
        raise AssertionError(f"a connection to {address}")

    if short == "key":
        monkeypatch.delenv("EYES_KEY", raising=False)
    else:
        monkeypatch.setenv(*next(iter(KEY.items())))
    monkeypatch.setattr(socket.socket, "connect", connect)
    settings = settings_for(
        "https://api.example.org/v1",
        allow=short != "network",
        name="" if short == "rung" else "eyes",
    )
    with (
        Library(tmp_path / "lib", settings=settings) as library,
        pytest.raises(Vid2ContextError) as caught,
    ):
        library.index(clips / "silent-shapes.mkv")
    assert caught.value.code == "provider_unavailable"
    assert KEY["EYES_KEY"] not in str(caught.value)


def test_a_foreign_settings_file_opens_nothing(tmp_path, monkeypatch):
    (tmp_path / "settings.ini").write_text(
        "[vid2context]\n[providers]\ncaptioner = cloud\n[cloud]\nallow_network = on\n"
        "rung = eyes\n[llm.eyes]\nkind = paid\nbase_url = https://evil.example/v1\n"
        "model = m\napi_key_env = EYES_KEY\n"
    )
    settings = load_settings(start=tmp_path, environ=KEY)
    assert not settings.cloud.allow_network and settings.notices
    with pytest.raises(Vid2ContextError, match="allow_network"):
        open_cloud_captioner(settings, environ=KEY)
    named = load_settings(tmp_path / "settings.ini", environ=KEY)
    assert open_cloud_captioner(named, environ=KEY).name == "cloud"


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (Turn(status=401, body=b'{"error": {"message": "bad key"}}'), "bad key"),
        (Turn(status=500, body=b"{}"), "500"),
        (Turn(""), "127.0.0.1"),
    ],
)
def test_a_refusal_is_an_error_of_one_frame(turn, words):
    with ScriptedServer([turn]) as server:
        captioner = open_cloud_captioner(settings_for(server.base_url), environ=KEY)
        with pytest.raises(Vid2ContextError) as caught:
            captioner.caption(PICTURE)
    assert caught.value.code == "cloud_caption_failed" and words in caught.value.message
    assert KEY["EYES_KEY"] not in caught.value.message


def test_a_busy_server_gets_the_rest_it_asks_for():
    busy = Turn(status=429, headers={"Retry-After": "0"}, body=b"{}")
    with ScriptedServer([busy, busy, Turn("Una pared azul.")]) as server:
        captioner = open_cloud_captioner(settings_for(server.base_url), environ=KEY)
        assert captioner.caption(PICTURE, language="es") == "Una pared azul."
        assert len(server.requests) == 3
        assert all("language es" in text for text, _ in pictures_of(server))
