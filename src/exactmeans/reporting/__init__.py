"""Reports about fitted models: one HTML file each."""

from exactmeans.reporting.page import report

__all__ = ["report"]
