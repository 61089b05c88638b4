"""The program: what commands say and write; in pipes and terminals, in processes of its own."""

from __future__ import annotations

import csv
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import datasets
import exactmeans
from exactmeans import KMeans, KMeansTree, open_blocks
from exactmeans.data.binary import NpyRows
from exactmeans.data.open import _FILES
from exactmeans.data.source import choose_columns
from exactmeans.preparation import Preparation, rows_for
from exactmeans.versions import PACKAGES
from program import WIDE, good, process, refused

pytest.importorskip("typer", reason="needs the extra cli")
pytest.importorskip("rich", reason="needs the extra cli")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three groups with ids, weights, a column of text and one missing value."""
    X = datasets.blobs(90, 2, 3)
    path = tmp_path / "people.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "age", "income", "city", "weight"])
        for i, (a, b) in enumerate(X):
            writer.writerow([f"p{i}", f"{a:.6f}", f"{b:.6f}", "xyz"[i % 3], 1 + i % 2])
    return path


USED = ("--id", "name", "--exclude", "city", "--weights", "weight")


# fit and predict ----------------------------------------------------------------------------------


def test_fit_gives_what_the_library_gives(table: Path, tmp_path: Path) -> None:
    names = {"model": "m.safetensors", "labels": "l.csv", "centers": "c.csv", "report": "r.html"}
    out = [f"--{name}={tmp_path / file}" for name, file in names.items()]
    done = good("fit", table, "-k", 3, *USED, "--seed", 5, *out, how=process)
    X = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    weights = np.loadtxt(table, delimiter=",", skiprows=1, usecols=4)
    wanted = KMeans(3, random_state=5).fit(X, sample_weight=weights)
    with (tmp_path / "l.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [f"p{i}" for i in range(90)]
    assert [int(row["cluster"]) for row in rows] == wanted.labels_.tolist()
    own = wanted.transform(X)[np.arange(90), wanted.labels_]
    np.testing.assert_array_equal([float(row["distance"]) for row in rows], own)
    centers = np.loadtxt(tmp_path / "c.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(centers, wanted.cluster_centers_)
    model = exactmeans.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(model.labels_, wanted.labels_)
    assert "<!doctype html>" in (tmp_path / "r.html").read_text()
    assert "90 rows form 3 clusters" in done.stdout
    assert "cluster\trows\tshare" in done.stdout  # plain lines for a pipe
    assert "\x1b" not in done.stdout + done.stderr
    assert "the first row of people.csv is names" in done.stderr
    assert not list(tmp_path.glob("*.tmp"))


def test_fit_limits_rows_and_weights(table: Path, tmp_path: Path) -> None:
    X = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    weights = np.loadtxt(table, delimiter=",", skiprows=1, usecols=4)
    for size_of in ("rows", "weight"):
        options: dict[str, Any] = {"size_max": 1.1, "size_of": size_of, "random_state": 5}
        wanted = KMeans(4, **options).fit(X, sample_weight=weights)
        out = tmp_path / f"{size_of}.npy"
        good("fit", table, "-k", 4, *USED, "--seed", 5, "--size-max", 1.1, "--size-of", size_of,
             "--labels", out)  # fmt: skip
        np.testing.assert_array_equal(np.load(out), wanted.labels_)
    limits = ("--size-max", "0.5", "--size-of")
    fit = ("fit", table, "-k", 4, *USED)
    assert "--size-max must be at least 33.75" in refused(*fit, *limits, "weight")
    assert "--size-of must be one of 'rows', 'weight'" in refused(*fit, *limits, "odd")


def test_predict_prepares_rows_as_fit_did(table: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.safetensors", tmp_path / "l.npy"
    good("fit", table, "-k", 3, *USED, "--standardize", "--model", model, "--labels", out)
    done = good("predict", model, table, "--id", "name")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [int(row["cluster"]) for row in rows] == np.load(out).tolist()
    assert rows[3]["name"] == "p3"
    found = json.loads(good("predict", model, table, "--json").stdout)
    assert found["labels"] == np.load(out).tolist()
    loaded = exactmeans.load(model)
    X = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    preparation: Any = Preparation.of(loaded)
    np.testing.assert_allclose(preparation.offsets, X.mean(axis=0))
    np.testing.assert_allclose(preparation.factors, X.std(axis=0))
    assert loaded.predict(rows_for(loaded, str(table))).tolist() == np.load(out).tolist()
    assert "standardised: yes" in good("info", model).stdout


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy"])
def test_missing_values_are_dropped_if_asked(suffix: str, tmp_path: Path) -> None:
    path, out = tmp_path / "x.csv", tmp_path / f"l.{suffix}"
    path.write_text("a,b\n1,2\n,3\n1,2.5\n9,8\nNA,1\n9,9\n")
    said = refused("fit", path, "-k", 2)
    assert "column 'a' of x.csv lacks 2 values, the first in row 1: --na drop" in said
    other = tmp_path / "text.csv"
    other.write_text("a,b,c\n1,x,1\n,y,2\n3,z,\n")
    said = refused("fit", other, "-k", 2)
    assert "--exclude b, or name" in said
    assert said.endswith("; column 'a' (and 1 more) lacks values, so add --na drop.")
    done = good("fit", path, "-k", 2, "--na", "drop", "--labels", out)
    assert "2 of 6 rows lack a value and are left out; their label is -1" in done.stderr
    if suffix == "npy":
        labels = np.load(out).tolist()
    elif suffix == "csv":
        labels = [int(row["cluster"]) for row in csv.DictReader(out.open())]
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        labels = parquet.read_table(out).column("cluster").to_pylist()
    assert [label == -1 for label in labels] == [False, True, False, False, True, False]
    assert labels[0] == labels[2] != labels[3] == labels[5]


def test_standard_input(table: Path) -> None:
    text = table.read_text()
    done = good("fit", "-", "-k", 3, *USED, "--json", stdin=text, how=process)
    found = json.loads(done.stdout)
    assert found == {**found, "data": "standard input", "rows": 90, "k": 3}
    assert len(found["clusters"]) == 3
    assert sum(cluster["rows"] for cluster in found["clusters"]) == 90
    assert "standard input is empty" in refused("fit", "-", "-k", 3)


def test_columns_by_name_number_and_range(table: Path, tmp_path: Path) -> None:
    sizes = []
    for columns in ("age,income", "1,2", "1:3", '"age",2'):
        found = json.loads(good("fit", table, "-k", 3, "-c", columns, "--json", "-q").stdout)
        sizes.append([cluster["rows"] for cluster in found["clusters"]])
    assert sizes[0] == sizes[1] == sizes[2] == sizes[3]
    said = refused("fit", table, "-k", 3, "-c", "agee")
    assert said.startswith("there is no column 'agee' in ")
    assert "its columns are 'name', 'age', 'income', 'city', 'weight'." in said


def test_other_files(tmp_path: Path) -> None:
    X = datasets.blobs(60, 3, 3)
    np.save(tmp_path / "x.npy", X)
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(X))
    np.savetxt(tmp_path / "x.tsv", X, delimiter="\t")
    np.savetxt(tmp_path / "x.csv", X, delimiter="|")
    wanted = sorted(np.bincount(KMeans(3, random_state=0).fit(X).labels_).tolist())
    for name, options in (("npy", ()), ("npz", ()), ("tsv", ()), ("csv", ("--delimiter", "|"))):
        done = good("fit", tmp_path / f"x.{name}", "-k", 3, "--json", *options)
        sizes = [cluster["rows"] for cluster in json.loads(done.stdout)["clusters"]]
        assert sorted(sizes) == wanted, name


def test_columns_of_any_source_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Named(NpyRows):
        def __init__(self, path: Path, columns: Any, block_rows: int | None) -> None:
            super().__init__(path, None, block_rows)
            self.names = ["a", "b", "c"]
            self.select(choose_columns(columns, self.names, 3, str(path)))

    monkeypatch.setitem(_FILES, ".named", Named)
    with (tmp_path / "x.named").open("wb") as file:
        np.save(file, datasets.blobs(60, 3, 3))
    good("fit", tmp_path / "x.named", "-k", 3, "-c", "c,a", "--centers", tmp_path / "c.csv")
    assert (tmp_path / "c.csv").read_text().startswith("c,a\n")


def test_shares_are_of_all_rows(tmp_path: Path) -> None:
    X = np.repeat([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [30, 20, 50], axis=0)
    np.save(tmp_path / "x.npy", X)
    shown = good("fit", tmp_path / "x.npy", "-k", 2, "--metric", "cosine").stdout
    assert "the largest has 30% of all rows" in shown
    assert "\t30\t30%\t" in shown


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X = datasets.blobs(60, 2, 3)
    ids = [f"r{i}" for i in range(60)]
    path = tmp_path / "x.parquet"
    parquet.write_table(arrow.table({"id": ids, "a": X[:, 0], "b": X[:, 1]}), path)
    said = refused("fit", path, "-k", 3)
    assert "column 'id' holds string, not numbers; leave it out with --exclude" in said
    done = good("fit", path, "-k", 3, "--id", "id", "--json")
    assert json.loads(done.stdout)["clusters"][0]["nearest"][0] in ids


# text ---------------------------------------------------------------------------------------------

DOCUMENTS = [
    *(f"fish swim in the {sea} sea" for sea in ("red", "black", "dead", "blue", "cold")),
    *(f"stars shine in the {sky} sky" for sky in ("night", "dark", "clear", "cold", "black")),
]


def topics(*arguments: Any) -> list[int]:
    found = json.loads(good("fit", *arguments, "--text", "-k", 2, "--json").stdout)
    names = [cluster["name"] for cluster in found["clusters"]]
    assert any("fish" in name for name in names)
    assert any("stars" in name for name in names)
    return [cluster["rows"] for cluster in found["clusters"]]


def test_text_in_lines_columns_and_folders(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(DOCUMENTS))
    with (tmp_path / "table.csv").open("w", newline="") as file:
        rows: list[list[Any]] = [["n", "said"], *([i, text] for i, text in enumerate(DOCUMENTS))]
        csv.writer(file).writerows(rows)
    (tmp_path / "folder").mkdir()
    for i, text in enumerate(DOCUMENTS):
        (tmp_path / "folder" / f"{i}.txt").write_text(text)
    assert topics(tmp_path / "lines.txt") == [5, 5]
    assert topics(tmp_path / "table.csv") == [5, 5]
    assert topics(tmp_path / "table.csv", "--columns", "said") == [5, 5]
    assert topics(tmp_path / "folder") == [5, 5]


def test_new_texts_get_the_terms_of_the_old_ones(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("\n".join(DOCUMENTS))
    (tmp_path / "new.txt").write_text("a shoal of fish\nwords unheard of\nthe stars tonight\n")
    model, page = tmp_path / "m.safetensors", tmp_path / "r.html"
    old = tmp_path / "old.npy"
    good("fit", tmp_path / "old.txt", "--text", "-k", 2, "--model", model, "--labels", old)
    done = good("predict", model, tmp_path / "new.txt")
    labels = [int(row["cluster"]) for row in csv.DictReader(done.stdout.splitlines())]
    was = np.load(old)
    assert labels == [was[0], -1, was[-1]]
    assert "1 document has no known term and the label -1" in done.stderr
    good("report", model, tmp_path / "old.txt", "--output", page)
    assert "stars shine in the night sky" in page.read_text()
    loaded = exactmeans.load(model)
    assert loaded.predict(rows_for(loaded, DOCUMENTS)).tolist() == was.tolist()


def test_counts_of_terms(tmp_path: Path) -> None:
    counts = sp.csr_matrix([[3, 1, 0, 0], [2, 1, 0, 0], [0, 0, 4, 1], [0, 0, 2, 2.0]])
    sp.save_npz(tmp_path / "x.npz", counts)
    (tmp_path / "terms.txt").write_text("sea\nfish\nsky\nstar\n")
    model = tmp_path / "m.safetensors"
    options = ["--tfidf", "--feature-names", tmp_path / "terms.txt", "--model", model]
    found = json.loads(good("fit", tmp_path / "x.npz", "-k", 2, "--json", *options).stdout)
    assert sorted(c["rows"] for c in found["clusters"]) == [2, 2]
    assert {"sea", "fish"} & set(found["clusters"][0]["name"].split(", ")) or {
        "sky",
        "star",
    } & set(found["clusters"][0]["name"].split(", "))
    done = good("predict", model, tmp_path / "x.npz")
    labels = [row["cluster"] for row in csv.DictReader(done.stdout.splitlines())]
    assert labels[0] == labels[1] != labels[2] == labels[3]


# what is guessed is said --------------------------------------------------------------------------


def test_first_rows_that_may_be_names(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("2000,2001,2002\n1,2,3\n3,4,5\n9,9,9\n")
    said = refused("fit", path, "-k", 2)
    assert said.startswith("say --header or --no-header for ")
    assert said.endswith("its numbers may be years.")
    found = json.loads(good("fit", path, "-k", 2, "--header", "--json").stdout)
    assert found["rows"] == 3
    found = json.loads(good("fit", path, "-k", 2, "--no-header", "--json").stdout)
    assert found["rows"] == 4
    path.write_text(",b\n1,2\n3,4\n4,5\n")
    assert refused("fit", path, "-k", 2).endswith("column 0 of it is empty.")


def test_numbers_of_rows_and_scales_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = [f"{i},{i % 5},{1000 * (i % 7)}" for i in range(1, 31)]
    path.write_text("\n".join(["id,a,b", *rows]))
    said = good("fit", path, "-k", 2).stderr
    assert "column 'id' of x.csv counts up by one; if it numbers the rows, say --id id." in said
    assert "column 'b' varies" in said
    assert "--standardize" in said
    quiet = good("fit", path, "-k", 2, "-q").stderr
    assert quiet == ""


def test_svmlight_indices_are_said_and_kept(tmp_path: Path) -> None:
    old, new, model = tmp_path / "old.svm", tmp_path / "new.svm", tmp_path / "m.safetensors"
    old.write_text("1 0:9 1:1\n1 0:8 2:1\n0 2:9 1:1\n0 2:8\n")
    new.write_text("1 2:7\n0 1:1\n")  # nothing says that its indices begin at 0
    good("fit", old, "-k", 2, "--model", model)
    loaded = exactmeans.load(model)
    wanted = loaded.predict(sp.csr_matrix([[0, 0, 7.0], [0, 1, 0]])).tolist()
    done = good("predict", model, new)
    labels = [int(row["cluster"]) for row in csv.DictReader(done.stdout.splitlines())]
    assert labels == wanted
    assert loaded.predict(str(new)).tolist() == wanted
    said = good("fit", new, "-k", 2).stderr
    assert "indices of new.svm begin at 1, since it has no index 0; --zero-based or" in said
    with pytest.raises(ValueError, match=r"zero_based must be True for .*new.svm"):
        loaded.predict(open_blocks(new))
    other = KMeans(2, random_state=0).fit(str(new))
    with pytest.raises(ValueError, match="X must have indices from 1 on"):
        other.predict(str(old))


# the number of clusters ---------------------------------------------------------------------------


def test_select_k_gives_what_the_library_gives(table: Path) -> None:
    X = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    weights = np.loadtxt(table, delimiter=",", skiprows=1, usecols=4)
    wanted = exactmeans.select_k(X, range(2, 6), sample_weight=weights, random_state=4)
    done = good("select-k", table, "-k", "2:5", *USED, "--seed", 4, "--json")
    found = json.loads(done.stdout)
    assert found["best_k"] == wanted.best_k == 3
    assert found["reason"] == wanted.reason
    for own, record in zip(found["table"], wanted.table, strict=True):
        assert own.pop("seconds") >= 0
        theirs = record._asdict()
        theirs.pop("seconds")
        assert own == {name: None if value != value else value for name, value in theirs.items()}


def test_select_k_in_a_pipe(table: Path) -> None:
    pick = ("-k", "2,3,5", "--criterion", "davies_bouldin")
    done = good("select-k", table, *pick, *USED, how=process)
    lines = done.stdout.splitlines()
    assert lines[0].split("\t")[:3] == ["k", "inertia", "silhouette"]
    assert [line.split("\t")[0] for line in lines[1:4]] == ["2", "3", "5"]
    assert lines[-1].startswith("Suggestion: -k 3. ")
    assert "\x1b" not in done.stdout + done.stderr


def test_select_k_on_a_terminal(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((10_000, 8), dtype=np.float32)
    np.save(tmp_path / "x.npy", X)
    code, seen = in_terminal("select-k", tmp_path / "x.npy", "-k", "2:6")
    assert code == 0, seen
    assert "comparing 5 numbers of clusters" in seen
    assert "━" in seen  # the bar
    assert "Calinski–Harabasz" in seen
    assert "\t" not in seen
    assert "Suggestion: -k " in seen


def test_k_auto_takes_the_model_of_the_selection(table: Path, tmp_path: Path) -> None:
    out = [
        f"--{name}={tmp_path / file}" for name, file in (("labels", "l.npy"), ("report", "r.html"))
    ]
    done = good("fit", table, "-k", "auto", *USED, "--seed", 2, *out)
    X = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    weights = np.loadtxt(table, delimiter=",", skiprows=1, usecols=4)
    wanted = exactmeans.select_k(X, range(2, 13), sample_weight=weights, random_state=2)
    assert np.load(tmp_path / "l.npy").tolist() == wanted.model.labels_.tolist()
    assert done.stdout.startswith(wanted.reason)
    assert "Calinski" in (tmp_path / "r.html").read_text()
    found = json.loads(good("fit", table, "-k", "auto", *USED, "--seed", 2, "--json").stdout)
    assert (found["k"], found["reason"]) == (wanted.best_k, wanted.reason)


def test_bad_numbers_of_clusters(table: Path, tmp_path: Path) -> None:
    for given in ("0:4", "5:2", "x", "2:3:0", ""):
        said = refused("select-k", table, "-k", given, *USED)
        assert said.startswith("-k must be a range such as 2:12"), given
    assert "--criterion must be one of" in refused("select-k", table, *USED, "--criterion", "odd")
    assert refused("select-k", table, "-k", "2:200", *USED).startswith("-k must ")
    (tmp_path / "two.csv").write_text("a\n1\n2\n")
    assert "auto needs at least 3" in refused("fit", tmp_path / "two.csv", "-k", "auto")


# bad input ----------------------------------------------------------------------------------------


def test_bad_input_is_one_sentence(table: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    good("fit", table, "-k", 3, *USED, "--model", model)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "mixed.csv").write_text("a,b\n1,2\n3,x\n4,5\n")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY\x01")
    (tmp_path / "odd.bin").write_bytes(b"1")
    (tmp_path / "short.csv").write_text("a,b\n1,2\n3\n4,5\n")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    cases = {
        ("fit", "nothing.csv", "-k", "3"): "there is no file 'nothing.csv'.",
        ("fit", "m.safetensors", "-k", "3"): "m.safetensors is a model, not data",
        ("fit", "empty.csv", "-k", "3"): "empty.csv is empty.",
        ("fit", "folder", "-k", "3"): "folder holds no .parquet files.",
        ("fit", "odd.bin", "-k", "3"): "must be a folder of .parquet files or end in",
        ("fit", "torn.npy", "-k", "3"): "torn.npy",
        ("fit", "people.csv", "-k", "3"): "column 'name' (and 1 more) of people.csv holds text, "
        "'p0' in row 0: leave it out with --exclude name,city",
        ("fit", "mixed.csv", "-k", "2"): "column 'b' of mixed.csv holds text, 'x' in row 1",
        ("fit", "people.csv", "-k", "91", *USED): "-k must be at most 90, the rows of people.csv",
        ("fit", "people.csv", "-k", "none", *USED): "-k must be a number of at least 1, or auto",
        ("fit", "people.csv", "-k", "3", *USED, "--metric", "odd"): "--metric must be one of",
        ("fit", "people.csv", "-k", "3", *USED, "--jobs", "0"): "--jobs must be an int other",
        ("fit", "people.csv", "-k", "3", *USED, "--memory-limit", "odd"): (
            "--memory-limit must be a number of bytes"
        ),
        ("fit", "people.csv", "-k", "3", *USED, "--init", "odd"): (
            "--init must be 'k-means++', 'k-means||', 'random' or 'furthest', but it is 'odd'"
        ),
        ("fit", "people.csv", "-k", "3", *USED, "--one-based"): "--one-based must not be given",
        ("fit", "people.csv", "-k", "3", "--id", "nome"): "there is no column 'nome'",
        ("fit", "people.csv", "-k", "3", "-c", "age", "--weights", "city"): "--weights must be",
        ("fit", "people.csv", "-k", "3", *USED, "--labels", "l.txt"): "--labels must end in .csv",
        ("fit", "people.csv", "-k", "3", *USED, "--model", "no/m.safetensors"): "no folder 'no'",
        ("fit", "people.csv", "-k", "3", *USED, "--model", "m.safetensors"): "--force replaces it",
        ("predict", "people.csv", "m.safetensors"): "people.csv is not a model",
        ("predict", "nothing.safetensors", "people.csv"): "there is no file",
        ("predict", "folder", "people.csv"): "folder is a folder, not a model",
        ("fit", "short.csv", "-k", "2"): "row 1 has 1 columns, not 2.",
        ("fit", "people.csv", "-k", "2", "--min-df", "2"): "--min-df must be given with --text",
        ("predict", "m.safetensors", "other.csv"): "the columns of the fit must be in other.csv, "
        "but 'age' is not: it has 'a', 'b'.",
        ("info", "nothing.csv"): "there is no file",
        ("report", "m.safetensors", "nothing.csv"): "there is no file",
    }
    for arguments, words in cases.items():
        assert words in refused(*arguments, cwd=tmp_path), arguments
    for usage in (("fit",), ("fit", "people.csv"), ("fit", "people.csv", "--odd"), ("odd",)):
        command = "exactmeans fit" if usage[0] == "fit" else "exactmeans"
        assert f"(see {command} --help)." in refused(*usage, code=2, cwd=tmp_path)
    # Exit codes and standard error of a process, once for each code.
    assert refused("info", "nothing.csv", cwd=tmp_path, how=process).startswith("there is no file")
    refused("odd", code=2, cwd=tmp_path, how=process)
    assert sorted(tmp_path.iterdir()) == before


def test_standard_input_is_named_in_errors() -> None:
    said = refused("fit", "-", "-k", 2, stdin="a,b\n1,2\n3\n4,5\n")
    assert said == "standard input: row 1 has 1 columns, not 2."


def test_memory_limits_are_sizes_bytes_or_fractions(table: Path) -> None:
    for limit in ("0.5", "500000000", "500MB"):
        good("fit", table, "-k", 3, *USED, "--memory-limit", limit)
    said = refused("fit", table, "-k", 3, *USED, "--memory-limit", "2QB")
    assert said.startswith("--memory-limit must be a number of bytes, a string like '2GB' or ")
    assert "must be at least" in refused("fit", table, "-k", 3, *USED, "--memory-limit", "1")


def test_progress_says_which_start_runs(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactmeans.cli.screen._LINE_SECONDS", 0)
    said = good("fit", table, "-k", 3, *USED, "--starts", 2).stderr
    assert "people.csv: iteration 1, " in said
    assert "people.csv: start 2, iteration 1, " in said


def test_an_interrupt_is_said(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(KMeans, "fit", interrupted)
    said = refused("fit", table, "-k", 3, *USED, code=130)
    assert said == "interrupted; no output was written."


def test_force_replaces(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "l.csv"
    out.write_text("precious")
    command = ["fit", table, "-k", 3, *USED, "--labels", out]
    assert refused(*command).endswith("l.csv exists; --force replaces it.")
    assert out.read_text() == "precious"
    good(*command, "--force")
    assert out.read_text().startswith("name,cluster,distance\n")


# help, information, terminals ---------------------------------------------------------------------


def test_help_and_version() -> None:
    assert good("version", how=process).stdout.strip() == exactmeans.__version__
    found = good("--help").stdout
    for command in ("fit", "predict", "select-k", "report", "info", "version"):
        assert command in found
    text = good("fit", "--help").stdout
    for option in ("--standardize", "--na", "--id", "--weights", "--checkpoint", "--json"):
        assert option in text
    assert "instruction set" in good("info").stdout
    machine = json.loads(good("info", "--json").stdout)
    assert machine["exactmeans"] == exactmeans.__version__
    assert machine.keys() >= set(PACKAGES)


def test_info_about_a_table(table: Path) -> None:
    found = json.loads(good("info", table, "--json").stdout)
    kinds = {column["name"]: column["holds"] for column in found["columns"]}
    assert kinds == {
        "name": "text",
        "age": "number",
        "income": "number",
        "city": "text",
        "weight": "number",
    }
    assert found["rows"] == 90
    assert "--exclude it" in good("info", table).stdout


def test_completion_is_offered() -> None:
    environment = {**WIDE, "_EXACTMEANS_COMPLETE": "complete_bash", "COMP_WORDS": "exactmeans se"}
    done = subprocess.run(
        [sys.executable, "-m", "exactmeans"],
        env={**environment, "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "select-k" in done.stdout


def test_without_the_extra(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, sys\n"
        "known = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'typer' else known(name, *a)\n"
        "from exactmeans.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=WIDE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "exactmeans: the command line needs the typer package: pip install 'exactmeans[cli]'."
    )


def in_terminal(*arguments: Any, seconds: float = 120) -> tuple[int, str]:
    """Run under a pseudo-terminal; returns the exit code and what a person sees."""
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "exactmeans", *map(str, arguments)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=WIDE,
        close_fds=True,
    )
    os.close(follower)
    seen, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            seen += part
        elif process.poll() is not None:
            break
    code = process.wait(10)
    os.close(leader)
    return code, seen.decode(errors="replace")


def test_a_terminal_shows_a_bar_and_a_table(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((60_000, 20), dtype=np.float32)
    np.save(tmp_path / "x.npy", X)
    code, seen = in_terminal("fit", tmp_path / "x.npy", "-k", 30, "--max-iter", 20)
    assert code == 0, seen
    assert "clustering x.npy" in seen
    assert "━" in seen  # the bar
    assert "\x1b[" in seen
    assert "what sets it apart" in seen
    assert "\t" not in seen.split("what sets it apart")[1].split("Odd rows")[0]
    code, seen = in_terminal("fit", tmp_path / "y.npy", "-k", 30)
    assert code == 1
    assert "there is no file" in seen


def test_a_reader_may_leave_early(table: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    good("fit", table, "-k", 3, *USED, "--model", model)
    shell = f"'{sys.executable}' -m exactmeans predict '{model}' '{table}' | head -1"
    done = subprocess.run(
        ["sh", "-c", shell], env=WIDE, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "row,cluster,distance\n"
    assert "Traceback" not in done.stderr


# trees --------------------------------------------------------------------------------------------


def test_tree_gives_what_the_library_gives(table: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("tree.safetensors", "leaves.csv", "tree.nwk")}
    done = good(
        *("tree", table, *USED, "--branching", 3, "--max-leaf-size", 10, "--balanced"),
        *("--model", files["tree.safetensors"], "--labels", files["leaves.csv"]),
        *("--newick", files["tree.nwk"]),
    )
    X = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    weights = np.loadtxt(table, delimiter=",", skiprows=1, usecols=4)
    tree = KMeansTree(3, max_leaf_size=10, balanced=True, random_state=0)
    tree.fit(X, sample_weight=weights)
    assert f"{len(tree.leaves_)} leaves in" in done.stdout
    written = list(csv.DictReader(files["leaves.csv"].open()))
    assert [int(row["cluster"]) for row in written] == tree.labels_.tolist()
    assert files["tree.nwk"].read_text() == tree.to_newick()
    about = json.loads(good("info", files["tree.safetensors"], "--json").stdout)
    sizes = {"leaves": len(tree.leaves_), "nodes": len(tree.parent_), "features": 2}
    assert about.items() >= {**sizes, "metric": "euclidean", "inertia": tree.inertia_}.items()
    predicted = good("predict", files["tree.safetensors"], table, "--id", "name")
    rows = list(csv.DictReader(predicted.stdout.splitlines()))
    assert [int(row["cluster"]) for row in rows] == tree.labels_.tolist()
    text = json.loads(good("tree", table, *USED, "-b", 3, "--leaves", 5, "--json").stdout)
    assert text["leaves"] == 5
    assert len(text["parent"]) == text["nodes"]


def test_tree_refuses_in_one_sentence(table: Path) -> None:
    assert "--branching must be an int of at least 2" in refused("tree", table, *USED, "-b", 1)
    assert "--leaves must be at most 90" in refused("tree", table, *USED, "--leaves", 91)
