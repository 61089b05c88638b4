"""The road from text and labels to rows, against scikit-learn and plain NumPy."""

from __future__ import annotations

import json
import pickle
import re
import statistics
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file, make_multilabel_classification
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from exactmeans import KMeans, report
from exactmeans.labels import load_svmlight, representations
from exactmeans.text import (
    IDF,
    documents,
    misfits,
    representatives,
    tfidf,
    top_terms,
    without_terms,
)

DOCUMENTS = [
    "the cat sat on the mat",
    "the dog sat on the log",
    "cats and dogs",
    "stars and planets in the sky",
    "the sky is full of stars",
]


def test_smooth_idf_is_that_of_scikit_learn() -> None:
    for sublinear in (False, True):
        rows = tfidf(DOCUMENTS, unit=True, dtype="float64", sublinear_tf=sublinear)
        theirs = TfidfVectorizer(sublinear_tf=sublinear)
        wanted = theirs.fit_transform(DOCUMENTS).toarray()
        np.testing.assert_allclose(rows.X.toarray(), wanted, atol=1e-15)
        assert rows.terms.tolist() == theirs.get_feature_names_out().tolist()


def test_plain_idf_by_hand() -> None:
    rows = tfidf(["a b b", "a c"], idf="plain", dtype="float64", token_pattern=r"\w")
    assert rows.terms.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(
        rows.X.toarray(), [[0, 2 * np.log(2), 0], [0, 0, np.log(2)]], atol=1e-16
    )
    assert tfidf(["a b b"], idf="none", token_pattern=r"\w").X.toarray().tolist() == [[1, 2]]


def test_sources_give_the_same_rows(tmp_path: Path) -> None:
    lines, folder = tmp_path / "lines.txt", tmp_path / "folder"
    lines.write_text("\n".join(DOCUMENTS) + "\n", encoding="utf-8")
    folder.mkdir()
    for i, text in enumerate(DOCUMENTS):
        (folder / f"{i}.txt").write_text(text, encoding="utf-8")
    wanted = tfidf(iter(DOCUMENTS))
    assert wanted.X.dtype == np.float32
    for source in (lines, str(lines), folder, DOCUMENTS):
        rows = tfidf(source)
        assert (rows.X != wanted.X).nnz == 0
    assert list(documents(lines)) == DOCUMENTS


def test_text_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="idf must be one of 'smooth'"):
        tfidf(DOCUMENTS, idf="log")
    with pytest.raises(ValueError, match="neither"):
        tfidf(tmp_path / "nothing")
    with pytest.raises(ValueError, match="must hold strings"):
        tfidf([1, 2])


OPTIONS = [
    {"idf": idf, "sublinear_tf": sublinear, "unit": unit, "dtype": dtype}
    for idf in IDF
    for sublinear in (False, True)
    for unit in (False, True)
    for dtype in ("float32", "float64")
]


@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: "-".join(map(str, options.values()))
)
def test_further_documents_are_weighed_as_the_first(
    options: dict[str, Any], tmp_path: Path
) -> None:
    rows = tfidf(DOCUMENTS, token_pattern=r"\w+", **options)
    again = rows.transform(DOCUMENTS)
    assert again.dtype == rows.X.dtype == options["dtype"]
    assert again.toarray().tobytes() == rows.X.toarray().tobytes()
    (tmp_path / "lines").write_text("\n".join(DOCUMENTS), encoding="utf-8")
    assert (rows.transform(tmp_path / "lines") != rows.X).nnz == 0
    one = rows.transform([DOCUMENTS[3] + " with words that nobody knows"])
    np.testing.assert_array_equal(one.toarray(), rows.X[[3]].toarray())
    model = KMeans(2, metric="cosine", random_state=0).fit(rows.X)
    np.testing.assert_array_equal(model.predict(rows.transform(DOCUMENTS)), model.labels_)
    kept = pickle.loads(pickle.dumps(rows.vectorizer))
    np.testing.assert_array_equal(model.predict(kept.transform(DOCUMENTS)), model.labels_)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array])
@pytest.mark.parametrize("options", OPTIONS[::3], ids=str)
def test_counts_are_as_good_as_documents(options: dict[str, Any], make: Any) -> None:
    counter = CountVectorizer()
    counts = counter.fit_transform(DOCUMENTS).toarray()
    terms = counter.get_feature_names_out()
    wanted = tfidf(DOCUMENTS, **options)
    rows = tfidf(make(counts), terms=terms, **options)
    assert (rows.X != wanted.X).nnz == 0
    assert rows.terms.tolist() == wanted.terms.tolist()
    assert (rows.transform(make(counts[:2])) != wanted.X[:2]).nnz == 0
    assert tfidf(make(counts), **options).terms.tolist() == list(range(len(terms)))


def test_refused_counts() -> None:
    counts = np.array([[1, 2], [0, 1]])
    for bad, says in (
        (-counts, "finite and not below 0"),
        (counts * np.nan, "finite and not below 0"),
        (counts[0], r"matrix of counts .* ndarray of shape \(2,\)"),
        (counts * 1j, "matrix of counts"),
    ):
        with pytest.raises(ValueError, match=f"source must .*{says}"):
            tfidf(bad)
    with pytest.raises(ValueError, match="min_df must not be given with counts"):
        tfidf(counts, min_df=2)
    with pytest.raises(ValueError, match=r"terms must be one for each of the 2 columns"):
        tfidf(counts, terms=["a"])
    with pytest.raises(ValueError, match="terms must be None with documents"):
        tfidf(DOCUMENTS, terms=["a"])
    with pytest.raises(ValueError, match="source must be a matrix of counts"):
        tfidf(counts).transform(DOCUMENTS)
    with pytest.raises(ValueError, match="source must hold strings"):
        tfidf(DOCUMENTS).transform(counts)


def test_documents_without_known_terms_are_named() -> None:
    """In no cluster, and the others get their labels all the same."""
    with pytest.warns(UserWarning, match=r"^1 of 6 documents have no known term.* zeros: 5\.$"):
        rows = tfidf([*DOCUMENTS, "a"])
    assert without_terms(rows.X).tolist() == [5]
    model = KMeans(2, metric="cosine", random_state=0, zero_rows="keep").fit(rows.X)
    new = [DOCUMENTS[0], "something else", DOCUMENTS[4], ""]
    with pytest.warns(UserWarning, match=r"^2 of 4 documents have no known term.* zeros: 1, 3\.$"):
        X = rows.transform(new)
    assert without_terms(X).tolist() == without_terms(X.toarray()).tolist() == [1, 3]
    first, fifth = model.labels_[[0, 4]]
    assert model.predict(X).tolist() == [first, -1, fifth, -1]
    assert model.labels_[5] == -1
    with pytest.warns(UserWarning, match=r"0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1 more\.$"):
        rows.transform(["x"] * 11)


def test_top_terms_of_cosine_clusters() -> None:
    rows = tfidf(DOCUMENTS, stop_words="english")
    model = KMeans(2, metric="cosine", n_init=10, random_state=0).fit(rows.X)
    found = top_terms(model.cluster_centers_, rows.terms, 3)
    assert any("stars" in terms and "sky" in terms for terms in found)
    assert top_terms(sp.csr_array(model.cluster_centers_), rows.terms, 3) == found
    for wrong in (model, model.cluster_centers_[:, 1:], model.cluster_centers_[0]):
        with pytest.raises(ValueError, match="centres must be an array with a column for each"):
            top_terms(wrong, rows.terms)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_top_terms_are_the_largest_above_zero(make: Any, dtype: str) -> None:
    """Ties fall to the first of the terms."""
    centres = np.random.default_rng(3).integers(-3, 4, (30, 12)).astype(dtype)
    terms = np.array([f"t{f}" for f in range(12)])
    for count in (0, 1, 3, 5, 12, 100):
        wanted = []
        for row in centres.tolist():
            order = sorted((-value, f) for f, value in enumerate(row) if value > 0)
            wanted.append([f"t{f}" for _, f in order[:count]])
        assert top_terms(make(centres), terms, count) == wanted
    with pytest.raises(ValueError, match="count must be an int of at least 0"):
        top_terms(make(centres), terms, -1)


def test_top_terms_of_sparse_centres_take_no_dense_array() -> None:
    k, d = 40, 200_000
    centres: Any = sp.random_array((k, d), density=1e-4, random_state=0, format="csr")
    terms = np.arange(d).astype(str)
    tracemalloc.start()
    found = top_terms(centres, terms)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < k * d  # bytes; an array of float64 has eight times as many
    assert [len(own) for own in found] == [10] * k
    centres.indices[0] = d
    with pytest.raises(ValueError, match="centres must be a well-formed csr"):
        top_terms(centres, terms)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sparse", [False, True])
def test_representations(dtype: str, sparse: bool) -> None:
    rng = np.random.default_rng(0)
    Z = (rng.random((40, 15)) * (rng.random((40, 15)) < 0.3)).astype(dtype)
    Y = rng.random((40, 9)) < 0.15
    Y[:, 4] = False
    wanted = Y.T.astype(np.float64) @ Z.astype(np.float64)
    lengths = np.linalg.norm(wanted, axis=1)
    given: Any = (sp.coo_matrix(Y * 7.0), sp.csc_matrix(Z)) if sparse else (Y * 7.0, Z)
    labels = representations(*given)
    assert labels.X.dtype == dtype
    assert labels.dropped.tolist() == np.flatnonzero(lengths == 0).tolist()
    assert 4 in labels.dropped
    kept = lengths > 0
    np.testing.assert_allclose(
        labels.X.toarray(), wanted[kept] / lengths[kept, np.newaxis], rtol=1e-5
    )
    assert labels.kept.tolist() == np.flatnonzero(kept).tolist()
    one = representations(*given, n_jobs=1)
    assert (one.X != representations(*given, n_jobs=3).X).nnz == 0
    with pytest.raises(ValueError, match="one number of rows"):
        representations(Y[:-1], Z)


def test_label_clusters() -> None:
    Z, Y = make_multilabel_classification(300, 30, n_classes=12, random_state=0)
    labels = representations(Y, Z)
    model = KMeans(3, metric="cosine", random_state=0).fit(labels.X)
    assert len(model.labels_) == len(labels.kept)


def test_load_svmlight(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    body = "0,3 1:0.5 4:2\n 0:1\n2 3:-1.5e1 # a comment\n1\n"
    path.write_text(body, encoding="utf-8")
    Y, Z = load_svmlight(path)
    assert Y.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert Z.toarray().tolist() == [
        [0, 0.5, 0, 0, 2],
        [1, 0, 0, 0, 0],
        [0, 0, 0, -15, 0],
        [0, 0, 0, 0, 0],
    ]
    path.write_text("4 7 6\n" + body, encoding="utf-8")
    Y, Z = load_svmlight(path, dtype="float64")
    assert (Y.shape, Z.shape, Z.dtype) == ((4, 6), (4, 7), np.float64)
    path.write_text("3 7 6\n" + body, encoding="utf-8")
    with pytest.raises(ValueError, match="3 rows of its header, not 4"):
        load_svmlight(path)
    path.write_text("1 2:x\n", encoding="utf-8")
    with pytest.raises(ValueError, match="row 0 has '2:x' where index:value is expected"):
        load_svmlight(path)
    path.write_text("1 2:1\n-1 2:1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="path must have labels 0, 1, 2 and so on"):
        load_svmlight(path)
    path.write_text("1 2:1\n", encoding="utf-8")
    assert load_svmlight(path)[1].shape == (1, 3)
    assert load_svmlight(path, zero_based="auto")[1].shape == (1, 2)
    with pytest.raises(ValueError, match="at most 2 features"):
        load_svmlight(path, n_features=2)
    with pytest.raises(ValueError, match="zero_based must be True, False or 'auto', not 'no'"):
        load_svmlight(path, zero_based="no")
    with pytest.raises(ValueError, match="must name a file"):
        load_svmlight(tmp_path / "none")


def test_load_svmlight_agrees_with_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = []
    for _ in range(200):
        own = sorted(rng.choice(20, rng.integers(1, 4), replace=False).tolist())
        features = sorted(rng.choice(50, rng.integers(1, 9), replace=False).tolist())
        pairs = " ".join(f"{f}:{rng.normal():.6g}" for f in features)
        lines.append(",".join(map(str, own)) + " " + pairs)
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    X, y = load_svmlight_file(str(path), multilabel=True, zero_based=True)
    Y, Z = load_svmlight(path, dtype="float64")
    np.testing.assert_array_equal(Z.toarray(), X.toarray())
    assert [np.flatnonzero(row).tolist() for row in Y.toarray()] == [list(map(int, t)) for t in y]


# representatives, contrast and misfits ------------------------------------------------------------


TOPICS = ["red fish", "blue fish", "fish soup", "night sky", "stars in the sky", "sky of stars"]


def test_representatives_are_the_nearest_rows() -> None:
    rows = tfidf(TOPICS)
    model = KMeans(2, metric="cosine", random_state=0).fit(rows.X)
    apart = model.transform(rows.X)[np.arange(6), model.labels_]
    for j, own in enumerate(representatives(rows.X, model, 2)):
        members = np.flatnonzero(model.labels_ == j)
        wanted = members[np.argsort(apart[members], kind="stable")][:2]
        assert own.tolist() == wanted.tolist()
    assert [len(own) for own in representatives(rows.X, model, 10)] == [3, 3]
    with pytest.raises(ValueError, match="count must be an int of at least 1"):
        representatives(rows.X, model, 0)


def test_representatives_of_rows_in_no_cluster() -> None:
    X = sp.csr_matrix(np.array([[1.0, 0], [0, 0], [0, 1], [2, 0]]))
    model = KMeans(2, metric="cosine", random_state=0, zero_rows="keep").fit(X)
    found = sorted(row for own in representatives(X, model) for row in own.tolist())
    assert found == [0, 2, 3]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_contrast_ranks_what_sets_a_centre_apart(form: Any) -> None:
    rng = np.random.default_rng(0)
    centres = rng.random((4, 20)) * (rng.random((4, 20)) < 0.5)
    centres[:, 0] = 2.0  # the heaviest term of every centre, which separates no clusters
    terms = np.array([f"t{f}" for f in range(20)])
    got = top_terms(form(centres), terms, 5, by="contrast")
    mean = centres.mean(axis=0)
    for own, found in zip(centres, got, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.nan_to_num(own * np.log(own / mean))
        wanted = [f"t{f}" for f in np.argsort(-value, kind="stable")[:5] if value[f] > 1e-12]
        assert found == wanted
        assert "t0" not in found
    assert all(found[0] == "t0" for found in top_terms(form(centres), terms, 5))
    with pytest.raises(ValueError, match="by must be one of 'weight', 'contrast'"):
        top_terms(centres, terms, by="tfidf")


def test_misfits_of_size_limits_are_far_from_the_centre_of_their_label() -> None:
    X = np.concatenate([np.linspace(0, 1, 22), np.linspace(9, 10, 19)])[:, np.newaxis]
    model = KMeans(2, init=[[0.5], [9.5]], size_max=21).fit(X)
    assert np.bincount(model.labels_).tolist() == [21, 20]
    assert misfits(X, model).tolist() == [21]  # near the centre of the other cluster


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_misfits_are_far_from_their_centre(metric: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = rng.random((400, 30)) * (rng.random((400, 30)) < 0.2)
    values[:, 0] += 0.01
    values[:200, 1] += 3
    values[200:, 2] += 3
    values[5], values[300] = 0.02, 0.02  # hardly like their centres
    values[5, 9], values[300, 12] = 20, 4
    values[7] = 0
    X = sp.csr_array(values)
    model = KMeans(2, metric=metric, random_state=1, zero_rows="keep", init=values[[0, 399]])
    model.fit(X)
    labels, far = (found[:, 0] for found in model.nearest(X, 1))
    odd = {}
    for j in range(2):  # by loops over rows, with statistics of its own
        own = [i for i in range(400) if labels[i] == j]
        mean = statistics.fmean(far[i] for i in own)
        spread = statistics.pstdev(far[i] for i in own)
        for i in own:
            how = (1 - mean) / (1 - far[i]) if metric == "cosine" else (far[i] - mean) / spread
            if how > 3:
                odd[i] = how
    assert odd
    none = [7] if metric == "cosine" else []
    found = misfits(X, model)
    assert found.tolist() == none + sorted(odd, key=lambda i: -odd[i])
    np.testing.assert_array_equal(misfits(X, model, 2), found[:2])
    report(model, X, tmp_path / "r.html")  # names the same rows
    data = re.search(
        r'type="application/json"[^>]*>(.*?)</script>', (tmp_path / "r.html").read_text()
    )
    assert data is not None
    page = json.loads(data[1])
    assert [page["rows"][at][0] for at, _ in page["odd"]] == found[len(none) :].tolist()[:20]
