"""Measures the memory of a join whose rows all have one key: its pairs are many more than its rows.

    python -m benchmarks.bench_hot_key [--rows N] [--join KIND] [--changing] [--memory SIZE]

An unwindowed join (KIND: inner, left, full) of two streams of N rows each gives N * N pairs, on Spark, two cores.  They
are counted and dropped.  With ``--changing``, the rows of both streams replace each other by another column than the
join's.  Without ``--memory``, ``worker_memory`` has its default.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arguments import count
from benchmarks.engines import SETTINGS
from benchmarks.memory import Peak

_PATIENCE_SECONDS = 3600


def main() -> None:
    """Run the join and print a line of figures and a line of JSON."""
    import watersmeet
    from watersmeet.runtime.query_mode import QueryMode

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=6_000)
    arguments.add_argument("--join", choices=("inner", "left", "full"), default="inner")
    arguments.add_argument("--changing", action="store_true")
    arguments.add_argument("--memory")
    options = arguments.parse_args()
    rows = options.rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        session = watersmeet.connect(workspace=folder / "workspace", master="local[2]", config=SETTINGS)
        for side in "lr":
            (folder / side).mkdir()
            table = pa.table({"k": pa.array([1] * rows), side: pa.array(range(rows))})
            pq.write_table(table, folder / side / "1.parquet")
            kind, key = ("MUTABLE STREAM", f" PRIMARY KEY ({side})") if options.changing else ("STREAM", "")
            session.sql(
                f"CREATE {kind} {side} (k BIGINT, {side} BIGINT){key} "
                f"WITH (connector = 'files', format = 'parquet', path = '{folder / side}')"
            )
        session.sql("CREATE STREAM nothing WITH (connector = 'blackhole')")
        began = time.monotonic()
        with Peak() as peak:
            text = f"INSERT INTO nothing SELECT l.k, l.l, r.r FROM l {options.join} JOIN r ON l.k = r.k"
            text += f" SETTINGS worker_memory = '{options.memory}'" if options.memory else ""
            (started,) = session.run(text, QueryMode.DRAIN)
            query = started.query  # type: ignore[union-attr]
            query.wait(_PATIENCE_SECONDS)
        seconds = time.monotonic() - began
        found = query.report().rows_out
        session.spark.stop()
    if found != rows * rows:
        raise SystemExit(f"{found:,} pairs, and not {rows * rows:,}")
    print(
        f"{found:,} pairs in {seconds:.1f} s; workers {peak.workers / 1e6:,.0f} MB, the largest "
        f"{peak.largest_worker / 1e6:,.0f} MB, JVM {peak.jvm / 1e6:,.0f} MB"
    )
    print(
        json.dumps(
            {
                "pairs": found,
                "seconds": seconds,
                "worker_bytes": peak.workers,
                "largest_worker_bytes": peak.largest_worker,
                "jvm_bytes": peak.jvm,
            }
        )
    )


if __name__ == "__main__":
    main()
