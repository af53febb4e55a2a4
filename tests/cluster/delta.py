"""A Delta table in the common store, written by the executors, against DuckDB.

    python -m tests.cluster.delta BUCKETS FILES

joins two streams of the store into a table there, and prints what came of it. It ends with 1 if the answer is wrong, or
if the driver has written the files by itself.
"""

from __future__ import annotations

import sys
from collections import Counter

import duckdb
from deltalake import DeltaTable

from tests.cluster.lake import ROOT, define_streams, open_store, rows_of, table_of, write_streams
from tests.cluster.session import connect
from watersmeet.connectors import task_writes
from watersmeet.connectors.delta.files import store_options
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started

ROWS, SECONDS = 900, 300.0
JOIN = "SELECT o.id, o.v, q.v AS w FROM o JOIN q ON o.id = q.id"


def main() -> int:
    """Run the query, and return the exit code."""
    buckets, files = map(int, sys.argv[1:])
    tables = {name: table_of(rows_of(seed, ROWS)) for seed, name in enumerate("oq")}
    write_streams(open_store(), tables, files)
    task_writes.FEW_BYTES = 0  # of so small a batch, tasks write all too
    session = connect("/tmp/workspace")
    define_streams(session, "oq")
    path = f"{ROOT}/out/table"
    session.sql(f"CREATE STREAM sink (id BIGINT, v BIGINT, w BIGINT) WITH (connector = 'delta', path = '{path}')")
    (started,) = session.run(
        f"INSERT INTO sink {JOIN} WITHIN INTERVAL '30' SECONDS SETTINGS buckets = {buckets}",
        QueryMode.BOUNDED,
        checkpoint=f"{ROOT}/checkpoints/delta",
    )
    assert isinstance(started, Started)
    assert started.query.wait(SECONDS), f"it has not come to its end in {SECONDS:.0f} s"
    table = DeltaTable(path, storage_options=store_options(path))
    found = Counter(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())
    with duckdb.connect() as database:
        for name, rows in tables.items():
            database.register(name, rows)
        expected = Counter(database.sql(f"{JOIN} AND abs(q.ts - o.ts) <= 30").fetchall())
    batches = table.version()  # its first version is the empty table
    several = len(table.file_uris()) > batches
    is_right = found == expected and several
    said = "equal to the batch answer" if is_right else f"{expected - found} lacking, {found - expected} not due"
    print(f"{said}, {expected.total()} rows, more files than batches: {several}")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
