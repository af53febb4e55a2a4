"""Measures the memory of the driver and its JVM while one batch is written to a Delta table and to PostgreSQL.

    python -m benchmarks.bench_sink_memory [--rows N,N…]

For each sink and size there is a driver of its own, with workers on this machine, once as tasks write the batch by
themselves and once as they hand all rows to the driver. Rows are (id, text of 60 characters, number). A driver's memory
is the most that its Python process has had (VmHWM) beyond what it had before the batch.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import functions as F

import watersmeet
from tests.support.postgres import Postgres, postgres_server
from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.connectors import task_writes
from watersmeet.connectors.registry import open_sink

_COLUMNS = (
    StreamColumn(name="id", type="BIGINT"),
    StreamColumn(name="note", type="STRING"),
    StreamColumn(name="v", type="DOUBLE"),
)
_ALL_BYTES = 1 << 60


def main() -> None:
    """Print a table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", default="250000,1000000")
    arguments.add_argument("--one", nargs=4, metavar=("SINK", "ROWS", "BY", "PLACE"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one:
        return _one(*options.one)
    print("| sink | rows | written by | driver, MB | s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        server.execute("CREATE TABLE results (id bigint PRIMARY KEY, note text, v double precision)")
        for sink in "delta", "jdbc":
            for rows in options.rows.split(","):
                for by in "tasks", "driver":
                    server.execute("TRUNCATE results")
                    _run(sink, rows, by, folder, server)
    return None


def _run(sink: str, rows: str, by: str, folder: str, server: Postgres) -> None:
    place = server.url if sink == "jdbc" else f"{folder}/{rows}-{by}"
    own = [sys.executable, "-m", "benchmarks.bench_sink_memory", "--one", sink, rows, by, place]
    variables = {**os.environ, "BENCH_PASSWORD": server.password}
    done = subprocess.run(own, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout.splitlines()[-1], flush=True)


def _one(sink: str, rows: str, by: str, place: str) -> None:
    if by == "driver":
        task_writes.FEW_BYTES = _ALL_BYTES
    stream = StreamDef(name="s", columns=_COLUMNS, connector=sink, options={"path": place})
    if sink == "jdbc":
        login = {"user": "postgres", "password": "${env:BENCH_PASSWORD}"}
        keyed = {"mode": StreamMode.VERSIONED, "primary_key": ("id",), "connector": "jdbc"}
        options = {"url": place, "table": "results", "timeout": "600 seconds", **login}
        stream = stream.model_copy(update={**keyed, "options": options})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as workspace:
        session = watersmeet.connect(workspace=workspace, master="local[2]")
        writer = open_sink(stream, Path(workspace), changelog=stream.changes, show=lambda *_: None)

        def write(number: int, count: int) -> None:
            frame = session.spark.range(0, count, 1, 4).select(
                "id", F.lpad(F.col("id").cast("string"), 60, "x").alias("note"), (F.col("id") * 0.5).alias("v")
            )
            writer.write(frame, number, f"bench-{number:012d}")

        write(0, 1000)  # which loads libraries
        before, begun = _memory("VmRSS"), time.monotonic()
        write(1, int(rows))
        grown = max(0, _memory("VmHWM") - before) // 1024
        print(f"| {sink} | {int(rows):,} | {by} | {grown} | {time.monotonic() - begun:.0f} |")
        session.stop()


def _memory(name: str) -> int:
    """Return a figure of this process in KB."""
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    main()
