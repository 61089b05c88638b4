"""The HTML report: numbers against oracles, text escaped, and the page in a real browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import datasets
import exactmeans
from browser import Page
from exactmeans import KMeans, report
from exactmeans.quality.odd_rows import ODD
from exactmeans.reporting import words
from exactmeans.reporting.projection import between_axes, principal_axes, unit_rows
from exactmeans.reporting.summary import Contrast, summarise
from exactmeans.text import tfidf

MARKUP = "</script><img src=x onerror=alert(1)><b>bold & \u2028 bad</b>"


def data_of(path: Path) -> Any:
    """The JSON inside a report."""
    found = re.search(
        r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL
    )
    assert found is not None
    return json.loads(found[1])


# numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_axes_are_those_of_pca(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((300, 20)) * np.linspace(1, 6, 20) * (rng.random((300, 20)) < 0.5)
    given: Any = sp.csr_matrix(X) if sparse else X
    found = principal_axes(given)
    centred = X - X.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    for axis in range(2):
        wanted = vectors[:, -1 - axis]
        assert abs(found.axes[:, axis] @ wanted) == pytest.approx(1, abs=1e-3)
        assert found.explained[axis] == pytest.approx(values[-1 - axis] / values.sum(), rel=1e-3)
        assert found.axes[np.abs(found.axes[:, axis]).argmax(), axis] > 0
    np.testing.assert_allclose(found(given), centred @ found.axes, atol=1e-9)


def test_axes_between_means_span_the_plane_of_three_means() -> None:
    rng = np.random.default_rng(1)
    means = rng.normal(size=(3, 40)) * 5
    labels = np.arange(600) % 3
    X = means[labels] + rng.normal(size=(600, 40))
    found = between_axes(X, means, [200, 200, 200])
    middle = means - means.mean(axis=0)
    np.testing.assert_allclose(middle @ found.axes @ found.axes.T, middle, atol=1e-6)
    shares = np.var(X @ found.axes, axis=0) / X.var(axis=0).sum()
    np.testing.assert_allclose(found.explained, shares)


def test_one_feature_and_constant_rows_have_axes() -> None:
    line = principal_axes(np.arange(6.0)[:, None])
    assert line.axes.shape == (1, 2)
    assert line.explained == pytest.approx((1, 0))
    still = principal_axes(np.ones((5, 3)))
    assert still.explained == (0.0, 0.0)
    assert np.isfinite(still(np.ones((5, 3)))).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "angular", "manhattan"])
def test_summary_against_plain_numpy(metric: Any) -> None:
    X = np.abs(datasets.blobs(400, 5, 6, spread=3.0)) + 0.1
    model = KMeans(6, metric=metric, random_state=0).fit(X)
    found = summarise(model, X, points=100, examples=3)
    D = model.transform(X)
    own, labels = D.min(axis=1), D.argmin(axis=1)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.distance, own)
    second = np.sort(D, axis=1)[:, 1]
    assert found.silhouette is not None
    np.testing.assert_allclose(found.silhouette, (second - own) / second, atol=1e-12)
    assert found.inertia.sum() == pytest.approx(model.inertia_, rel=1e-6)
    for j in range(6):
        rows = np.flatnonzero(labels == j)
        assert found.size[j] == len(rows)
        assert found.mean_distance[j] == pytest.approx(own[rows].mean())
        assert found.radius[j] == pytest.approx(own[rows].max())
        order = rows[np.argsort(own[rows], kind="stable")]
        np.testing.assert_array_equal(found.nearest[j], order[:3])
        np.testing.assert_array_equal(found.farthest[j], order[::-1][: min(3, len(order) // 2)])
    between = model.transform(model.cluster_centers_)
    for j in range(6):
        others = [i for i in np.argsort(between[j], kind="stable") if i != j][:4]
        np.testing.assert_array_equal(found.neighbours[j], others)


def test_contrast_is_in_standard_deviations() -> None:
    X = datasets.blobs(300, 4, 3)
    model = KMeans(3, random_state=0).fit(X)
    found = summarise(model, X)
    z = (model.cluster_centers_ - X.mean(axis=0)) / X.std(axis=0)
    for j in range(3):
        order = np.argsort(-np.abs(z[j]))
        assert [t.feature for t in found.contrast[j]] == order.tolist()
        np.testing.assert_allclose([t.contrast for t in found.contrast[j]], z[j, order])


def test_odd_rows_are_the_planted_ones() -> None:
    X = datasets.blobs(600, 3, 3)
    X[[7, 77]] += [[0, 0, 60.0], [45.0, 0, 0]]
    model = KMeans(3, init=datasets.blobs(600, 3, 3)[[0, 1, 2]], max_iter=1).fit(X)
    found = summarise(model, X)
    assert {7, 77} <= set(found.odd[:2].tolist())
    assert (found.oddness > ODD).all()
    assert list(found.oddness) == sorted(found.oddness, reverse=True)
    assert found.odd_total >= 2


def test_odd_texts_share_no_word_with_their_cluster() -> None:
    texts = ["red fish swim", "blue fish swim", "fish swim far"] * 10 + ["stars sky night"] * 20
    texts.append("quite another thing fish")
    rows = tfidf(texts)
    model = KMeans(2, metric="cosine", random_state=0).fit(rows.X)
    found = summarise(model, rows.X)
    assert found.odd.tolist()[:1] == [50] or found.odd_total == 0
    assert found.distance.argmax() == 50


def test_names_of_clusters() -> None:
    def name(f: int) -> str:
        return "abcdef"[f]

    tops = [Contrast(0, 1.0, 2.0), Contrast(1, 0.5, -1.5), Contrast(2, 0.1, 0.2)]
    assert words.cluster_name(tops, name, dense=True) == "high a, low b"
    assert words.cluster_name(tops[2:], name, dense=True) == "near the average, high c"
    assert words.cluster_name([], name, dense=True) == "average"
    terms = [Contrast(f, 0.5, 0.4) for f in range(6)]
    assert words.cluster_name(terms, name, dense=False) == "a, b, c, d"
    assert words.cluster_name([Contrast(0, 0.5, 0.01)], name, dense=False) == "few terms"


@pytest.mark.parametrize("missing", [0, 1])
def test_the_story_says_whether_max_iter_ended_the_fit(missing: int) -> None:
    """A fit that converges in its last iteration has converged."""
    X = datasets.blobs(600, 3, 3)
    needed = KMeans(3, init=X[:3]).fit(X).n_iter_
    model = KMeans(3, init=X[:3], max_iter=needed - missing).fit(X)
    assert model.n_iter_ == needed - missing > 0
    explained = model.explain(as_dict=True)
    text = words.story(summarise(model, X), explained, dense=True, max_iter=model.max_iter)
    assert any("before it converged" in sentence for sentence in text) == bool(missing)


def test_unit_rows_keep_zeros() -> None:
    X = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(unit_rows(X), [[0.6, 0.8], [0.0, 0.0]])
    np.testing.assert_allclose(unit_rows(sp.csr_matrix(X)).toarray(), [[0.6, 0.8], [0.0, 0.0]])


# the file -----------------------------------------------------------------------------------------


def test_all_kinds_of_data_and_models(tmp_path: Path) -> None:
    X = datasets.blobs(200, 3, 4)
    np.save(tmp_path / "x.npy", X)
    small = exactmeans.MiniBatchKMeans(4, random_state=0).fit(X)
    one = KMeans(1).fit(X)
    loaded = KMeans(4, random_state=0).fit(X)
    loaded.save(tmp_path / "m")
    cases = [
        (small, X),
        (one, X),
        (exactmeans.load(tmp_path / "m"), str(tmp_path / "x.npy")),
        (loaded, exactmeans.open_blocks(tmp_path / "x.npy", block_rows=13)),
        (loaded, X[:3]),
        (KMeans(4, random_state=0).fit(sp.csr_matrix(X)), sp.csr_matrix(X)),
    ]
    for model, rows in cases:
        report(model, rows, tmp_path / "r.html")
        data = data_of(tmp_path / "r.html")
        n = 3 if isinstance(rows, np.ndarray) and len(rows) == 3 else 200
        assert sum(data["clusters"]["size"]) == n
    assert data["dense"] is False


def test_zero_rows_are_in_no_cluster(tmp_path: Path) -> None:
    X = sp.csr_matrix(np.vstack([np.eye(4), np.eye(4) * 2, np.zeros((2, 4))]))
    model = KMeans(2, metric="cosine", zero_rows="keep", random_state=0).fit(X)
    report(model, X, tmp_path / "r.html")
    data = data_of(tmp_path / "r.html")
    assert sum(data["clusters"]["size"]) == 8
    assert data["clusters"]["total"] == 10  # shares are of all rows, as in the first sentence
    assert data["map"]["label"].count(-1) == 2
    assert "2 rows of zeros are in none" in (tmp_path / "r.html").read_text()


def test_what_is_wrong_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    X = datasets.blobs(50, 3, 2)
    model = KMeans(2, random_state=0).fit(X)
    path = tmp_path / "r.html"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"texts": ["a"]}, "texts must have one entry for each of the 50 rows, but it has 1"),
        ({"ids": range(51)}, "ids must have one entry for each of the 50 rows, but it has 51"),
        ({"feature_names": ["a"]}, "feature_names must have one name for each of the 3 features"),
        ({"examples": -1}, "examples must be"),
        ({"max_points": 0}, "max_points must be"),
    ]
    for given, words_of_it in cases:
        with pytest.raises(ValueError, match=words_of_it):
            report(model, X, path, **given)
    with pytest.raises(FileNotFoundError, match="path must lie in a folder that exists"):
        report(model, X, tmp_path / "no" / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_text_is_escaped(tmp_path: Path) -> None:
    X = datasets.blobs(40, 2, 2)
    model = KMeans(2, random_state=0).fit(X)
    names = [MARKUP, "{{title}} \ud800"]
    report(model, X, tmp_path / "r.html", feature_names=names, texts=[MARKUP] * 40, title=MARKUP)
    page = (tmp_path / "r.html").read_text()
    assert "<img" not in page
    assert "<b>bold" not in page
    assert page.count("</script>") == 3  # the theme, the data, the scripts
    data = data_of(tmp_path / "r.html")
    assert data["rows"][0][4] == "</script><img src=x onerror=alert(1)><b>bold & bad</b>"
    assert "{{title}} ?" in data["features"]


def test_values_are_shown_in_their_own_units(tmp_path: Path) -> None:
    X = datasets.blobs(60, 2, 2) * [1, 1000] + [5, -3]
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    model = KMeans(2, random_state=0).fit((X - mean) / deviation)
    report(model, (X - mean) / deviation, tmp_path / "r.html", units=(mean, deviation))
    data = data_of(tmp_path / "r.html")
    row = data["rows"][0]
    np.testing.assert_allclose(row[6], X[row[0]], rtol=1e-4)
    shown = dict(zip(data["profile"]["features"], data["profile"]["mean"], strict=True))
    np.testing.assert_allclose(
        [shown[0], shown[1]], mean[[0, 1]] if 0 in shown else mean, rtol=1e-4
    )


def test_reports_of_a_thousand_clusters_are_small(tmp_path: Path) -> None:
    """Time is measured by the benchmark in docs/report.md, not decided here."""
    X = datasets.blobs(5000, 8, 40, spread=3.0).astype(np.float32)
    model = KMeans(1000, init=X[:1000], max_iter=2).fit(X)
    begin = time.perf_counter()
    report(model, X, tmp_path / "r.html", texts=["some words " * 40] * 5000)
    assert time.perf_counter() - begin < 60
    assert (tmp_path / "r.html").stat().st_size < 10_000_000


# in a browser -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table, a text with markup, and a thousand clusters."""
    folder = tmp_path_factory.mktemp("reports")
    X = datasets.blobs(300, 4, 5, spread=2.0)
    X[7] += 40
    model = KMeans(5, random_state=0).fit(X)
    paths = {name: folder / f"{name}.html" for name in ("table", "text", "many")}
    report(model, X, paths["table"], feature_names=["alpha", "beta", "gamma", "delta"])
    texts = [
        f"{word} {MARKUP} number {i % 7}" for i in range(60) for word in ("fish", "stars", "trees")
    ]
    rows = tfidf(texts)
    talk = KMeans(3, metric="cosine", random_state=0).fit(rows.X)
    report(talk, rows.X, paths["text"], feature_names=rows.terms, texts=texts, title=MARKUP)
    big = np.random.default_rng(0).random((4000, 3))
    report(KMeans(1000, init=big[:1000], max_iter=1).fit(big), big, paths["many"])
    return paths


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Page() as opened:
        yield opened


FIGURES = {
    "#fig-map .point": 300,
    "#fig-map .centre circle": 5,
    "#fig-profile .cell": 20,
    "#fig-sizes .bar": 5,
    "#fig-silhouette .bar": 5,
    "#fig-convergence figure svg": 3,
    "#table tbody tr.row": 5,
    "#odd-table tbody tr": 1,
    "#legend .chip": 5,
}


def clean(page: Page) -> None:
    """No complaint in the console and no request but for the page itself."""
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_every_figure_is_drawn(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["table"])
    for selector, least in FIGURES.items():
        count = page.run(f"document.querySelectorAll({selector!r}).length")
        assert count >= least, selector
    boxes = page.run(
        "[...document.querySelectorAll('figure svg')]"
        ".map(f => [f.clientWidth, f.clientHeight, f.innerHTML.includes('NaN')])"
    )
    assert len(boxes) >= 7
    assert all(width > 150 and height > 60 and not nan for width, height, nan in boxes)
    clean(page)


def test_markup_in_documents_shows_as_text(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["text"])
    page.run("document.getElementById('open-all').click()")
    assert page.run("document.querySelectorAll('img, main b b').length") == 0
    assert "<img src=x onerror=alert(1)>" in page.run("document.querySelector('h1').textContent")
    assert "onerror=alert(1)" in page.run("document.querySelector('.examples').textContent")
    clean(page)


def test_a_thousand_clusters(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["many"])
    assert page.run("document.querySelectorAll('#table tr.row').length") == 1000
    assert page.run("document.querySelectorAll('#fig-sizes .bar').length") == 1000
    page.run("document.getElementById('fig-sizes').querySelector('svg').focus()")
    page.press("ArrowRight", times=2)
    assert "Cluster" in page.run("document.getElementById('tip').textContent")
    clean(page)


def test_sorting_and_searching(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["table"])

    def column(c: int) -> list[str]:
        script = f"[...document.querySelectorAll('#table tr.row:not([hidden]) td:nth-child({c})')]"
        found: list[str] = page.run(f"{script}.map(cell => cell.textContent)")
        return found

    def head(c: int) -> str:
        return f"document.querySelectorAll('#table th')[{c}]"

    sizes = [int(text) for text in column(3)]
    assert sizes == sorted(sizes, reverse=True)
    assert page.run(f"{head(2)}.getAttribute('aria-sort')") == "descending"
    page.run(f"{head(2)}.querySelector('button').click()")
    assert [int(text) for text in column(3)] == sorted(sizes)
    page.run(f"{head(0)}.querySelector('button').click()")
    assert column(1) == ["0", "1", "2", "3", "4"]
    page.press("/")
    assert page.run("document.activeElement.id") == "search"
    page.type("high alpha")
    found = column(2)
    assert 0 < len(found) < 5
    assert f"{len(found)} of 5 clusters" == page.run("document.getElementById('found').textContent")
    page.press("Escape")
    assert len(column(2)) == 5
    clean(page)


def test_keyboard_walk(page: Page, pages: dict[str, Path]) -> None:
    """Tab reaches everything that can be used; arrow keys walk in figures; Enter opens."""
    page.open(pages["table"])
    reached = []
    for _ in range(60):
        page.press("Tab")
        reached.append(
            page.run("(e => e.id || e.closest('[id]')?.id + ' ' + e.className.toString())"
                     "(document.activeElement)")
        )  # fmt: skip
    text = " ".join(map(str, reached))
    for wanted in ("theme", "fig-map", "search", "open-all", "table", "cluster-0 opener"):
        assert wanted in text, wanted
    page.run("document.querySelector('#fig-map svg').focus()")
    page.press("ArrowRight")
    assert not page.run("document.getElementById('tip').hidden")
    page.press("Enter")
    opened = page.run("document.activeElement.getAttribute('aria-expanded')")
    assert opened == "true"
    assert page.run("document.querySelectorAll('tr.detail:not([hidden])').length") == 1
    page.press("Enter")
    assert page.run("document.querySelectorAll('tr.detail:not([hidden])').length") == 0
    page.run("document.querySelector('#fig-convergence svg').focus()")
    page.press("End")
    assert "Iteration" in page.run("document.getElementById('tip').textContent")
    clean(page)


def test_hover_tells_of_a_row(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["table"])
    page.run(
        "document.querySelector('#fig-map').scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    x, y = page.run(
        "(p => [p.x + p.width / 2, p.y + p.height / 2])"
        "(document.querySelectorAll('#fig-map .point')[7].getBoundingClientRect())"
    )
    page.move(x, y)
    text = page.run("document.getElementById('tip').textContent")
    assert "Row 7" in text
    assert "alpha" in text
    clean(page)


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(dark: bool, pages: dict[str, Path]) -> None:
    with Page(dark=dark) as page:
        page.open(pages["table"])

        def brightness() -> float:
            colour = page.run("getComputedStyle(document.body).backgroundColor")
            return float(np.mean([int(part) for part in re.findall(r"\d+", colour)[:3]]))

        first = brightness()
        assert (first < 64) == dark
        page.press("t")
        assert (brightness() < 64) != dark
        clean(page)


def test_phone_width(pages: dict[str, Path]) -> None:
    with Page(width=390, height=844) as page:
        for name in pages:
            page.open(pages[name])
            wide = page.run("document.documentElement.scrollWidth")
            assert wide <= 390, name
            small = page.run(
                "Math.min(...[...document.querySelectorAll('svg text')].slice(0, 200)"
                ".map(t => parseFloat(getComputedStyle(t).fontSize)"
                " * t.ownerSVGElement.clientWidth / t.ownerSVGElement.viewBox.baseVal.width))"
            )
            assert small >= 8, name
        clean(page)


def test_print(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["table"])
    assert page.pdf().startswith(b"%PDF")
    assert page.run("document.querySelectorAll('tr.detail:not([hidden])').length") == 5
    clean(page)
