"""Runs joins and an aggregate with bounded state at a moderate rate for long, and says whether memory and files grow.

    nice -n 10 python -m benchmarks.bench_soak [--minutes N] [--rate N] [--limit BYTES]

One Spark application, two cores, four queries over generated streams: a windowed left join; an inner join without a
window that evicts keys (``eviction = 'lru'``) at ``--limit`` bytes; one whose rows expire (``join_ttl``); an aggregate
over a join of two changing streams.  Every stream brings ``--rate`` rows a second, and each query has a batch every
five seconds.  Every ten seconds it samples the resident size of each process, open descriptors, rows and bytes of
state, and the sizes of the checkpoints and of the folder for temporary files.

The first quarter warms up: slopes are those of the rest, by least squares.  At the end, counts of rows and results are
compared with what DuckDB finds over the same rows; the program fails if one differs.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.arguments import count
from benchmarks.engines import SETTINGS
from benchmarks.memory import Processes, open_files, resident
from benchmarks.series import Series

#: With a heap of usual size, and no more of Spark's reports kept than usual.
_CONFIG = {**SETTINGS, "spark.driver.memory": "1g", "spark.sql.streaming.numRecentProgressUpdates": "100"}
_SAMPLE_SECONDS, _ROW_SECONDS = 10.0, 300.0
_WARM_UP = 0.25
_START = 1_700_000_000_000_000
_SECOND = 1_000_000
_BLOCK_SECONDS, _WINDOW_SECONDS = 10, 5
#: Each key is used in ten seconds alone.  For each row a second there are five keys of left rows and four of right
#: ones, so that each comes two or three times, and a fifth of the left rows have no partner.
_KEYS = {"l": 5, "r": 4}
_STEPS = {"l": 7_919, "r": 104_729}
_CHANGING_KEYS, _GROUPS = 20_000, 100

_QUERIES = {
    "windowed": "SELECT l.n AS l, r.n AS r FROM l LEFT JOIN r ON l.k = r.k WITHIN INTERVAL '{window}' SECONDS "
    "EMIT FINAL SETTINGS trigger = '5 seconds'",
    "evicting": "SELECT l.n AS l, r.n AS r FROM l JOIN r ON l.k = r.k "
    "SETTINGS trigger = '5 seconds', eviction = 'lru', join_max_buffered_bytes = {limit}",
    "expiring": "SELECT l.n AS l, r.n AS r FROM l JOIN r ON l.k = r.k "
    "SETTINGS trigger = '5 seconds', join_ttl = '1 minute'",
    "changing": "SELECT c.g, count(*) AS rows, sum(d.n) AS total FROM c JOIN d ON c.k = d.k GROUP BY c.g "
    "SETTINGS trigger = '5 seconds'",
}
#: The columns of the table of five minutes; the others are in the table of trends.
_SHOWN = {
    "largest worker": "largest Python process, MB",
    "workers": "all, MB",
    "jvm": "JVM, MB",
    "heap": "its heap in use, MB",
    "driver": "driver, MB",
    "python files": "descriptors, Python",
    "jvm files": "JVM",
    "state rows": "rows of state",
    "state": "state, MB",
    "checkpoints": "checkpoints, MB",
    "temporary": "temporary files, MB",
}


def main() -> None:
    """Run for the minutes asked for and print tables and a line of JSON."""
    import watersmeet
    from watersmeet.runtime.query_mode import QueryMode

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=count, default=5)
    arguments.add_argument("--rate", type=count, default=1_000)
    arguments.add_argument("--limit", type=count, default=20_000_000)
    options = arguments.parse_args()
    seconds = options.minutes * 60.0
    with tempfile.TemporaryDirectory() as workspace:
        session = watersmeet.connect(workspace=workspace, master="local[2]", config=_CONFIG)
        for definition in definitions(options.rate):
            session.sql(definition)
        text = {name: sql.format(window=_WINDOW_SECONDS, limit=options.limit) for name, sql in _QUERIES.items()}
        started = session.run(";".join(f"INSERT INTO nothing {sql}" for sql in text.values()), QueryMode.CONTINUOUS)
        queries = dict(zip(text, (each.query for each in started), strict=True))  # type: ignore[union-attr]
        series, began = Series(), time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            series.add(now, sample(session, queries, Path(workspace)))
            time.sleep(_SAMPLE_SECONDS)
            for query in queries.values():
                query.wait(0)  # raises its error if it has failed
        for query in queries.values():
            query.stop()
        reports = {name: query.report() for name, query in queries.items()}
        session.spark.stop()
    print(table(series))
    print()
    print(trends(series, seconds * _WARM_UP))
    print()
    for line in check(reports, options.rate, options.limit):
        print(line)
    print(json.dumps({"seconds": series.times, "samples": series.samples}))


def definitions(rate: int) -> Iterator[str]:
    """Yield the CREATE statements.  Event times are out of order by up to half a second."""
    time_ = f"timestamp_micros({_START} + {_micros(rate)})"
    for side in _KEYS:
        yield (
            f"CREATE STREAM {side} (k BIGINT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
            f"WITH (connector = 'datagen', rows_per_second = {rate}, 'columns.k' = '{_key(side, rate, 'div')}', "
            f"'columns.ts' = '{time_}')"
        )
    for side, step in zip("cd", _STEPS.values(), strict=True):
        yield (
            f"CREATE MUTABLE STREAM {side} (k BIGINT, n BIGINT, g BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - "
            f"INTERVAL '1' SECOND) PRIMARY KEY (k) WITH (connector = 'datagen', rows_per_second = {rate}, "
            f"'columns.k' = 'n * {step} % {_CHANGING_KEYS}', 'columns.g' = 'n % {_GROUPS}', 'columns.ts' = '{time_}')"
        )
    yield "CREATE STREAM nothing WITH (connector = 'blackhole')"


def _micros(rate: int) -> str:
    """Return the SQL of a row's time, in microseconds since the first."""
    return f"n * {_SECOND // rate} + (n * 7919 % 500) * 1000"


def _key(side: str, rate: int, divide: str) -> str:
    """Return the SQL of a row's key; ``divide`` is the dialect's operator for whole quotients."""
    block = f"n {divide} {_BLOCK_SECONDS * rate}"
    return f"({block}) * {_BLOCK_SECONDS * rate} + n * {_STEPS[side]} % {_KEYS[side] * rate}"


def sample(session: Any, queries: Mapping[str, Any], workspace: Path) -> dict[str, float]:
    """Return the figures of this moment; sizes in megabytes."""
    from watersmeet.runtime.process_folder import process_folder

    found = Processes.below(os.getpid())
    python = {f"process {pid}": resident(pid) / 1e6 for pid in found.python}
    beans = session.spark._jvm.java.lang.management.ManagementFactory
    reports = {name: query.report() for name, query in queries.items()}
    return {
        "largest worker": max(python.values(), default=0.0),
        "workers": sum(python.values()),
        "jvm": sum(map(resident, found.jvm)) / 1e6,
        "heap": beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 1e6,
        "driver": resident(os.getpid()) / 1e6,
        "python files": sum(map(open_files, found.python)),
        "jvm files": sum(map(open_files, found.jvm)),
        "driver files": open_files(os.getpid()),
        "state rows": sum(report.state_rows for report in reports.values()),
        "state": sum(report.state_bytes for report in reports.values()) / 1e6,
        **{f"state of {name}": report.state_bytes / 1e6 for name, report in reports.items()},
        "checkpoints": _folder_bytes(workspace) / 1e6,
        "temporary": _folder_bytes(process_folder().path) / 1e6,
        **python,
    }


def _folder_bytes(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it has just been removed
                total += os.lstat(f"{path}/{name}").st_size
    return total


def table(series: Series) -> str:
    """Return the medians of each five minutes."""
    head = ["minutes", *_SHOWN.values()]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for number, values in enumerate(series.rows(list(_SHOWN), _ROW_SECONDS), 1):
        lines.append(f"| {number * _ROW_SECONDS / 60:.0f} | {' | '.join(f'{value:,.0f}' for value in values)} |")
    return "\n".join(lines)


def trends(series: Series, since: float) -> str:
    """Return mean and slope of each figure that is there from then on."""
    found = [(name, trend) for name in series.names if (trend := series.trend(name, since)) is not None]
    lines = [f"| {name} | {each.mean:,.1f} | {each.per_hour:+,.1f} | {each.verdict} |" for name, each in found]
    return "\n".join(["| | mean | an hour | |", "|---|---|---|---|", *lines])


def check(reports: Mapping[str, Any], rate: int, limit: int) -> Iterator[str]:
    """Yield a line for each query whose counts are right; end the program at one that has a wrong count."""
    for name, report in reports.items():
        expected = dict(_expected(name, report, rate))
        wrong = [f"{what}: {found:,}, not {right:,}" for what, (found, right) in expected.items() if found != right]
        if wrong:
            raise SystemExit(f"{name}: {'; '.join(wrong)}")
        yield f"{name}: {', '.join(f'{found:,} {what}' for what, (found, _) in expected.items())}, as expected"
    size = reports["evicting"].state_bytes
    if size > limit:
        raise SystemExit(f"evicting: the state has {size:,} bytes, and {limit:,} are allowed")


def _expected(name: str, report: Any, rate: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield what there is and what there should be, of each count that is certain."""
    join = report.operators["join_1"]
    for side, rows in report.rows_in.items():
        yield f"rows of {side} used", (report.used[side], rows)
    if name == "changing":
        for side in "cd":
            yield f"newest rows of {side}", (join.held[side], min(report.rows_in[side], _CHANGING_KEYS))
        return
    if name == "windowed":
        pairs, padded = _answer(report.rows_in, rate, join.frontier)
        yield "results", (join.results, pairs + padded)
    else:
        pairs, _ = _answer(report.rows_in, rate, None)
        for side in "lr":
            gone = report.expired.get(side, 0) + report.evicted.get(f"{side}.lru", 0)
            yield f"rows of {side} held or gone", (join.held[side] + gone, report.used[side])
    yield "pairs", (join.matched, pairs)


def _answer(rows: Mapping[str, int], rate: int, frontier: int | None) -> tuple[int, int]:
    """Return how many pairs the rows have, and how many final left rows no partner; without a frontier, all pairs."""
    with duckdb.connect() as con:
        for side in "lr":
            con.execute(
                f"CREATE TABLE {side} AS SELECT n, {_key(side, rate, '//')} AS k, {_START} + {_micros(rate)} AS ts "
                f"FROM range({rows[side]}) AS numbers(n)"
            )
        near = "" if frontier is None else f" AND abs(l.ts - r.ts) <= {_WINDOW_SECONDS * _SECOND}"
        ((pairs,),) = con.execute(f"SELECT count(*) FROM l JOIN r ON l.k = r.k{near}").fetchall()
        is_final = "FALSE" if frontier is None else f"l.ts + {_WINDOW_SECONDS * _SECOND} < {frontier}"
        ((padded,),) = con.execute(f"SELECT count(*) FROM l ANTI JOIN r ON l.k = r.k{near} WHERE {is_final}").fetchall()
    return pairs, padded


if __name__ == "__main__":
    main()
