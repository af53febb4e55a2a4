"""Measures how long a new query over an embedded changing stream takes to read what is there.

    python -m benchmarks.bench_embedded_start [--segments N ...] [--rows N] [--keys N] [--starts N]

A history of segments, each of ``--rows`` updates of ``--keys`` keys, is read by new queries, one after the other: some
that read all rows (``seek_to`` before the first), the first that may begin with a baseline, which makes it, and later
ones.  Each runs until it has processed all, in one process, after queries that are not timed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from itertools import count as numbers
from pathlib import Path

import watersmeet
from benchmarks.arguments import count
from benchmarks.engines import SETTINGS
from watersmeet.connectors.embedded import baselines
from watersmeet.connectors.embedded.connector import embedded_log
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started
from watersmeet.session.session import Session

_STREAM = "CREATE MUTABLE STREAM {name} (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (k)"
_FROM_THE_FIRST = "SETTINGS seek_to = '1970-01-01 00:00:00Z'"
_NUMBERS = numbers()


def main() -> None:
    """Measure all, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--segments", type=count, nargs="+", default=[10, 100, 1_000])
    arguments.add_argument("--rows", type=count, default=1_000, help="rows of a segment")
    arguments.add_argument("--keys", type=count, default=1_000)
    arguments.add_argument("--starts", type=count, default=3, help="starts of which the median is taken")
    options = arguments.parse_args()
    baselines.WORTH_SEGMENTS = 1
    print("| segments | all rows | making the baseline | with the baseline |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as workspace:
        session = watersmeet.connect(workspace=workspace, master="local[2]", config=SETTINGS)
        session.sql("CREATE STREAM nothing WITH (connector = 'blackhole')")
        first = _history(session, 10, options.rows, options.keys)
        for settings in (_FROM_THE_FIRST, "", ""):
            _start(session, first, settings)
        for segments in options.segments:
            name = _history(session, segments, options.rows, options.keys)
            of_all = statistics.median(_start(session, name, _FROM_THE_FIRST) for _ in range(options.starts))
            making = _start(session, name)
            of_baseline = statistics.median(_start(session, name) for _ in range(options.starts))
            print(f"| {segments:,} | {of_all:.1f} s | {making:.1f} s | {of_baseline:.1f} s |", flush=True)
        session.stop()


def _history(session: Session, segments: int, rows: int, keys: int) -> str:
    """Return the name of a new stream with so many segments."""
    name = f"history_{next(_NUMBERS)}"
    session.sql(_STREAM.format(name=name))
    log = embedded_log(session.streams.catalog.require(name), session.workspace)
    values = f"id % {keys} AS k", "id AS v", "timestamp_micros(id * 1000) AS ts", "CAST(1 AS TINYINT) AS _tp_delta"
    log.append_frame(session.spark.range(rows).selectExpr(*values), "0")
    for number in range(1, segments):  # updates of the same time: the later one counts
        folder = Path(str(log.folder))
        shutil.copy2(folder / f"{0:012d}-0.parquet", folder / f"{number:012d}-{number}.parquet")
    return name


def _start(session: Session, stream: str, settings: str = "") -> float:
    """Return the seconds of a new query from its start until it has processed all."""
    text = f"INSERT INTO nothing SELECT k, v, {next(_NUMBERS)} AS number FROM {stream} {settings}"
    started = time.perf_counter()
    for result in session.run(text, QueryMode.DRAIN):
        assert isinstance(result, Started)
        assert result.query.wait(600), "the query has not come to an end"
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
