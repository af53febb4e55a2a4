"""Plans and reads the batches of a Python data source as Spark does, without Spark: a log of offsets, and replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

Row = dict[str, Any]


class PlannedBatches:
    """A query that reads one source.  ``make`` makes a reader, as Spark does for each run."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.reader: Any = None
        self.offsets: list[Any] = []
        self.committed = 0
        self.rows: list[Row] = []
        self.abandoned: list[Any] = []

    def restart(self) -> None:
        """Forget the reader; it lives on, as the process beside a driver that was killed does for a while."""
        if self.reader is not None:
            self.abandoned.append(self.reader)
        self.reader = None

    def close(self) -> None:
        """End all readers."""
        self.stop()
        for reader in self.abandoned:
            reader.stop()

    def stop(self) -> None:
        """End the run."""
        if self.reader is not None:
            self.reader.stop()
        self.reader = None

    def batch(self, limit: ReadLimit | None = None, *, dies: bool = False) -> list[Row]:
        """Take the next batch; with ``dies``, only plan and read it: it is planned and read again."""
        if self.reader is None:
            self.reader = self._make()
        reader = self.reader
        if len(self.offsets) == 0:
            self.offsets.append(reader.initialOffset())
            self.planned()
        if self.committed == len(self.offsets) - 1:
            end = reader.latestOffset(self.offsets[-1], limit or reader.getDefaultReadLimit())
            if end == self.offsets[-1]:
                return []
            self.offsets.append(end)
            self.planned()
        start, end = self.offsets[self.committed], self.offsets[self.committed + 1]
        found = [
            row
            for partition in reader.partitions(start, end)
            for rows in self._make().read(partition)
            for row in rows.to_pylist()
        ]
        if dies:
            self.restart()
            return found
        self.taken(found)
        self.committed += 1
        self.rows += found
        reader.commit(self.offsets[self.committed - 1])
        return found

    def planned(self) -> None:
        """Called when a batch is planned."""

    def taken(self, rows: list[Row]) -> None:
        """Called when a batch is about to be committed."""

    def drain(self) -> None:
        """Take all that is there now, as a run with an end does."""
        self.stop()
        self.reader = self._make()
        self.reader.prepareForTriggerAvailableNow()
        while self.batch():
            pass
        self.stop()

    def everything(self) -> list[Row]:
        """Take the rest as one batch."""
        return self.batch(ReadAllAvailable())
