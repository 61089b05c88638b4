"""How rows are made of a file: columns, scales, terms. A model can carry it in its file.

The command line fits models on prepared rows and stores the preparation as `model.preparation_`,
so that `exactmeans predict` and `rows_for` treat further files in the same way.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.pipeline import Pipeline

from exactmeans.data.arrays import stacked
from exactmeans.data.derived import ScaledRows, mean_and_deviation
from exactmeans.data.open import open_blocks
from exactmeans.data.source import CutRows
from exactmeans.data.svmlight import SvmlightRows
from exactmeans.text import Rows, documents, tfidf

__all__ = ["Preparation", "rows_for"]


@dataclass(frozen=True)
class Preparation:
    """What a model stores in order to make rows of further files."""

    kind: str = "table"  # numbers; or "text", "counts" (of terms, weighted by TF-IDF)
    columns: list[str] | list[int] | None = None  # features, or where the text is
    na: str = "error"
    offsets: NDArray[Any] | None = None  # of standardised columns
    factors: NDArray[Any] | None = None
    terms: NDArray[Any] | None = None  # of texts
    idf: NDArray[Any] | None = None
    counting: dict[str, Any] = field(default_factory=dict)  # options of CountVectorizer
    feature_names: NDArray[Any] | None = None  # where files have none

    @classmethod
    def of(cls, model: BaseEstimator) -> Preparation:
        """That of a model; a plain table if it has none."""
        stored = getattr(model, "preparation_", None)
        return cls() if stored is None else cls(**stored)

    def store(self, model: BaseEstimator) -> None:
        """Keep it with the model, also in its file."""
        model.preparation_ = {
            name: value for name, value in asdict(self).items() if value is not None
        }

    # -- rows of numbers

    def scale(self, source: CutRows) -> CutRows:
        if self.offsets is None or self.factors is None:
            return source
        if len(self.offsets) != source.shape[1]:
            raise ValueError(
                f"{source.name} must have the {len(self.offsets)} columns of fit, but it has "
                f"{source.shape[1]}."
            )
        return ScaledRows(source, self.offsets, self.factors)

    def standardised(self, source: CutRows) -> Preparation:
        """With the mean and the standard deviation of each column of this source."""
        offsets, factors = mean_and_deviation(source)
        if source.sparse:
            offsets = np.zeros_like(offsets)
        return replace(self, offsets=offsets, factors=factors)

    # -- rows of text

    def learn_terms(self, texts: Iterable[str], **counting: Any) -> tuple[Preparation, Any]:
        """With the terms and weights of these texts, and their rows."""
        rows = tfidf(texts, **counting)
        return replace(
            self,
            kind="text",
            terms=np.asarray(rows.terms, dtype=object),
            idf=rows.vectorizer.named_steps["tfidf"].idf_,
            counting=counting,
        ), rows.X

    def learn_weights(self, counts: Any) -> tuple[Preparation, Any]:
        """With the weights of the terms of these counts, and their rows."""
        rows = tfidf(counts)
        idf = rows.vectorizer.named_steps["tfidf"].idf_
        return replace(self, kind="counts", idf=idf), rows.X

    def weigh(self, given: Any) -> Any:
        """Rows of further texts, or of further counts."""
        weights = TfidfTransformer(norm=None)
        weights.idf_ = np.asarray(self.idf)
        steps: list[tuple[str, Any]] = [("tfidf", weights)]
        if self.kind == "text":
            assert self.terms is not None
            counter = CountVectorizer(
                dtype=np.float64, **{**self.counting, "vocabulary": [str(t) for t in self.terms]}
            )
            steps.insert(0, ("counts", counter))
        terms = np.arange(len(weights.idf_)) if self.terms is None else self.terms
        empty: Any = sp.csr_array((0, len(terms)), dtype=np.float32)
        return Rows(empty, terms, Pipeline(steps)).transform(given)


def rows_for(model: BaseEstimator, source: Any) -> Any:
    """Rows of a file or of texts, made as those that the model was fitted on.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A model that the command line fitted; others take files and arrays as they are.
    source : path, or texts for a model of texts

    Returns
    -------
    BlockSource or CSR matrix, which `predict` and the other methods of the model take.

    Examples
    --------
    >>> from exactmeans import KMeans
    >>> from exactmeans.preparation import Preparation, rows_for
    >>> texts = ["red fish", "blue fish", "night sky", "blue sky at night"]
    >>> preparation, X = Preparation().learn_terms(texts)
    >>> model = KMeans(2, metric="cosine", random_state=0).fit(X)
    >>> preparation.store(model)
    >>> model.predict(rows_for(model, ["fish, red fish", "a sky"])).tolist()
    [1, 0]
    """
    preparation = Preparation.of(model)
    if preparation.kind == "text":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # labels of -1 say the same
            return preparation.weigh(documents(source))
    if preparation.kind == "counts":
        return preparation.weigh(whole(open_blocks(source)))
    return open_for(model, preparation, source)


def open_for(
    model: BaseEstimator, preparation: Preparation, source: Any, **options: Any
) -> CutRows:
    """The file as the model reads it: svmlight indices begin where those of fit began."""
    known = getattr(model, "_zero_based", None)
    opened: Any = open_blocks(source, columns=preparation.columns, na=preparation.na, **options)
    if isinstance(opened, SvmlightRows):
        if known is not None and opened.zero_based is None and "zero_based" not in options:
            opened = open_blocks(source, columns=preparation.columns, zero_based=known)
        opened.widen(model.n_features_in_)
    return preparation.scale(opened)


def whole(source: Any) -> Any:
    """All rows of a source in memory."""
    blocks = [source.read(b) for b in range(len(source))]
    return stacked(blocks)
