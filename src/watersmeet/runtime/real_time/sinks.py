"""What a sink does in real time: rows are written as they come, not batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs
from pyspark.sql import Column, DataFrame, SparkSession

from watersmeet.errors import CheckpointError
from watersmeet.filesystems import filesystem_of


@dataclass(frozen=True, slots=True)
class RunName:
    """What marks the results of a run.

    ``query`` names query and checkpoint, ``run`` is the run's number.  ``firsts`` has the first epochs of this and
    earlier runs, by number: what a run's predecessors gave from that epoch on comes again.  In ``folder`` a sink may
    keep files.  One of ``successors``, which are files, is there once the next run has begun.
    """

    query: str
    run: int
    firsts: Mapping[int, int]
    folder: str
    successors: Sequence[str]

    def refuse_later_run(self) -> None:
        """Raise ``CheckpointError`` if the next run has begun: what is left of this one must not write."""
        for file in self.successors:
            filesystem, path = filesystem_of(file)
            if filesystem.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
                raise CheckpointError(
                    f"the next run of this query has begun: run {self.run} writes nothing any more",
                    hint="if two processes run this query, end one of them",
                )


@dataclass(frozen=True, slots=True)
class ByTasks:
    """The tasks that bring rows write them: ``write`` takes those that have come together, with ``_wm_epoch``."""

    write: Callable[[pa.Table], None]


@dataclass(frozen=True, slots=True)
class ByKafka:
    """Spark writes rows as records of a topic.

    ``record`` takes a frame of result columns and says whether a row is one of them; it returns key, value and headers.
    ``options`` are those of Spark's sink.
    """

    topic: str
    record: Callable[[DataFrame, Column], Sequence[Column]]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LiveSink:
    """A sink in real time.

    ``open`` says how the results of a run are written, and ``rows`` turns results into the columns that are: those of
    a frame that come before ``_wm_is_own``.  ``close`` is called when the run has ended.  ``take_back`` is called
    before a run that others came before, with the time after which epochs that did not commit began (None: at any
    time).
    """

    open: Callable[[SparkSession, RunName], ByTasks | ByKafka]
    rows: Callable[[DataFrame], DataFrame] = lambda frame: frame
    close: Callable[[], None] = lambda: None
    take_back: Callable[[SparkSession, RunName, float | None], None] = lambda *_: None
