"""Choosing the number of clusters: fits for several k, measured side by side, and a suggestion."""

from exactmeans.select.measures import Measures
from exactmeans.select.selection import KSelection, select_k

__all__ = ["KSelection", "Measures", "select_k"]
