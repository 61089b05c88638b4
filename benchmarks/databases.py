"""Read from a database, cluster, write back: beside psycopg or DuckDB with pandas and scikit-learn.

Every contender runs in a process of its own, whose peak memory is counted from after its imports.
The PostgreSQL server is the one that the tests start; both sides get the same rows in the same
order.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .race import Row

K, D = 50, 32
_NAMES = [f"f{f}" for f in range(D)]
_QUERY = "SELECT * FROM points"


def databases(threads: int, quick: bool, only: str) -> Iterator[list[Row]]:
    """Tables of a million rows in PostgreSQL and DuckDB, and 20 million triples in DuckDB."""
    names = [name for name in ("DuckDB", "PostgreSQL", "triples") if only in name]
    if "triples" in names:
        yield _triples(threads, quick)
    if not set(names) - {"triples"}:
        return
    n = 5_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "points.duckdb"
        _fill_duckdb(file, n)
        expected = _run("file", _npy(folder, file), threads)
        for name, uri in _servers(file, names):
            ours = _run("exactmeans", uri, threads)
            assert ours["labels"] == expected["labels"], "not the bits of the same rows in a .npy"
            theirs = _run(f"pandas {name}", uri, threads)
            yield [
                *_rows(f"{n} x {D} float64 k={K}, {name}", "exactmeans", ours),
                *_rows(f"{n} x {D} float64 k={K}, {name}", "pandas and scikit-learn", theirs),
            ]


def _triples(threads: int, quick: bool) -> list[Row]:
    count = 100_000 if quick else 20_000_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "triples.duckdb"
        _fill_triples(file, count)
        case = f"{count} triples to CSR, DuckDB"
        found = [_run(f"triples {who}", str(file), threads) for who in ("exactmeans", "pandas")]
        assert found[0]["shape"] == found[1]["shape"]
        return [
            *_rows(case, "exactmeans.open_sql", found[0]),
            *_rows(case, "pandas and SciPy", found[1]),
        ]


def _rows(case: str, contender: str, found: dict[str, Any]) -> Iterator[Row]:
    for what in ("read", "fit", "write"):
        if what in found:
            yield Row(case, f"{contender}: {what}", found[what], "s")
    yield Row(case, f"{contender}: peak memory", found["peak"] / 1e6, "MB")


def _servers(file: Path, names: list[str]) -> Iterator[tuple[str, str]]:
    from tests.postgres import Server, why_none

    if "DuckDB" in names:
        yield "DuckDB", f"duckdb:///{file}"
    if "PostgreSQL" not in names:
        return
    if why := why_none():
        print(why)
        return
    with Server(settings=("max_wal_size=8GB",)) as server:
        import adbc_driver_postgresql.dbapi
        import duckdb

        columns = ", ".join(f"{name} double precision" for name in _NAMES)
        with adbc_driver_postgresql.dbapi.connect(server.uri) as made, made.cursor() as cursor:
            cursor.execute(f"CREATE TABLE points (id bigint, {columns})")
            with duckdb.connect(str(file), read_only=True) as source:
                reader = source.sql(_QUERY).to_arrow_reader(2**16)
                cursor.adbc_ingest("points", reader, mode="append")
            made.commit()
        yield "PostgreSQL", server.uri


def _fill_duckdb(file: Path, n: int) -> None:
    """Rows around 200 points, in no order of their ids."""
    import duckdb
    import pyarrow as pa

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, D))[rng.integers(0, 200, n)] * 3 + rng.normal(size=(n, D))
    table = pa.table({"id": rng.permutation(n)} | {name: X[:, f] for f, name in enumerate(_NAMES)})
    with duckdb.connect(str(file)) as made:
        made.register("filled", table)
        made.execute("CREATE TABLE points AS SELECT * FROM filled")


def _fill_triples(file: Path, count: int) -> None:
    """About a hundred triples a row, columns by a power law, in no order."""
    import duckdb

    with duckdb.connect(str(file)) as made:
        made.execute(
            f"""CREATE TABLE triples AS SELECT doc, term, 1 + (hash(doc, term) % 9)::DOUBLE AS n
            FROM (SELECT DISTINCT (hash(i) % {max(1, count // 100)})::INTEGER AS doc,
                  floor(100000 * pow((hash(i, 7) % 1000003) / 1000003.0, 3))::INTEGER AS term
                  FROM range({count * 21 // 20}) r(i)) ORDER BY hash(doc, term) LIMIT {count}"""
        )


def _npy(folder: str, file: Path) -> str:
    import duckdb

    path = Path(folder) / "points.npy"
    with duckdb.connect(str(file), read_only=True) as made:
        columns = made.execute(f"{_QUERY} ORDER BY id").fetchnumpy()
    np.save(path, np.column_stack([columns[name] for name in _NAMES]))
    return str(path)


def _run(who: str, where: str, threads: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.databases", who, where, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# In a process of its own --------------------------------------------------------------------------


class _Clock:
    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._before = self._peak()

    @staticmethod
    def _peak() -> int:
        # Not ru_maxrss, which a child inherits from its parent.
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def time(self, what: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = call()
        self.found[what] = time.perf_counter() - begin
        self.found["peak"] = self._peak() - self._before
        return result


_OPTIONS: dict[str, Any] = {"n_init": 1, "max_iter": 20, "tol": 0, "random_state": 0}


def _file(path: str, threads: int) -> dict[str, Any]:
    from exactmeans import KMeans

    return {"labels": _digest(KMeans(K, n_jobs=threads, **_OPTIONS).fit(np.load(path)).labels_)}


def _ours(uri: str, threads: int) -> dict[str, Any]:
    import duckdb  # noqa: F401
    import pyarrow.compute  # noqa: F401

    from exactmeans import KMeans, open_sql

    clock, model = _Clock(), KMeans(K, n_jobs=threads, **_OPTIONS)
    rows = clock.time("read", lambda: open_sql(_QUERY, uri, key="id"))
    clock.time("fit", lambda: model.fit(rows))
    clock.time("write", lambda: model.to_sql(uri, "ours", rows))
    return clock.found | {"labels": _digest(model.labels_)}


def _pandas_postgresql(uri: str, threads: int) -> dict[str, Any]:
    import pandas as pd
    import psycopg
    from sklearn.cluster import KMeans

    clock, model = _Clock(), KMeans(K, **_OPTIONS)

    def read() -> Any:
        with psycopg.connect(uri) as made:
            rows = made.execute(_QUERY).fetchall()
        return pd.DataFrame(rows, columns=["id", *_NAMES]).set_index("id").sort_index()

    def write() -> None:
        distances = model.transform(frame).min(axis=1)
        with psycopg.connect(uri) as made, made.cursor() as cursor:
            made.execute("CREATE TABLE theirs (id bigint, cluster integer, distance float8)")
            with cursor.copy("COPY theirs FROM STDIN") as copy:
                columns = (frame.index.tolist(), model.labels_.tolist(), distances.tolist())
                for row in zip(*columns, strict=True):
                    copy.write_row(row)

    frame = clock.time("read", read)
    clock.time("fit", lambda: model.fit(frame))
    clock.time("write", write)
    return clock.found


def _pandas_duckdb(uri: str, threads: int) -> dict[str, Any]:
    import duckdb
    import pandas as pd
    from sklearn.cluster import KMeans

    clock, model, file = _Clock(), KMeans(K, **_OPTIONS), uri.removeprefix("duckdb:///")

    def read() -> Any:
        with duckdb.connect(file) as made:
            return made.sql(_QUERY).df().set_index("id").sort_index()

    def write() -> None:
        distances = model.transform(frame).min(axis=1)
        out = pd.DataFrame({"id": frame.index, "cluster": model.labels_, "distance": distances})
        with duckdb.connect(file) as made:
            made.register("labelled", out)
            made.execute("CREATE TABLE theirs AS SELECT * FROM labelled")

    frame = clock.time("read", read)
    clock.time("fit", lambda: model.fit(frame))
    clock.time("write", write)
    return clock.found


def _our_triples(file: str, threads: int) -> dict[str, Any]:
    import duckdb  # noqa: F401
    import pyarrow.compute  # noqa: F401

    from exactmeans import open_sql

    clock = _Clock()
    query = "SELECT doc, term, n FROM triples"
    rows = clock.time("read", lambda: open_sql(query, f"duckdb:///{file}", key="doc", layout="coo"))
    return clock.found | {"shape": [*rows.shape, int(rows.read(0).nnz)]}


def _pandas_triples(file: str, threads: int) -> dict[str, Any]:
    import duckdb
    import pandas as pd
    import scipy.sparse as sp

    clock = _Clock()

    def read() -> Any:
        with duckdb.connect(file) as made:
            frame = made.sql("SELECT doc, term, n FROM triples").df()
        codes, _ = pd.factorize(frame["doc"], sort=True)
        return sp.coo_matrix((frame["n"], (codes, frame["term"]))).tocsr()

    matrix = clock.time("read", read)
    return clock.found | {"shape": [*map(int, matrix.shape), int(matrix.nnz)]}


def _digest(labels: Any) -> str:
    import hashlib

    return hashlib.blake2b(labels.tobytes()).hexdigest()


_WORK: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "file": _file,
    "exactmeans": _ours,
    "pandas PostgreSQL": _pandas_postgresql,
    "pandas DuckDB": _pandas_duckdb,
    "triples exactmeans": _our_triples,
    "triples pandas": _pandas_triples,
}

if __name__ == "__main__":
    print(json.dumps(_WORK[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
