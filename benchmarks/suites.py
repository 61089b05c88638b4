"""What is raced, as data. A target is the least ratio (their time / ours) against the contenders
whose names begin with its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

REALS = ("float32", "float64")
SKLEARN = ("scikit-learn", "scikit-learn-elkan")
SPARSE = (*SKLEARN, "sparsekmeans", "sparsekmeans-elkan")
LLOYD = ("scikit-learn", "faiss", "intelex", "superkmeans", "superkmeans-pruned")
EXACT = (*SKLEARN, "faiss", "intelex", "superkmeans")
QUICK_ROWS = 10_000


@dataclass(frozen=True)
class Case:
    data: str
    k: int
    dtype: str
    contenders: tuple[str, ...]
    targets: Mapping[str, float] = field(default_factory=dict)
    # fit: a whole fit; iteration: per iteration; assign: labels by fixed centres; pass: an
    # assignment step alone, with labels from the step before; seed: k-means++
    op: str = "fit"
    ours: str = "exactmeans"
    init: str = "rows"
    iters: tuple[int, int] = (2, 20)  # the second is max_iter; "iteration" takes the difference
    tol: float = 0.0
    rows: int | None = None
    same: bool = True  # is a ratio only shown between equal answers? Metrics have their own

    @property
    def name(self) -> str:
        seeded = " with seeding" if self.init != "rows" and self.op != "seed" else ""
        return f"{self.data} k={self.k} {self.dtype}{seeded}"

    def quick(self) -> Case:
        """The same work on few rows: checks the harness, proves nothing."""
        low, high = self.iters
        k = min(self.k, 20)
        return replace(self, k=k, rows=QUICK_ROWS, iters=(low, min(high, low + 4)))


def lloyd(data: str, k: int, dtype: str, peers: tuple[str, ...], **least: float) -> Case:
    """20 iterations of plain Lloyd."""
    return Case(data, k, dtype, peers, {name.replace("_", "-"): x for name, x in least.items()})


def iteration(data: str, k: int, dtype: str, least: float) -> Case:
    # Enough iterations for a clear difference, few enough that nothing converges.
    iters = {20: (2, 14), 100: (2, 12), 1000: (2, 6)}[k]
    return replace(lloyd(data, k, dtype, LLOYD, scikit_learn=least), op="iteration", iters=iters)


def whole(
    data: str, k: int, dtype: str, peers: tuple[str, ...], max_iter: int, **least: float
) -> Case:
    """Our default algorithm from given centres, until no label changes or max_iter."""
    case = lloyd(data, k, dtype, peers, **least)
    return replace(case, ours="exactmeans-auto", iters=(1, max_iter))


def default(data: str, k: int, dtype: str, peers: tuple[str, ...], **least: float) -> Case:
    """What a user gets who sets nothing but k: seeding included."""
    case = whole(data, k, dtype, peers, 300, **least)
    return replace(case, init="k-means++", tol=1e-4)


def seeds(data: str, k: int, dtype: str, least: float) -> Case:
    """kmeans_plusplus alone."""
    case = lloyd(data, k, dtype, ("scikit-learn",), scikit_learn=least)
    return replace(case, op="seed", init="k-means++")


def product(d: int, dtype: str) -> Case:
    peers = ("gemm", "gemm-blocks", "scikit-learn")
    return Case(f"normal-20000x{d}", 1000, dtype, peers, {"gemm": 1.0}, op="assign", iters=(1, 1))


DENSE_ITERATION = {"covtype": 1.2, "mnist": 1.2, "glove": 1.2, "letter": 2.0, "birch1": 3.0}
# Least ratio and iterations: as many as bounds need to show what they save.
DENSE_FIT = {
    **{("birch1", 100): (8.0, 100), ("birch1", 1000): (25.0, 70)},
    **{("covtype", 100): (4.0, 100), ("covtype", 1000): (7.0, 40)},
    **{("mnist", 100): (2.2, 100), ("mnist", 1000): (5.0, 25)},
    **{("glove", 1000): (1.3, 15), ("kdd", 100): (3.0, 50)},
}
SEEDING = {
    **{("acl", 100): 12.0, ("acl", 1000): 25.0, ("covtype", 100): 5.0, ("covtype", 1000): 12.0},
    **{("mnist", 100): 5.0, ("mnist", 1000): 20.0, ("glove", 100): 3.5},
}
SPARSE_LLOYD = ("scikit-learn", "sparsekmeans", "intelex")

RACES: dict[str, list[Case]] = {
    "sparse_lloyd": [
        lloyd("acl", 100, "float64", SPARSE_LLOYD, scikit_learn=18, sparsekmeans=6),
        lloyd("acl", 100, "float32", SPARSE_LLOYD, scikit_learn=28),
    ],
    "dense_iteration": [
        iteration(data, k, dtype, least)
        for data, least in DENSE_ITERATION.items()
        for k in (20, 100, 1000)
        for dtype in REALS
    ],
    "gemm": [product(d, dtype) for d in (54, 784) for dtype in REALS],
    "seeding": [
        seeds(data, k, dtype, 20.0 if (data, k, dtype) == ("acl", 100, "float32") else least)
        for (data, k), least in SEEDING.items()
        for dtype in REALS
    ],
    "small": [default("iris", 8, "float64", ("scikit-learn",), scikit_learn=4)],
    "threads": [
        replace(lloyd(data, 100, dtype, ("exactmeans@1",)), targets={"exactmeans@1": 1.8})
        for data, dtype in (("mnist", "float32"), ("acl", "float64"))
    ],
    "sparse_fit": [
        whole("acl", 100, "float64", SPARSE, 300, scikit_learn=25, sparsekmeans=8),
        whole("acl", 100, "float32", SPARSE, 300, scikit_learn=40),
        whole("acl", 1000, "float32", SPARSE, 30, scikit_learn=60, sparsekmeans=15),
        default("cve", 500, "float64", SPARSE, scikit_learn=25, sparsekmeans=12),
        default("20news_bigram", 100, "float64", SPARSE, scikit_learn=20, sparsekmeans=10),
    ],
    # A fixed number of iterations: FAISS and superkmeans do not stop when no label changes.
    "dense_fit": [
        whole(data, k, dtype, EXACT, iters, scikit_learn=x, faiss=1, intelex=1, superkmeans=1)
        for (data, k), (x, iters) in DENSE_FIT.items()
        for dtype in REALS
    ]
    + [
        default("covtype", 100, "float32", SKLEARN, scikit_learn=5),
        default("mnist", 100, "float32", SKLEARN, scikit_learn=3),
    ],
}

# The 8-bit filter for dense rows beside the same passes and fits without it, which are bit for bit
# the same. One thread for passes. The first targets are for 100 and 1000 clusters.
FILTERED = {
    **{"glove": (1.6, 2.7), "sift": (1.6, 2.7)},
    **{"minilm_repeated": (2.6, 3.3), "mnist": (2.6, 3.3)},
}


def one_pass(data: str, k: int, dtype: str, least: float, op: str = "pass") -> Case:
    case = lloyd(data, k, dtype, ("exactmeans-float@1",), exactmeans_float=least)
    rows = 20_000 if k > 1000 or dtype == "float64" else None
    return replace(case, ours="exactmeans@1", op=op, iters=(1, 6), rows=rows)


RACES["integer_filter"] = [
    *(
        one_pass(data, k, "float32", least)
        for data, aims in FILTERED.items()
        for k, least in zip((100, 1000), aims, strict=True)
    ),
    *(one_pass(data, 4096, "float32", 3.0) for data in ("sift", "mnist")),
    *(
        one_pass(data, k, "float64", least)
        for data in FILTERED
        for k, least in ((100, 3.0), (1000, 5.0))
    ),
]
RACES["integer_filter_predict"] = [
    one_pass(data, k, "float32", least, "assign")
    for data, aims in FILTERED.items()
    for k, least in zip((100, 1000), aims, strict=True)
]
RACES["integer_filter_fit"] = [
    *(
        lloyd(
            data,
            k,
            "float32",
            ("exactmeans-float", "scikit-learn", "faiss"),
            exactmeans_float=own,
            scikit_learn=sklearn,
            faiss=faiss,
        )
        for data in FILTERED
        for k, own, sklearn, faiss in ((100, 1.8, 3.0, 2.5), (1000, 3.0, 5.0, 3.5))
    ),
    *(
        lloyd(data, k, "float32", ("exactmeans-float",), exactmeans_float=0.97)
        for data in ("covtype", "letter")
        for k in (100, 1000)
    ),
]

# On the same cores: our own fit in one process may take two thirds of the time.
RACES["dask"] = [
    replace(
        whole("covtype", 100, dtype, ("dask-ml", "exactmeans-auto"), 100),
        ours="exactmeans-dask",
        targets={"dask-ml": 5.0, "exactmeans-auto": 1 / 1.5},
    )
    for dtype in REALS
]

# auto beside each algorithm it could have taken: at most a tenth slower than any.
GRID = {"birch1": 2, "letter": 16, "covtype": 54, "glove": 100, "mnist": 784}
OWN = ("exactmeans", "exactmeans-elkan", "exactmeans-hamerly", "exactmeans-yinyang")
FITTING = {
    **{data: ("exactmeans-kdtree",) for data, d in GRID.items() if d <= 16},
    **{data: ("exactmeans-pca",) for data, d in GRID.items() if d >= 100},
}
RACES["algorithms"] = [
    replace(
        whole(data, k, "float32", (*OWN, *FITTING.get(data, ())), 30),
        targets={"exactmeans": 0.9},
        rows=20_000 if data == "mnist" else None,
    )
    for data in GRID
    for k in (20, 100, 1000)
]

# Cosine beside Euclidean distances, 20 iterations on the same unit rows: at most a tenth slower.
RACES["metrics"] = [
    replace(
        lloyd("acl", 100, dtype, (f"exactmeans{way}",)),
        ours=f"exactmeans-cosine{way}",
        targets={"exactmeans": 0.9},
        same=False,
    )
    for way in ("", "-auto")
    for dtype in REALS
]

# Peak memory of one fit of ours: (data, k, dtype).
MEMORY = [(data, 100, dtype) for data in ("birch1", "covtype", "mnist", "acl") for dtype in REALS]


def published() -> list[tuple[str, Case]]:
    """The cases of the README and the site, with their suites: minutes, not hours.

    They are cases of the suites above, against one algorithm of each library: the fastest one where
    that is known from the whole suite and the others take minutes.
    """
    fastest: dict[tuple[str, int], tuple[str, ...]] = {
        ("acl", 100): ("scikit-learn-elkan", "sparsekmeans"),
        ("acl", 1000): ("scikit-learn-elkan", "sparsekmeans-elkan"),
        ("covtype", 1000): ("scikit-learn", "faiss", "superkmeans"),
        ("mnist", 100): ("scikit-learn-elkan", "faiss", "superkmeans", "intelex"),
        ("birch1", 1000): ("scikit-learn", "faiss", "superkmeans"),
    }
    chosen = [("sparse_fit", "acl", 100), ("sparse_fit", "acl", 1000)]
    chosen += [("dense_fit", "covtype", 100), ("dense_fit", "covtype", 1000)]
    chosen += [("dense_fit", "mnist", 100), ("dense_fit", "birch1", 1000)]
    chosen += [("dense_fit", "glove", 1000), ("seeding", "acl", 100)]
    found = []
    for suite, data, k in chosen:
        name = f"{data} k={k} float32"
        (case,) = (case for case in RACES[suite] if case.name == name)
        if suite != "seeding":
            case = replace(case, contenders=fastest.get((data, k), case.contenders))
        found.append((suite, case))
    return found
