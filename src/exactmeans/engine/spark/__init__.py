"""Worker engines in the tasks of Spark."""
