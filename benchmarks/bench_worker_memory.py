"""Measures whether workers keep to ``worker_memory`` while a join holds several times as much, and at what rate.

    python -m benchmarks.bench_worker_memory [--memory SIZE] [--rows N] [--batches N] [--held N] [--join KIND]

A windowed join of two streams on Spark, two cores.  Each batch has N rows a side, a pair for each; a side holds the
rows of the last ``--held`` batches.  ``--memory none`` leaves ``worker_memory`` at its default.  Figures are resident
sizes: the peak of the largest Python process as the kernel counts it, pages of shared libraries and of mapped files
included.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arguments import count
from benchmarks.engines import SETTINGS
from benchmarks.memory import Peak

_START = 1_700_000_000_000_000
_GAP = 10  # microseconds between two rows of a side
_SECONDS = 0.5


def main() -> None:
    """Run the join and print a line of figures and a line of JSON."""
    import watersmeet
    from watersmeet.runtime.query_mode import QueryMode

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--memory", default="600MB")
    arguments.add_argument("--rows", type=count, default=400_000)
    arguments.add_argument("--batches", type=count, default=60)
    arguments.add_argument("--held", type=count, default=40)
    arguments.add_argument("--join", choices=("inner", "left", "full"), default="inner")
    options = arguments.parse_args()
    if options.batches < options.held + 2:
        arguments.error("--batches must be at least two more than --held: the rate is that of the full state")
    memory = "" if options.memory == "none" else f" SETTINGS worker_memory = '{options.memory}'"
    millis = options.held * options.rows * _GAP // 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder, options.rows, options.batches, options.held)
        session = watersmeet.connect(workspace=folder / "workspace", master="local[2]", config=SETTINGS)
        for side in "lr":
            session.sql(
                f"CREATE STREAM {side} (k BIGINT, {side} BIGINT, note STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) "
                f"WITH (connector = 'files', format = 'parquet', path = '{folder / side}', max_files_per_trigger = '1')"
            )
        session.sql("CREATE STREAM nothing WITH (connector = 'blackhole')")
        began = time.monotonic()
        with Peak() as peak:
            text = (
                f"INSERT INTO nothing SELECT l.k, l.l, r.r, l.note AS said FROM l {options.join} JOIN r ON l.k = r.k "
                f"WITHIN INTERVAL '{millis}' MILLISECONDS EMIT FINAL{memory}"
            )
            (started,) = session.run(text, QueryMode.DRAIN)
            query = started.query  # type: ignore[union-attr]
            since_full = []  # seconds and rows, from when the state has its size
            while not query.wait(_SECONDS):
                if (rows := sum(query.report().rows_in.values())) >= 2 * options.rows * options.held:
                    since_full.append((time.monotonic(), rows))
        seconds = time.monotonic() - began
        report = query.report()
        rows_in = sum(report.rows_in.values())
        session.spark.stop()
    (first, before), (last, after) = since_full[0], since_full[-1]
    rate = (after - before) / (last - first)
    print(
        f"{rows_in:,} rows in {seconds:.0f} s, {report.rows_out:,} pairs; state {report.state_bytes / 1e6:,.0f} "
        f"MB; largest worker {peak.largest_worker / 1e6:,.0f} MB, all workers {peak.workers / 1e6:,.0f} MB, "
        f"JVM {peak.jvm / 1e6:,.0f} MB; with the full state {rate:,.0f} rows/s"
    )
    print(
        json.dumps(
            {
                "rows_in": rows_in,
                "rows_out": report.rows_out,
                "seconds": seconds,
                "state_bytes": report.state_bytes,
                "largest_worker_bytes": peak.largest_worker,
                "worker_bytes": peak.workers,
                "jvm_bytes": peak.jvm,
                "rows_per_s": rate,
            }
        )
    )


def _write(folder: Path, rows: int, batches: int, held: int) -> None:
    """Write the streams, a file for each batch and side; keys come in another order on each side."""
    keys = rows * max(held // 2, 1)
    for side, step in (("l", 7_919), ("r", 104_729)):
        (folder / side).mkdir()
        for number in range(batches):
            places = np.arange(number * rows, (number + 1) * rows)
            table = pa.table(
                {
                    "k": places * step % keys,
                    side: places,
                    "note": pa.array([f"note {place % 1000:>24}" for place in range(rows)]),
                    "ts": pa.array(_START + places * _GAP, pa.timestamp("us", tz="UTC")),
                }
            )
            pq.write_table(table, folder / side / f"{number:05}.parquet")


if __name__ == "__main__":
    main()
