"""The ``embedded`` connector: durable append-only logs in the workspace folder.

A log is a folder of Parquet segments, numbered in commit order. A commit is one rename under a lock, so readers see all
of it or nothing. The segment's name holds the writer's key (query and batch), so a batch that is written again is
skipped. Modification times rise strictly with the numbers, because Spark reads files in that order. ``_seq`` is
(segment number, row). The query that feeds a derived stream adds rows that hold only its frontier (``_frontier``).
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, flock
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from watersmeet.catalog.streams import EMBEDDED, StreamDef, StreamMode
from watersmeet.columns import SEQUENCE, STORED_FRONTIER, TP_TIME, spark_name
from watersmeet.connectors.connector import Reading, SinkConnector, StoredConnector, WriteBatch, Writing
from watersmeet.connectors.net_changes import net_frame
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.connectors.stream_schema import stored_schema
from watersmeet.errors import ConfigError, did_you_mean
from watersmeet.runtime.dataflow import Source
from watersmeet.settings.seek import Seek

_STAGING = "_staging-"
_ABANDONED_SECONDS = 24 * 3600
_SEGMENT = re.compile(r"(\d{12})-(.+)\.parquet")
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
        stream = reading.stream
        frame = embedded_log(stream, reading.workspace).read_stream(reading.spark, stored_schema(stream), reading.seek)
        return Source(frame, stores_frontier=stream.derived and stream.has_watermark)

    def limits_batches(self, stream: StreamDef) -> bool:
        """Return False."""
        return False

    def open_stored(self, reading: Reading) -> DataFrame:
        """Return the rows that the log has now."""
        log = embedded_log(reading.stream, reading.workspace)
        return log.read_stored(reading.spark, stored_schema(reading.stream))

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what appends a batch: its rows, or for a changelog its net changes by key."""
        stream = writing.stream
        log = embedded_log(stream, writing.workspace)
        if not writing.changelog:
            return lambda rows, batch_id, key: log.append_frame(rows, key)
        # mode changelog_kv needs a -1 for each version, before a +1 that may have the same time
        keep_replaced = stream.mode is StreamMode.CHANGELOG
        return lambda rows, batch_id, key: log.append_frame(net_frame(rows, stream, keep_replaced=keep_replaced), key)


def embedded_log(stream: StreamDef, workspace: Path) -> EmbeddedLog:
    """Return the log of an embedded stream."""
    return EmbeddedLog(workspace / "streams" / stream.name.lower())


class EmbeddedLog:
    """The log of one stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read_stream(self, spark: SparkSession, columns: StructType, seek: Seek | None = None) -> DataFrame:
        """Return a streaming source frame of the log, with ``_frontier``.

        With ``seek`` it has only the rows written since then. Frontiers hold for later rows too, so all are read.
        """
        rows = _source_frame(spark.readStream.schema(_stored(columns)).parquet(str(self.folder)), columns)
        if seek is None or seek.since is None:
            return rows
        arrived = F.col(TP_TIME) >= F.timestamp_micros(F.lit(seek.since))
        return rows.where(F.col(STORED_FRONTIER).isNotNull() | arrived)

    def read_stored(self, spark: SparkSession, columns: StructType) -> DataFrame:
        """Return a batch source frame of the rows that the log has now."""
        rows = _source_frame(spark.read.schema(_stored(columns)).parquet(str(self.folder)), columns)
        return rows.where(F.col(STORED_FRONTIER).isNull()).drop(STORED_FRONTIER)

    def append_frame(self, frame: DataFrame, key: str) -> bool:
        """Append a batch of a query. Return False where ``key`` has been committed before.

        The frame has the stream's columns, and ``_frontier`` where the query reports it.
        """
        if self._committed(key):
            return False
        self._remove_abandoned()
        staging = self.folder / f"{_STAGING}{key}"
        rows = frame.withColumn(TP_TIME, F.current_timestamp())
        if STORED_FRONTIER not in frame.columns:
            rows = rows.withColumn(STORED_FRONTIER, F.lit(None).cast("bigint"))
        rows.coalesce(1).write.mode("overwrite").parquet(str(staging))
        (part,) = staging.glob("part-*.parquet")
        self._commit(part, key)
        shutil.rmtree(staging, ignore_errors=True)
        return True

    def _remove_abandoned(self) -> None:
        """Delete what dead writers left. The folder of a live writer is younger."""
        oldest = time.time() - _ABANDONED_SECONDS
        for staging in self.folder.glob(f"{_STAGING}*"):
            with suppress(FileNotFoundError):  # its writer may have deleted it just now
                if staging.stat().st_mtime < oldest:
                    shutil.rmtree(staging, ignore_errors=True)

    def _committed(self, key: str) -> bool:
        return any(found[2] == key for path in self.folder.iterdir() if (found := _SEGMENT.fullmatch(path.name)))

    def _commit(self, staged: Path, key: str) -> None:
        with self._lock():
            segments = sorted(path for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name))
            number = int(segments[-1].name[:12]) + 1 if segments else 0
            newest = segments[-1].stat().st_mtime_ns if segments else 0
            changed = max(staged.stat().st_mtime_ns, newest + 2_000_000)
            os.utime(staged, ns=(changed, changed))
            staged.replace(self.folder / f"{number:012d}-{key}.parquet")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / "_lock").open("w") as lock:
            flock(lock, LOCK_EX)
            yield


def _stored(columns: StructType) -> StructType:
    return StructType([*columns.fields, *_HIDDEN])


def _source_frame(rows: DataFrame, columns: StructType) -> DataFrame:
    """Return the log's files with the hidden columns of a source."""
    place = F.concat(F.substring("_metadata.file_name", 1, 12), F.lpad(F.hex("_metadata.row_index"), 16, "0"))
    declared = [spark_name(field.name) for field in columns]
    return rows.select(*declared, F.encode(place, "UTF-8").alias(SEQUENCE), TP_TIME, STORED_FRONTIER)
