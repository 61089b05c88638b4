"""What a fit finds out about the machine: memory, cores, and other users of the cores."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from exactmeans import KMeans, MiniBatchKMeans, _core
from exactmeans.memory import known_memory, memory_of_machine
from exactmeans.parameters import check_n_jobs
from models import assert_same_model, blobs, fitted

# Memory -------------------------------------------------------------------------------------------


@pytest.fixture
def no_sysconf(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on Windows."""
    known_memory.cache_clear()
    expected = fitted(blobs())
    known_memory.cache_clear()
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr("builtins.open", _missing)
    assert_same_model(fitted(blobs()), expected)
    yield
    known_memory.cache_clear()


def _missing(*_: Any, **__: Any) -> Any:
    raise FileNotFoundError


class _Kernel32:
    """The one function of Windows that is called."""

    def __init__(self, installed: int) -> None:
        self.installed = installed

    def GlobalMemoryStatusEx(self, status: Any) -> int:  # noqa: N802
        status = status._obj
        assert status.length == ctypes.sizeof(status) == 64
        status.installed = self.installed
        return 1 if self.installed else 0


class _Windows:
    def __init__(self, installed: int) -> None:
        self.kernel32 = _Kernel32(installed)


@pytest.mark.usefixtures("no_sysconf")
def test_a_system_that_does_not_tell_its_memory() -> None:
    assert known_memory() is None
    assert memory_of_machine() == 4 * 2**30
    MiniBatchKMeans(2, random_state=0).fit(blobs())
    with pytest.raises(
        ValueError, match=r"memory_limit must be a number of bytes, .* but it is 0.5"
    ):
        fitted(blobs(), memory_limit=0.5)


@pytest.mark.usefixtures("no_sysconf")
@pytest.mark.parametrize(("installed", "known"), [(8 * 2**30, 8 * 2**30), (0, None)])
def test_the_memory_of_windows(
    installed: int, known: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_memory.cache_clear()
    monkeypatch.setattr(ctypes, "windll", _Windows(installed), raising=False)
    assert known_memory() == known


@pytest.mark.parametrize("error", [ValueError, OSError])
def test_a_name_that_sysconf_does_not_know(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sysconf(name: str) -> int:
        raise error(name)

    known_memory.cache_clear()
    monkeypatch.setattr(os, "sysconf", sysconf)
    monkeypatch.setattr("builtins.open", _missing)
    try:
        assert known_memory() is None
    finally:
        known_memory.cache_clear()


# Cores --------------------------------------------------------------------------------------------


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that this process may use, and nothing in the environment."""
    for variable in ("EXACTMEANS_NUM_THREADS", "LOKY_MAX_CPU_COUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(_core, "usable_cores", lambda: 8)


@pytest.mark.usefixtures("eight")
def test_n_jobs_none_takes_all_cores_outside_joblib() -> None:
    assert [check_n_jobs(n_jobs) for n_jobs in (None, -1, -2, 3)] == [8, 8, 7, 3]


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_n_jobs_none_takes_what_a_joblib_context_says(backend: str) -> None:
    with joblib.parallel_config(backend=backend, n_jobs=3):
        assert [check_n_jobs(n_jobs) for n_jobs in (None, -1, 5)] == [3, 8, 5]


@pytest.mark.usefixtures("eight")
def test_tasks_that_are_threads_have_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def tasks() -> list[list[int]]:
        run = joblib.Parallel(n_jobs=2, backend="threading")
        return list(run(joblib.delayed(some)() for _ in range(2)))

    def some() -> list[int]:
        return [check_n_jobs(n_jobs) for n_jobs in (None, -1, 3)]

    assert tasks() == [[1, 8, 3]] * 2
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # of this process, not of a task
    assert tasks() == [[1, 8, 3]] * 2
    one_by_one = joblib.Parallel(n_jobs=1)(joblib.delayed(some)() for _ in range(2))
    assert one_by_one == [[8, 8, 3]] * 2


def _threads_in_a_process() -> tuple[int, int]:
    return check_n_jobs(None), _core.usable_cores()


@pytest.mark.parametrize("inner", [1, pytest.param(2, marks=pytest.mark.slow), 64])
def test_tasks_that_are_processes_have_the_share_of_loky(
    inner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # conftest limits the pools of others in this process; loky's workers would inherit that.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    with joblib.parallel_config(backend="loky", inner_max_num_threads=inner):
        found = joblib.Parallel(n_jobs=2)(joblib.delayed(_threads_in_a_process)() for _ in range(2))
    for threads, cores in found:
        assert threads == min(cores, inner)


def test_a_grid_search_does_not_use_cores_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)

    def threads(model: KMeans, X: Any, y: Any = None) -> int:
        used: int = model._n_jobs_used
        return used

    search = GridSearchCV(KMeans(), {"n_clusters": [2, 3]}, cv=2, scoring=threads, n_jobs=2)
    with joblib.parallel_config(backend="loky"):
        found = search.fit(blobs()).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, max(1, joblib.cpu_count() // 2))


@pytest.mark.parametrize(
    ("text", "limits"), [("1", True), ("1000", False), ("0", False), ("many", False), ("", False)]
)
def test_loky_max_cpu_count(text: str, limits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXACTMEANS_NUM_THREADS", raising=False)
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    cores = 1 if limits else check_n_jobs(-1)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", text)
    assert check_n_jobs(None) == check_n_jobs(-1) == cores


def test_exactmeans_num_threads_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXACTMEANS_NUM_THREADS", "5")
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")

    def some() -> list[int]:
        return [check_n_jobs(n_jobs) for n_jobs in (None, -1, -2, 3)]

    assert some() == [5, 5, 4, 3]
    tasks = joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(some)() for _ in range(2))
    assert tasks == [[5, 5, 4, 3]] * 2


# Systems that are not Unix ------------------------------------------------------------------------

_ELSEWHERE = """
import os, sys, types
import numpy as np, pandas, pyarrow, safetensors.numpy, scipy.sparse, sklearn.cluster  # noqa
import sklearn.feature_extraction.text, joblib, multiprocessing.pool, asyncio, tempfile  # noqa
import mmap, select, signal, socket, sqlite3, subprocess  # noqa
for module, names in {functions!r}.items():
    for name in names:
        vars(sys.modules[module]).pop(name, None)
for name in {modules!r}:
    sys.modules[name] = None
import exactmeans
from exactmeans import KMeans, KMeansTree, MiniBatchKMeans, open_blocks, open_sql, report, select_k
from exactmeans.text import tfidf

os.chdir(sys.argv[1])
X = np.random.default_rng(0).normal(size=(500, 4))
np.save("rows.npy", X)
km = KMeans(4, random_state=0, checkpoint="fit.safetensors").fit(X)
km.save("model.safetensors")
assert (exactmeans.load("model.safetensors").predict(X) == km.labels_).all()
blocks = KMeans(4, random_state=0, memory_limit="10MB", n_jobs=2).fit("rows.npy")
assert (blocks.labels_ == km.labels_).all()
MiniBatchKMeans(4, random_state=0).fit(X).partial_fit(X)
KMeans(4, random_state=0, verbose=1).fit(scipy.sparse.csr_matrix(X))
pandas.DataFrame(X, columns=list("abcd")).to_csv("rows.csv", index=False)
pandas.DataFrame(X, columns=list("abcd")).to_parquet("rows.parquet")
for file in ("rows.csv", "rows.parquet"):
    assert KMeans(4, random_state=0, memory_limit="10MB").fit(file).inertia_ > 0
KMeansTree(4, max_leaf_size=100, random_state=0).fit(X).save("tree.safetensors")
found = select_k(X, [2, 3], random_state=0)
report(found.model, X, "report.html", selection=found)
KMeans(2, metric="cosine", random_state=0).fit(tfidf(["red fish", "blue fish", "night sky"]).X)
database = sqlite3.connect("rows.sqlite")
pandas.DataFrame(X, columns=list("abcd")).to_sql("t", database, index_label="id")
rows = open_sql("SELECT * FROM t", database, key="id", memory_limit=10_000)  # spools to a file
assert (KMeans(4, random_state=0).fit(rows).labels_ == km.labels_).all()
exactmeans.show_versions()
"""
# What Windows lacks; macOS lacks some of it.
_OS = (
    *("fork", "forkpty", "register_at_fork", "sysconf", "confstr", "uname", "getuid", "geteuid"),
    *("sched_getaffinity", "sched_setaffinity", "sched_yield", "getloadavg", "nice", "wait4"),
    *("pread", "preadv", "pwrite", "posix_fadvise", "posix_fallocate", "sendfile", "statvfs"),
    *("O_DIRECTORY", "O_CLOEXEC", "O_NOFOLLOW", "O_SYNC", "fdatasync", "sync", "mkfifo", "chown"),
    *("killpg", "setsid", "getpgid", "getpgrp", "setpgid", "wait", "wait3", "waitid", "WNOHANG"),
    *("fchmod", "fchown", "lockf", "openpty", "ttyname", "getxattr", "memfd_create", "pipe2"),
)
_SIGNAL = (
    *("SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGSTOP"),
    *("alarm", "pause", "setitimer", "getitimer", "pthread_kill", "pthread_sigmask", "sigpending"),
    *("sigwait", "sigwaitinfo", "sigtimedwait", "siginterrupt"),
)
_MMAP = (
    "MADV_DONTNEED",
    "MADV_WILLNEED",
    "MAP_PRIVATE",
    "MAP_ANONYMOUS",
    "MAP_SHARED",
    "PROT_READ",
)
_UNIX_FUNCTIONS = {
    **{"os": _OS, "signal": _SIGNAL, "mmap": _MMAP},
    **{"select": ("poll", "epoll", "kqueue"), "socket": ("AF_UNIX", "socketpair")},
}
_UNIX_MODULES = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty")


def test_the_default_path_calls_nothing_that_only_unix_has(tmp_path: Path) -> None:
    code = _ELSEWHERE.format(functions=_UNIX_FUNCTIONS, modules=_UNIX_MODULES)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "exactmeans: " in done.stdout


# The end of the process ---------------------------------------------------------------------------

FIT_IN_A_DAEMON = """
import threading, time
import numpy as np
from exactmeans import KMeans

began = threading.Event()
X = np.random.default_rng(0).random((20_000, 50), np.float32)
model = KMeans(200, init="random", n_init=1, tol=0, max_iter=10**6, algorithm="lloyd",
               callbacks=lambda _: began.set())
threading.Thread(target=model.fit, args=[X], daemon=True).start()
assert began.wait(60)
"""


@pytest.mark.core
def test_a_process_may_end_in_the_middle_of_a_fit_of_a_daemon_thread() -> None:
    """Python ends the thread when it wants the GIL again, which must not abort the process."""
    ended = subprocess.run(
        [sys.executable, "-c", FIT_IN_A_DAEMON], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")
