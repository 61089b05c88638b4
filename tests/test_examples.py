"""Every example runs, from nothing but what comes with it, and on real data where that is."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import runpy
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp

import datasets

EXAMPLES = datasets.ROOT / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="no sources beside the tests")


def here(name: str, *arguments: str) -> str:
    """In this process, which has imported most of what examples need: that takes a second."""
    plt = pytest.importorskip("matplotlib.pyplot")
    out = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [name, *arguments]),
        mock.patch.object(sys, "path", [str(EXAMPLES), *sys.path]),
        contextlib.redirect_stdout(out),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", RuntimeWarning)
        plt.switch_backend("Agg")
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    plt.close("all")
    return out.getvalue()


@cache
def run(name: str, *arguments: str, data: Path | None = None) -> str:
    """In a process of its own: examples that read the standard library import all of it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "Agg"}
    environment.pop("EXACTMEANS_DATA", None)
    if data is not None:
        environment["EXACTMEANS_DATA"] = str(data)
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(EXAMPLES / name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_examples_are_run_here() -> None:
    run_here = {"label_clusters.py", "label_tree.py", "stdlib_docstrings.py", "topics.py"}
    run_here |= {f"{name}.py" for name in DRAWN}
    assert {path.name for path in EXAMPLES.glob("*.py")} == run_here


DRAWN = {
    "colours": "64 colours: lloyd",
    "digits": "stopped because no label changed",
    "elbow": "k =  6: inertia     7082",
    "initial_centres": "greedy k-means++",
    "iterations": "of plain Lloyd's",
    "points": "inertia 7082",
    "same_bits": "yinyang  n_jobs=2",
    "stream": "after 120 batches",
    "vector_index": "32 lists",
    "wine": "standardised: adjusted Rand index with the cultivars 0.9",
}


@pytest.mark.parametrize("name", DRAWN)
def test_examples_of_the_gallery(name: str) -> None:
    found = here(f"{name}.py")
    assert DRAWN[name] in found
    if name == "same_bits":  # by all ways to a fit
        assert len({line.split()[-1] for line in found.splitlines()}) == 1


def test_topics_without_data() -> None:
    lines = run("topics.py").splitlines()
    assert re.match(r"(docstrings of the standard library|20 newsgroups): \d+ documents", lines[0])
    assert len(lines) >= 13


def test_topics_of_the_newsgroups() -> None:
    folder = datasets.data_file("20news.counts.npz").parent
    found = run("topics.py", data=folder)
    assert "20 newsgroups: 18846 documents" in found
    topics = [line.split(maxsplit=1)[1] for line in found.splitlines()[1::2]]
    assert len(topics) == 20
    # Themes that no sensible clustering of these groups misses, by their words.
    for words in ({"encryption", "key"}, {"god", "jesus"}, {"space"}, {"game", "team"}, {"car"}):
        assert any(words <= set(topic.split(", ")) for topic in topics), words


def test_topics_of_a_file(tmp_path: Path) -> None:
    lines = ["red fish blue fish", "fish swim in the sea"] * 15 + ["cars need oil and roads"] * 30
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    found = here("topics.py", str(tmp_path / "lines.txt"))
    assert "60 documents" in found
    assert "fish" in found
    assert "cars" in found


def test_label_clusters() -> None:
    found = run("label_clusters.py")
    assert re.match(r"\d+ labels in \d+ clusters, 0 without rows", found)
    assert "asyncio" in found


def test_label_tree(tmp_path: Path) -> None:
    found = run("label_tree.py")
    assert "labels in" in found
    shares = [int(share) for share in re.findall(r"beam +\d+: (\d+)%", found)]
    assert shares == sorted(shares)
    assert shares[-1] > 90
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(sp.random(200, 40, 0.2, random_state=0)))
    sp.save_npz(tmp_path / "Y.npz", sp.csr_matrix(sp.random(200, 90, 0.1, random_state=1)))
    assert "90 labels in" in here("label_tree.py", str(tmp_path / "X.npz"), str(tmp_path / "Y.npz"))


def test_label_clusters_of_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows: sp.csr_matrix = sp.csr_matrix(sp.random(200, 30, 0.2, random_state=1))
    with (tmp_path / "set.svm").open("w") as file:
        for i in range(200):
            labels = ",".join(map(str, sorted(rng.choice(24, 2, replace=False))))
            own = zip(rows[[i]].indices, rows[[i]].data, strict=True)
            file.write(f"{labels} {' '.join(f'{f + 1}:{v:.4f}' for f, v in sorted(own))}\n")
    found = here("label_clusters.py", str(tmp_path / "set.svm"))
    assert "24 labels in 2 clusters, 0 without rows" in found


def test_docstrings_of_the_standard_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What `make demo` shows, with fewer starts: scikit-learn runs beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("stdlib_docstrings")
    monkeypatch.setattr(example, "SETTINGS", {"n_clusters": 20, "n_init": 1, "random_state": 0})
    monkeypatch.setattr(example, "REPEATS", 1)
    example.main(str(tmp_path / "demo.html"))
    found = capsys.readouterr().out
    assert found.endswith(f"report: {tmp_path / 'demo.html'}\n")
    assert "<!doctype html>" in (tmp_path / "demo.html").read_text()
    assert "the same labels;" in found
    assert "exactmeans was" in found
