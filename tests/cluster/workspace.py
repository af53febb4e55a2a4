"""The workspace in the common store: two drivers, one after the other, on executors that share no disk.

    python -m tests.cluster.workspace write|read|both

The first writes rows and runs queries from embedded streams into others. The second reads what it has left.  It ends
with 1 if an answer is not DuckDB's, or if of two sessions that write the catalogue at once one loses a stream.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import duckdb
from pyarrow.fs import FileSystem

from tests.cluster.lake import ROOT, open_store, results, rows_of
from tests.cluster.session import connect
from watersmeet.connectors.embedded import baselines
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.store_folder import StoreFolder
from watersmeet.session.results import Batch, Started
from watersmeet.session.session import Session

_PLACE, _SECONDS, _ROWS = f"{ROOT}/team", 400.0, 40
_COLUMNS = "(id BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS)"
_JOIN = "SELECT o.id, o.v, p.v AS w FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS EMIT FINAL"
_ANSWER = "SELECT o.id, o.v, p.v FROM o LEFT JOIN p ON o.id = p.id AND abs(p.ts - o.ts) <= 30"
_CHANGES = "format = 'json', changelog = 'true'"
_NEWEST = "SELECT r.id, r.v, s.v AS w FROM r JOIN s ON r.id = s.id EMIT CHANGELOG"
_OF_KEY = "(SELECT id, arg_max(v, ts) AS v FROM {0} GROUP BY id) {0}"
_NEWEST_ANSWER = f"SELECT id, r.v, s.v FROM {_OF_KEY.format('r')} JOIN {_OF_KEY.format('s')} USING (id)"
_TABLES = {name: rows_of(seed, _ROWS) for seed, name in enumerate("oprs")}


def write(session: Session) -> None:
    """Fill four streams, and run a query from two of them into a fifth."""
    for name, rows in _TABLES.items():
        kind, key = ("MUTABLE STREAM", " PRIMARY KEY (id)") if name in "rs" else ("STREAM", "")
        session.sql(f"CREATE {kind} {name} {_COLUMNS}{key} WITH (event_time_unit = 's')")
        for part in (rows[::2], rows[1::2]):
            session.sql(f"INSERT INTO {name} VALUES {', '.join(map(str, part))}")
    session.sql("CREATE STREAM paired (id BIGINT, v BIGINT, w BIGINT)")
    _run(session, f"INSERT INTO paired {_JOIN} SETTINGS late_rows = 'late'")


def _run(session: Session, text: str) -> None:
    (started,) = session.run(text, QueryMode.BOUNDED)
    assert isinstance(started, Started)
    assert started.query.wait(_SECONDS), "the query has not come to its end"


def read(session: Session, store: FileSystem) -> int:
    """Compare what the first driver has left, and what a query over it gives, with DuckDB's answers."""
    with duckdb.connect() as database:
        for name, rows in _TABLES.items():
            database.execute(f"CREATE TABLE {name} (id BIGINT, v BIGINT, ts BIGINT)")
            database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        due, newest = (Counter(database.execute(text).fetchall()) for text in (_ANSWER, _NEWEST_ANSWER))
    failures = _compare("paired", _rows(session, "SELECT id, v, w FROM table(paired)"), due)
    failures += _compare("late", _rows(session, "SELECT raw FROM table(late)"), Counter())
    baselines.WORTH_SEGMENTS = 2
    session.sql(f"CREATE STREAM newest WITH (connector = 'files', path = '{ROOT}/out/newest', {_CHANGES})")
    _run(session, f"INSERT INTO newest {_NEWEST}")
    failures += _compare("newest", results(store, "newest"), newest)
    assert isinstance(session.place, StoreFolder)
    kept = session.place.storage.names(f"{session.place}/streams/r/_baselines")
    made = [name for name in kept if name.endswith(".parquet")]
    print(f"baselines: {made}", flush=True)
    with ThreadPoolExecutor(4) as pool:
        others = [Session(session.spark, session.place) for _ in range(4)]
        list(pool.map(lambda each: each[1].sql(f"CREATE STREAM at_once_{each[0]} (id INT)"), enumerate(others)))
    known = {name for name in session.streams.catalog.streams() if name.startswith("at_once")}
    print(f"{len(known)} of 4 streams made at once", flush=True)
    return min(failures + (len(known) != 4) + (not made), 1)


def _rows(session: Session, text: str) -> Counter[tuple[object, ...]]:
    found = session.sql(text)
    assert isinstance(found, Batch)
    return Counter(map(tuple, found.frame.collect()))


def _compare(name: str, found: Counter[tuple[object, ...]], due: Counter[tuple[object, ...]]) -> int:
    same = found == due
    print(f"{name}: {'equal to the batch answer' if same else f'{found - due}, missing {due - found}'}", flush=True)
    return int(not same)


def main(part: str) -> int:
    """Write and read in a process each."""
    store = open_store()
    if part == "both":
        parts = (subprocess.run([sys.executable, "-m", __spec__.name, each], check=False) for each in ("write", "read"))
        return max(each.returncode for each in parts)
    session = connect(_PLACE)
    if part == "read":
        return read(session, store)
    write(session)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
