"""Random histories of Delta tables, read in random batches: what a stream has read adds up to what the table has.

Each batch is planned by objects that know nothing but the place where the one before it ended, as after a restart.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.delta_tables import Row, Stream, append, make, newest, stored, sum_of
from watersmeet.engine.delta import Ending

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("part", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
KEYS = range(8)
EXAMPLES = max(settings.default.max_examples // 4, 6) if settings.default else 6
_PAUSE_SECONDS = 0.003

limits = st.sampled_from([1, 1, 2, 3, None])
keys = st.sets(st.sampled_from(KEYS), max_size=5)
parts = st.sampled_from(["a", "b", None])
#: What is done, to which keys, with which value and part, and whether the stream is read to its end then.
operations = st.tuples(
    st.sampled_from(
        ["insert", "insert", "update", "move", "rekey", "delete", "delete part", "merge", "optimize", "replace"]
    ),
    keys,
    st.integers(0, 3),
    parts,
    st.booleans(),
)


def rows(ids: set[int], v: int, part: str | None) -> list[Row]:
    now = dt.datetime.now(dt.UTC)
    return [{"id": each, "v": v, "part": part, "ts": now} for each in sorted(ids)]


def table_of(ids: set[int], v: int, part: str | None) -> pa.Table:
    return pa.Table.from_pylist(rows(ids, v, part), schema=SCHEMA)


class History:
    """A table whose keys are unique, and what is done to it."""

    def __init__(self, path: Path, *, partitioned: bool, feed: bool) -> None:
        self.path = path
        make(path, SCHEMA, feed=feed, by=["part"] if partitioned else [])

    def held(self) -> set[int]:
        return {row[0] for row in stored(self.path)}

    def change(self, what: str, ids: set[int], v: int, part: str | None) -> None:
        time.sleep(_PAUSE_SECONDS)  # so that a row is dated after the versions before
        table, chosen = Table(self.path), f"id in ({', '.join(map(str, ids | {-1}))})"
        now = f"to_timestamp_micros({int(dt.datetime.now(dt.UTC).timestamp() * 1e6)})"
        literal = "NULL" if part is None else f"'{part}'"
        match what:
            case "insert":
                append(self.path, rows(ids - self.held(), v, part), SCHEMA)
            case "update":
                table.update(updates={"v": str(v), "ts": now}, predicate=chosen)
            case "move":
                table.update(updates={"part": literal, "ts": now}, predicate=chosen)
            case "rekey":
                table.update(updates={"id": "7 - id", "ts": now})
            case "delete":
                table.delete(chosen)
            case "delete part":
                table.delete("part IS NULL" if part is None else f"part = '{part}'")
            case "merge":
                merging = table.merge(table_of(ids, v, part), "s.id = t.id", source_alias="s", target_alias="t")
                merging = merging.when_matched_delete("s.v = t.v").when_matched_update_all()
                merging.when_not_matched_insert_all().execute()
            case "optimize":
                table.optimize.compact()
            case _:
                write_deltalake(self.path, table_of(ids, v, part), mode="overwrite")


def drawn_limits(data: st.DataObject) -> Iterator[int | None]:
    while True:
        yield data.draw(limits)


@settings(max_examples=EXAMPLES)
@given(
    before=st.lists(operations, max_size=4),
    after=st.lists(operations, max_size=8),
    partitioned=st.booleans(),
    mode=st.sampled_from(["changelog", "versioned by arrival", "versioned by ts"]),
    data=st.data(),
)
def test_changes_add_up_to_the_table(
    before: list[tuple[Any, ...]], after: list[tuple[Any, ...]], partitioned: bool, mode: str, data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        history = History(Path(folder, "t"), partitioned=partitioned, feed=True)
        for what, ids, v, part, _ in before:
            history.change(what, ids, v, part)
        ending = Ending("ts", 1) if mode == "versioned by ts" else None
        stream = Stream(history.path, SCHEMA, key=["id"], ending=ending)
        read: list[Row] = []
        for what, ids, v, part, is_read in after:
            history.change(what, ids, v, part)
            if is_read:
                read += stream.drain(drawn_limits(data))
                check(read, history, mode)
        read += stream.drain(drawn_limits(data))
        check(read, history, mode)


def check(read: list[Row], history: History, mode: str) -> None:
    assert len({row["_seq"] for row in read}) == len(read), "each place is read once"
    if mode == "changelog":
        assert sum_of(read) == stored(history.path)
    else:
        dated = "ts" if mode == "versioned by ts" else "_tp_time"
        assert newest(read, "id", lambda row: row[dated]) == set(stored(history.path))


@settings(max_examples=EXAMPLES)
@given(history=st.lists(operations, max_size=10), partitioned=st.booleans(), data=st.data())
def test_a_table_that_only_grows_is_read_once(
    history: list[tuple[Any, ...]], partitioned: bool, data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        table = History(Path(folder, "t"), partitioned=partitioned, feed=data.draw(st.booleans()))
        stream = Stream(table.path, SCHEMA)
        read: list[Row] = []
        for what, ids, v, part, is_read in history:
            if what in ("insert", "merge", "optimize"):
                fresh = ids - table.held() if what == "merge" else ids
                table.change(what, fresh, v, part)
            if is_read:
                read += stream.drain(drawn_limits(data))
        read += stream.drain(drawn_limits(data))
        assert sum_of(read) == stored(table.path)
        assert len({row["_seq"] for row in read}) == len(read)
