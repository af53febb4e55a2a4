"""The ``print`` connector: each batch's rows on the terminal."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame

from watersmeet.columns import TP_DELTA
from watersmeet.connectors.connector import SinkConnector, WriteBatch, Writing
from watersmeet.connectors.console import Show
from watersmeet.connectors.sink_changelogs import Changelogs


class PrintConnector(SinkConnector):
    """A sink that prints each batch's rows, ``+`` for an added row and ``-`` for a retraction. It takes no options."""

    name = "print"
    changelogs = (Changelogs.ALWAYS,)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what prints a batch, also an empty one."""
        return lambda rows, batch_id, key: _print(rows, writing.show, batch_id, changelog=writing.changelog)


def _print(frame: DataFrame, show: Show, batch: int, *, changelog: bool) -> None:
    table = frame.toArrow()
    names = [name for name in frame.columns if not (changelog and name.lower() == TP_DELTA)]
    weights = [1] * table.num_rows
    for name in set(frame.columns) - set(names):
        weights = table[name].to_pylist()
    rows = [tuple(map(_plain, row.values())) for row in table.select(names).to_pylist()]
    # retractions first: so one reads a correction
    show(names, sorted(zip(weights, rows, strict=True), key=lambda change: change[0]), batch)


def _plain(value: object) -> object:
    """Return a value for display: a time in the session's zone, without the zone."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
