"What sites really answer: tracks, holes, live streams, titles, chapters, complaints."

import pytest

from vid2context.core import Vid2ContextError
from vid2context.download_errors import SITUATIONS, download_error, situation
from vid2context.metadata import check_live, clean_chapters, clean_metadata
from vid2context.playlists import read_playlist
from vid2context.site_videos import loaded_file
from vid2context.text import slugify
from vid2context.tracks import choose_track


def offered(*keys: str, translated: bool = False) -> dict[str, list[dict[str, str]]]:
    more = "&tlang=xx" if translated else ""
    return {
        key: [
            {"ext": ext, "url": f"https://a.invalid/{key}?fmt={ext}{more}"}
            for ext in ("vtt", "json3")
        ]
        for key in keys
    }


TRACKS = {
    "a typed track of another region beats an automatic one": (
        {
            "language": "fr",
            "subtitles": offered("fr-CA", "de"),
            "automatic_captions": offered("fr-orig", "fr"),
        },
        ("fr-CA", "manual"),
    ),
    "a named typed track": (
        {"language": "fr", "subtitles": offered("fr-x8Kd92LmQ_s", "ko")},
        ("fr-x8Kd92LmQ_s", "manual"),
    ),
    "the chat is no track": (
        {
            "language": "fr",
            "subtitles": offered("live_chat", "rechat", "danmaku"),
            "automatic_captions": offered("fr-orig", "fr", "it"),
        },
        ("fr-orig", "auto"),
    ),
    "the spoken language beats the wanted one": (
        {
            "language": "it",
            "subtitles": offered("it", "ko"),
            "automatic_captions": offered("fr", translated=True),
        },
        ("it", "manual"),
    ),
    "nothing": ({"language": "fr"}, None),
    "a key of two languages is a translation": (
        {"language": None, "automatic_captions": offered("fr", "fr-it", "it")},
        ("fr", "auto"),
    ),
    "the region of the video comes first": (
        {"language": "es-MX", "subtitles": offered("es-ES", "es-MX")},
        ("es-MX", "manual"),
    ),
}


@pytest.mark.parametrize("name", TRACKS)
def test_the_track_that_holds_the_words_as_spoken(name):
    info, wanted = TRACKS[name]
    choice = choose_track(info, language="fr")
    got = (choice.track.key, choice.track.kind) if choice.track else None
    assert got == wanted
    assert ("language_guessed" in choice.flags) == (name.startswith("a key of two"))


def entry(key, title, duration, **more):
    url = f"https://www.youtube.com/watch?v={key}"
    return {"id": key, "url": url, "title": title, "duration": duration, **more}


def test_a_playlist_with_holes_is_listed_in_full():
    nested = {
        "_type": "playlist",
        "id": "PLin",
        "entries": [entry("knots000001", "Knots", None), entry("sails000001", "S", 9)],
    }
    listing = {
        "id": "PLall",
        "title": "Everything",
        "entries": [
            entry("sails000001", "Sails", 9),
            None,
            entry("hidden00001", "[Private video]", None),
            entry("gone0000001", "[Deleted video]", None),
            nested,
            entry("diary000001", "[Deleted video] a diary", 77),
            {"_type": "playlist", "id": "PLnone", "entries": []},
        ],
    }
    found = read_playlist(listing, playlist_id="PLall", max_items=50)
    assert [(i.raw_id, i.duration_s) for i in found.todo] == [
        ("sails000001", 9),
        ("knots000001", None),
        ("diary000001", 77),
    ]
    skipped = [(i.position, i.reason) for i in found.items if i.status == "skipped"]
    assert skipped == [
        (2, "unavailable"),
        (3, "private"),
        (4, "deleted"),
        (6, "duplicate"),
    ]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"live_status": "is_upcoming", "release_timestamp": 1988150400}, "2033-01-01"),
        ({"live_status": "is_upcoming", "duration": 90}, "not_started"),
        ({"live_status": "is_live", "is_live": True}, "still_live"),
        ({"live_status": None, "is_live": True}, "still_live"),
    ],
)
def test_what_is_not_over_is_refused(answer, code):
    with pytest.raises(Vid2ContextError) as caught:
        check_live(answer)
    assert code in f"{caught.value.code} {caught.value.message}"
    assert caught.value.retryable


def test_what_is_over_is_taken_and_just_over_warns():
    assert check_live({"live_status": "post_live", "duration": 60})
    assert check_live({"live_status": "was_live", "duration": None}) == []
    kept, _ = clean_metadata({"duration": 0}, video_id="v")
    assert kept["duration"] is None


TITLES = (
    "🎣" * 130,
    "海" * 200,
    "n" * 400,
    "e\u0301" * 150,
    "../../.ssh/id_rsa",
    "NUL",
    "--help; rm *",
    ".profile",
    'a/b\\c:d*?"<>|',
    "one\ttwo\nthree\0",
    "left\u202eright",
    "   ",
    "",
    "..",
)


def test_any_title_becomes_a_folder_name(tmp_path):
    for title in TITLES:
        name = slugify(title, video_id="q7Rt-_2")
        assert 0 < len(name.encode()) <= 120 and "q7rt-_2" not in name
        assert name[0] not in "-." and not set(name) & set('/\\\0\n\t:*?"<>|\u202e')
        assert name.upper() not in {"CON", "NUL", "AUX", "PRN"}
        (tmp_path / name).mkdir(exist_ok=True)
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    kept, _ = clean_metadata({"title": TITLES[2]}, video_id="v")
    assert kept["title"] == TITLES[2]


def test_the_file_is_the_one_that_was_written_not_the_one_announced(tmp_path):
    for name in ("Boat [x1].f248.webm.part", "Boat [x1].info.json", "video.mp4"):
        (tmp_path / name).write_bytes(b"-")
    (tmp_path / "linked.mp4").symlink_to("/etc/hostname")
    assert loaded_file(tmp_path, "video.mp4", endings=("mp4",)).name == "video.mp4"
    for wrong in ("Boat [x1].webm", "Boat [x1].info.json", "../video.mp4", None):
        with pytest.raises(Vid2ContextError):
            loaded_file(tmp_path, wrong, endings=("mp4", "webm"))
    with pytest.raises(Vid2ContextError):
        loaded_file(tmp_path, "linked.mp4", endings=("mp4",))


def test_chapters_end_after_they_start():
    raw = [
        {"start_time": -3, "title": "Cast off"},
        {"start_time": 20, "end_time": 45, "title": "Pier"},
        {"start_time": 400, "title": "Harbour"},
        {"start_time": 90, "title": "Bend"},
        {"start_time": 90, "title": "Bend again"},
        {"start_time": 900, "end_time": 950, "title": "Beyond"},
        {"start_time": 130.5, "end_time": 100, "title": " "},
        {"start_time": None, "title": "Nowhere"},
    ]
    found, issues = clean_chapters(raw, duration_s=500.0)
    assert [(c["start_time"], c["end_time"], c["title"]) for c in found] == [
        (0, 20, "Cast off"),
        (20, 45, "Pier"),
        (90, 130.5, "Bend"),
        (130.5, 400, "Untitled"),
        (400, 500, "Harbour"),
    ]
    assert len(issues) == 3 and any("Beyond" in issue for issue in issues)
    open_end, _ = clean_chapters(
        [{"start_time": 0}, {"start_time": 9}], duration_s=None
    )
    assert [c["end_time"] for c in open_end] == [9, None]


@pytest.mark.parametrize(
    ("said", "code", "tries"),
    [
        ("Sign in to confirm your age. Use --cookies", "login_needed", 0),
        ("Sign in to confirm you\u2019re not a bot", "login_needed", 0),
        ("Sign in to confirm you're not a bot", "login_needed", 0),
        ("Private video. Sign in if you have been granted access", "not_accessible", 0),
        ("Join this channel to get members-only content", "not_accessible", 0),
        ("Requested format is not available", "format_missing", 1),
        ("could not copy Firefox cookies database", "cookies_unusable", 0),
        ("Video unavailable. It has been removed by its owner", "unavailable", 0),
        ("not available in your country", "unavailable", 0),
        ("[Errno -2] Name resolution failed", "network", 2),
        ("HTTP Error 429: Too Many Requests", "rate_limited", 3),
        ("Unsupported URL: https://a.invalid", "url_unsupported", 0),
        ("[Errno 28] No space left on device", "disk_full", 0),
        ("Something that nobody has said before", "download_failed", 0),
    ],
)
def test_a_complaint_becomes_a_sentence_with_a_next_step(said, code, tries):
    found = situation(f"ERROR: [site] k3: {said}")
    assert (found.code, found.tries) == (code, tries)
    error = download_error(f"ERROR: [site] k3: {said} (SID=hush-7)", secrets=["hush-7"])
    assert error.code == code and "What helps:" in error.message
    assert "hush-7" not in error.message and error.retryable == (tries > 0)
    assert code != "download_failed" or said in error.message


def test_waiting_is_bounded():
    assert max(s.tries for s in SITUATIONS) <= 3
    assert max(s.pause_s * 2**s.tries for s in SITUATIONS) <= 60
