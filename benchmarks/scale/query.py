"""Runs one workload once, on this machine or on a cluster, and says when its batches ended and what they cost.

    python -m benchmarks.scale.query WORKLOAD ROWS FOLDER BUCKETS PATH FILES

PATH is ``files`` (large payloads are files, as on one machine) or ``shuffle`` (they go through Spark, as on a cluster).
A batch takes so many FILES of each stream.  On a cluster, ``CLUSTER_MASTER`` names its master, and FOLDER is one that
all hosts share.  The last line printed is JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.engines import SETTINGS, definitions
from benchmarks.memory import Processes, cpu_seconds
from benchmarks.workloads import MARGIN_MICROS, WORKLOADS, Workload

_LOOK_SECONDS = 0.25


def run(workload: Workload, folder: Path, buckets: int, *, by_files: bool, files: int = 1) -> dict[str, Any]:
    """Run the workload to the end of its input."""
    if not by_files:
        patch("watersmeet.runtime.dataflow.workers_are_here", lambda spark: False).start()  # as on a cluster
    with workspace_of(folder) as workspace:
        frame = observed_results(workload, folder, workspace, buckets, files=files)
        return _measured(frame, Path(workspace) / "checkpoint")


def workspace_of(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a new folder, on a cluster one beside ``folder``."""
    return tempfile.TemporaryDirectory(dir=folder.parent if "CLUSTER_MASTER" in os.environ else None)


def observed_results(
    workload: Workload,
    folder: Path,
    workspace: str,
    buckets: int,
    *,
    files: int,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Return a workload's results, from a new session on ``CLUSTER_MASTER`` or on this machine.

    Spark observes the sums that ``sums_of`` reads.
    """
    from pyspark.sql import functions as F

    import watersmeet

    master = os.environ.get("CLUSTER_MASTER")
    config = {**SETTINGS, "spark.sql.shuffle.partitions": str(buckets)}
    if master is not None:
        own = {"spark.driver.host": os.environ["SPARK_LOCAL_IP"], "spark.executor.memory": "700m"}
        config |= {**own, "spark.driver.memory": "2g"}
    config |= settings or {}
    session = watersmeet.connect(workspace=workspace, master=master or "local[2]", config=config)
    for definition in definitions(workload, folder, files=files):
        session.sql(definition)
    result: Any = session.sql(workload.sql)
    weight = F.when(F.unix_micros("at") < workload.data.end_micros - MARGIN_MICROS, F.lit(1))
    sums = [F.sum(weight * F.col(name)).alias(name) for name in ("l_id", "r_id")]
    return result.frame.observe("check", F.sum(weight).alias("rows"), *sums)


def sums_of(query: Any) -> dict[str, int]:
    """Return the sums over what a query has written, to compare with those of a batch query."""
    metrics = (each["observedMetrics"] for each in query.recentProgress)
    observed = [each["check"].asDict() for each in metrics if each]  # none of a trigger that found nothing
    return {name: sum(each[name] or 0 for each in observed) for name in ("rows", "l_id", "r_id")}


def _measured(frame: Any, checkpoint: Path) -> dict[str, Any]:
    used: list[tuple[float, float, float]] = []
    ends = threading.Event()

    def watch() -> None:
        while not ends.wait(_LOOK_SECONDS):
            found = Processes.below(os.getpid())
            used.append((time.time(), cpu_seconds(found.jvm), cpu_seconds(found.python)))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint.as_uri())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    ends.set()
    thread.join()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    found = {
        "batch_ms": [each["durationMs"]["triggerExecution"] for each in progress],
        "began": [batch_start(each) for each in progress],
        "used": used,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "sums": sums_of(query),
    }
    shutil.rmtree(checkpoint, ignore_errors=True)
    return found


def batch_start(progress: Any) -> float:
    """Return when a batch began, in seconds since 1970."""
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def main() -> None:
    """Run what the arguments say."""
    name, rows, folder, buckets, path, files = sys.argv[1:]
    workload = WORKLOADS[name].of_rows(int(rows))
    print(json.dumps(run(workload, Path(folder), int(buckets), by_files=path == "files", files=int(files))))


if __name__ == "__main__":
    main()
