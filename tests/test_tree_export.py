"""Trees in files and in other forms: Newick, networkx, PECOS, vectors, LibMultiLabel."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

import exactmeans
from exactmeans import BisectingKMeans, KMeansTree
from exactmeans.data.arrays import as_array
from exactmeans.labels import build_tree
from trees import KINDS, assert_same_tree, data, dense_rows, sparse_rows


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(kind: str, balanced: bool, tmp_path: Path) -> None:
    X = data(kind)
    tree = KMeansTree(4, max_leaf_size=30, balanced=balanced, random_state=9).fit(X)
    tree.save(tmp_path / "tree")
    again: Any = exactmeans.load(tmp_path / "tree")
    assert type(again) is KMeansTree
    assert again.get_params() == tree.get_params()
    assert_same_tree(tree, again)
    assert (again.predict(X) == tree.labels_).all()
    assert (again.predict(X, beam=3) == tree.predict(X, beam=3)).all()


def test_altered_files_are_refused(tmp_path: Path) -> None:
    tree = KMeansTree(4, max_leaf_size=30, random_state=9).fit(dense_rows(200))
    for name, value in (("children_", tree.children_[::-1].copy()), ("depth_", tree.depth_[:-1])):
        broken = clone(tree).fit(dense_rows(200))
        setattr(broken, name, value)
        with pytest.raises(ValueError, match="do not make a tree"):
            broken.save(tmp_path / "tree")


def _parsed(text: str) -> Any:
    """Newick as nested lists of names, by its grammar: quotes in names are doubled."""
    tokens = re.findall(r"'(?:[^']|'')*'|[(),;]|[^(),;']+", text)
    assert "".join(tokens) == text

    def subtree() -> Any:
        token = tokens.pop(0)
        if token != "(":
            if token.startswith("'"):
                return token[1:-1].replace("''", "'")
            assert not set(token) & set(" \t\n()[]':;,_")  # must be quoted; _ would be a blank
            return token
        children = [subtree()]
        while (mark := tokens.pop(0)) == ",":
            children.append(subtree())
        assert mark == ")"
        return children

    tree = subtree()
    assert tokens == [";"]
    return tree


def test_sparse_centres_have_short_indices() -> None:
    """As those of the rows, which other programs take without a copy."""
    X = sp.random(200, 30, density=0.2, random_state=0, format="csr")
    for model in (KMeansTree(4, random_state=0), BisectingKMeans(4, random_state=0)):
        centres = model.fit(X)._node_centres
        assert not isinstance(centres, np.ndarray)
        assert centres.indices.dtype == centres.indptr.dtype == np.int32


def test_newick() -> None:
    X = dense_rows(60)
    tree = KMeansTree(3, max_leaf_size=10, random_state=0).fit(X)

    def nested(node: int, names: list[str]) -> Any:
        children = range(tree.children_[node], tree.children_[node + 1])
        if children:
            return [nested(child, names) for child in children]
        return names[np.flatnonzero(tree.leaves_ == node)[0]]

    leaves = len(tree.leaves_)
    assert _parsed(tree.to_newick()) == nested(0, [str(i) for i in range(leaves)])
    odd = ["a b", "x,y", "(z)", "c:1", "it's", "''", "", "t_u", "[c]", "a;b", "é", "1.5-2/3"]
    names = [odd[i] if i < len(odd) else f"n{i}" for i in range(leaves)]
    assert leaves > len(odd)
    assert _parsed(tree.to_newick(names)) == nested(0, names)
    assert "'it''s'" in tree.to_newick(names)
    with pytest.raises(ValueError, match="names must have one entry for each"):
        tree.to_newick(["x"])
    series: Any = pd.Series(names)[::-1]
    assert tree.to_newick(series) == tree.to_newick(names[::-1])
    for wrong in (5, {"a", "b"}, dict(enumerate(names))):
        given: Any = wrong
        with pytest.raises(ValueError, match="names must be None or a sequence of the names"):
            tree.to_newick(given)


def test_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    tree = KMeansTree(3, max_leaf_size=10, random_state=0).fit(dense_rows(60))
    graph = tree.to_networkx()
    assert networkx.is_arborescence(graph)
    assert len(graph) == len(tree.parent_)
    assert all(graph.nodes[i]["size"] == size for i, size in enumerate(tree.size_))
    leaves = sorted(graph.nodes[i]["leaf"] for i in graph if graph.nodes[i]["leaf"] is not None)
    assert leaves == list(range(len(tree.leaves_)))


def test_pecos() -> None:
    X = dense_rows(500)
    tree = KMeansTree(4, max_leaf_size=30, random_state=0).fit(X)
    chain = tree.to_pecos()
    assert len(chain) == tree.depth_.max() + 1
    assert chain[0].shape[1] == 1
    assert chain[-1].shape == (500, len(tree.leaves_))
    for upper, lower in itertools.pairwise(chain):
        assert upper.shape[0] == lower.shape[1]
    assert all((link.sum(axis=1) == 1).all() and (link.sum(axis=0) > 0).all() for link in chain)
    assert (chain[-1].tocsr().indices == tree.labels_).all()
    at: Any = tree.labels_
    for link in chain[-2::-1]:  # up to the root, along parents
        at = link.tocsr().indices[at]
    assert (at == 0).all()
    if importlib.util.find_spec("pecos"):
        pecos = importlib.import_module("pecos.utils.cluster_util")
        assert len(pecos.ClusterChain(chain)) == len(chain)


def test_vectors() -> None:
    tree = KMeansTree(4, max_leaf_size=30, random_state=0).fit(sparse_rows(300))
    table = tree.to_vectors()
    assert table["vector"].dtype == np.float32
    assert table["vector"].flags.c_contiguous
    assert np.array_equal(table["parent"], tree.parent_)
    for level, centres in enumerate(tree.cluster_centers_):
        assert np.allclose(table["vector"][table["depth"] == level], as_array(centres))


@pytest.mark.parametrize(
    ("depth", "said"),
    [(None, "1 leaf with all 60 rows: the root was not split."), (1, "3 leaves in 1 level below")],
)
def test_the_command_line_counts_leaves_and_levels(
    depth: int | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = pytest.importorskip("exactmeans.cli.tree")
    size = 60 if depth is None else 1
    tree = KMeansTree(3, max_leaf_size=size, max_depth=depth, random_state=0).fit(dense_rows(60))
    command._show(tree)
    assert said in capsys.readouterr().out


class Node:
    def __init__(self, label_map: NDArray[Any], children: list[Node]) -> None:
        self.label_map, self.children = label_map, children


def test_libmultilabel() -> None:
    """The node structure of its recursion: stops, label maps, the order of the tree."""
    X, names = sparse_rows(500), np.arange(500) * 3
    np.random.seed(0)
    root = build_tree(X, names, 0, 6, 3, node=Node)

    def check(node: Node, depth: int) -> None:
        if depth == 3 or len(node.label_map) <= 6:
            assert not node.children
        if node.children:
            assert len(node.children) == 6
            below = np.concatenate([child.label_map for child in node.children])
            assert np.array_equal(np.sort(below), node.label_map)
        for child in node.children:
            check(child, depth + 1)

    check(root, 0)
    assert np.array_equal(root.label_map, names)
    assert root.children
    assert not build_tree(X, names, 3, 6, 3, node=Node).children
    few = np.repeat(np.eye(4), 5, axis=0)  # four distinct rows for six clusters
    flat = build_tree(few, np.arange(20), 0, 6, 3, node=Node)
    assert [len(child.children) for child in flat.children] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"K": 1}, "K must be an int of at least 2"),
        ({"dmax": None}, "dmax must be an int of at least 0"),
        ({"d": -1}, "d must be an int of at least 0"),
        ({"label_map": np.arange(3)}, "label_map must have one entry for each of the 20 rows"),
    ],
)
def test_bad_arguments_of_libmultilabel(given: dict[str, Any], message: str) -> None:
    arguments = {"label_map": np.arange(20), "d": 0, "K": 4, "dmax": 3, **given}
    with pytest.raises(ValueError, match=message):
        build_tree(np.eye(20), **arguments, node=Node)


def test_nodes_without_libmultilabel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libmultilabel", None)
    with pytest.raises(ImportError, match="node must be given if libmultilabel"):
        build_tree(np.eye(20), np.arange(20), 0, 4, 3)
