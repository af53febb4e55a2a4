"""The ``print`` connector: each batch's rows on the terminal."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
from pyspark.sql import SparkSession

from watersmeet.arrow_rows import python_values
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.connector import SinkConnector, WriteBatch, Writing
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.errors import UnsupportedError
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.process_folder import new_folder
from watersmeet.runtime.real_time.mailbox import Mailbox, MailboxReader
from watersmeet.runtime.real_time.operator_task import EPOCH
from watersmeet.runtime.real_time.sinks import ByTasks, LiveSink, RunName


class PrintConnector(SinkConnector):
    """A sink that prints each batch's rows, ``+`` for an added row and ``-`` for a retraction. It takes no options."""

    name = "print"
    changelogs = (Changelogs.ALWAYS,)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what prints a batch, also an empty one."""
        return lambda rows, batch_id, key: _print(rows.toArrow(), writing, batch_id)

    def open_live_sink(self, writing: Writing) -> LiveSink:
        """Return what prints rows as they come; the workers must be on this machine."""
        mailbox = Mailbox(new_folder())
        reader = MailboxReader(mailbox, lambda rows: _print_live(rows, writing))

        def posting(spark: SparkSession, _: RunName) -> ByTasks:
            if not workers_are_here(spark):
                raise UnsupportedError(
                    "in real time only workers of this machine can print rows here",
                    hint="INSERT INTO a stream of kafka, or leave out mode = 'real_time'",
                )
            return ByTasks(mailbox.post)

        return LiveSink(posting, close=reader.close)


def _print_live(rows: pa.Table, writing: Writing) -> None:
    _print(rows.drop_columns([EPOCH]), writing, rows[EPOCH][0].as_py())


def _print(table: pa.Table, writing: Writing, batch: int) -> None:
    names, columns, weights = [], [], [1] * table.num_rows
    for name, column in zip(table.column_names, table.columns, strict=True):  # two columns may have one name
        if writing.changelog and name.lower() == TP_DELTA:
            weights = column.to_pylist()
        else:
            names.append(name)
            columns.append([_plain(value) for value in python_values(column)])
    rows = list(zip(*columns, strict=True))
    # retractions first: so one reads a correction
    writing.show(names, sorted(zip(weights, rows, strict=True), key=lambda change: change[0]), batch)


def _plain(value: object) -> object:
    """Return a value for display: a time in the session's zone, without the zone."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
