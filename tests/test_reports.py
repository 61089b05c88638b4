"""What a fit reports: history, callbacks, lines and bars, explain()."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import logging
import re
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import datasets
import oracle
from exactmeans import Iteration, KMeans, MiniBatchKMeans, kmeans_plusplus
from models import assert_same_model, blobs, fitted, raising

# what a fit reports -------------------------------------------------------------------------------


KINDS = [int, int, float, float, int, int, int, str, float, int, int, int, int]


@pytest.mark.parametrize("algorithm", ["auto", "lloyd", "elkan", "hamerly", "yinyang", "kdtree"])
def test_history(algorithm: str) -> None:
    X = datasets.blobs(400, 4, 8, spread=4.0)
    seen: list[Iteration] = []
    model = fitted(X, 8, algorithm=algorithm, tol=0, callbacks=seen.append)
    history = model.history_
    assert history == seen
    assert len(history) == model.n_iter_ > 3
    assert [record.iteration for record in history] == list(range(1, model.n_iter_ + 1))
    assert {record.run for record in history} == {0}
    inertias = [record.inertia for record in history]
    assert inertias == sorted(inertias, reverse=True)
    assert inertias[-1] == pytest.approx(model.inertia_, rel=1e-9)
    assert history[0].changed == 400
    assert history[-1].changed == 0
    assert all(record.shift >= 0 for record in history)
    assert [r.seconds for r in history] == sorted(r.seconds for r in history)
    assert model.n_distances_ == sum(record.distances for record in history)
    assert model.algorithm_ == ("lloyd" if algorithm == "auto" else algorithm)
    assert {record.algorithm for record in history} == {model.algorithm_}
    for record in history:
        assert [type(value) for value in record] == KINDS
        # A row is skipped, or at least its own distance is computed.
        assert 400 - record.distances <= record.skipped <= 400 - record.changed
    assert history[0].skipped == 0
    # So few rows are one leaf of a tree.
    assert (history[-1].skipped > 0) == (model.algorithm_ not in ("lloyd", "kdtree"))


def test_lloyd_counts_every_distance() -> None:
    model = fitted(blobs(), algorithm="lloyd", tol=0)
    assert [record.distances for record in model.history_] == [60 * 4] * model.n_iter_


@pytest.mark.parametrize("true", [True, np.True_])
def test_callback_stops_the_fit(true: Any) -> None:
    X = datasets.blobs(400, 4, 8, spread=6.0)
    model = fitted(X, 8, tol=0, callbacks=lambda record: true if record.iteration == 2 else None)
    assert model.n_iter_ == 2
    assert_same_model(model, fitted(X, 8, tol=0, max_iter=2))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert "callback" in model.explain()


def test_every_callback_is_called() -> None:
    """One that stops the fit does not keep the others from seeing the iteration."""
    first: list[Iteration] = []
    last: list[Iteration] = []
    callbacks = (first.append, lambda record: True, last.append)
    fitted(blobs(), init="random", n_init=3, callbacks=callbacks)
    assert first == last
    assert [(record.run, record.iteration) for record in first] == [(0, 1), (1, 1), (2, 1)]


def test_callbacks_that_return_other_things_do_not_stop() -> None:
    expected = fitted(blobs())
    for value in (None, False, 0, 1, "yes", [True]):
        assert fitted(blobs(), callbacks=lambda record, value=value: value).n_iter_ == (
            expected.n_iter_
        )


def test_silent_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    X = blobs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(X, n_init=3, callbacks=lambda record: None)
        model.predict(X), model.transform(X), model.score(X), model.explain()
        kmeans_plusplus(X, 3)
    assert capfd.readouterr() == ("", "")


def test_verbose_prints_a_line_per_iteration(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Iteration] = []
    model = fitted(blobs(), n_init=2, verbose=1, callbacks=seen.append)
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert len(lines) == len(seen)
    for line, record in zip(lines, seen, strict=True):
        assert line.startswith(f"run {record.run} iteration {record.iteration}: inertia ")
        assert f"{record.changed} rows changed" in line
    assert_same_model(model, fitted(blobs(), n_init=2))


def test_verbose_tells_rate_and_time_left(capfd: pytest.CaptureFixture[str]) -> None:
    fitted(blobs(), verbose=1)
    for line in capfd.readouterr().out.splitlines():
        assert re.search(
            r"inertia [\d.e+]+, \d+ rows changed, [\d.e+]+ rows/s, .*at most \d+ s", line
        )


@pytest.mark.parametrize("without", [False, True])
def test_verbose_draws_a_bar_in_terminals(without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rich; without it, lines."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    if without:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    model = fitted(blobs(), verbose=1)
    assert ("\x1b[" in stream.getvalue()) == (not without)
    assert f"iteration {model.n_iter_}" in stream.getvalue()
    assert "rows changed" in stream.getvalue()


@pytest.mark.parametrize("widgets", [False, True])
def test_verbose_in_notebooks(
    widgets: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bar is a widget there; without widgets, lines, and no word of what is missing."""
    bars: list[Any] = []
    found = importlib.util.find_spec

    def find(name: str) -> Any:
        return (True if widgets else None) if name == "ipywidgets" else found(name)

    monkeypatch.setattr("importlib.util.find_spec", find)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.progress.Progress.start", lambda bar: bars.append(bar))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(blobs(), verbose=1)
    assert len(bars) == widgets
    lines = [line for line in capsys.readouterr().out.splitlines() if "rows changed" in line]
    assert len(lines) == (0 if widgets else model.n_iter_)


class _Monitor:
    """A callback of scikit-learn's kind."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.events: list[str] = []
        self._stop_at = stop_at

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        self.events.append(f"end {context.task_name}")
        return len(self.events) == self._stop_at


@pytest.mark.skipif(not hasattr(KMeans, "set_callbacks"), reason="scikit-learn 1.9 has callbacks")
@pytest.mark.parametrize("kind", [KMeans, MiniBatchKMeans])
def test_callbacks_of_scikit_learn(kind: Any) -> None:
    monitor = _Monitor()
    model = kind(4, random_state=0).set_callbacks(monitor).fit(blobs())
    iteration = ["begin iteration", "end iteration"] * len(model.history_)
    assert monitor.events == ["setup", "begin fit", *iteration, "end fit", "teardown"]
    stopping = _Monitor(stop_at=4)
    stopped = kind(4, random_state=0, tol=0).set_callbacks(stopping).fit(blobs())
    assert len(stopped.history_) == 1
    failing = _Monitor()
    with pytest.raises(RuntimeError, match="no"):
        kind(4, callbacks=raising(RuntimeError("no"))).set_callbacks(failing).fit(blobs())
    assert failing.events[-1] == "teardown"


class _Scores(_Monitor):
    """What callbacks are promised: the data, and an estimator as if the fit had ended there."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []

    def on_fit_task_begin(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:  # type: ignore[override]
        self._note(f"begin {context.task_name}", fitted_estimator)

    def on_fit_task_end(  # type: ignore[override]
        self, estimator: Any, context: Any, *, X: Any, y: Any, metadata: Any, fitted_estimator: Any
    ) -> bool:
        assert fitted_estimator is not estimator
        assert y == "targets"
        weights = metadata["sample_weight"]
        cost = oracle.inertia(X, fitted_estimator.cluster_centers_, fitted_estimator.predict(X))
        assert fitted_estimator.score(X) == pytest.approx(-cost)
        assert fitted_estimator.transform(X).shape == (len(X), 4)
        assert weights is None or len(weights) == len(X)
        self._note(f"end {context.task_name}", fitted_estimator)
        return False

    def _note(self, event: str, fitted: Any) -> None:
        self.seen.append((event, None if fitted is None else fitted.cluster_centers_.copy()))
        if event != "end fit" and fitted is not None:
            assert not hasattr(fitted, "labels_")


@pytest.mark.skipif(not hasattr(KMeans, "set_callbacks"), reason="scikit-learn 1.9 has callbacks")
@pytest.mark.parametrize(
    ("kind", "options"),
    [(KMeans, {}), (MiniBatchKMeans, {}), (MiniBatchKMeans, {"method": "memoized"})],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_callbacks_get_an_estimator_as_if_the_fit_had_ended(
    kind: Any, options: dict[str, Any], weighted: bool
) -> None:
    X, scores = blobs(), _Scores()
    weights = np.ones(len(X)) if weighted else None
    model = kind(4, init=X[:4], n_init=1, random_state=0, **options).fit(X).set_callbacks(scores)
    model.fit(X, "targets", sample_weight=weights)
    (first, nothing), *between, (last, end) = scores.seen
    assert (first, nothing, last) == ("begin fit", None, "end fit")
    np.testing.assert_array_equal(end, model.cluster_centers_)
    np.testing.assert_array_equal(between[0][1], X[:4])
    assert len(between) == 2 * len(model.history_)
    for (_, ended), (_, begun) in zip(between[1::2], between[2::2], strict=False):
        np.testing.assert_array_equal(ended, begun)
    if kind is KMeans:
        stopped = KMeans(4, init=X[:4], max_iter=1, tol=0).fit(X, sample_weight=weights)
        np.testing.assert_array_equal(between[1][1], stopped.cluster_centers_)


def _score(model: Any, X: Any, y: Any, **options: Any) -> float:
    return float(model.score(X, y, **options))


@pytest.mark.skipif(not hasattr(KMeans, "set_callbacks"), reason="scikit-learn 1.9 has callbacks")
def test_scikit_learns_own_callbacks_work(capsys: pytest.CaptureFixture[str]) -> None:
    theirs: Any = importlib.import_module("sklearn.callback")
    X, monitor = blobs(), theirs.ScoringMonitor(scoring={"score": _score})
    model = KMeans(4, init=X[:4], tol=0).set_callbacks(monitor, theirs.ProgressBar())
    model.fit(X, np.zeros(len(X)))
    scores = [row["score"] for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(scores) == model.n_iter_
    assert scores == sorted(scores)
    assert scores[-1] == -model.inertia_
    assert "KMeans" in capsys.readouterr().out


def test_verbose_goes_to_the_log_of_a_service(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "exactmeans"):
        model = fitted(blobs(), verbose=1)
    assert len(caplog.records) == model.n_iter_
    assert {(record.name, record.levelname) for record in caplog.records} == {
        ("exactmeans", "INFO")
    }
    assert caplog.records[0].getMessage().startswith("run 0 iteration 1: inertia ")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("why", ["a higher level", "no handler", "a terminal"])
def test_verbose_is_printed_where_no_log_shows_it(
    why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(stream, "isatty", lambda: why == "a terminal", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # no rich, no bar
    if why == "no handler":
        monkeypatch.setattr(logging.getLogger("exactmeans"), "propagate", False)
    with caplog.at_level(
        logging.WARNING if why == "a higher level" else logging.INFO, "exactmeans"
    ):
        model = fitted(blobs(), verbose=1)
    assert len(stream.getvalue().splitlines()) == model.n_iter_
    assert not caplog.records


def test_verbose_goes_where_print_goes() -> None:
    stream = io.StringIO()
    stdout, sys.stdout = sys.stdout, stream
    try:
        fitted(blobs(), verbose=1)
    finally:
        sys.stdout = stdout
    assert "iteration 1" in stream.getvalue()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, ["lloyd", "auto", "60 x 3", "float64", "no label changed", "MB"]),
        ({"algorithm": "hamerly"}, ["hamerly", "algorithm='hamerly'"]),
        ({"max_iter": 1, "init": "random", "n_init": 1}, ["iterations: 1;", "max_iter"]),
        ({"max_iter": 1, "init": "random", "n_init": 1}, ["in 2 passes"]),  # one for final labels
        ({"tol": 1e3}, ["tol"]),
        ({"dtype": "float32"}, ["float32, not shifted"]),  # converted, so not "as given"
        ({"n_jobs": 2}, ["threads: 2"]),
    ],
)
def test_explain(params: dict[str, Any], words: list[str]) -> None:
    model = fitted(blobs(), **params)
    text = model.explain()
    assert all(word in text for word in words), text
    assert f"iterations: {model.n_iter_}" in text
    assert f"distances: {model.n_distances_} of " in text
    assert all(line.strip() and len(line) <= 100 for line in text.splitlines())


def test_explain_counts_what_was_saved() -> None:
    X = datasets.blobs(500, 4, 10, seed=1)
    assert "(100.0%)" in fitted(X, 10, algorithm="lloyd").explain()
    pruned = fitted(X, 10, algorithm="hamerly", tol=0)
    assert pruned.n_distances_ < 500 * 10 * pruned.n_iter_
    assert "(100.0%)" not in pruned.explain()


def test_explain_as_a_dict() -> None:
    model = fitted(datasets.blobs(400, 4, 8, spread=6.0), 8, algorithm="hamerly")
    facts = model.explain(as_dict=True)
    assert json.loads(json.dumps(facts)) == facts  # plain values
    assert facts["stages"] == [
        {"from_iteration": 1, "algorithm": "hamerly", "reason": "algorithm='hamerly'"}
    ]
    assert (facts["rows"], facts["features"], facts["clusters"]) == (400, 4, 8)
    assert facts["iterations"] == model.n_iter_ == facts["passes_plain"]  # the last changed nothing
    assert facts["distances_plain"] == 400 * 8 * facts["passes_plain"]
    assert facts["distances"] == model.n_distances_ < facts["distances_plain"]
    assert facts["distances_share"] == facts["distances"] / facts["distances_plain"]
    for fact in ("threads", "instruction_set", "stopped", "distances"):
        assert str(facts[fact]) in model.explain()
