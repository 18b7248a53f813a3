"""Whatever a file holds, reading it ends in a value or in named defects."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vid2context.context_file import heading_problems, parse_context
from vid2context.core import Vid2ContextError, canonical_json
from vid2context.dossier import Analysis, Rules
from vid2context.evidence import Row, read_rows
from vid2context.manifest import ManifestEntry, parse_manifest
from vid2context.marks import find_frames, find_stamps, has_marks, neutral, write_stamp
from vid2context.package_files import Coverage, Metadata, SegmentLine, read_metadata
from vid2context.review_files import Review, Validation
from vid2context.schema import check, read_json

MODELS = (
    Analysis,
    Rules,
    Coverage,
    Metadata,
    SegmentLine,
    Row,
    Validation,
    Review,
    ManifestEntry,
)
KEYS = sorted({name for model in MODELS for name in model.model_fields})
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=8
        )
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
@given(raw=JSON, foreign=st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_json_value_gives_a_model_or_problems(model, raw, foreign):
    checked = check(model, raw, foreign=foreign)
    assert (checked.value is None) == bool(checked.problems)
    assert all(problem.code and problem.message for problem in checked.problems)


@given(raw=JSON)
@settings(max_examples=60, deadline=None)
def test_metadata_keeps_what_is_right(raw):
    checked = read_metadata(raw)
    if checked.value is None:
        assert checked.problems


@given(data=st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_bytes_never_crash_a_reader(data):
    for read in (read_json, parse_manifest):
        try:
            read(data)
        except Vid2ContextError as error:
            assert error.code
    read_rows(data)
    parse_context(data.decode(errors="replace"))


@given(
    text=st.text(alphabet="#`~ \n\tabcS:0123456789-.pctframe/\"'[]{}|>é", max_size=200)
)
@settings(max_examples=200, deadline=None)
def test_any_text_has_a_tree(text):
    document = parse_context(f"---\n{text}\n---\n{text}")
    heading_problems(document)
    for at, section in enumerate(document.sections):
        assert section.parent is None or section.parent < at
        above = section.parent is not None and document.sections[section.parent]
        assert not above or above.level < section.level
        assert section.path[-1] == section.title
        assert all(not stamp.is_reversed for stamp in section.stamps)


@given(
    text=st.text(alphabet="0123456789:.- framepctjngsequcdtivl/", max_size=80)
    | st.from_regex(r"frame-[0-9]{2}pct\.png|[0-9]{1,2}:[0-9]{2}(-[0-9]:[0-9]{2})?")
)
@settings(max_examples=300, deadline=None)
def test_neutral_text_has_no_mark_and_reads_the_same(text):
    calm = neutral(text)
    assert not has_marks(calm)
    assert find_frames(calm) == ([], [])
    assert calm.replace("\u2060", "") == text.replace("\u2060", "")


@given(start=st.floats(0, 90_000), length=st.floats(0, 5_000))
@settings(deadline=None)
def test_a_written_stamp_covers_what_it_names(start, length):
    end = start + length
    (stamp,) = find_stamps(write_stamp(start, end, hours=True))
    assert stamp.start_s <= start + 1e-6
    assert stamp.end_s is not None and stamp.end_s >= end - 1e-6
    assert start - stamp.start_s < 1.001 and stamp.end_s - end < 1.001


@pytest.mark.parametrize(
    "text",
    [
        "sequence-" * 20_000,
        "sequence-" + "1" * 300_000,
        "frame-1" * 40_000,
        "1:11" * 60_000,
        "12:" * 100_000,
        "# " * 100_000,
        "#" + " " * 300_000 + "x",
        "`" * 300_000,
        "---\nk: [" + "'a'," * 60_000 + "]\n---\n",
        "---\nk: '" + "''" * 100_000 + "\n---\n",
        '---\nk: "' + '\\"' * 100_000 + "\n---\n",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_long_lines_are_read_in_one_go(text):
    import time

    started = time.process_time()
    parse_context(text)
    neutral(text)
    assert time.process_time() - started < 3


def test_a_surrogate_is_no_text():
    raw = read_json(b'{"id": "p1", "title": "\\ud800"}')
    assert check(Metadata, raw).problems[0].field == "title"
    with pytest.raises(UnicodeEncodeError):
        canonical_json(raw)


def test_numbers_are_numbers():
    for bad in (True, "1", float("inf"), -1, 0.0001):
        raw = {"id": "p1", "duration": bad}
        assert [p.field for p in check(Metadata, raw).problems] == ["duration"]
    assert check(Metadata, {"id": "p1", "duration": 3}).value.duration == 3.0
    six = json.loads('{"id": "p1", "duration": 3.123456}')
    assert check(Metadata, six, foreign=True).value
