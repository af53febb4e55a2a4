"""Measures a query with more buckets on one machine or more executors on a cluster, or models one with many buckets.

    python -m benchmarks.bench_scale buckets [BUCKETS...] [--workload NAME] [--rows N] [--shuffle]
    python -m benchmarks.bench_scale executors [COUNT...] [--workload NAME] [--rows N] [--buckets N]
    python -m benchmarks.bench_scale model [BUCKETS...] [--workload NAME]

Buckets: ``local[2]``; CPU and files of one batch.  With ``--shuffle`` large payloads go through Spark's shuffle, as on
a cluster, and not through files.

Executors: a standalone cluster of hosts in namespaces of their own, which share one folder (tests/cluster).  Each
executor has half a core, one task at a time, a file to read, and one bucket unless ``--buckets`` says how many there
are; the master, the driver and this machine's own work share what is left.  The first line is the same query on
``local[2]``, whose driver has no CPU of its own.  There are five times as many batches as the workload has, of which
the last two fifths count: a JVM with half a core compiles for two minutes.  Every result is compared with DuckDB's
batch query.  Needs Linux, and root for the CPU shares.

Model: no Spark; the engine's own packing and steps for so many buckets, a tenth as many executors of four cores, and
2,000 rows a bucket and batch.  What Spark takes for a task is assumed (``_SPARK``).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from benchmarks.arguments import count, workload_name, workload_of
from benchmarks.engines import definitions
from benchmarks.scale.model import Costs, ManyBuckets, Spark, batch_seconds, moved
from benchmarks.scale.runs import Used, on_cluster, on_this_machine
from benchmarks.streams import streams_folder, write_streams
from benchmarks.workloads import Workload
from watersmeet.engine.parquet import ParquetFile

_BUCKETS = (2, 8, 32, 128, 512)
_EXECUTORS = (1, 2, 4)
_CORES_HERE, _CORES, _LONGER = 2, 0.5, 5
_MODELLED = (10, 100, 1_000)
_CORES_OF_MODEL, _ROWS_A_BUCKET, _BATCHES = 4, 1_000, 4
#: Assumptions, not fitted to what ``buckets`` and ``executors`` measure.
_SPARK = Spark(task=0.02, driver_task=0.002, driver_batch=0.3, files=2)


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady state of a run: its batches, their rows, and the CPU seconds that each part of the cluster used."""

    batches: int
    rows: int
    seconds: float
    median_ms: float
    files: float
    cpu: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    def micros_a_row(self, *parts: str) -> float:
        """CPU microseconds a row."""
        return sum(self.cpu[part] for part in parts) / self.rows * 1e6


def of_buckets(workload: Workload, buckets: Sequence[int], *, by_files: bool) -> Iterator[str]:
    """Measure a workload with each number of buckets; yield the lines of a table."""
    folder = write_streams(streams_folder(), workload.data)
    yield "| buckets | median batch, ms | CPU of the JVM a batch, s | CPU of the workers a batch, s | files a batch |"
    yield "|---|---|---|---|---|"
    for each in buckets:
        steady = _steady(on_this_machine(workload, folder, each, by_files=by_files), [], workload)
        jvm, python = (steady.cpu[part] / steady.batches for part in ("jvm", "python"))
        yield f"| {each} | {steady.median_ms:,.0f} | {jvm:.2f} | {python:.2f} | {steady.files:.0f} |"


def of_executors(workload: Workload, executors: Sequence[int], buckets: int | None) -> Iterator[str]:
    """Measure a workload on this machine, then with each number of executors; yield the lines of a table."""
    data = workload.data
    longer = replace(data, rows=_LONGER * data.rows, files=_LONGER * data.files)
    workload = replace(workload, data=longer, warm_up=(_LONGER - 2) * data.files)
    folder = write_streams(streams_folder(), longer)
    yield "| | rows/s | rows/s a core | to one machine (×) | CPU of executors, µs a row | CPU of the driver, µs a row |"
    yield "|---|---|---|---|---|---|"
    local = _steady(on_this_machine(workload, folder, workload.partitions, by_files=True), [], workload)
    base = local.rate / _CORES_HERE
    yield f"| `local[2]` | {local.rate:,.0f} | {base:,.0f} | 1 | {local.micros_a_row('jvm', 'python'):.2f} | |"
    for each in executors:
        files = max(each // len(data.sides), 1)  # of a stream in a batch, so that each executor has one to read
        folder = write_streams(streams_folder(), replace(longer, files=files * longer.files))
        arguments = [str(buckets or each), "shuffle", str(files)]
        found, used = on_cluster("query", workload, folder, arguments, executors=each, cores=_CORES)
        steady = _steady(found, used, workload)
        of_core = steady.rate / (each * _CORES)
        executing = steady.micros_a_row("executors")
        yield (
            f"| {each} of half a core | {steady.rate:,.0f} | {of_core:,.0f} | {of_core / base:.2f} | {executing:.2f} | "
            f"{steady.micros_a_row('jvm', 'python'):.2f} |"
        )


def of_model(workload: Workload, buckets: Sequence[int]) -> Iterator[str]:
    """Model a workload with each number of buckets; yield the lines of a table."""
    yield (
        "| buckets | executors | batch, s | driver, s | rows/s | step of a bucket, ms | frames of rows | marks | "
        "other frames | sent, MB | manifests, MB | state, MB | files a batch | moved to 10% more buckets |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for each in buckets:
        executors = max(each // 10, 1)
        cores = executors * _CORES_OF_MODEL
        sized = replace(workload, data=replace(workload.data, rows=_ROWS_A_BUCKET * each * _BATCHES, files=_BATCHES))
        costs = _modelled(sized, each, max(cores // len(workload.data.sides), 1))
        seconds, driver = batch_seconds(costs, cores, _SPARK)
        steps = [seconds for of_operator in costs.steps.values() for seconds in of_operator]
        frames = costs.sent.frames
        others = frames.total() - frames["rows"] - frames["mark"]
        yield (
            f"| {each:,} | {executors:,} | {seconds:.2f} | {driver:.2f} | {sized.data.rows_a_batch / seconds:,.0f} | "
            f"{statistics.mean(steps) * 1000:.1f} | {frames['rows']:,} | {frames['mark']:,} | {others:,} | "
            f"{costs.sent.bytes.total() / 1e6:.1f} | {costs.manifests / 1e6:.2f} | {costs.state / 1e6:.1f} | "
            f"{_SPARK.files * len(steps):,.0f} | {moved(each, each + max(each // 10, 1)):.0%} |"
        )


def _modelled(workload: Workload, buckets: int, tasks: int) -> Costs:
    """Return what the last of a few batches cost."""
    folder = write_streams(streams_folder(), workload.data)
    engine = ManyBuckets(";\n".join([*definitions(workload, folder), workload.sql]), range(buckets))
    files = [sorted((folder / name).glob("*.parquet")) for name in engine.names]
    costs = Costs()
    for number in range(_BATCHES):
        inputs = []
        for of_input, rows in zip(files, engine.rows, strict=True):
            path = of_input[number]
            table = pa.concat_tables(ParquetFile(path.as_uri(), path.name, "").read(rows))
            size = -(-table.num_rows // tasks)
            inputs.append([table.slice(start, size) for start in range(0, table.num_rows, size)])
        costs = engine.batch(inputs)
    return costs


def _steady(found: Mapping[str, Any], executors: Used, workload: Workload) -> Steady:
    batches = slice(workload.warm_up, workload.data.files - 1)
    times = found["batch_ms"][batches]
    began, ended = found["began"][batches.start], found["began"][batches.stop]
    cpu = {part: [(at, each[number]) for at, *each in found["used"]] for number, part in enumerate(("jvm", "python"))}
    if executors:
        cpu["executors"] = executors
    return Steady(
        len(times),
        workload.data.rows_a_batch * len(times),
        ended - began,
        statistics.median(times),
        found["files"] / len(found["batch_ms"]),
        {part: _at(samples, ended) - _at(samples, began) for part, samples in cpu.items()},
    )


def _at(samples: Sequence[tuple[float, float]], at: float) -> float:
    """Return the figure of the first sample after a time."""
    return next((value for when, value in samples if when >= at), samples[-1][1])


def main() -> None:
    """Measure what the arguments say, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kind", choices=["buckets", "executors", "model"])
    arguments.add_argument("counts", nargs="*", type=count, metavar="COUNT")
    arguments.add_argument("--workload", type=workload_name, default="inner", metavar="NAME")
    arguments.add_argument("--rows", type=count, help="rows per side (default: those of the workload)")
    arguments.add_argument("--buckets", type=count, help="buckets of a cluster (default: one for each executor)")
    arguments.add_argument("--shuffle", action="store_true", help="send payloads through Spark, as on a cluster")
    options = arguments.parse_args()
    workload = workload_of(arguments, options.workload, options.rows)
    if options.kind == "buckets":
        lines = of_buckets(workload, options.counts or _BUCKETS, by_files=not options.shuffle)
    elif options.kind == "executors":
        lines = of_executors(workload, options.counts or _EXECUTORS, options.buckets)
    else:
        lines = of_model(workload, options.counts or _MODELLED)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
