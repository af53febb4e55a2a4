"""PostgreSQL's changes as a source of Spark: a batch is some pieces, which tasks read.

The pieces are written by the process beside the driver in which Spark plans batches (reader.py); an offset is
how many there were.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from watersmeet.columns import BAD, RAW, SEQUENCE, TP_DELTA, TP_TIME
from watersmeet.connectors.postgres.changes import DELTA, REASON, TIME, value_column
from watersmeet.connectors.postgres.reader import Reader, Subject
from watersmeet.errors import CheckpointError, UnsupportedError, WatersmeetError
from watersmeet.records.postgres_values import converted
from watersmeet.runtime.pieces import Piece, Pieces, missing
from watersmeet.runtime.source_warnings import WARNINGS

_TASK_ROWS = 100_000
_PAUSE = 0.05
_RESTORE = "restore the folder from a copy, or start the query on a new checkpoint (it begins with a new snapshot)"
_numbers = itertools.count()

Offset = dict[str, int]


#: The columns that follow the declared ones.
HIDDEN = pa.schema(
    [
        (TP_DELTA, pa.int8()),
        (BAD, pa.string()),
        (RAW, pa.string()),
        (SEQUENCE, pa.binary()),
        (TP_TIME, pa.timestamp("us", "UTC")),
    ]
)


def stream_of(spark: SparkSession, subject: Subject, columns: StructType, *, limited: bool) -> DataFrame:
    """Return a streaming frame of the declared columns, and those of ``HIDDEN``."""

    class PostgresChanges(DataSource):
        """A class for this table alone: Spark passes only options to a data source, and would show them in plans."""

        format = f"watersmeet_postgres_{next(_numbers)}"

        @classmethod
        def name(cls) -> str:
            return cls.format

        def schema(self) -> StructType:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return planner(subject, limited=limited)

    spark.dataSource.register(PostgresChanges)
    return spark.readStream.format(PostgresChanges.format).load()


def planner(subject: Subject, *, limited: bool = True) -> DataSourceStreamReader:
    """Return what plans batches, and reads them; ``limited``: a batch may leave out rows that are there."""
    return _Planner(subject, limited)


@dataclass(slots=True)
class _Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches, in a Python process beside the driver; a task only reads its pieces."""

    subject: Subject
    limited: bool
    _reader: Reader | None = field(default=None, init=False)
    _until: int | None = field(default=None, init=False)
    """Where the log ends that a run reads which has an end."""

    def initialOffset(self) -> Offset:
        pieces = self._opened().pieces
        if pieces[0].number:
            raise CheckpointError(
                f"{self.subject.folder} lacks pieces that the query needs: it has begun, and Spark's part of its "
                "checkpoint says that it has not",
                hint=_RESTORE,
            )
        return {"pieces": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.subject.options.max_rows_per_trigger) if self.limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._opened().written_until()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        reader, begin = self._opened(), start["pieces"]
        self._require(reader.pieces, begin, begin + 1 if reader.pieces[-1].number >= begin else begin)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        try:
            self._look(reader, begin, most)
        except WatersmeetError:
            if end_of_batch(reader.pieces, begin, most) == begin:  # what was read before is processed first
                raise
        return {"pieces": end_of_batch(reader.pieces, begin, most)}

    def reportLatestOffset(self) -> dict[str, int | str] | None:
        if self._reader is None:
            return None
        return {"pieces": self._reader.pieces[-1].number + 1, WARNINGS: "\n".join(self._reader.warnings)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # a batch that is planned again needs no server
        pieces = self._reader.pieces if self._reader is not None else Pieces(self.subject.folder).listing().pieces
        self._require(pieces, start["pieces"], end["pieces"])
        groups: list[list[str]] = []
        rows = _TASK_ROWS
        for piece in pieces:
            if start["pieces"] <= piece.number < end["pieces"] and piece.rows:
                if rows >= _TASK_ROWS:
                    groups.append([])
                    rows = 0
                groups[-1].append(piece.name)
                rows += piece.rows
        return [InputPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        folder = Pieces(self.subject.folder)
        schema = self.subject.declared.schema
        for name in partition.value:
            yield rows_of_piece(folder.read_rows(name), int(name[:12]), schema, folder.folder)

    def commit(self, end: Offset) -> None:
        if self._reader is not None:
            self._reader.forget_before(end["pieces"])

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _look(self, reader: Reader, begin: int, most: int | None) -> None:
        """Read what is there, so that the server need not keep it; in a run with an end, only what fills a batch."""
        if self._until is None:
            if reader.is_due():
                reader.look()
            return
        while not _is_enough(reader.pieces, begin, most) and reader.look(self._until):
            time.sleep(_PAUSE)

    def _opened(self) -> Reader:
        if self._reader is None:
            if not self.subject.folder:
                raise UnsupportedError(
                    f"{self.subject.declared.stream} (postgres) cannot be read by a DataFrame with a checkpoint of "
                    "your own: what was read of the server has to stand in the query's checkpoint",
                    hint="INSERT INTO a stream, and read that; or watersmeet run",
                )
            self._reader = Reader(self.subject)
        return self._reader

    def _require(self, pieces: Sequence[Piece], start: int, end: int) -> None:
        lacking = missing(pieces, start, end)
        if lacking is not None:
            raise CheckpointError(
                f"{self.subject.folder} has no piece {lacking}, which the query has planned or would read next",
                hint=_RESTORE,
            )


def _is_enough(pieces: Sequence[Piece], begin: int, most: int | None) -> bool:
    """Whether the pieces from ``begin`` on fill a batch."""
    return most is not None and sum(piece.rows for piece in pieces if piece.number >= begin) >= most


def end_of_batch(pieces: Sequence[Piece], begin: int, most: int | None) -> int:
    """Return the end of a batch from ``begin`` on, of at most so many rows, or of one transaction."""
    end, rows = begin, 0
    for piece in pieces:
        if piece.number < begin:
            continue
        rows += piece.rows
        if most is not None and rows > most and end > begin:
            break
        if piece.is_cut:
            end = piece.number + 1
    return end


def rows_of_piece(piece: pa.Table, number: int, schema: pa.Schema, folder: str) -> pa.RecordBatch:
    """Return a piece's rows with the declared columns and those of ``HIDDEN``; a row that does not fit is bad."""
    reasons = piece[REASON].to_pylist()
    texts = {}
    for each in schema:
        name = value_column(each.name)
        if name not in piece.column_names:
            raise CheckpointError(
                f"{folder}: rows that wait there were read before the stream had the column {each.name}",
                hint="undo the change, let the query process what waits (watersmeet run --drain), and change it then",
            )
        texts[each.name] = piece[name].combine_chunks()
    columns = []
    for each in schema:
        values, wrong = converted(texts[each.name], each.type, each.name)
        for row, reason in wrong.items():
            reasons[row] = reasons[row] or reason
        columns.append(values)
    bad = [row for row, reason in enumerate(reasons) if reason is not None]
    if bad:
        is_good = pa.array([reason is None for reason in reasons])
        columns = [_only_where(is_good, column) for column in columns]
    shown: list[str | None] = [None] * len(reasons)
    for row in bad:
        shown[row] = json.dumps({name: values[row].as_py() for name, values in texts.items()}, ensure_ascii=False)
    places = [number.to_bytes(8) + row.to_bytes(4) for row in range(piece.num_rows)]
    hidden = [
        piece[DELTA].combine_chunks(),
        pa.array(reasons, pa.string()),
        pa.array(shown, pa.string()),
        pa.array(places, pa.binary()),
        piece[TIME].combine_chunks().cast(pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays([*columns, *hidden], schema=pa.schema([*schema, *HIDDEN]))


def _only_where(is_good: pa.Array, values: pa.Array) -> pa.Array:
    """The values where they count, else NULL; Arrow's ``if_else`` does not take every type."""
    places = pa.array(range(len(values)), pa.int64())
    return values.take(pa.compute.if_else(is_good, places, None))
