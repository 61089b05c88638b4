"""Where the rows of a data set come from: a file that the user names, the data folder, a fetcher of
scikit-learn, or a generator. The first that there is counts; what cannot be had says why."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

FOLDER = Path(
    os.environ.get("EXACTMEANS_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)
# `name=path` pairs of --data; in the environment because every contender is a process of its own.
NAMED = "EXACTMEANS_BENCHMARK_FILES"

DENSE = {
    "birch1": "birch1.npz",
    "cloud": "cloud.npz",
    "covtype": "covtype.npz",
    "glove": "glove100_wink_top100k.npz",
    "kdd": "kddcup99_10pct_num38.npz",
    "letter": "letter.npz",
    "minilm": "minilm384_stackoverflow_titles.npz",
    "mnist": "mnist_train.npz",
    "sift": "sift128_photos.npz",
}
TEXT = {
    "20news": "20news.counts.npz",
    "20news_bigram": "20news_bigram.counts.npz",
    "acl": "acl_anthology.counts.npz",
    "cve": "cve.counts.npz",
}


def name_files(pairs: list[str]) -> str | None:
    """Remembers `name=path` pairs; says what is wrong with them, if anything is."""
    for pair in pairs:
        name, _, path = pair.partition("=")
        if name not in DENSE | TEXT:
            return f"--data must be name=path with a name of {', '.join(DENSE | TEXT)}, not {pair}"
        if not Path(path).is_file():
            return f"--data {pair}: there is no file {path}"
    os.environ[NAMED] = os.pathsep.join(pairs)
    return None


def _named() -> dict[str, str]:
    pairs = [pair for pair in os.environ.get(NAMED, "").split(os.pathsep) if pair]
    return {name: path for name, _, path in (pair.partition("=") for pair in pairs)}


# Fetchers and generators: the same kind of data, where the folder has no file -------------------


def _covtype() -> Any:
    from sklearn.datasets import fetch_covtype

    return fetch_covtype().data


def _openml(name: str, version: int) -> Callable[[], Any]:
    def fetch() -> Any:
        from sklearn.datasets import fetch_openml

        return fetch_openml(name, version=version, as_frame=False, parser="liac-arff").data

    return fetch


def _kdd() -> Any:
    from sklearn.datasets import fetch_kddcup99

    rows = fetch_kddcup99(percent10=True).data
    numbers = [f for f in range(rows.shape[1]) if not isinstance(rows[0, f], bytes)]
    return rows[:, numbers].astype(np.float64)


def _news(words: int) -> Callable[[], Any]:
    def fetch() -> Any:
        from sklearn.datasets import fetch_20newsgroups
        from sklearn.feature_extraction.text import CountVectorizer

        texts = fetch_20newsgroups(subset="all").data
        return CountVectorizer(ngram_range=(1, words), min_df=1 if words > 1 else 3).fit_transform(
            texts
        )

    return fetch


def _birch() -> Any:
    """A 10 by 10 grid of Gaussians, as BIRCH's first set has."""
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(np.arange(10), np.arange(10)), axis=-1).reshape(-1, 2)
    return 1e5 * (grid[np.arange(100_000) % 100] + rng.normal(scale=0.25, size=(100_000, 2)))


MADE: dict[str, Callable[[], Any]] = {
    "birch1": _birch,
    "covtype": _covtype,
    "kdd": _kdd,
    "letter": _openml("letter", 1),
    "mnist": _openml("mnist_784", 1),
    "20news": _news(1),
    "20news_bigram": _news(2),
}


def read(name: str) -> Any:
    """Rows as an ndarray; counts of terms as a CSR matrix."""
    file = DENSE.get(name) or TEXT[name]
    path = Path(_named().get(name, FOLDER / file))
    if not path.is_file():
        return MADE[name]()
    if name in TEXT:
        return sp.csr_matrix(sp.load_npz(path))
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    with np.load(path, allow_pickle=False) as archive:
        return archive["X" if "X" in archive else archive.files[0]]


@cache
def missing(name: str) -> str | None:
    """Why the data cannot be had, or None. Downloads once what a fetcher of scikit-learn has."""
    if name not in DENSE | TEXT or name in _named():
        return None
    file = DENSE.get(name) or TEXT[name]
    if (FOLDER / file).is_file():
        return None
    if name not in MADE:
        return f"{name} cannot be downloaded; name a file of yours: --data {name}=path/to/{file}"
    try:
        MADE[name]()
    except (OSError, ValueError) as failure:  # ValueError: what an unreachable server answers
        reason = " ".join(str(failure).split())[:80]
        return f"{name} could not be downloaded ({type(failure).__name__}: {reason})"
    return None
