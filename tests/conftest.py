"""How tests search (HYPOTHESIS_PROFILE=thorough: longer, other examples) and what peers may use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import postgres as postgres_server

# The first call of a kernel in a process is slow, and so is everything under a sanitizer: no limits
# on time. The quick profile is the same on every run, so that a failure is never a matter of luck.
_calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}
settings.register_profile("quick", max_examples=60, derandomize=True, **_calm)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=2000, **_calm)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# scikit-learn adds up in the order in which its threads finish; on one thread it repeats itself,
# and does not spin while several tests share the cores. This runs before anything imports it.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Shells start background jobs with SIGINT ignored, and tests of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.Server]:
    """A PostgreSQL server for all tests of a session."""
    if why := postgres_server.why_none():
        pytest.skip(why)
    with postgres_server.Server() as server:
        yield server


@pytest.fixture(scope="session")
def pgvector() -> Iterator[postgres_server.Server]:
    """One that has the extension pgvector."""
    if why := postgres_server.why_none():
        pytest.skip(why)
    if postgres_server.find_server(pgvector=True) is None:
        pytest.skip("no PostgreSQL with pgvector is installed")
    with postgres_server.Server(pgvector=True) as server:
        yield server
