"""What figures draw, against numbers that are computed here."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import datasets
from exactmeans import KMeans, KMeansTree, MiniBatchKMeans, plot, select_k, silhouette

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra report")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.colors import to_rgba  # noqa: E402

X = datasets.blobs(200, 5, 4)


@pytest.fixture
def axes() -> Any:
    figure, made = pyplot.subplots()
    yield made
    pyplot.close(figure)


@pytest.fixture(scope="module")
def model() -> KMeans:
    return KMeans(4, random_state=0, max_iter=10, tol=0).fit(X)


def _every(model: KMeans) -> dict[str, Any]:
    found = silhouette(X, model)
    selection = select_k(X, range(2, 6), random_state=0)
    tree = KMeansTree(branching=3, max_leaf_size=30, random_state=0).fit(X)
    return {
        "convergence": lambda **ax: plot.convergence(model, **ax),
        "distances_avoided": lambda **ax: plot.distances_avoided(model, **ax),
        "sizes": lambda **ax: plot.sizes(model, **ax),
        "silhouette": lambda **ax: plot.silhouette(found, **ax),
        "map2d": lambda **ax: plot.map2d(model, X, **ax),
        "k_selection": lambda **ax: plot.k_selection(selection, **ax),
        "tree": lambda **ax: plot.tree(tree, **ax),
    }


def test_axes_in_and_axes_out(model: KMeans) -> None:
    drawn = _every(model)
    assert set(drawn) == set(plot.__all__)
    for name, draw in drawn.items():
        figure, (own, other) = pyplot.subplots(1, 2)
        assert draw(ax=own) is own, name
        assert own.has_data(), name
        assert not other.has_data(), name
        assert own.get_xlabel(), name
        assert own.get_ylabel(), name
        before = pyplot.get_fignums()
        made = draw()
        assert made.figure is not figure
        assert len(pyplot.get_fignums()) == len(before) + 1
        made.figure.canvas.draw()
        pyplot.close("all")


def test_lines_of_a_fit(model: KMeans, axes: Any) -> None:
    line: Any
    (line,) = plot.convergence(model, axes).lines
    assert line.get_xdata().tolist() == [r.iteration for r in model.history_]
    assert line.get_ydata().tolist() == [r.inertia for r in model.history_]
    assert all(a >= b for a, b in zip(line.get_ydata(), line.get_ydata()[1:], strict=False))
    axes.clear()
    (line,) = plot.distances_avoided(model, axes).lines
    computed = np.array([r.distances for r in model.history_])
    np.testing.assert_allclose(line.get_ydata(), 1 - computed / (len(X) * 4))
    low, high = axes.get_ylim()
    assert low < line.get_ydata().min()
    assert high > line.get_ydata().max()


def test_sizes_are_counts_in_falling_order(model: KMeans, axes: Any) -> None:
    plot.sizes(model, ax=axes)
    counts = np.bincount(model.labels_)
    bars = [int(bar.get_height()) for bar in axes.patches]
    assert bars == sorted(counts.tolist(), reverse=True)
    names = [int(text.get_text()) for text in axes.get_xticklabels()]
    assert [counts[j] for j in names] == bars
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours == [to_rgba(f"C{j}") for j in names]
    axes.clear()
    some = X[model.labels_ == 2]
    plot.sizes(model, some, axes)
    assert [int(bar.get_height()) for bar in axes.patches] == [len(some), 0, 0, 0]


def test_silhouettes_are_sorted_by_cluster(model: KMeans, axes: Any) -> None:
    found = silhouette(X, model)
    plot.silhouette(found, axes)
    shape: Any
    for j, shape in enumerate(axes.collections):
        corners = shape.get_paths()[0].vertices
        own = found.samples[found.labels == j]
        drawn = corners[corners[:, 0] != 0, 0]
        np.testing.assert_allclose(np.unique(drawn), np.unique(own))
    assert len(axes.collections) == 4
    (line,) = axes.lines
    assert line.get_xdata()[0] == found.mean
    with pytest.raises(ValueError, match="found must be what exactmeans"):
        plot.silhouette(found.samples, axes)  # type: ignore[arg-type]


def _principal(rows: Any) -> Any:
    centred = rows - rows.mean(axis=0)
    return np.linalg.svd(centred, full_matrices=False)


def test_the_map_shows_principal_components(model: KMeans, axes: Any) -> None:
    plot.map2d(model, X, axes)
    rows, centres = (np.asarray(found.get_offsets()) for found in axes.collections)
    _, lengths, turn = _principal(X)
    wanted = (X - X.mean(axis=0)) @ turn[:2].T
    wanted *= np.sign(turn[[0, 1], np.abs(turn[:2]).argmax(axis=1)])
    np.testing.assert_allclose(rows, wanted, atol=1e-6 * np.abs(wanted).max())
    means = np.stack([rows[model.labels_ == j].mean(axis=0) for j in range(4)])
    np.testing.assert_allclose(centres, means, atol=1e-6 * np.abs(wanted).max())
    share = lengths**2 / (lengths**2).sum()
    assert axes.get_xlabel() == f"{share[0]:.0%} of the variance"
    assert axes.get_ylabel() == f"{share[1]:.0%} of the variance"
    colours = axes.collections[0].get_facecolors()[:, :3]
    own = np.array([to_rgba(f"C{j}")[:3] for j in model.labels_])
    np.testing.assert_allclose(colours, own)
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2", "3"]


def test_the_map_of_sparse_rows_shows_the_axes_of_the_centres(axes: Any) -> None:
    rng = np.random.default_rng(1)
    dense = rng.random((300, 30)) * (rng.random((300, 30)) < 0.2)
    rows = sp.csr_matrix(dense)
    model = KMeans(5, random_state=0).fit(rows)
    plot.map2d(model, rows, axes)
    drawn, centres = (np.asarray(found.get_offsets()) for found in axes.collections)
    size = np.bincount(model.labels_)
    given: Any = model.cluster_centers_
    means = given if isinstance(given, np.ndarray) else given.toarray()
    middle = size @ means / 300
    apart = (means - middle) * np.sqrt(size / 300)[:, np.newaxis]
    _, _, turn = np.linalg.svd(apart, full_matrices=False)
    signs = np.sign(turn[[0, 1], np.abs(turn[:2]).argmax(axis=1)])
    np.testing.assert_allclose(centres, (means - middle) @ turn[:2].T * signs, atol=1e-6)
    np.testing.assert_allclose(drawn, (dense - middle) @ turn[:2].T * signs, atol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_the_map_shows_the_means_of_unit_rows(form: Any, axes: Any) -> None:
    model = KMeans(4, metric="cosine", random_state=0).fit(form(X))
    plot.map2d(model, form(X), axes)
    rows, centres = (np.asarray(found.get_offsets()) for found in axes.collections)
    means = np.stack([rows[model.labels_ == j].mean(axis=0) for j in range(4)])
    np.testing.assert_allclose(centres, means, atol=1e-6)


def test_a_map_of_many_rows_is_a_sample(model: KMeans, axes: Any) -> None:
    plot.map2d(model, X, axes, max_points=50, axes="rows")
    drawn = np.asarray(axes.collections[0].get_offsets())
    assert drawn.shape == (50, 2)
    plot.map2d(model, X[:, :], axes, max_points=50, axes="rows")
    np.testing.assert_array_equal(drawn, np.asarray(axes.collections[2].get_offsets()))
    with pytest.raises(ValueError, match="max_points must be"):
        plot.map2d(model, X, axes, max_points=0)
    with pytest.raises(ValueError, match="axes must be"):
        plot.map2d(model, X, axes, axes="odd")


def test_one_feature_and_rows_in_no_cluster(axes: Any) -> None:
    plot.map2d(KMeans(2, random_state=0).fit(X[:, :1]), X[:, :1], axes)
    assert not np.asarray(axes.collections[0].get_offsets())[:, 1].any()
    axes.clear()
    rows = X.copy()
    rows[3] = 0
    model = KMeans(3, metric="cosine", zero_rows="keep", random_state=0).fit(rows)
    plot.map2d(model, rows, axes)
    assert axes.collections[0].get_facecolors()[3, :3].tolist() == [0.6, 0.6, 0.6]


@pytest.mark.parametrize("criterion", ["inertia", "silhouette", "davies_bouldin", "stability"])
def test_k_selection_draws_a_criterion(criterion: str, axes: Any) -> None:
    found = select_k(X, range(2, 6), random_state=0)
    plot.k_selection(found, axes, criterion=criterion)
    line, best = axes.lines
    assert line.get_xdata().tolist() == [2, 3, 4, 5]
    assert line.get_ydata().tolist() == [getattr(r, criterion) for r in found.table]
    assert best.get_xdata()[0] == found.best_k
    with pytest.raises(ValueError, match="criterion must be"):
        plot.k_selection(found, axes, criterion="odd")


def test_many_clusters_have_their_own_colours(axes: Any) -> None:
    model = KMeans(50, random_state=0, max_iter=3).fit(X)
    plot.sizes(model, ax=axes)
    assert len({bar.get_facecolor() for bar in axes.patches}) == 50


def test_unfitted_models_and_a_missing_matplotlib(axes: Any) -> None:
    with pytest.raises(ValueError, match="not fitted yet"):
        plot.convergence(KMeans(2), axes)
    with pytest.raises(ValueError, match="model must have a history_: call fit first"):
        plot.convergence(MiniBatchKMeans(2).partial_fit(X), axes)
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from exactmeans import KMeans, plot\n"
        "plot.convergence(KMeans(2, random_state=0).fit([[0.0], [1.0], [5.0]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: Plots need the matplotlib package: pip install exactmeans[report]."
    )


def test_nodes_of_a_tree_lie_below_their_parents(axes: Any) -> None:
    model = KMeansTree(branching=3, max_leaf_size=20, random_state=0).fit(X)
    drawn: Any = plot.tree(model, axes).patches
    assert len(drawn) == len(model.parent_)
    # Bars come level by level, as nodes are numbered.
    assert [round(bar.get_y() + 0.45) for bar in drawn] == model.depth_.tolist()
    assert [bar.get_width() for bar in drawn] == model.size_.tolist()
    for node, parent in enumerate(model.parent_[1:], start=1):
        own, above = drawn[node], drawn[parent]
        assert above.get_x() <= own.get_x()
        assert own.get_x() + own.get_width() <= above.get_x() + above.get_width()
    leaves = [bar for node, bar in enumerate(drawn) if node in set(model.leaves_.tolist())]
    assert sum(bar.get_width() for bar in leaves) == len(X)
    figure, few = pyplot.subplots()
    assert len(plot.tree(model, few, max_depth=1).patches) == int((model.depth_ <= 1).sum())
    pyplot.close(figure)
