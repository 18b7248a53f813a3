"The cleaner leaves nothing of one run in a notebook, and is done after one pass."

import json
import subprocess
import sys
from pathlib import Path

from nbdev.test import test_nb as run_nb

ROOT = Path(__file__).resolve().parents[1]
VIEW = "application/vnd.jupyter.widget-view+json"


def code(source, *outputs, count=3):
    return {
        "cell_type": "code",
        "execution_count": count,
        "id": "c" + "".join(filter(str.isalnum, source))[:12],
        "metadata": {},
        "outputs": list(outputs),
        "source": source,
    }


def result(**data):
    return {
        "data": data,
        "execution_count": 3,
        "metadata": {},
        "output_type": "execute_result",
    }


def book(*cells, **metadata):
    return {
        "cells": list(cells),
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def tidy(*words):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/clean.py"), *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_traces_of_one_run_go_and_results_stay(tmp_path):
    path = tmp_path / "messy.ipynb"
    stream = {"name": "stdout", "output_type": "stream"}
    view = {VIEW: {"model_id": "0af9"}, "text/plain": ["Dial(value=2)"]}
    cells = [
        code("thing()", result(**{"text/plain": ["<Thing object at 0x7ffeb0>"]})),
        code("folder()", result(**{"text/plain": ["'/tmp/tmpq1w2e3/clip'"]})),
        code(
            "%time f()", {**stream, "text": ["CPU times: 4 us\n", "Wall time: 5 us\n"]}
        ),
        code("dial", {"data": view, "metadata": {}, "output_type": "display_data"}),
        code(
            "bare", {"data": {VIEW: {}}, "metadata": {}, "output_type": "display_data"}
        ),
        code(
            "row", result(**{"text/markdown": ["|a|"], "text/plain": ["T('/tmp/x')"]})
        ),
        code("print('stays')", {**stream, "text": ["stays\n"]}),
    ]
    messy = book(
        *cells, widgets={"state": {}}, signature="a1", kernelspec={"name": "x"}
    )
    path.write_text(json.dumps(messy))
    assert tidy(path).returncode == 0
    once = path.read_text()
    assert tidy(path).returncode == 0
    assert path.read_text() == once
    after = json.loads(once)
    assert [c["id"] for c in after["cells"]] == [c["id"] for c in cells]
    assert {c["execution_count"] for c in after["cells"]} == {None}
    assert after["metadata"]["kernelspec"]["name"] == "python3"
    for trace in ("0x7f", "/tmp/", "Wall time", "model_id", "signature", "widgets"):
        assert trace not in once
    for result_text in ("|a|", "<Thing object>", "Dial(value=2)", "stays\\n"):
        assert result_text in once


def test_check_names_a_foreign_kernel_and_changes_nothing(tmp_path):
    cells = [code("1 + 1", count=None)]
    for name, meta in {
        "mine": {"kernelspec": {"name": "video-env", "display_name": "mine"}},
        "none": {"language_info": {"name": "python"}},
        "bare": {},
    }.items():
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(book(*cells, **meta)))
    before = (tmp_path / "mine.ipynb").read_bytes()
    done = tidy("--check", tmp_path)
    assert done.returncode == 1
    assert "mine.ipynb" in done.stderr and "none.ipynb" in done.stderr
    assert (tmp_path / "mine.ipynb").read_bytes() == before


def test_a_notebook_runs_whatever_kernel_it_names(tmp_path):
    path = tmp_path / "mine.ipynb"
    path.write_text(
        json.dumps(book(code("assert 1 + 1 == 2"), kernelspec={"name": "zz"}))
    )
    assert run_nb(path, [], basepath=ROOT, cell_timeout=30)[0]
    path.write_text(
        json.dumps(book(code("assert 1 + 1 == 3"), kernelspec={"name": "zz"}))
    )
    assert not run_nb(path, [], basepath=ROOT, cell_timeout=30, showerr=False)[0]
