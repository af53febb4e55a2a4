"""The ``jdbc`` connector: a table of a database as a sink, through SQLAlchemy.

A batch is one transaction of upserts and deletes by key, so writing it again changes nothing. The table must exist,
with a unique index over the key; it is inspected before a query starts. The tasks compute the net changes: many of them
they stage in PostgreSQL themselves, few they hand to the driver, whose transaction makes all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.connector import SinkConnector, WriteBatch, Writing
from watersmeet.connectors.jdbc import void_rows
from watersmeet.connectors.jdbc.sink import JdbcSink, JdbcSinkOptions, Staging, named, open_table, options_of
from watersmeet.connectors.jdbc.staging import Place, StagedRowsLostError, StageWriter, prefix_of, staged_of
from watersmeet.connectors.jdbc.table import require_uuids
from watersmeet.connectors.net_changes import (
    by_key,
    collected,
    net_changes,
    require_columns_of_table,
    require_primary_key,
)
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.connectors.task_writes import write_in_tasks
from watersmeet.errors import OutageError, SinkOutageError
from watersmeet.lookup.connections import place_of
from watersmeet.runtime.real_time.live_task import task_number
from watersmeet.runtime.real_time.operator_task import EPOCH
from watersmeet.runtime.real_time.sinks import ByTasks, LiveSink, RunName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class JdbcConnector(SinkConnector):
    """A sink that keeps the newest row of each PRIMARY KEY in a table of PostgreSQL, MariaDB, MySQL or SQLite.

    ``url`` is the database (``jdbc:postgresql://host:port/database``), ``table`` an existing table with a unique index
    over the key, ``user`` and ``password`` the login (by reference to a secret). ``timeout`` is the longest that a
    statement or a connection attempt may take (default ``'60 seconds'``). ``staging`` is the schema of PostgreSQL in
    which the tasks of a large batch put their rows first (default: that of the table); with ``'none'`` all rows pass
    through the driver.
    """

    name = "jdbc"
    model = JdbcSinkOptions
    changelogs = (Changelogs.BY_KEY,)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options, a column ``_tp_delta`` and a stream without a primary key."""
        options_of(stream.options)
        require_columns_of_table(stream)
        require_primary_key(stream)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what writes a batch; raises as ``open_table`` and ``find_place`` do."""
        sink = open_table(writing.stream)
        place = sink.staging_place()
        return _from_driver(sink, writing) if place is None else _from_tasks(sink, place, writing)

    def reach(self, spark: SparkSession, stream: StreamDef) -> None:
        """Raise as ``open_table`` does."""
        open_table(stream)

    def open_live_sink(self, writing: Writing) -> LiveSink:
        """Return what writes rows as they come, from the tasks that make them; raises as ``open_table`` does."""
        stream = writing.stream
        open_table(stream)
        if not writing.changelog:
            return LiveSink(lambda _spark, run: ByTasks(partial(_write_live, stream, run, notes=False)))
        return LiveSink(
            lambda _spark, run: ByTasks(partial(_write_live, stream, run, notes=True)),
            take_back=lambda _spark, run, _since: _take_back(stream, run),
        )


def _from_driver(sink: JdbcSink, writing: Writing) -> WriteBatch:
    def write(frame: DataFrame, batch_id: int, _key: str) -> None:
        rows = collected(frame)
        writing.tried(lambda: sink.write(rows, batch_id))

    return write


def _from_tasks(sink: JdbcSink, place: Place, writing: Writing) -> WriteBatch:
    is_clean = False

    def write(frame: DataFrame, batch_id: int, key: str) -> None:
        nonlocal is_clean
        prefix = prefix_of(key.removesuffix(f"-{batch_id:012d}"))
        what = f"batch {batch_id} could not be written to {named(sink.stream)}"
        writer = StageWriter(sink.stream, sink.address, place, f"{prefix}{batch_id}_", what)
        reach = partial(open_table, sink.stream)
        prepared = partial(_net, target=sink.stream, uuids=sink.uuids)
        lost = False

        def attempt() -> None:
            nonlocal lost
            try:
                sink.write(handed.rows, batch_id, Staging(place, prefix, staged, drops=bool(staged) or not is_clean))
            except StagedRowsLostError:
                lost = True

        try:
            handed = write_in_tasks(by_key(frame, sink.stream), writer, reach, prepared)
            staged = [staged_of(note) for note in handed.notes]
            writing.tried(attempt)
            if lost:  # another attempt has to compute the rows again
                gone = "the rows that were staged are gone"
                raise SinkOutageError(f"{what}: {gone}", waits_for=f"{place_of(sink.address)}: {gone}")
            is_clean = is_clean or bool(staged or handed.rows.num_rows)
        except Exception as error:
            is_clean = False
            if not isinstance(error, OutageError):
                sink.drop_staged(place, prefix)
            raise

    return write


def _net(rows: pa.Table, target: StreamDef, uuids: Sequence[str]) -> pa.Table:
    changes = net_changes(rows, target)
    require_uuids(changes, uuids, target)
    return changes


def _write_live(stream: StreamDef, run: RunName, rows: pa.Table, *, notes: bool) -> None:
    """Write rows that have come together, in a task; with ``notes``, note before what their keys had."""
    epoch = rows[EPOCH][0].as_py()
    rows = rows.drop_columns([EPOCH])
    if notes:
        void_rows.journal(run.folder, run.run, epoch, task_number()).note(rows, stream)
    _opened(stream.model_dump_json()).write(rows, epoch, check=run.refuse_later_run)


def _take_back(stream: StreamDef, run: RunName) -> None:
    """Give keys back what they had before epochs that did not commit.

    Tasks of the run before may not have ended yet.  One that finds the file of the new run gives up.  One that looked
    before that file was there had noted its rows, so they are known here, and this waits for its commit.
    """
    rows = void_rows.void_rows(run, stream)
    if rows is not None:
        open_table(stream).write(rows, run.firsts[run.run], waits_for_writers=True, check=run.refuse_later_run)
    void_rows.forget(run)


@cache
def _opened(definition: str) -> JdbcSink:
    return open_table(StreamDef.model_validate_json(definition))
