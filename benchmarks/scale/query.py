"""Runs one workload once, on this machine or on a cluster, and says when its batches ended and what they cost.

    python -m benchmarks.scale.query WORKLOAD ROWS FOLDER BUCKETS PATH FILES [BATCH...] [SETTING=VALUE...]

PATH is ``files`` (large payloads are files, as on one machine) or ``shuffle`` (they go through Spark, as on a cluster).
A batch takes so many FILES of each stream.  On a cluster, ``CLUSTER_MASTER`` names its master, and FOLDER is one that
all hosts share.  Amid each BATCH an executor is killed, the first one first.  The last line printed is JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.engines import SETTINGS, definitions
from benchmarks.memory import Processes, cpu_seconds
from benchmarks.workloads import MARGIN_MICROS, WORKLOADS, Workload
from tests.cluster.faults import kill_executor

_LOOK_SECONDS = 0.25
#: How long a batch has run when an executor is killed.
_AMID_SECONDS = 0.3


def run(
    workload: Workload,
    folder: Path,
    buckets: int,
    *,
    by_files: bool,
    files: int = 1,
    kills: Sequence[int] = (),
    settings: Mapping[str, str],
) -> dict[str, Any]:
    """Run the workload to the end of its input; amid each batch of ``kills`` an executor is killed."""
    import watersmeet

    master = os.environ.get("CLUSTER_MASTER")
    config = {**SETTINGS, "spark.sql.shuffle.partitions": str(buckets), **settings}
    if master is not None:
        own = {"spark.driver.host": os.environ["SPARK_LOCAL_IP"], "spark.executor.memory": "700m"}
        config |= {**own, "spark.driver.memory": "2g"}
    elif not by_files:
        patch("watersmeet.runtime.dataflow.workers_are_here", lambda spark: False).start()  # as on a cluster
    with tempfile.TemporaryDirectory(dir=folder.parent if master else None) as workspace:
        session = watersmeet.connect(workspace=workspace, master=master or "local[2]", config=config)
        for definition in definitions(workload, folder, files=files):
            session.sql(definition)
        result: Any = session.sql(workload.sql)
        return _measured(result.frame, workload, Path(workspace) / "checkpoint", kills)


def _measured(frame: Any, workload: Workload, checkpoint: Path, kills: Sequence[int]) -> dict[str, Any]:
    from pyspark.sql import functions as F

    weight = F.when(F.unix_micros("at") < workload.data.end_micros - MARGIN_MICROS, F.lit(1))
    sums = [F.sum(weight * F.col(name)).alias(name) for name in ("l_id", "r_id")]
    frame = frame.observe("check", F.sum(weight).alias("rows"), *sums)
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
    killed: list[int] = []
    killing = threading.Thread(target=_kill, args=(query, kills, ends, killed), daemon=True)
    killing.start()
    query.awaitTermination()
    ends.set()
    thread.join()
    killing.join()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    observed = [each["observedMetrics"]["check"].asDict() for each in query.recentProgress]
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    found = {
        "batch_ms": [each["durationMs"]["triggerExecution"] for each in progress],
        "began": [_seconds(each["timestamp"]) for each in progress],
        "used": used,
        "killed": killed,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "sums": {name: sum(each[name] or 0 for each in observed) for name in ("rows", "l_id", "r_id")},
    }
    shutil.rmtree(checkpoint, ignore_errors=True)
    return found


def _kill(query: Any, batches: Sequence[int], ends: threading.Event, killed: list[int]) -> None:
    """Kill an executor amid each of these batches; add the number of its processes to ``killed``."""
    for number, batch in enumerate(batches, 1):
        while (query.lastProgress or {"batchId": -1})["batchId"] < batch - 1:
            if ends.wait(0.02):
                return
        time.sleep(_AMID_SECONDS)
        killed.append(kill_executor(f"executor{number}"))


def _seconds(timestamp: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(timestamp).timestamp()


def main() -> None:
    """Run what the arguments say."""
    name, rows, folder, buckets, path, files, *more = sys.argv[1:]
    found = run(
        WORKLOADS[name].of_rows(int(rows)),
        Path(folder),
        int(buckets),
        by_files=path == "files",
        files=int(files),
        kills=[int(each) for each in more if "=" not in each],
        settings=dict(each.split("=", 1) for each in more if "=" in each),
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
