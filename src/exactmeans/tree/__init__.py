"""Trees of k-means: growth, prediction, export."""
