"""Runs one workload on a cluster while executors are killed, with rows that arrive at a steady pace.

    python -m benchmarks.scale.losing WORKLOAD ROWS FOLDER BUCKETS EVERY ARRIVAL... [SETTING=VALUE...]

One file of each stream arrives every EVERY seconds, shortly before a trigger, and a batch takes what is there.  The
first files wait for the end of the batch before them, which starts workers and compiles.  After each ARRIVAL, counted
from 0, an executor is killed amid the batch: executor1 first, then executor2, and so on.  ``CLUSTER_MASTER`` names the
master, and FOLDER is one that all hosts share.  The last line printed is JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.scale.query import batch_start, observed_results, sums_of, workspace_of
from benchmarks.workloads import WORKLOADS, Workload
from tests.cluster.faults import kill_executor

#: How long before a trigger its files arrive, and how long after it an executor is killed.
_BEFORE_SECONDS, _AMID_SECONDS = 0.2, 0.3
#: A batch takes all files that are there.
_ALL_FILES = 1_000_000
#: So many arrivals wait for the batch before them, and are not at the pace.
_FIRST = 3


@dataclass(slots=True)
class Arrivals:
    """Lets files arrive at a steady pace and kills executors; keeps when, and how many processes each kill ended."""

    query: Any
    folder: Path
    live: Path
    every: float
    losses: Sequence[int]
    at: list[float] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Let all files arrive."""
        sides = [sorted(side.glob("*.parquet")) for side in self.folder.iterdir() if side.is_dir()]
        files = list(zip(*sides, strict=True))
        for arriving in files[:_FIRST]:
            self._let_arrive(arriving)
            self.query.processAllAvailable()
        # Spark's triggers are at whole multiples of their interval since 1970
        trigger = (time.time() // self.every + 2) * self.every
        for number, arriving in enumerate(files[_FIRST:], _FIRST):
            _sleep_until(trigger - _BEFORE_SECONDS)
            self._let_arrive(arriving)
            if number in self.losses:
                _sleep_until(trigger + _AMID_SECONDS)
                self.killed.append(kill_executor(f"executor{len(self.killed) + 1}"))
            trigger += self.every

    def _let_arrive(self, files: Iterable[Path]) -> None:
        for path in files:
            (self.live / path.parent.name / path.name).hardlink_to(path)
        self.at.append(time.time())


def run(
    workload: Workload, folder: Path, buckets: int, every: float, losses: Sequence[int], settings: Mapping[str, str]
) -> dict[str, Any]:
    """Run the workload until all that arrives is joined; executors are killed after the ``losses``."""
    with workspace_of(folder) as workspace:
        live = Path(workspace) / "live"
        for side in workload.data.sides:
            (live / side).mkdir(parents=True)
        frame = observed_results(workload, live, workspace, buckets, files=_ALL_FILES, settings=settings)
        writer = frame.writeStream.format("noop").option("checkpointLocation", f"{workspace}/checkpoint")
        query = writer.trigger(processingTime=f"{round(every * 1000)} milliseconds").start()
        arrivals = Arrivals(query, folder, live, every, losses)
        arrivals.run()
        query.processAllAvailable()
        query.stop()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    return {
        "arrived": arrivals.at,
        "killed": arrivals.killed,
        "began": [batch_start(each) for each in progress],
        "batch_ms": [each["durationMs"]["triggerExecution"] for each in progress],
        "sums": sums_of(query),
    }


def _sleep_until(at: float) -> None:
    time.sleep(max(at - time.time(), 0))


def main() -> None:
    """Run what the arguments say."""
    name, rows, folder, buckets, every, *more = sys.argv[1:]
    found = run(
        WORKLOADS[name].of_rows(int(rows)),
        Path(folder),
        int(buckets),
        float(every),
        [int(each) for each in more if "=" not in each],
        dict(each.split("=", 1) for each in more if "=" in each),
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
