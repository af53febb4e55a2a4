"""Measures a query with more buckets on one machine, with more executors on a cluster, or while executors are lost.

    python -m benchmarks.bench_scale buckets [BUCKETS...] [--workload NAME] [--rows N] [--shuffle]
    python -m benchmarks.bench_scale executors [COUNT...] [--workload NAME] [--rows N] [--buckets N]
    python -m benchmarks.bench_scale loss [ROWS...] [--workload NAME]
    python -m benchmarks.bench_scale model [BUCKETS...] [--workload NAME]

Buckets: ``local[2]``; CPU and files of one batch.  With ``--shuffle`` large payloads go through Spark's shuffle, as on
a cluster, and not through files.

Executors: a standalone cluster of hosts in namespaces of their own, which share one folder (tests/cluster).  Each
executor has half a core, one task at a time, a file to read, and one bucket unless ``--buckets`` says how many there
are; the master, the driver and this machine's own work share what is left.  The first line is the same query on
``local[2]``, whose driver has no CPU of its own.  There are five times as many batches as the workload has, of which
the last two fifths count: a JVM with half a core compiles for two minutes.  Every result is compared with DuckDB's
batch query.  Needs Linux, and root for the CPU shares.

Loss: three executors on such hosts, without shares of CPU, each of which is killed amid a batch, one after the other;
each ROWS is the number of rows per side in a batch.  What is late is by how much the next five batches begin later
than at the usual pace.  Spark runs tasks once, then with ``spark.speculation``.

Model: no Spark; the engine's own packing and steps for so many buckets, a tenth as many executors of four cores, and
2,000 rows a bucket and batch.  What Spark takes for a task is assumed (``_SPARK``).
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.arguments import count, workload_name, workload_of
from benchmarks.engines import batch_answer, definitions
from benchmarks.scale.model import Costs, ManyBuckets, Spark, batch_seconds, moved
from benchmarks.streams import streams_folder, write_streams
from benchmarks.suite import output_of
from benchmarks.workloads import Workload
from tests.cluster.cluster import run_in_cluster
from watersmeet.engine.parquet import ParquetFile

_BUCKETS = (2, 8, 32, 128, 512)
_EXECUTORS = (1, 2, 4)
_CORES_HERE, _CORES, _LONGER = 2, 0.5, 5
_LOSSES, _LOST_IN, _AFTERWARDS = (200_000, 1_000_000), (12, 18, 24), 5
#: A task that takes twice as long as half of the others, and a second, is run on another executor as well.
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "2",
    "spark.speculation.minTaskRuntime": "1s",
}

#: CPU seconds used by a time.
Used = list[tuple[float, float]]
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
        steady = _steady(_on_this_machine(workload, folder, each, by_files=by_files), [], workload)
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
    local = _steady(_on_this_machine(workload, folder, workload.partitions, by_files=True), [], workload)
    base = local.rate / _CORES_HERE
    yield f"| `local[2]` | {local.rate:,.0f} | {base:,.0f} | 1 | {local.micros_a_row('jvm', 'python'):.2f} | |"
    for each in executors:
        files = max(each // len(data.sides), 1)  # of a stream in a batch, so that each executor has one to read
        folder = write_streams(streams_folder(), replace(longer, files=files * longer.files))
        found = _on_cluster(workload, folder, each, _CORES, buckets=buckets, files=files)
        steady = _steady(*found, workload)
        of_core = steady.rate / (each * _CORES)
        executing = steady.micros_a_row("executors")
        yield (
            f"| {each} of half a core | {steady.rate:,.0f} | {of_core:,.0f} | {of_core / base:.2f} | {executing:.2f} | "
            f"{steady.micros_a_row('jvm', 'python'):.2f} |"
        )


def of_losses(workload: Workload, rows: Sequence[int]) -> Iterator[str]:
    """Measure what the loss of an executor delays, with batches of so many rows a side; yield the lines of a table."""
    yield "| rows a batch | speculation | median batch, s | batches of the losses, s | late, s | late, batches |"
    yield "|---|---|---|---|---|---|"
    batches = _LOST_IN[-1] + _AFTERWARDS + 2
    for each in rows:
        sized = replace(workload, data=replace(workload.data, rows=each * batches, files=batches))
        folder = write_streams(streams_folder(), sized.data)
        for settings in ({}, _SPECULATION):
            found, _ = _on_cluster(sized, folder, len(_LOST_IN), None, kills=_LOST_IN, settings=settings)
            if not all(found["killed"]) or len(found["killed"]) != len(_LOST_IN):
                raise SystemExit(f"of {len(_LOST_IN)} executors, these were killed: {found['killed']}")
            began = found["began"]
            lasted = [ended - start for start, ended in itertools.pairwise(began)]
            usual = [not any(lost <= batch < lost + _AFTERWARDS for lost in _LOST_IN) for batch in range(len(lasted))]
            pace = statistics.median(itertools.compress(lasted[_AFTERWARDS:], usual[_AFTERWARDS:]))
            late = [began[lost + _AFTERWARDS] - began[lost] - _AFTERWARDS * pace for lost in _LOST_IN]
            yield (
                f"| {sized.data.rows_a_batch:,} | {'on' if settings else 'off'} | {pace:.1f} | "
                f"{_listed(lasted[lost] for lost in _LOST_IN)} | {_listed(late)} | "
                f"{_listed(each / pace for each in late)} |"
            )


def _listed(figures: Iterable[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in figures)


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


def _on_this_machine(workload: Workload, folder: Path, buckets: int, *, by_files: bool) -> dict[str, Any]:
    path = "files" if by_files else "shuffle"
    arguments = [workload.name, str(workload.data.rows), str(folder), str(buckets), path, "1"]
    command = [sys.executable, "-m", "benchmarks.scale.query", *arguments]
    return _checked(output_of(command, "watersmeet", workload.name), workload, folder)


def _on_cluster(
    workload: Workload,
    folder: Path,
    executors: int,
    cores: float | None,
    *,
    buckets: int | None = None,
    files: int = 1,
    kills: Sequence[int] = (),
    settings: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], Used]:
    """Return what a run said, and the CPU seconds that its executors had used by which time."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-scale-") as scratch:
        logs = Path(scratch)
        shutil.copytree(folder, logs / "shared" / folder.name)
        where, rows = f"/dev/shm/shared/{folder.name}", str(workload.data.rows)
        arguments = [workload.name, rows, where, str(buckets or executors), "shuffle", str(files), *map(str, kills)]
        arguments += [f"{name}={value}" for name, value in (settings or {}).items()]
        module = "benchmarks.scale.query"
        ran = run_in_cluster(logs, module, *arguments, executors=executors, with_store=False, cores=cores)
        if ran.returncode:
            raise SystemExit(f"{workload.name} failed on {executors} executors:\n{ran.stdout}{ran.stderr[-4000:]}")
        found = _checked(ran.stdout, workload, folder)
        if cores is None:
            return found, []
        lines = (json.loads(line) for line in (logs / "cpu.jsonl").read_text().splitlines())
        return found, [(line.pop("at"), sum(line.values())) for line in lines]


def _checked(output: str, workload: Workload, folder: Path) -> dict[str, Any]:
    """Return what a run said; end the program if its results are wrong."""
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    expected = batch_answer(workload, folder)
    if found["sums"] != expected:
        raise SystemExit(f"{workload.name}: the results differ from DuckDB's: {found['sums']}, expected {expected}")
    return found


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
    arguments.add_argument("kind", choices=["buckets", "executors", "loss", "model"])
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
    elif options.kind == "loss":
        lines = of_losses(workload, options.counts or _LOSSES)
    else:
        lines = of_model(workload, options.counts or _MODELLED)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
