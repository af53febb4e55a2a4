"""Baselines of an embedded changing stream: its newest rows up to a segment, which a new query reads in their place.

    segments    0 … 41   42 … 99   100  101 …
    baselines       41        99
    a query that begins with baseline 99 reads that file, and the segments from 100 on

A baseline holds the newest row of each primary key by (event time, position), deletes included, because an older row
may still arrive.  It holds all bad rows too, which are quarantined as if they were in their segments.  It has the
number of the last segment that it covers, and so have the positions of its rows: later rows of the same time replace
them.  A baseline is written once and never changes.  Spark skips its folder, whose name begins with ``_``, when it
lists the log's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import SEQUENCE, spark_name
from watersmeet.connectors.deltas import change_reason, given_delta
from watersmeet.engine.pack import GREATEST_TIME
from watersmeet.runtime.source_columns import internal_time

#: So many segments since the last baseline are worth a new one (benchmarks/bench_embedded_start.py).
WORTH_SEGMENTS = 50
_SUPERSEDED_SECONDS = 7 * 24 * 3600
_DIGITS = 12
_TIME, _APART, _RANK = "_wm_time", "_wm_apart", "_wm_rank"


class Baselines:
    """The folder of a log's baselines."""

    def __init__(self, log: Path) -> None:
        self.folder = log / "_baselines"

    def path(self, number: int) -> Path:
        """Return the file of a baseline."""
        return self.folder / f"{number:0{_DIGITS}d}.parquet"

    def newest(self) -> int | None:
        """Return the number of the newest baseline."""
        return max(self._numbers(), default=None)

    def is_due(self, segments: Iterable[int]) -> bool:
        """Return whether enough segments (by number) have come since the newest baseline to make another."""
        newest = self.newest()
        return sum(newest is None or number > newest for number in segments) >= WORTH_SEGMENTS

    def hold(self, until: int) -> int | None:
        """Return the number of the newest baseline up to that number, and keep it from being deleted for a while.

        Call this under the log's lock.
        """
        found = max((number for number in self._numbers() if number <= until), default=None)
        if found is not None:
            _move_time(self.path(found), self.path(found).stat().st_mtime_ns)
        return found

    def publish(self, staged: Path, number: int, segment: Path) -> None:
        """Move a staged file to its place, unless another process has made that baseline; delete superseded ones.

        It gets the modification time of its last ``segment``: Spark reads it before later ones.  Call this under the
        log's lock.
        """
        self.folder.mkdir(exist_ok=True)
        if not self.path(number).exists():
            _move_time(staged, segment.stat().st_mtime_ns)
            staged.replace(self.path(number))
        self._remove_superseded()

    def _remove_superseded(self) -> None:
        """Delete baselines with which no query is about to begin: for long, they and the next ones have not been held.

        When that was is the time at which the inode was last changed.  The modification time is that of the segment.
        """
        oldest = time.time() - _SUPERSEDED_SECONDS
        for each, following in pairwise(map(self.path, self._numbers())):
            if max(each.stat().st_ctime, following.stat().st_ctime) < oldest:
                each.unlink()

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.parquet"))


def _move_time(path: Path, changed: int) -> None:
    """Set the modification time of a file, which changes its inode now."""
    os.utime(path, ns=(changed, changed))


def numbers_after(number: int) -> str:
    """Return a Hadoop glob of the numbers of 12 digits that are greater.

    A greater number has the same first digits, then a greater digit, then any: after 41 come ``00000000004[2-9]``,
    ``0000000000[5-9][0-9]`` and so on.
    """
    digits = f"{number:0{_DIGITS}d}"
    greater = [
        f"{digits[:place]}[{int(digit) + 1}-9]{'[0-9]' * (_DIGITS - 1 - place)}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    return f"{{{','.join(greater)}}}"


def baseline_rows(rows: DataFrame, stream: StreamDef) -> DataFrame:
    """Return those of a log's rows that a baseline holds, with the same columns.

    A bad row has no place among the changes of a key, so it is one by itself.
    """
    at = internal_time(stream.event_time)
    is_change = change_reason(stream, given_delta(rows, stream)).isNull()
    is_good = is_change & F.coalesce(at.between(-GREATEST_TIME, GREATEST_TIME), F.lit(False))
    of_key = Window.partitionBy(*map(spark_name, stream.primary_key), _APART)
    rank = F.row_number().over(of_key.orderBy(F.col(_TIME).desc(), F.col(SEQUENCE).desc()))
    placed = rows.withColumns({_TIME: at, _APART: F.when(~is_good, F.col(SEQUENCE))})
    return placed.withColumn(_RANK, rank).where(F.col(_RANK) == 1).drop(_TIME, _APART, _RANK)
