"""Worker engines on the workers of a Dask cluster."""
