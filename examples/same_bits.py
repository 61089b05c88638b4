"""The same bits, whatever computes them.

One data set, clustered by every algorithm, by one thread and two, in memory and from a file in
blocks. A digest of labels and centres is the same in each line.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from exactmeans import KMeans, open_blocks

rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 20)) + 2 * rng.normal(size=(40, 20))[np.arange(20_000) % 40]
seeds = X[:40]


def digest(rows: Any, **options: Any) -> str:
    km = KMeans(40, init=seeds, n_init=1, **options).fit(rows)
    return hashlib.sha256(km.labels_.tobytes() + km.cluster_centers_.tobytes()).hexdigest()[:16]


for algorithm in ("lloyd", "elkan", "hamerly", "yinyang"):
    for n_jobs in (1, 2):
        print(f"{algorithm:8} n_jobs={n_jobs}     {digest(X, algorithm=algorithm, n_jobs=n_jobs)}")
with tempfile.TemporaryDirectory() as folder:
    np.save(Path(folder) / "rows.npy", X)
    for block_rows in (512, 5000):
        blocks = open_blocks(Path(folder) / "rows.npy", block_rows=block_rows)
        print(f"file, blocks of {block_rows:4d}  {digest(blocks)}")
