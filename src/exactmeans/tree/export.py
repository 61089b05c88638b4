"""Trees in the forms of other tools."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import Matrix
from exactmeans.tree.nodes import Ids, Nodes


def newick(nodes: Nodes, names: Sequence[Any] | None) -> str:
    """Newick's format: parentheses around siblings; names of leaves, quoted where they must be."""
    text = [""] * len(nodes)
    number, leaf = nodes.leaf_number, nodes.is_leaf
    for node in range(len(nodes) - 1, -1, -1):
        if leaf[node]:
            text[node] = _quoted(number[node] if names is None else names[number[node]])
            continue
        first, past = nodes.children[node], nodes.children[node + 1]
        text[node] = f"({','.join(text[first:past])})"
        text[first:past] = [""] * int(past - first)
    return text[0] + ";"


def _quoted(name: Any) -> str:
    text = str(name)
    if text and all(letter.isalnum() or letter in ".-+/" for letter in text):
        return text
    return "'" + text.replace("'", "''") + "'"


def networkx(nodes: Nodes) -> Any:
    """A directed graph from parents to children."""
    try:
        nx = importlib.import_module("networkx")
    except ImportError:
        raise ImportError("to_networkx needs the networkx package: pip install networkx.") from None
    graph = nx.DiGraph()
    number, leaf = nodes.leaf_number.tolist(), nodes.is_leaf.tolist()
    columns = (nodes.depth.tolist(), nodes.size.tolist(), nodes.inertia.tolist())
    for node, (depth, size, inertia) in enumerate(zip(*columns, strict=True)):
        own = number[node] if leaf[node] else None
        graph.add_node(node, depth=depth, size=size, inertia=inertia, leaf=own)
    graph.add_edges_from(zip(nodes.parent[1:].tolist(), range(1, len(nodes)), strict=True))
    return graph


def cluster_chain(nodes: Nodes, leaf_of_row: Ids) -> list[sp.csc_matrix]:
    """PECOS' chain: for each level a matrix of children by parents, for the last one of rows.

    All leaves of a chain are on its last level, so a higher leaf is its own only child until there.
    """
    chain = []
    above = np.zeros(1, dtype=np.int64)
    for level in range(1, int(nodes.depth[-1]) + 1):
        here = np.flatnonzero((nodes.depth == level) | (nodes.is_leaf & (nodes.depth < level)))
        here = here[np.argsort(nodes.leaf_number[here])]
        parent = np.where(nodes.depth[here] == level, nodes.parent[here], here)
        chain.append(_membership(_places(above, parent, len(nodes)), len(above)))
        above = here
    chain.append(_membership(_places(above, leaf_of_row, len(nodes)), len(above)))
    return chain


def _places(of: Ids, nodes: Ids, count: int) -> Ids:
    place = np.empty(count, dtype=np.int64)
    place[of] = np.arange(len(of))
    return place[nodes]


def _membership(column: Ids, width: int) -> sp.csc_matrix:
    """1 in the given column of each row."""
    n = len(column)
    ones = np.ones(n, dtype=np.float32)
    return sp.csc_matrix(sp.csr_matrix((ones, column, np.arange(n + 1)), shape=(n, width)))


def float32_level(centres: Matrix) -> NDArray[np.float32]:
    """Centres as FAISS takes them."""
    dense = centres if isinstance(centres, np.ndarray) else centres.toarray()
    return np.ascontiguousarray(dense, dtype=np.float32)


def rows_by_node(nodes: Nodes, labels: NDArray[np.int32]) -> list[NDArray[np.intp]]:
    """The rows of every node, ascending. Leaves below a node have neighbouring numbers."""
    order = np.argsort(labels, kind="stable")
    begins = np.searchsorted(labels[order], nodes.leaf_number)
    spans = zip(begins.tolist(), nodes.size.tolist(), strict=True)
    return [np.sort(order[begin : begin + size]) for begin, size in spans]
