"""Measures what settings of Spark cost: runs the workload ``inner`` with one of them changed at a time.

    python -m benchmarks.bench_settings [--rows N] [SETTING=VALUE...]

Each change is measured between two runs with the benchmarks' settings, because the speed of machines varies; the ratio
compares median batches.  Settings on the command line replace the script's own.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.arguments import count, setting, workload_of
from benchmarks.streams import streams_folder, write_streams
from benchmarks.suite import measured

_CHANGES = (
    "spark.sql.streaming.checkpointFileManagerClass=",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=false",
    "spark.sql.execution.arrow.maxRecordsPerBatch=10000",
    "spark.sql.shuffle.partitions=4",
    "spark.shuffle.compress=false",
    "spark.python.unix.domain.socket.enabled=true",
    "spark.sql.codegen.wholeStage=false",
    "spark.driver.extraJavaOptions=-XX:+UseParallelGC",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.ui.enabled=true",
)


def main() -> None:
    """Measure each change, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("changes", nargs="*", type=setting, metavar="SETTING=VALUE", default=_CHANGES)
    arguments.add_argument("--rows", type=count, help="rows per side (default: those of the workload)")
    options = arguments.parse_args()
    workload = workload_of(arguments, "inner", options.rows)
    data = write_streams(streams_folder(), workload.data)

    def median(*settings: str) -> float:
        found: float = measured("watersmeet", workload, data, settings)["median_ms"]
        return found

    print("| changed | median batch | ratio |\n|---|---|---|")
    ratios = {}
    before = median()
    for change in options.changes:
        batch = median(change)
        after = median()
        ratios[change] = batch / ((before + after) / 2)
        print(f"| `{change}` | {batch:,.0f} ms | {ratios[change]:.2f} |", flush=True)
        before = after
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
