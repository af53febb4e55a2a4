"""Every kind of join on the cluster, from the common store to the common store, against DuckDB.

    python -m tests.cluster.kinds BUCKETS FILES [QUERY…]

runs the queries, by default all, side by side, over so many files of each stream, and prints a line for each. It ends
with 1 if an answer is wrong. One record of p is malformed: wherever p is read, it must be set aside, whole.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tests.cluster.lake import (
    BAD,
    ROOT,
    define_streams,
    open_store,
    results,
    rows_of,
    side_rows,
    table_of,
    write_streams,
)
from tests.cluster.session import connect
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started
from watersmeet.session.session import Session

ROWS, SECONDS = 900, 300.0


@dataclass(frozen=True, slots=True)
class Query:
    """A query of this project, and what DuckDB is asked instead; ``changes``: it gives a changelog."""

    sql: str
    answer: str
    changes: bool = False


def _windowed(kind: str, columns: str = "o.id, o.v, p.v AS w") -> Query:
    near = "o.id = p.id AND abs(p.ts - o.ts) <= 30"
    return Query(
        f"SELECT {columns} FROM o {kind} JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS EMIT FINAL",
        f"SELECT {columns} FROM o {kind} JOIN p ON {near}",
    )


_PAIRS = "SELECT o.id, o.v, p.v AS w FROM o JOIN p ON o.id = p.id"
QUERIES = {
    "inner": _windowed("INNER"),
    "left": _windowed("LEFT"),
    "right": _windowed("RIGHT"),
    "full": _windowed("FULL"),
    "semi": Query(
        "SELECT o.id, o.v FROM o LEFT SEMI JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS EMIT FINAL",
        "SELECT o.id, o.v FROM o SEMI JOIN p ON o.id = p.id AND abs(p.ts - o.ts) <= 30",
    ),
    "anti": Query(
        "SELECT o.id, o.v FROM o LEFT ANTI JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS EMIT FINAL",
        "SELECT o.id, o.v FROM o ANTI JOIN p ON o.id = p.id AND abs(p.ts - o.ts) <= 30",
    ),
    "many": Query(
        "SELECT o.v, p.v AS w, q.v AS x FROM o JOIN p ON o.id = p.id JOIN q ON o.id = q.id "
        "WITHIN INTERVAL '60' SECONDS",
        "SELECT o.v, p.v, q.v FROM o JOIN p ON o.id = p.id JOIN q ON o.id = q.id "
        "WHERE greatest(o.ts, p.ts, q.ts) - least(o.ts, p.ts, q.ts) <= 60",
    ),
    "ordered": Query(
        "SELECT o.id, o.v, p.v AS w FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS ORDER BY o.ts EMIT FINAL",
        f"{_PAIRS} AND abs(p.ts - o.ts) <= 30",
    ),
    "spread": Query(
        "SELECT o.id, o.v, p.v AS w FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS "
        "SETTINGS skew = 'spread', skew_rows = 5",
        f"{_PAIRS} AND abs(p.ts - o.ts) <= 30",
    ),
    "asof": Query(
        "SELECT o.id, o.v, p.v AS w FROM o LEFT ASOF JOIN p MATCH_CONDITION (o.ts >= p.ts) ON o.id = p.id",
        "SELECT o.id, o.v, p.v FROM o ASOF LEFT JOIN p ON o.id = p.id AND o.ts >= p.ts",
    ),
    "temporal": Query(
        "SELECT o.id, o.v, r.v AS w FROM o LEFT JOIN r FOR SYSTEM_TIME AS OF o.ts ON o.id = r.id EMIT FINAL",
        "SELECT o.id, o.v, r.v FROM o ASOF LEFT JOIN r ON o.id = r.id AND o.ts >= r.ts",
    ),
    "changelog": Query(
        "SELECT r.id, r.v, s.v AS w FROM r JOIN s ON r.id = s.id EMIT CHANGELOG",
        "SELECT r.id, r.v, s.v FROM (FROM r QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC) = 1) r "
        "JOIN (FROM s QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC) = 1) s ON r.id = s.id",
        changes=True,
    ),
    "aggregate": Query(
        "SELECT o.id, count(*) AS n, sum(p.v) AS w FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS "
        "GROUP BY o.id EMIT CHANGELOG",
        "SELECT o.id, count(*), sum(p.v) FROM o JOIN p ON o.id = p.id AND abs(p.ts - o.ts) <= 30 GROUP BY o.id",
        changes=True,
    ),
    "lookup": Query(
        "SELECT o.id, o.v, t.name FROM o LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON o.id = t.id",
        "SELECT o.id, o.v, t.name FROM o LEFT JOIN t ON o.id = t.id",
    ),
}


def main() -> int:
    """Run the queries, and return the exit code."""
    buckets, files, *names = sys.argv[1:]
    store = open_store()
    streams = {name: rows_of(seed, ROWS) for seed, name in enumerate("opqrs")}
    tables = {name: table_of(rows) for name, rows in streams.items()}
    tables["t"] = pa.table({"id": range(0, 60, 2), "name": [f"name {id}" for id in range(0, 60, 2)]})
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        chosen = {name: QUERIES[name] for name in names or QUERIES}
        expected = {name: Counter(database.sql(query.answer).fetchall()) for name, query in chosen.items()}
    write_streams(store, tables, int(files))
    session = connect("/tmp/workspace")
    define_streams(session, "opqrs")
    session.sql(f"CREATE TABLE t (id BIGINT, name STRING) WITH (connector = 'files', path = '{ROOT}/t')")
    failures = 0
    running = {name: _start(session, name, query, int(buckets)) for name, query in chosen.items()}
    for name, query in running.items():
        try:
            assert query.query.wait(SECONDS), f"it has not come to its end in {SECONDS:.0f} s"
            if "p" in query.query.report().rows_in:
                quarantined = query.query.report().quarantined
                assert quarantined.get("p") == 1, f"quarantined: {quarantined}"
                assert BAD in side_rows(store, name), "the malformed record has not been kept"
            found = results(store, name)
            wrong = (
                "" if found == expected[name] else f"{expected[name] - found} lacking, {found - expected[name]} not due"
            )
        except (AssertionError, WatersmeetError) as error:
            wrong = str(error)
        failures += bool(wrong)
        print(f"{name}: {wrong[:600] or f'equal to the batch answer, {expected[name].total()} rows'}", flush=True)
    return min(failures, 1)


def _start(session: Session, name: str, query: Query, buckets: int) -> Started:
    sink = f"{name}_out"
    changelog = ", changelog = 'true'" if query.changes else ""
    session.sql(
        f"CREATE STREAM {sink} WITH (connector = 'files', path = '{ROOT}/out/{name}', format = 'json'{changelog})"
    )
    settings = f", buckets = {buckets}" if "SETTINGS" in query.sql else f" SETTINGS buckets = {buckets}"
    text = f"INSERT INTO {sink} {query.sql}{settings}"
    (started,) = session.run(text, QueryMode.BOUNDED, checkpoint=f"{ROOT}/checkpoints/{name}")
    assert isinstance(started, Started)
    return started


if __name__ == "__main__":
    sys.exit(main())
