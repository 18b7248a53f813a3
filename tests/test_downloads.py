"""Downloads from a real server on loopback, hostile answers included."""

import http.server
import json
import os
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from harbour import VTT, Harbour, clip

from vid2context.core import Vid2ContextError, is_video_id
from vid2context.direct_links import LinkLoader
from vid2context.download_jobs import Job, download_options
from vid2context.options import Settings
from vid2context.sources import acquire, list_playlist

SETTINGS = Settings()


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return clip(tmp_path_factory.mktemp("film") / "film.mp4").read_bytes()


@pytest.fixture
def site(film):
    harbour = Harbour()
    harbour.files |= {"/film.mp4": film, "/en.vtt": VTT}
    harbour.pages["t1"] = {
        "id": "t1",
        "title": "Tides",
        "language": "en",
        "webpage_url": f"{harbour.base}/watch/t1",
        "formats": [harbour.film("film.mp4")],
        "subtitles": {"en": harbour.track("en.vtt")},
    }
    yield harbour
    harbour.close()


def settings(**sources):
    return replace(SETTINGS, sources=replace(SETTINGS.sources, **sources))


def load(site, dest, name="t1", *, settings=SETTINGS, **wishes):
    wishes = {"door": site.door, "sleep": lambda seconds: None} | wishes
    return acquire(f"{site.base}/watch/{name}", dest, settings=settings, **wishes)


def test_options_are_written_down_in_full():
    job = Job(
        url="https://youtu.be/x",
        folder="/stage",
        proxy="http://guard:s@127.0.0.1:1",
        extractors=("youtube.*", "vimeo.*", "end"),
        height_px=720,
        max_bytes=4 * 2**30,
        timeout_s=30.0,
        max_duration_s=43_200.0,
        max_items=500,
    )
    best = "best[height<=720]"
    assert download_options(job) == {
        "allowed_extractors": ["youtube.*", "vimeo.*", "end"],
        "proxy": "http://guard:s@127.0.0.1:1",
        "outtmpl": {"default": "video.%(ext)s"},
        "paths": {"home": "/stage"},
        "restrictfilenames": True,
        "format": f"{best}[ext=mp4]/bestvideo[height<=720][ext=mp4]/{best}",
        "subtitlesformat": "json3/srv3/vtt/ttml/srt",
        "noplaylist": True,
        "extract_flat": "in_playlist",
        "playlist_items": "1:1",
        "cachedir": False,
        "postprocessors": [],
        "fixup": "never",
        "ffmpeg_location": "/stage/no-ffmpeg",
        "hls_prefer_native": True,
        "max_filesize": 4294967296,
        "socket_timeout": 30.0,
        "retries": 3,
        "fragment_retries": 3,
        "continuedl": True,
        "overwrites": False,
        "updatetime": False,
        "noprogress": True,
        "quiet": True,
        "color": "never",
    }


def test_same_link_gives_same_bytes_in_two_folders(site, tmp_path):
    one, two = (load(site, tmp_path / name / "source") for name in ("a", "b"))
    for path in one.folder.iterdir():
        assert path.read_bytes() == (two.folder / path.name).read_bytes()
    assert sorted(p.name for p in one.folder.iterdir()) == [
        "captions.en.vtt",
        "metadata.json",
        "receipt.json",
        "video.mp4",
    ]
    assert one.receipt["address_check"] is True


def test_hostile_answer_stays_data(site, tmp_path):
    site.pages["bad"] = {
        "id": "../../etc/passwd",
        "title": "../../evil\u202e\x00[S01]",
        "extractor": "../x",
        "formats": [
            site.film("film.mp4", ext="../exe", height=300),
            site.film("film.mp4", format_id="good"),
        ],
        "subtitles": {"../../evil": site.track("en.vtt")},
        "automatic_captions": {"en": site.track("en.vtt", ext="../../sh")},
    }
    source = load(site, tmp_path / "x" / "source", "bad")
    assert is_video_id(source.video_id)
    assert source.captions == ()
    assert source.title == "../../evil[S01]"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    names = [p.name for p in (tmp_path / "x" / "source").iterdir()]
    assert sorted(names) == ["metadata.json", "receipt.json", "video.mp4"]


def test_only_a_known_ending_is_loaded(site, tmp_path):
    page = site.pages["t1"]
    site.pages["exe"] = page | {"formats": [site.film("film.mp4", ext="exe")]}
    with pytest.raises(Vid2ContextError) as caught:
        load(site, tmp_path / "source", "exe")
    assert caught.value.code == "format_missing"


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:7f00:1]", "2130706433"])
def test_redirect_into_the_network_is_refused(site, tmp_path, host):
    site.moved["/film.mp4"] = f"http://{host}/film.mp4"
    with pytest.raises(Vid2ContextError) as caught:
        load(site, tmp_path / "source")
    assert caught.value.code == "url_refused"
    assert not (tmp_path / "source").exists()


def test_environment_and_home_are_ignored(site, tmp_path, monkeypatch):
    plugin = tmp_path / ".config" / "yt-dlp" / "plugins" / "p" / "yt_dlp_plugins"
    (plugin / "extractor").mkdir(parents=True)
    marker = tmp_path / "marker"
    code = f"open({str(marker)!r}, 'w')\n"
    (plugin / "extractor" / "evil.py").write_text(code)
    (tmp_path / ".config" / "yt-dlp" / "config").write_text("--write-description\n")
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / (".config" if "X" in name else "")))
    for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
    source = load(site, tmp_path / "in" / "source")
    assert source.captions and not marker.exists()
    inside = [site.film("film.mp4", url="http://10.0.0.1/film.mp4")]
    site.pages["in"] = site.pages["t1"] | {"formats": inside}
    with pytest.raises(Vid2ContextError, match=r"10\.0\.0\.1"):
        load(site, tmp_path / "in" / "other", "in")


def test_cookies_reach_their_host_and_nothing_else(site, tmp_path):
    jar = tmp_path / "cookies.txt"
    row = "{}\tFALSE\t/\tFALSE\t0\tsession\t{}\n"
    planted = row.format("127.0.0.1", "PLANTED-77") + row.format("a.example", "GOLD-1")
    jar.write_text("# Netscape HTTP Cookie File\n" + planted)
    jar.chmod(0o600)
    before = jar.stat()
    load(site, tmp_path / "p" / "source", cookies=jar)
    sent = [headers.get("Cookie", "") for path, headers in site.seen]
    assert "session=PLANTED-77" in sent[0] and not any("GOLD-1" in s for s in sent)
    written = [p for p in (tmp_path / "p").rglob("*") if p.is_file()]
    assert written and all(b"PLANTED-77" not in p.read_bytes() for p in written)
    assert (jar.stat().st_mtime_ns, jar.read_text()[-8:]) == (
        before.st_mtime_ns,
        "\tGOLD-1\n",
    )
    assert stat.S_IMODE(jar.stat().st_mode) == 0o600
    site.faults["/api/t1"] = [500] * 99
    with pytest.raises(Vid2ContextError) as caught:
        load(site, tmp_path / "p" / "again", cookies=jar)
    assert "PLANTED-77" not in str(caught.value)
    jar.chmod(0o640)
    with pytest.raises(Vid2ContextError, match="chmod 600"):
        load(site, tmp_path / "p" / "third", cookies=jar)


def test_a_stalled_download_ends_and_is_continued(site, tmp_path):
    site.files["/film.mp4"] += b"\0" * 3_000_000
    site.stall_after["/film.mp4"] = 2_000_000
    begun = tmp_path / ".source.partial" / "video.mp4.part"
    for limit_s in (6.0, 30.0, 90.0):  # a busy machine may need longer to begin
        started = time.monotonic()
        with pytest.raises(Vid2ContextError) as caught:
            load(site, tmp_path / "source", settings=settings(video_timeout_s=limit_s))
        assert caught.value.code in ("download_timeout", "network")
        assert time.monotonic() - started < limit_s + 20
        if begun.exists():
            break
    assert begun.stat().st_size > 0
    site.seen.clear()
    source = load(site, tmp_path / "source")
    ranges = [h["Range"] for p, h in site.seen if p == "/film.mp4" and "Range" in h]
    assert ranges and not ranges[0].startswith("bytes=0-")
    assert source.video.read_bytes() == site.files["/film.mp4"]
    assert not begun.parent.exists()


@pytest.mark.parametrize("announced", [True, False])
def test_a_large_file_is_refused(site, tmp_path, announced):
    site.files["/film.mp4"] += b"\0" * 400_000
    if not announced:
        site.no_length.add("/film.mp4")
        site.files["/film.mp4"] += b"\0" * 2**27
    with pytest.raises(Vid2ContextError) as caught:
        load(site, tmp_path / "source", settings=settings(max_bytes=300_000))
    assert caught.value.code == "download_too_large"


def test_another_format_is_taken_when_the_first_choice_is_missing(site, tmp_path):
    tall = site.film("film.mp4", height=2160)
    site.pages["tall"] = site.pages["t1"] | {"formats": [tall]}
    source = load(site, tmp_path / "source", "tall")
    assert source.metadata["height"] == 48 and source.captions


def test_a_forbidden_file_is_asked_for_once_more_in_pieces(site, tmp_path):
    site.faults["/film.mp4"] = [403]
    load(site, tmp_path / "source")
    asked = [h.get("Range", "") for p, h in site.seen if p == "/film.mp4"]
    assert asked[-1].startswith("bytes=0-")
    site.faults["/film.mp4"] = [403] * 9
    with pytest.raises(Vid2ContextError) as caught:
        load(site, tmp_path / "other")
    assert caught.value.code == "forbidden"


def test_a_lost_caption_track_hands_over(site, tmp_path):
    site.pages["t2"] = site.pages["t1"] | {
        "subtitles": {"en": site.track("gone.vtt")},
        "automatic_captions": {
            "en": site.track("en.vtt", "?x=1"),
            "fr": site.track("en.vtt", "?tlang=fr"),
        },
    }
    source = load(site, tmp_path / "source", "t2")
    assert [(c.kind, c.track) for c in source.captions] == [("auto", "en")]
    assert any("caption track manual:en" in w for w in source.receipt["warnings"])
    site.seen.clear()
    again = load(site, tmp_path / "source", "t2", refused=("manual:en", "auto:en"))
    assert again.captions == () and again.video.read_bytes() == site.files["/film.mp4"]
    assert site.paths() == ["/api/t2"]


def test_sound_is_loaded_only_when_somebody_has_to_listen(site, tmp_path):
    heard = clip(tmp_path / "sound.mp4", sound=True).read_bytes()
    site.files["/sound.m4a"] = heard
    silent = site.film("film.mp4", acodec="none", vcodec="h264", format_id="v")
    sound = site.film("sound.m4a", ext="m4a", vcodec="none", acodec="aac", height=None)
    bare = {"formats": [sound, silent], "subtitles": {}}
    site.pages["dumb"] = site.pages["t1"] | bare
    assert load(site, tmp_path / "a", "dumb").audio is None
    source = load(site, tmp_path / "b", "dumb", recognition=True)
    assert source.audio.name == "audio.m4a" and source.audio.read_bytes() == heard
    with_words = {"formats": [sound, silent]}
    site.pages["words"] = site.pages["t1"] | with_words
    assert load(site, tmp_path / "c", "words", recognition=True).audio is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"live_status": "is_upcoming", "formats": []}, "not_started"),
        ({"is_live": True}, "still_live"),
        ({"duration": 90_000}, "too_long"),
        ({"formats": []}, "format_missing"),
        ({"_type": "playlist", "entries": []}, "is_playlist"),
    ],
)
def test_what_cannot_be_a_source_is_refused(site, tmp_path, change, code):
    site.pages["no"] = site.pages["t1"] | change
    with pytest.raises(Vid2ContextError) as caught:
        load(site, tmp_path / "source", "no")
    assert caught.value.code == code
    assert not (tmp_path / "source").exists()


def test_a_page_without_an_extractor_is_refused(tmp_path):
    with pytest.raises(Vid2ContextError) as caught:
        acquire("https://example.org/page", tmp_path / "source", settings=SETTINGS)
    assert caught.value.code == "url_unsupported"
    assert list(tmp_path.iterdir()) == []


def test_a_playlist_with_private_links_keeps_its_order(site):
    entries = [
        {"_type": "url", "id": n, "title": n, "url": u}
        for n, u in [
            ("a", f"{site.base}/watch/a"),
            ("b", "http://10.0.0.1:8080/watch/b"),
            ("c", "file:///etc/passwd"),
        ]
    ]
    page = {"_type": "playlist", "id": "PL/1", "title": "All", "entries": entries}
    site.pages["list"] = page
    found = list_playlist(f"{site.base}/watch/list", settings=SETTINGS, door=site.door)
    assert [i.status for i in found.items] == ["todo", "skipped", "skipped"]
    assert found.id.startswith("harbour-")
    assert json.loads(found.to_bytes())["items"][0]["raw_id"] == "a"


def test_a_file_that_is_no_video_leaves_nothing(site, tmp_path):
    site.files["/film.mp4"] = b"<html>please sign in</html>"
    with pytest.raises(Vid2ContextError) as caught:
        load(site, tmp_path / "source")
    assert caught.value.code.startswith("media.")
    assert list(tmp_path.iterdir()) == []


def test_an_upstream_proxy_is_used_and_said(film, tmp_path):
    asked = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "video/mp4")
            self.send_header("Content-Length", str(len(film)))
            self.end_headers()
            self.wfile.write(film)

        def log_message(self, *args):
            pass

    proxy = http.server.HTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    upstream = f"http://127.0.0.1:{proxy.server_port}"
    url = "http://hall.example/week 3/film.mp4".replace(" ", "%20")
    wish = settings(upstream_proxy=upstream)
    source = acquire(url, tmp_path / "source", settings=wish)
    proxy.shutdown()
    assert asked == [url] and source.receipt["address_check"] is False


def test_a_link_from_the_network_reaches_listed_hosts_only(tmp_path):
    loader = LinkLoader(settings(hosts=("hall.example",)), sleep=lambda seconds: None)
    with pytest.raises(Vid2ContextError, match="not on the list"):
        loader.load("https://other.example/f.mp4", tmp_path, person=False)
    with pytest.raises(Vid2ContextError, match=r"was not found|not public"):
        loader.load("https://a.hall.example/f.mp4", tmp_path, person=False)


@pytest.mark.parametrize("direct", [True, False])
def test_a_host_that_is_not_found_is_asked_for_again(site, tmp_path, direct):
    lost = site.film("film.mp4", url="https://nowhere.invalid/film.mp4")
    site.pages["lost"] = site.pages["t1"] | {"formats": [lost]}
    pauses = []
    with pytest.raises(Vid2ContextError, match="was not found") as caught:
        acquire(
            lost["url"] if direct else f"{site.base}/watch/lost",
            tmp_path / "source",
            settings=settings(hosts=("nowhere.invalid",)),
            door=site.door,
            sleep=pauses.append,
        )
    assert caught.value.retryable and pauses == [2.0, 4.0]
    assert not (tmp_path / "source").exists()


def test_no_process_and_no_home_survive(site, tmp_path):
    before = {p.name for p in Path("/tmp").iterdir()}
    load(site, tmp_path / "source")
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    commands = [Path(f"/proc/{c}/cmdline").read_bytes() for c in children.split()]
    assert not any(b"vid2context.downloads" in c for c in commands)
    left = {p.name for p in Path("/tmp").iterdir()} - before
    assert not [name for name in left if Path("/tmp", name, "stderr").exists()]


def test_an_interrupt_ends_the_child_at_once(site, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    site.files["/film.mp4"] += b"\0" * 3_000_000
    site.stall_after["/film.mp4"] = 2_000_000
    monkeypatch.setattr("vid2context.site_videos.tqdm.update", interrupt)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as caught:
        load(site, tmp_path / "source", settings=settings(video_timeout_s=25.0))
    assert time.monotonic() - started < 20
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    commands = [Path(f"/proc/{c}/cmdline").read_bytes() for c in children.split()]
    assert not any(b"vid2context.downloads" in c for c in commands), caught
