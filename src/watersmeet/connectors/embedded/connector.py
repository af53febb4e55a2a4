"""The ``embedded`` connector: durable append-only logs in the workspace.

A log is a folder of Parquet segments, numbered in commit order (local_log.py, stored_log.py). The segment's name holds
the writer's key (query and batch), so a batch that is written again is skipped. ``_seq`` is (segment number, row). The
query that feeds a derived stream adds rows that hold only its frontier (``_frontier``). Segments stay. A new query that
needs only the newest rows of a changing stream begins with a baseline (baselines.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from zlib import crc32

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from watersmeet.catalog.streams import EMBEDDED, StreamDef, StreamMode
from watersmeet.columns import SEQUENCE, STORED_FRONTIER, TP_TIME, spark_name
from watersmeet.connectors.connector import Reading, SinkConnector, StoredConnector, WriteBatch, Writing
from watersmeet.connectors.embedded.baselines import baseline_rows, numbers_after
from watersmeet.connectors.embedded.local_log import LocalLog
from watersmeet.connectors.embedded.log_files import LogFiles, is_segment, key_of
from watersmeet.connectors.embedded.stored_log import StoredLog
from watersmeet.connectors.folder_files import files_measure
from watersmeet.connectors.net_changes import net_frame
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.connectors.stream_schema import stored_schema
from watersmeet.errors import CheckpointError, ConfigError, did_you_mean
from watersmeet.runtime.run_progress import Measure
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.store_folder import Place
from watersmeet.settings.seek import Seek

#: Spark writes a checksum for each page of a Parquet file, and by default compares none.
_VERIFIED = "parquet.page.verify-checksum.enabled"
_HIDDEN = [StructField(TP_TIME, TimestampType()), StructField(STORED_FRONTIER, LongType())]


class EmbeddedConnector(StoredConnector, SinkConnector):
    """A stream without WITH: a durable log in the workspace, as source and as sink, written exactly once.

    It takes no options. A changing stream takes a changelog: each batch is appended as its net changes by key.
    """

    name = EMBEDDED
    changelogs = (Changelogs.BY_KEY,)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for any option."""
        for name in stream.options:
            raise ConfigError(
                f"a stream without a connector has no option {name!r}: it takes none",
                hint=did_you_mean(name, ("ordered_by", "event_time_unit")) or "add connector = '…' to WITH",
                option=name,
            )

    def open_source(self, reading: Reading) -> Source:
        """Return the log as a source; a derived stream with a watermark brings its producer's frontier."""
        stream, log = reading.stream, embedded_log(reading.stream, reading.workspace)
        baseline = _baseline(reading, log)
        frame = log.read_stream(reading.spark, stored_schema(stream), reading.seek, baseline)
        measures = log.measures(reading.spark, baseline)
        return Source(frame, stores_frontier=stream.derived and stream.has_watermark, measures=measures)

    def limits_batches(self, stream: StreamDef) -> bool:
        """Return False."""
        return False

    def open_stored(self, reading: Reading) -> DataFrame:
        """Return the rows that the log has now; of a changing stream, at least the newest row of each key."""
        stream, log = reading.stream, embedded_log(reading.stream, reading.workspace)
        return log.read_stored(reading.spark, stored_schema(stream), log.baselines.newest())

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what appends a batch: its rows, or for a changelog its net changes by key."""
        stream = writing.stream
        log = embedded_log(stream, writing.workspace)
        if not writing.changelog:
            return lambda rows, batch_id, key: log.append_frame(rows, key)
        # mode changelog_kv needs a -1 for each version, before a +1 that may have the same time
        keep_replaced = stream.mode is StreamMode.CHANGELOG
        return lambda rows, batch_id, key: log.append_frame(net_frame(rows, stream, keep_replaced=keep_replaced), key)


def embedded_log(stream: StreamDef, workspace: Place) -> EmbeddedLog:
    """Return the log of an embedded stream."""
    return EmbeddedLog(workspace / "streams" / stream.name.lower())


def _baseline(reading: Reading, log: EmbeddedLog) -> int | None:
    """Return the baseline with which the query begins; None where it reads all segments.

    The checkpoint keeps the choice, so a query that starts again reads the same files. It keeps nothing of a query that
    reads rows since a moment, which a segment may straddle.
    """
    stream, starts, seek = reading.stream, reading.starts, reading.seek
    if starts is None or not stream.changes or (seek is not None and seek.since is not None):
        return None
    find = partial(log.newest_start, reading.spark, stream) if reading.newest_only else dict[int, int]
    start = starts.of(stream.name.lower(), find)
    if not start:
        return None
    return log.baseline_of(start, reading.spark, stream, has_read=starts.has_read)


class EmbeddedLog:
    """The log of one stream."""

    def __init__(self, folder: Place) -> None:
        self.folder = folder
        self._files: LogFiles = LocalLog(folder) if isinstance(folder, Path) else StoredLog(folder)
        self.baselines = self._files.baselines

    def read_stream(
        self, spark: SparkSession, columns: StructType, seek: Seek | None = None, baseline: int | None = None
    ) -> DataFrame:
        """Return a streaming source frame of the log, with ``_frontier``: of a baseline and all later segments.

        Without a baseline it has all segments. With ``seek`` it has only the rows written since then. Frontiers hold
        for later rows too, so all are read.
        """
        self._files.require_reached(spark)
        rows = self._rows(lambda: spark.readStream, columns, baseline)
        if seek is None or seek.since is None:
            return rows
        arrived = F.col(TP_TIME) >= F.timestamp_micros(F.lit(seek.since))
        return rows.where(F.col(STORED_FRONTIER).isNotNull() | arrived)

    def measures(self, spark: SparkSession, baseline: int | None) -> tuple[Measure, ...]:
        """Return how to measure a baseline and all later segments, or all segments."""
        storage, folder = partial(Storage, spark), str(self.folder)
        if baseline is None:
            return (files_measure(storage, folder, is_segment),)
        file = str(self.baselines.path(baseline)).rpartition("/")[2]
        covered = files_measure(storage, str(self.baselines.folder), lambda name: name == file)
        return covered, files_measure(storage, folder, lambda name: is_segment(name) and int(name[:12]) > baseline)

    def read_stored(self, spark: SparkSession, columns: StructType, baseline: int | None = None) -> DataFrame:
        """Return a batch source frame of the rows that a baseline and all later segments, or all segments, have now."""
        self._files.require_reached(spark)
        rows = self._rows(lambda: spark.read, columns, baseline)
        return rows.where(F.col(STORED_FRONTIER).isNull()).drop(STORED_FRONTIER)

    def _rows(
        self, reader: Callable[[], DataFrameReader | DataStreamReader], columns: StructType, baseline: int | None
    ) -> DataFrame:
        """Return a source frame of the log, as a stream or a batch.

        Spark lists a folder at once and filters the names. Of a glob path it would list each file by a task of its own.
        """

        def files(folder: object, names: str) -> DataFrame:
            opened = reader().schema(_stored(columns)).option("pathGlobFilter", names).option(_VERIFIED, "true")
            return _source_frame(opened.parquet(str(folder)), columns)

        if baseline is None:
            return files(self.folder, "*.parquet")
        covered = files(self.baselines.folder, str(self.baselines.path(baseline)).rpartition("/")[2])
        return covered.unionAll(files(self.folder, f"{numbers_after(baseline)}-*.parquet"))

    # -- baselines -----------------------------------------------------------------------------------------------------

    def newest_start(self, spark: SparkSession, stream: StreamDef) -> dict[int, int]:
        """Return where a new query begins that needs only newest rows: a baseline, and the checksum of its segment.

        One is made if many segments have come since the last. Empty if there is none: at the first segment.
        """
        segments = self._files.segments()
        if self.baselines.is_due(segments):
            self._make_baseline(spark, stream, max(segments), segments[max(segments)])
        newest = self.baselines.newest()
        return {} if newest is None else {newest: _checksum(segments[newest])}

    def baseline_of(self, start: Mapping[int, int], spark: SparkSession, stream: StreamDef, *, has_read: bool) -> int:
        """Return the baseline with which a checkpoint began; if it is gone and not ``has_read``, it is made again.

        Raises ``CheckpointError`` if the log is not the one that the checkpoint began with.
        """
        ((number, checksum),) = start.items()
        segment = self._files.segments().get(number)
        if segment is None or _checksum(segment) != checksum:
            found = "is another one" if segment is not None else "does not exist"
            raise CheckpointError(
                f"{stream.name}: the query began with the newest rows up to segment {number}, but that segment {found}",
                detail=f"the stream has been dropped and created again, or files are missing in {self.folder}",
                hint="start on a new checkpoint, or restore the folder from a copy",
            )
        if not has_read and self._files.hold_baseline(number) != number:
            self._make_baseline(spark, stream, number, segment)
        return number

    def _make_baseline(self, spark: SparkSession, stream: StreamDef, number: int, segment: str) -> None:
        """Write the baseline that ends with a segment, from the baseline before it and the segments since then."""
        columns = stored_schema(stream)
        rows = self._rows(lambda: spark.read, columns, self._files.hold_baseline(number - 1))
        rows = rows.where(F.col(SEQUENCE) < F.lit(f"{number + 1:012d}".encode()))
        names = [spark_name(field.name) for field in _stored(columns)]
        staging = self._files.staging(f"baseline-{uuid.uuid4().hex}")
        # not coalesce(1), which would sort all keys in one task
        baseline_rows(rows, stream).select(*names).repartition(1).write.parquet(staging)
        self._files.publish_baseline(staging, number, segment)

    # -- appending -----------------------------------------------------------------------------------------------------

    def append_frame(self, frame: DataFrame, key: str) -> bool:
        """Append a batch of a query. Return False where ``key`` has been committed before.

        The frame has the stream's columns, and ``_frontier`` where the query reports it.
        """
        if self._committed(key):
            return False
        self._files.require_reached(frame.sparkSession)
        staging = self._files.staging(key)
        rows = frame.withColumn(TP_TIME, F.current_timestamp())
        if STORED_FRONTIER not in frame.columns:
            rows = rows.withColumn(STORED_FRONTIER, F.lit(None).cast("bigint"))
        rows.coalesce(1).write.mode("overwrite").parquet(staging)
        self._files.commit(staging, key)
        return True

    def _committed(self, key: str) -> bool:
        return any(key_of(name) == key for name in self._files.segments().values())


def _checksum(segment: str) -> int:
    """Return a checksum of a segment's name, which holds its writer's key: of another log it is another one."""
    return crc32(segment.encode())


def _stored(columns: StructType) -> StructType:
    return StructType([*columns.fields, *_HIDDEN])


def _source_frame(rows: DataFrame, columns: StructType) -> DataFrame:
    """Return the log's files with the hidden columns of a source."""
    place = F.concat(F.substring("_metadata.file_name", 1, 12), F.lpad(F.hex("_metadata.row_index"), 16, "0"))
    declared = [spark_name(field.name) for field in columns]
    return rows.select(*declared, F.encode(place, "UTF-8").alias(SEQUENCE), TP_TIME, STORED_FRONTIER)
