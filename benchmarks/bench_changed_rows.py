"""Measures a step of few changes against few or many stored rows of changing streams.

    python -m benchmarks.bench_changed_rows [--rows N...] [--changes N] [--steps N]

Joins two streams by their primary key, and by another column (two rows per side for each value); aggregates one by that
column.  All rows are stored first; then each step updates random rows of each stream.  Runs the operators alone,
without Spark, in one bucket, with state in memory.  Compares the accumulated result with DuckDB's over the newest rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.arguments import count
from benchmarks.figures import p95
from benchmarks.in_process import Engine
from watersmeet.columns import SEQUENCE, WEIGHT

QUERIES = {
    "join by primary key": "SELECT l.id, l.v, r.v AS w FROM l LEFT JOIN r ON l.id = r.id",
    "join by another column": "SELECT l.id, l.v, r.v AS w FROM l LEFT JOIN r ON l.k = r.k",
    "aggregate": "SELECT l.k, count(*) AS n, sum(l.v) AS v FROM l GROUP BY l.k",
    "aggregate with min": "SELECT l.k, count(*) AS n, min(l.v) AS v FROM l GROUP BY l.k",
}
_STREAM = (
    "CREATE MUTABLE STREAM {name} (id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMP, "
    "WATERMARK FOR ts AS ts, PRIMARY KEY (id))"
)
_FILL = 250_000


class Run:
    """A query and its streams: their newest values, and the sums over the results so far."""

    def __init__(self, query: str, rows: int) -> None:
        streams = [_STREAM.format(name=name) for name in "lr"]
        self._engine = Engine(";\n".join([*streams, f"{query} EMIT CHANGELOG"]), range(1))
        self._query = query
        self._chance = np.random.default_rng(3)
        self._values = {name: np.zeros(rows, np.int64) for name in self._engine.names}
        self._clock = 0
        self.found: dict[str, int] = {}
        for ids in np.array_split(self._chance.permutation(rows), -(-rows // _FILL)):
            self._step(dict.fromkeys(self._values, ids))

    def change(self, changes: int) -> float:
        """Update ``changes`` rows of each stream; return the seconds that the operators took."""
        return self._step({name: self._chance.integers(0, len(all_), changes) for name, all_ in self._values.items()})

    def expected(self) -> dict[str, int]:
        """Return DuckDB's sums over the newest rows."""
        with duckdb.connect() as con:
            for name, values in self._values.items():
                ids = np.arange(len(values))
                con.register(name, pa.table({"id": ids, "k": self._keys(ids), "v": values}))
            answer = con.sql(self._query).to_arrow_table()
        return _sums(answer.append_column(WEIGHT, pa.repeat(1, answer.num_rows)))

    def _step(self, changed: Mapping[str, np.ndarray]) -> float:
        packed = self._engine.pack([self._rows(name, ids) for name, ids in changed.items()])
        self._clock += max(map(len, changed.values()))
        started = time.perf_counter()
        sent = self._engine.step(packed)
        seconds = time.perf_counter() - started
        for name, value in _sums(self._engine.results(sent)).items():
            self.found[name] = self.found.get(name, 0) + value
        return seconds

    def _rows(self, name: str, ids: np.ndarray) -> Iterable[pa.Table]:
        """Yield changes of a stream, each with a later time than those before."""
        values = self._chance.integers(0, 1_000_000, len(ids))
        self._values[name][ids] = values
        times = np.arange(self._clock, self._clock + len(ids))
        places = pa.array([time.to_bytes(8) for time in times.tolist()], pa.binary())
        columns = {"id": ids, "k": self._keys(ids), "v": values, "ts": times}
        rows = self._engine.rows[self._engine.names.index(name)]
        read = pa.table([pa.array(columns[each.name]).cast(each.type) for each in rows.schema], schema=rows.schema)
        yield read.append_column(SEQUENCE, places) if rows.numbered else read

    def _keys(self, ids: np.ndarray) -> np.ndarray:
        """Return the column ``k``, in which two rows of a side share each value."""
        return ids * 7919 % max(len(next(iter(self._values.values()))) // 2, 1)


def _sums(changes: pa.Table) -> dict[str, int]:
    """Return the weighted sum of each column, and the sum of the weights."""
    weights = changes[WEIGHT].cast(pa.int64())
    values = {name: changes[name].cast(pa.int64()) for name in changes.column_names if name != WEIGHT}
    sums = {name: pc.sum(pc.multiply(values[name], weights)).as_py() or 0 for name in values}
    return {"rows": pc.sum(weights).as_py() or 0, **sums}


def measure(name: str, rows: int, changes: int, steps: int) -> dict[str, float]:
    """Return the milliseconds of the first step and of later ones; end the program if results are wrong."""
    run = Run(QUERIES[name], rows)
    first, *others = [1000 * run.change(changes) for _ in range(steps + 1)]
    if run.found != (expected := run.expected()):
        raise SystemExit(f"{name}: the results differ from DuckDB's: {run.found}, expected {expected}")
    return {"first_ms": first, "median_ms": statistics.median(others), "p95_ms": p95(others)}


def main() -> None:
    """Measure all, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "--rows", type=count, nargs="+", default=[100_000, 1_000_000, 4_000_000], help="stored rows of each stream"
    )
    arguments.add_argument("--changes", type=count, default=1_000, help="rows of each stream changed in a step")
    arguments.add_argument("--steps", type=count, default=40, help="steps that are timed, after a first one")
    options = arguments.parse_args()
    print(f"{options.changes:,} changes of each stream in a step, {options.steps:,} steps\n")
    print("| | rows of each stream | first step | median | p95 |\n|---|---|---|---|---|")
    measured = []
    for name in QUERIES:
        for rows in options.rows:
            figures = measure(name, rows, options.changes, options.steps)
            measured.append({"query": name, "rows": rows, **figures})
            line = "| {} | {:,} | {first_ms:,.0f} ms | {median_ms:.0f} ms | {p95_ms:.0f} ms |"
            print(line.format(name, rows, **figures), flush=True)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
