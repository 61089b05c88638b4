"""How tests search (HYPOTHESIS_PROFILE=thorough: longer, other examples) and what peers may use."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterator
from typing import IO

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


# Where tests run ---------------------------------------------------------------------------------

#: Files whose tests take longest, longest first: begun last, one would leave the other cores idle.
#: Those of Dask wait much, while Spark uses both cores.
LONGEST = ("spark", "dask_operators", "dask", "streaming", "cli", "examples", "docs", "checkpoint")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --dist loadgroup a file is the work of one process: its tests share clusters and caches.

    All that starts Spark is one group, since a process starts its Java once.
    """
    names = {item: _group(item) for item in items}
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(names[item], len(places)))
    if config.pluginmanager.hasplugin("xdist"):
        for item, name in names.items():
            item.add_marker(pytest.mark.xdist_group(name))


def _group(item: pytest.Item) -> str:
    stem = item.path.stem
    spark = stem == "test_spark" or (stem == "test_docs" and "spark" in item.name)
    return "spark" if spark else stem.removeprefix("test_")


# What is stuck -----------------------------------------------------------------------------------

#: Seconds after which a test is stuck; the longest take a minute, and slow machines ten times that.
TIME_LIMIT = 900

_terminal: list[IO[str]] = []


def pytest_configure() -> None:
    """Tests have their standard error captured; this one is the terminal's."""
    _terminal.append(os.fdopen(os.dup(2), "w"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End a process that is stuck, with what each thread does; pytest-xdist starts another."""
    faulthandler.dump_traceback_later(TIME_LIMIT, exit=True, file=_terminal[0])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


# Servers -----------------------------------------------------------------------------------------


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
