"""Executors in processes of their own: Spark's `local-cluster`, a master and two workers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spark import plain_environment, skip_without_java

SCRIPT = """
    import os, signal, sys
    from pathlib import Path

    import numpy as np
    from pyspark import cloudpickle
    from pyspark.ml.linalg import Vectors

    import exactmeans
    from exactmeans.spark import KMeans, estimator
    from spark import spark_session

    mark = Path("killed").resolve()

    def parent(pid):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def deadly_stage(batches, options, loop):
        \"\"\"Kills the executor of task 1 at its fourth assignment, once.\"\"\"
        from exactmeans.engine.cluster.worker_engine import WorkerEngine
        from exactmeans.engine.spark.barrier import run_stage

        respond, seen = WorkerEngine.respond_to, []

        def deadly(engine, message):
            seen.append(b"WorkerEngine.assign" in bytes(message))
            if sum(seen) == 4 and engine.number == 1 and not mark.exists():
                mark.touch()
                # The daemon that forked this process is a child of the executor.
                os.kill(parent(os.getppid()), signal.SIGKILL)
            return respond(engine, message)

        WorkerEngine.respond_to = deadly
        try:
            yield from run_stage(batches, options, loop)
        finally:
            WorkerEngine.respond_to = respond

    if sys.argv[1] == "killed":
        cloudpickle.register_pickle_by_value(sys.modules["__main__"])
        estimator.run_stage = deadly_stage
    X = np.random.default_rng(0).normal(size=(600, 3))
    options = {"init": "k-means||", "init_options": {"rounds": 2}, "max_iter": 20, "tol": 0}
    local = exactmeans.KMeans(4, **options, random_state=1).fit(X)
    settings, mode = {"spark.executor.memory": "600m"}, "barrier"
    if sys.argv[1] == "dynamic":
        for name in ("enabled", "shuffleTracking.enabled"):
            settings[f"spark.dynamicAllocation.{name}"] = "true"
        mode = "jobs"
    with spark_session("local-cluster[2,1,1024]", **settings) as session:
        rows = [(i, Vectors.dense(x)) for i, x in enumerate(X.tolist())]
        df = session.createDataFrame(rows, ["id", "features"])
        if mode == "jobs":
            try:
                KMeans(k=4).fit(df)
            except RuntimeError as error:
                assert "spark.dynamicAllocation.enabled=false: set that, or" in str(error)
            else:
                raise AssertionError("not refused")
        model = KMeans(k=4, seed=1, tol=0.0, idCol="id", mode=mode).fit(df)
        assert np.array_equal(model.clusterCenters(), local.cluster_centers_)
        assert model.summary.trainingCost == local.inertia_
        found = [row.prediction for row in model.transform(df).orderBy("id").collect()]
        assert found == local.labels_.tolist()
        assert mark.exists() == (sys.argv[1] == "killed")
    print("all is well")
"""


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["kept", "killed", "dynamic"])
def test_executors_in_processes_of_their_own(tmp_path: Path, executor: str) -> None:
    """Also if one is killed in mid-fit; with dynamic allocation, only one job per pass."""
    pytest.importorskip("pyspark", reason="needs pyspark")
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    skip_without_java()
    script = tmp_path / "cluster.py"
    script.write_text(textwrap.dedent(SCRIPT))
    tests = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, str(script), executor],
        cwd=tmp_path,
        env=environment(tmp_path, tests),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert "all is well" in done.stdout, done.stderr[-2000:]


def environment(folder: Path, tests: Path) -> dict[str, str]:
    """Workers write logs to the folder of Spark itself unless told otherwise."""
    path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    return {**plain_environment(), "SPARK_WORKER_DIR": str(folder / "work"), "PYTHONPATH": path}
