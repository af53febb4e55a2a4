"""Measures the engine without Spark: packing and operators of a workload, in one process, one step after the other.

    python -m benchmarks.bench_kernels [NAME...] [--rows N]

The files, the SQL, the plan, the batches and the buckets are those of ``watersmeet bench NAME``; state is in memory.
That command runs two tasks at a time on two cores, so Spark, if it cost nothing, could reach twice these rates.  Every
result is compared with DuckDB's batch query.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.arguments import count, workload_name, workload_of
from benchmarks.engines import batch_answer, definitions
from benchmarks.in_process import Engine
from benchmarks.streams import streams_folder, write_streams
from benchmarks.workloads import MARGIN_MICROS, Workload
from watersmeet.columns import WEIGHT
from watersmeet.engine.parquet import ParquetFile, ParquetRows

_NAMES = (
    "inner",
    "left",
    "full",
    "semi",
    "anti",
    "uuid",
    "chain_3",
    "multi_3",
    "chain_3_few",
    "multi_3_few",
    "chain_5_few",
    "multi_5_few",
    "chain_rare",
    "multi_rare",
    "chain_left",
    "multi_left",
    "temporal",
    "asof",
    "changelog",
    "lookup",
)


def measure(workload: Workload, below: Path) -> dict[str, int | str]:
    """Return rows per second of packing, of the operators, and of both; end the program if results are wrong."""
    folder = write_streams(below, workload.data)
    expected = batch_answer(workload, folder)
    engine = Engine(";\n".join([*definitions(workload, folder), workload.sql]), range(workload.partitions))
    files = [sorted((folder / name).glob("*.parquet")) for name in engine.names]
    found = dict.fromkeys(expected, 0)
    packing, operating = [], []
    for number in range(workload.data.files):
        started = time.perf_counter()
        packed = engine.pack([_read(each[number], rows) for each, rows in zip(files, engine.rows, strict=True)])
        begun = time.perf_counter()
        sent = engine.step(packed)
        packing.append(begun - started)
        operating.append(time.perf_counter() - begun)
        for name, value in _sums(engine.results(sent), workload).items():
            found[name] += value
    if found != expected:
        raise SystemExit(f"{workload.name}: the results differ from DuckDB's: {found}, expected {expected}")
    steady = slice(workload.warm_up, None)
    pack_time, step_time = statistics.median(packing[steady]), statistics.median(operating[steady])
    times = {"pack": pack_time, "operators": step_time, "both": pack_time + step_time}
    rates = {f"{name}_rows_per_s": round(workload.data.rows_a_batch / seconds) for name, seconds in times.items()}
    return {"workload": workload.name, **rates}


def _read(path: Path, rows: ParquetRows) -> Iterator[pa.Table]:
    return ParquetFile(path.as_uri(), path.name, "").read(rows)


def _sums(results: pa.Table, workload: Workload) -> dict[str, int]:
    """Return the sums by which engines are compared."""
    if workload.cutoff:
        results = results.filter(pc.less(results["at"].cast(pa.int64()), workload.data.end_micros - MARGIN_MICROS))
    weights = results[WEIGHT].cast(pa.int64())
    sums = {
        name: pc.sum(pc.multiply(results[name].cast(pa.int64()), weights)).as_py() or 0 for name in ("l_id", "r_id")
    }
    return {"rows": pc.sum(weights).as_py() or 0, **sums}


def main() -> None:
    """Measure workloads, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "names", nargs="*", type=workload_name, metavar="NAME", help=f"workloads (none: {' '.join(_NAMES)})"
    )
    arguments.add_argument("--rows", type=count, help="rows per side (default: those of each workload)")
    options = arguments.parse_args()
    workloads = [workload_of(arguments, name, options.rows) for name in options.names or _NAMES]
    print("| workload | packing, rows/s | operators, rows/s | both, rows/s |\n|---|---|---|---|")
    measured = []
    for workload in workloads:
        figures = measure(workload, streams_folder())
        measured.append(figures)
        print(
            "| `{workload}` | {pack_rows_per_s:,} | {operators_rows_per_s:,} | {both_rows_per_s:,} |".format(**figures),
            flush=True,
        )
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
