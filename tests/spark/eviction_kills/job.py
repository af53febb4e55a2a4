"""The job that is killed: joins that evict rows in every batch, by each policy, side by side over the same files.

    python -m tests.spark.eviction_kills.job FOLDER QUERY...

``FOLDER`` holds the input, a file of each stream for each batch, and all that the job writes.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import watersmeet
from tests.support.jobs import QUICK_JVM, json_lines, json_rows, write_lines
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.report import Report
from watersmeet.session.results import Batch, Started
from watersmeet.session.session import Session

NAMES = ("id", "v", "ts")
ROWS = 150
"""Of each stream in a file, beside a malformed one."""
_DELAY = 5
_END = 10_000_000
_MAX_BYTES = 12_000
_PATIENCE_SECONDS = 900.0
_POLICIES = {
    "oldest": f"eviction = 'oldest', join_max_buffered_bytes = {_MAX_BYTES}",
    "lru": f"eviction = 'lru', join_max_buffered_bytes = {_MAX_BYTES}",
    "pressure": f"eviction = 'pressure', join_max_buffered_bytes = {_MAX_BYTES}, max_rows_per_key = 20",
    "per_key": "eviction = 'per_key', max_rows_per_key = 3",
}
_JOINS = {
    "inner": "SELECT o.id, o.v, o.ts, p.v AS pv, p.ts AS pts FROM o JOIN p ON o.id = p.id WHERE o.v < 90 SETTINGS",
    "left": "SELECT o.id, o.v, o.ts, p.v AS pv, p.ts AS pts FROM o LEFT JOIN p ON o.id = p.id "
    "WITHIN INTERVAL '300' SECONDS WHERE o.v < 90 EMIT FINAL SETTINGS",
    "expiring": "SELECT o.id, o.v, o.ts, p.v AS pv, p.ts AS pts FROM o JOIN p ON o.id = p.id SETTINGS "
    "join_ttl = '200 seconds',",
}
#: The queries, by name.
QUERIES = {f"{policy}_{join}": (policy, join) for policy in _POLICIES for join in ("inner", "left")} | {
    "oldest_expiring": ("oldest", "expiring")
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a query has made of its input."""

    results: Counter[Any]
    evicted: Counter[Any]
    counts: Mapping[str, Any]


def write_input(folder: Path, number: int, *, closes_windows: bool = False) -> None:
    """Write a file of each stream: of some keys one is hot, some rows are late; or rows after all windows."""
    drawn = random.Random(number)
    for name in "op":
        times = range(number * ROWS, (number + 1) * ROWS)
        rows = [
            (0 if drawn.random() < 0.2 else drawn.randrange(1, 60), drawn.randrange(100), time - _disorder(drawn))
            for time in times
        ]
        if closes_windows:
            rows = [(-1, 0, _END + number)]
        write_lines(folder / name / f"{number:04}.json", [*json_lines(rows, NAMES), "no row"], age=number)


def _disorder(drawn: random.Random) -> int:
    return 10 * _DELAY if drawn.random() < 0.02 else drawn.randrange(_DELAY)


def start(session: Session, folder: Path, names: Iterable[str]) -> dict[str, RunningQuery]:
    """Start the queries over the files that are there."""
    for name in "op":
        session.sql(
            f"CREATE STREAM IF NOT EXISTS {name} (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL "
            f"'{_DELAY}' SECONDS) WITH (connector = 'files', path = '{folder}/{name}', event_time_unit = 's', "
            "max_files_per_trigger = '1')"
        )
    started = {}
    for name in names:
        policy, join = QUERIES[name]
        session.sql(f"CREATE STREAM IF NOT EXISTS {name} WITH (connector = 'files', path = '{folder}/out/{name}')")
        settings = f"{_POLICIES[policy]}, evicted_rows = 'gone_{name}', buckets = 3"
        (result,) = session.run(f"INSERT INTO {name} {_JOINS[join]} {settings}", QueryMode.DRAIN)
        assert isinstance(result, Started)
        started[name] = result.query
    return started


def finish(session: Session, folder: Path, names: Iterable[str]) -> dict[str, Outcome]:
    """Run the queries to the end of their input, and return what they have made of all of it."""
    queries = start(session, folder, names)
    for query in queries.values():
        assert query.wait(_PATIENCE_SECONDS), f"{query.name} has not come to an end"
    return {name: _outcome(session, folder, name, query.report()) for name, query in queries.items()}


def _outcome(session: Session, folder: Path, name: str, report: Report) -> Outcome:
    gone = session.sql(f"SELECT source, reason, raw FROM table(gone_{name})")
    assert isinstance(gone, Batch)
    return Outcome(
        results=Counter(json_rows(folder / "out" / name)),
        evicted=Counter(tuple(row) for row in gone.frame.collect()),
        counts={what: getattr(report, what) for what in _COUNTS}
        | {what: getattr(report.operators["join_1"], what) for what in _OPERATOR_COUNTS},
    )


_COUNTS = ("rows_in", "used", "filtered", "late", "quarantined", "expired", "evicted")
_OPERATOR_COUNTS = ("held", "results", "matched", "state_rows", "frontier", "newest")


def main(folder: Path, names: Iterable[str]) -> None:
    """Run the queries until they are through the files that are there."""
    session = watersmeet.connect(
        workspace=folder / "workspace",
        master="local[2]",
        config={"spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "2"},
    )
    for query in start(session, folder, names).values():
        query.wait()
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
