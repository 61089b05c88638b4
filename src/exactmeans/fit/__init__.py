"""A fit between its estimator and its engine: problem, loop, update, policy."""
