"""The files of a Delta table as a frame of Spark: it keeps the places, and tasks that get the files read them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from watersmeet.connectors.delta.changes import Begin, Changes, Place, require_same
from watersmeet.connectors.delta.log import DeltaLog
from watersmeet.connectors.delta.schema import Declared
from watersmeet.engine.delta import ListedFile, encoded
from watersmeet.filesystems import encoded_s3_settings, set_s3_settings

#: A task gets files of so many bytes, if there are enough for all cores; to open one costs as much as some bytes.
_MOST_BYTES, _OPEN_BYTES = 128 << 20, 4 << 20
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Listing:
    """What of a table is listed: ``newest`` is its version when it was opened, ``cores`` how many there are for it.

    ``limit`` is the number of files in a batch.  ``skips`` and ``pairs``: see ``Changes``.
    """

    log: DeltaLog
    declared: Declared
    table: str
    begin: Begin
    cores: int
    limit: int | None = None
    skips: bool = False
    pairs: bool = False
    settings: str = field(default_factory=encoded_s3_settings, repr=False)  # with secrets

    @property
    def first(self) -> Place:
        """The place where it begins."""
        return Place.first(self.table, self.declared.stream, self.begin)

    def changes(self) -> Changes:
        """The table's files, for the process that this is called in."""
        set_s3_settings(json.loads(self.settings))
        return Changes(self.log, self.declared, skips=self.skips, pairs=self.pairs)


def stream_of(spark: SparkSession, listing: Listing) -> DataFrame:
    """Return a streaming frame of a row for each task (``files``: see ``engine.delta.encoded``)."""
    return spark.readStream.format(_registered(spark, listing)).load()


def snapshot_of(spark: SparkSession, listing: Listing) -> DataFrame:
    """Return a batch frame of the files of the snapshot with which the listing begins."""
    return spark.read.format(_registered(spark, listing)).load()


def _registered(spark: SparkSession, listing: Listing) -> str:
    class DeltaFiles(DataSource):
        """A class for this table alone: Spark passes only options to a data source, and would show them in plans."""

        format = f"watersmeet_delta_{next(_numbers)}"

        @classmethod
        def name(cls) -> str:
            return cls.format

        def schema(self) -> str:
            return "files STRING"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return _Planner(listing)

        def reader(self, schema: StructType) -> DataSourceReader:
            return _SnapshotReader(listing)

    spark.dataSource.register(DeltaFiles)
    return DeltaFiles.format


class _FilesReader:
    """Reads what ``partitions_of`` has made: a task only passes on what it got."""

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Yield the files of a partition."""
        yield (partition.value,)


@dataclass(slots=True)
class _Planner(_FilesReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches, in a Python process beside the driver."""

    listing: Listing
    _changes: Changes | None = field(default=None, init=False)
    _last: int | None = field(default=None, init=False)

    def initialOffset(self) -> dict[str, Any]:
        return self.listing.first.encoded()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.listing.limit is None else ReadMaxFiles(self.listing.limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._opened()
        self._last = self.listing.log.open().version()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return self._opened().latest(self._place(start), files, self._last).encoded()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return partitions_of(self._opened().files(self._place(start), self._place(end)), self.listing.cores)

    def _place(self, offset: dict[str, Any]) -> Place:
        place = Place.decoded(offset)
        require_same(place.table, self.listing.table, self.listing.log.shown)
        return place

    def _opened(self) -> Changes:
        if self._changes is None:
            self._changes = self.listing.changes()
        return self._changes


@dataclass(slots=True)
class _SnapshotReader(_FilesReader, DataSourceReader):
    """Plans the reading of a snapshot."""

    listing: Listing

    def partitions(self) -> list[InputPartition]:
        first = self.listing.first
        end = replace(first, version=first.version + 1, snapshot=False)
        return partitions_of(self.listing.changes().files(first, end), self.listing.cores)


def partitions_of(files: Iterable[tuple[ListedFile, int]], cores: int) -> list[InputPartition]:
    """Return files in groups for tasks, as Spark groups them: of at most 128 MB, fewer if cores would be idle."""
    listed = [(file, size + _OPEN_BYTES) for file, size in files]
    most = min(_MOST_BYTES, max(_OPEN_BYTES, sum(size for _, size in listed) // max(cores, 1)))
    groups: list[list[ListedFile]] = []
    nbytes = 0
    for file, size in listed:
        if not groups or nbytes + size > most:
            groups.append([])
            nbytes = 0
        groups[-1].append(file)
        nbytes += size
    return [InputPartition(encoded(group)) for group in groups]
