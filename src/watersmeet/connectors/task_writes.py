"""Batches that the tasks which make them write: what few rows a task has it hands to the driver, many it writes itself.

The driver then makes all of it visible at once. It takes only what tasks handed over that Spark counts as successful,
so what other attempts at a task wrote is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from watersmeet.columns import TP_DELTA
from watersmeet.errors import ConnectorError, SinkOutageError
from watersmeet.runtime.failures import known_error
from watersmeet.settings.secrets import hide

#: A task hands over at most so many bytes of rows: fewer are not worth a file or a table of their own, and the driver
#: can hold as many of all tasks.
FEW_BYTES = 256 * 1024
_ROWS, _NOTE = "rows", "note"
_HANDED = pa.schema([(_ROWS, pa.binary()), (_NOTE, pa.string())])
_HANDED_COLUMNS = f"{_ROWS} BINARY, {_NOTE} STRING"


class TaskWriter(Protocol):
    """Writes all rows of a task where nobody sees them yet."""

    def write(self, rows: pa.RecordBatchReader) -> str:
        """Return a note by which the driver finds what was written."""


@dataclass(frozen=True, slots=True)
class Handed:
    """What the tasks of a batch handed over: the rows of those that had few, and the notes of the others."""

    rows: pa.Table
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Task:
    taken: pa.Schema
    written: pa.Schema
    writer: TaskWriter
    few_bytes: int
    prepared: Callable[[pa.Table], pa.Table] | None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        coming = self._rows(batches)
        first: list[pa.RecordBatch] = []
        size = 0
        for batch in coming:
            first.append(batch)
            size += batch.nbytes
            if size > self.few_bytes:
                reader = pa.RecordBatchReader.from_batches(self.written, chain(first, coming))
                yield _handed(None, self.writer.write(reader))
                return
        if first:
            yield _handed(_as_bytes(pa.Table.from_batches(first)), None)

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        coming = (pa.Table.from_batches([each]).rename_columns(self.taken.names).cast(self.taken) for each in batches)
        if self.prepared is None:
            for table in coming:
                yield from table.to_batches()
        elif found := list(coming):
            yield from self.prepared(pa.concat_tables(found)).cast(self.written).to_batches()


def write_in_tasks(
    frame: DataFrame,
    writer: TaskWriter,
    reach: Callable[[], object],
    prepared: Callable[[pa.Table], pa.Table] | None = None,
) -> Handed:
    """Run the tasks of a batch, and return what they handed over.

    A task writes its rows as they come, or what ``prepared`` makes of all of them, with the same columns and perhaps a
    delta. Raises the error of ours that a task raised, a ``SinkOutageError`` with the reason that ``reach`` raises;
    other failures are Spark's.
    """
    taken = driver_schema(frame)
    written = taken
    if prepared is not None and TP_DELTA not in taken.names:
        written = taken.append(pa.field(TP_DELTA, pa.int8()))
    # Spark takes no name with a point for a column of a Python function's input
    numbered = frame.toDF(*(f"c{number}" for number in range(len(taken))))
    task = _Task(taken, written, writer, FEW_BYTES, prepared)
    try:
        found = numbered.mapInArrow(task.run, _HANDED_COLUMNS).toArrow()
    except (PySparkException, Py4JError) as error:
        known = known_error(hide(str(error)))
        if known is None:
            raise
        if isinstance(known, SinkOutageError):
            known.waits_for = _reason(reach)
        raise known from None
    pieces = [pa.ipc.open_stream(each.as_py()).read_all() for each in found[_ROWS] if each.is_valid]
    rows = pa.concat_tables(pieces) if pieces else written.empty_table()
    return Handed(rows, [note.as_py() for note in found[_NOTE] if note.is_valid])


def run_without_writing(frame: DataFrame) -> None:
    """Compute a batch that is written already: Spark commits its state only if it is computed."""
    frame.write.format("noop").mode("overwrite").save()


def driver_schema(frame: DataFrame) -> pa.Schema:
    """Return the columns of a batch as Arrow has them in sinks: with times in UTC, and NULL allowed."""
    return pa.schema([each.with_nullable(True) for each in to_arrow_schema(frame.schema, timezone="UTC")])


def _handed(rows: bytes | None, note: str | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array([rows], pa.binary()), pa.array([note], pa.string())], schema=_HANDED)


def _as_bytes(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(out.getvalue())


def _reason(reach: Callable[[], object]) -> str:
    """Return what does not answer, and why; empty if it answers again."""
    try:
        reach()
    except SinkOutageError as outage:
        return outage.waits_for
    except ConnectorError:
        pass
    return ""
