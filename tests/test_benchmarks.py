"""Whose time counts beside ours, by the answers that they give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import data, published, sources, suites
from benchmarks.peers import Fitted
from benchmarks.race import Row, judge
from benchmarks.suites import Case
from benchmarks.worker import Answer, measured

LABELS = np.arange(1000) % 7
OTHERS = np.roll(LABELS, 1)
OURS = Answer(LABELS, 100.0, 20)


def case(dtype: str = "float32", init: str = "rows") -> Case:
    return Case("normal-1000x3", 7, dtype, ("scikit-learn",), init=init, iters=(2, 20))


@pytest.mark.parametrize("labels", [LABELS, OTHERS])
@pytest.mark.parametrize(
    ("inertia", "counts", "says"),
    [(100.05, True, ""), (110.0, True, "worse answer"), (90.0, False, "other answer")],
)
def test_a_time_counts_unless_the_answer_is_better(
    labels: np.ndarray, inertia: float, counts: bool, says: str
) -> None:
    verdict = judge(case(), Answer(labels, inertia, 20), OURS)
    assert verdict.counts == counts
    assert verdict.note.startswith(says)
    assert bool(verdict.note) == bool(says)
    assert verdict.better == (inertia < 99)


def test_the_note_says_by_how_much_an_answer_is_worse() -> None:
    assert "+1.00e-01" in judge(case(), Answer(OTHERS, 110.0, 20), OURS).note


def test_in_float64_other_labels_must_not_be_better_at_all() -> None:
    assert not judge(case("float64"), Answer(OTHERS, 100.0 - 1e-9, 20), OURS).counts
    assert judge(case("float64"), Answer(OTHERS, 100.0 + 1e-9, 20), OURS).counts


def test_a_fit_that_stopped_before_the_limit_does_not_count() -> None:
    verdict = judge(case(), Answer(LABELS, 100.0, 12), OURS)
    assert not verdict.counts
    assert "12 iterations, not 20" in verdict.note
    assert judge(case(), Answer(LABELS, 90.0, 12), OURS).better


@pytest.mark.parametrize("inertia", [90.0, 110.0])
def test_from_seeds_of_their_own_a_worse_answer_is_luck(inertia: float) -> None:
    assert not judge(case(init="k-means++"), Answer(OTHERS, inertia, 20), OURS).counts


def test_labels_alone_are_compared_where_there_is_no_inertia() -> None:
    ours = Answer(LABELS, 0.0, None)
    assert judge(case(), Answer(LABELS, 0.0, None), ours).counts
    assert not judge(case(), Answer(OTHERS, 0.0, None), ours).counts


def test_inertia_is_measured_in_float64_by_differences() -> None:
    X = np.array([[1e9, 0.0], [1e9, 1.0], [0.0, 3.0]], dtype=np.float32)
    C = np.array([[1e9, 0.5], [0.0, 3.0]])
    assert measured(X, Fitted(None, C)).inertia == 0.5


# Data that anybody can have -----------------------------------------------------------------------


@pytest.fixture
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No data folder, no named files, and fetchers that cannot reach anything."""

    def unreachable() -> None:
        raise URLError("no route")

    monkeypatch.setattr(sources, "FOLDER", tmp_path)
    monkeypatch.delenv(sources.NAMED, raising=False)
    fetched = dict.fromkeys(sources.MADE.keys() - {"birch1"}, unreachable)
    monkeypatch.setattr(sources, "MADE", {**sources.MADE, **fetched})
    sources.missing.cache_clear()
    yield tmp_path
    sources.missing.cache_clear()


@pytest.mark.usefixtures("nothing_at_hand")
def test_what_cannot_be_downloaded_is_said() -> None:
    assert "covtype could not be downloaded (URLError" in str(data.missing("covtype"))
    assert "--data acl=path/to/acl_anthology.counts.npz" in str(data.missing("acl"))


@pytest.mark.usefixtures("nothing_at_hand")
def test_generated_data_needs_no_download() -> None:
    assert data.missing("birch1") is None
    assert data.load("birch1", "float32", 500).shape == (500, 2)
    assert data.missing("normal-100x3") is None
    assert data.missing("iris") is None


def test_files_that_the_user_names(nothing_at_hand: Path) -> None:
    rows = np.arange(12.0).reshape(6, 2)
    np.save(nothing_at_hand / "mine.npy", rows)
    counts = sp.csr_matrix(np.eye(4) + 1)
    sp.save_npz(nothing_at_hand / "counts.npz", counts)
    files = [f"glove={nothing_at_hand / 'mine.npy'}", f"acl={nothing_at_hand / 'counts.npz'}"]
    assert sources.name_files(files) is None
    np.testing.assert_array_equal(data.load("glove", "float64"), rows)
    assert data.load("acl", "float32").shape == (4, 4)
    assert data.missing("glove") is None


def test_files_that_do_not_fit_are_refused(nothing_at_hand: Path) -> None:
    assert "there is no file" in str(sources.name_files(["glove=nowhere.npy"]))
    assert "name=path" in str(sources.name_files(["other=x.npy"]))


# The stored run -----------------------------------------------------------------------------------


def test_the_chart_shows_the_stored_run() -> None:
    run = published.read()
    assert published.chart(run) == published.CHART.read_text(encoding="utf8")
    assert published.readme_table(run) in published.README.read_text(encoding="utf8")
    shown = dict(published.speedups(run))
    assert shown
    for suite in run["suites"]:
        assert f"### {suite}" in published.tables()


def test_the_chart_takes_the_faster_algorithm_of_a_library() -> None:
    cases = [("scikit-learn", 9.0), ("scikit-learn-elkan", 4.0), ("faiss", 2.0), ("intelex", 1.0)]
    suite, name, title = published.SHOWN[2]
    rows = [Row(name, who, 1.0, "ms", ratio=(x, x, x)) for who, x in cases]
    run = {"suites": {suite: [dataclasses.asdict(row) for row in rows]}}
    assert list(published.speedups(run)) == [(title, {"scikit-learn": 4.0, "FAISS": 2.0})]


def test_the_published_cases_are_those_that_the_chart_shows() -> None:
    cases = [(suite, case.name) for suite, case in suites.published()]
    assert cases == [(suite, name) for suite, name, _ in published.SHOWN]
    for suite, case in suites.published():
        (whole,) = (other for other in suites.RACES[suite] if other.name == case.name)
        assert set(case.contenders) <= set(whole.contenders)
        assert dataclasses.replace(case, contenders=whole.contenders) == whole
