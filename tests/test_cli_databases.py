"""The command line on databases: URIs in place of files, labels into tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets
import exactmeans
import exactmeans.text
from databases import put, rows_of
from exactmeans import KMeans
from postgres import PASSWORD, Server
from program import good, refused

pytest.importorskip("exactmeans.cli.app", reason="needs the extra cli")

X = datasets.blobs(120, 2, 3)
IDS = np.random.default_rng(5).permutation(len(X))  # the order in which the table has its rows
QUERY = ("--query", "SELECT id, a, b FROM points", "--key", "id")
TEXTS = ["red fish swim", "blue fish swim", "stars in the sky", "night sky and stars"]


def filled(uri: str) -> str:
    put(uri, "points", {"id": IDS, "a": X[IDS, 0], "b": X[IDS, 1], "w": 1.0 + IDS % 2})
    put(uri, "notes", {"name": ["n1", "n0", "n3", "n2"], "body": [TEXTS[i] for i in (1, 0, 3, 2)]})
    put(
        uri,
        "triples",
        {"id": np.repeat(IDS, 2), "f": np.tile([0, 1], len(X)), "v": X[IDS].ravel()},
    )
    return uri


@pytest.fixture(params=["duckdb", "sqlite", "postgresql"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return filled(server.new_database())
    return filled(f"{request.param}:///{tmp_path / 'own.db'}")


@pytest.fixture
def duck(tmp_path: Path) -> str:
    return filled(f"duckdb:///{tmp_path / 'own.db'}")


def test_fit_and_predict_write_what_the_library_gives(uri: str, tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    done = good("fit", uri, *QUERY, "-k", 3, "--seed", 5, "--into", "groups", "--model", model)
    wanted = KMeans(3, random_state=5).fit(X)
    own = wanted.transform(X)[np.arange(len(X)), wanted.labels_]
    expected = list(zip(range(len(X)), wanted.labels_.tolist(), own.tolist(), strict=True))
    read = "SELECT id, cluster, distance FROM {} ORDER BY id"
    assert rows_of(uri, read.format("groups")) == expected
    assert "120 rows form 3 clusters" in done.stdout
    assert "into: groups" in done.stdout
    assert np.array_equal(exactmeans.load(model).labels_, wanted.labels_)
    assert PASSWORD not in done.stdout + done.stderr
    good("predict", model, uri, *QUERY, "--into", "again")
    assert rows_of(uri, read.format("again")) == expected
    printed = good("predict", model, uri, *QUERY).stdout.splitlines()
    assert printed[0] == "id,cluster,distance"
    assert [line.split(",")[:2] for line in printed[1:]] == [
        [str(i), str(j)] for i, j, _ in expected
    ]


def test_select_k_and_report(uri: str, tmp_path: Path) -> None:
    out = good("select-k", uri, *QUERY, "-k", "2:4", "--json").stdout
    assert json.loads(out)["best_k"] == 3
    model, page = tmp_path / "m.safetensors", tmp_path / "r.html"
    good("fit", uri, *QUERY, "-k", 3, "--standardize", "--model", model)
    good("report", model, uri, *QUERY, "-o", page)
    text = page.read_text()
    assert "Clusters of the query" in text
    assert PASSWORD not in text
    assert uri not in text


def test_texts_of_a_query(uri: str, tmp_path: Path) -> None:
    query = ("--query", "SELECT name, body FROM notes", "--key", "name")
    model = tmp_path / "m.safetensors"
    good("fit", uri, *query, "--text", "-k", 2, "--into", "topics", "--model", model)
    found = dict(rows_of(uri, "SELECT name, cluster FROM topics"))
    assert found["n0"] == found["n1"] != found["n2"] == found["n3"]
    rows = exactmeans.text.tfidf(TEXTS, min_df=1, stop_words="english").X
    wanted = KMeans(2, metric="cosine", random_state=0).fit(rows)
    assert [found[f"n{i}"] for i in range(4)] == wanted.labels_.tolist()
    out = good("predict", model, uri, *query, "--json").stdout
    assert json.loads(out)["labels"] == wanted.labels_.tolist()
    assert json.loads(out)["ids"] == ["n0", "n1", "n2", "n3"]


def test_weights_layouts_and_scales(duck: str, tmp_path: Path) -> None:
    query = ("--query", "SELECT * FROM points", "--key", "id", "--weights", "w", "--seed", 1)
    good("fit", duck, *query, "-k", 3, "--standardize", "--into", "groups")
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    wanted = KMeans(3, random_state=1).fit(Z, sample_weight=1.0 + np.arange(len(X)) % 2)
    found = rows_of(duck, "SELECT cluster FROM groups ORDER BY id")
    assert [row[0] for row in found] == wanted.labels_.tolist()

    model = tmp_path / "m.safetensors"
    arrays = ("--query", "SELECT id, [a, b] AS v FROM points", "--key", "id", "--layout", "array")
    good("fit", duck, *arrays, "-k", 3, "--into", "arrays", "--model", model)
    wanted = KMeans(3, random_state=0).fit(X)
    found = rows_of(duck, "SELECT cluster FROM arrays ORDER BY id")
    assert [row[0] for row in found] == wanted.labels_.tolist()
    # Triples without a value in the last column still have the width of the model.
    triples = "SELECT * FROM triples WHERE f = 0"
    out = good("predict", model, duck, "--query", triples, "--key", "id", "--layout", "coo").stdout
    narrow = np.where([True, False], X, 0.0)
    labels = [int(line.split(",")[1]) for line in out.splitlines()[1:]]
    assert labels == wanted.predict(narrow).tolist()


def test_a_table_is_replaced_only_by_force(duck: str) -> None:
    name = 'x"; drop table points; --'
    good("fit", duck, *QUERY, "-k", 3, "--into", name)
    said = refused("fit", duck, *QUERY, "-k", 2, "--into", name)
    assert said.endswith("; --force replaces it.")
    quoted = '"' + name.replace('"', '""') + '"'
    count = f"SELECT count(DISTINCT cluster), count(*) FROM {quoted}"
    assert rows_of(duck, count) == [(3, len(X))]
    good("fit", duck, *QUERY, "-k", 2, "--into", name, "--force")
    assert rows_of(duck, count) == [(2, len(X))]
    assert rows_of(duck, "SELECT count(*) FROM points") == [(len(X),)]


def test_bad_input_is_one_sentence(duck: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    put(duck, "holes", {"id": [1, 2, 3, 4], "a": [1.0, None, 3.0, 4.0]})
    holes = ("--query", "SELECT * FROM holes", "--key", "id")
    missing = f"duckdb:///{tmp_path / 'nothing.db'}"
    secret = "mysql://user:hidden@host/shop"
    cases: dict[tuple[Any, ...], str] = {
        (duck, "--key", "id"): "--query must be given for a database",
        (duck, "--query", "SELECT 1"): "--key must be given for a database",
        (tmp_path / "x.csv", "--query", "SELECT 1"): "--query must go with a database",
        (tmp_path / "x.csv", "--into", "t"): "--into must go with a database",
        (duck, *QUERY, "--schema", "s"): "--schema must go with --into",
        (duck, *QUERY, "--id", "id"): "--id must not be given for a database: say --key.",
        (duck, *QUERY, "--exclude", "a"): "--exclude must not be given for a database",
        (duck, *QUERY, "--layout", "odd"): "--layout must be one of columns, array, coo",
        (duck, *QUERY, "--columns", "c"): "--columns must be a column of the query, but 'c' is not",
        (duck, "--query", "SELECT * FROM notes", "--key", "name"): "holds text: leave it out "
        "of the query, or name others with --columns.",
        (duck, "--query", "SELECT * FROM odd", "--key", "id"): "query failed in DuckDB",
        (duck, "--query", "SELECT [1] AS v, 1 AS id", "--key", "id"): "say --layout array.",
        (duck, "--query", "SELECT 1 AS x", "--key", "id"): "--key must be a column of the query",
        (duck, "--query", "SELECT 1 AS cluster, 2 AS x", "--key", "cluster", "--into", "t"): (
            "--key must not be called 'cluster'"
        ),
        (duck, *QUERY, "--text", "--columns", "odd"): "--columns must be a column of the query",
        (duck, *holes): "id = 2 has such a value in column 'a': leave such rows out in the query, "
        "or say --na drop.",
        (missing, *QUERY): "DATA must name a database that exists",
        (secret, *QUERY): "DATA must be a URI that begins with",
    }
    for arguments, words in cases.items():
        said = refused("fit", *arguments, "-k", 2)
        assert words in said, arguments
        assert "hidden" not in said
    tables = {row[0] for row in rows_of(duck, "SELECT table_name FROM information_schema.tables")}
    assert tables == {"points", "notes", "triples", "holes"}
    assert not (tmp_path / "nothing.db").exists()
    err = good("fit", duck, *holes, "-k", 2, "--na", "drop", "--into", "kept").stderr
    assert "rows left out because they lack a value: 1" in err
    assert rows_of(duck, "SELECT id FROM kept ORDER BY id") == [(1,), (3,), (4,)]
    assert "info takes a file" in refused("info", duck)


def test_a_server_that_is_not_there() -> None:
    where = "postgresql://user:hidden@127.0.0.1:1/shop"
    said = refused("fit", where, *QUERY, "-k", 2, "--into", "t")
    assert said.startswith("connection failed: ")
    assert "hidden" not in said
