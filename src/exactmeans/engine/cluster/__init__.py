"""The engine for rows on the workers of a cluster."""
