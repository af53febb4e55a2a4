"""What a sink does in real time: rows are written as they come, not batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.real_time.operator_task import EPOCH

_MOST_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class RunName:
    """What marks the results of a run.

    ``query`` names query and checkpoint, ``run`` is the run's number.  ``firsts`` has the first epochs of this and
    earlier runs, by number: what a run's predecessors gave from that epoch on comes again.  In ``folder`` a sink may
    keep files.
    """

    query: str
    run: int
    firsts: Mapping[int, int]
    folder: str = ""


@dataclass(frozen=True, slots=True)
class LiveSink:
    """A sink in real time.

    ``write`` takes result rows with the column ``_wm_epoch``, and returns what writes them.  Rows in which it is NULL
    are no results.  ``close`` is called when the run has ended.  ``take_back`` is called before a run that others came
    before, with the time after which epochs that did not commit began (None: at any time).
    """

    write: Callable[[DataFrame, RunName], DataStreamWriter]
    close: Callable[[], None] = lambda: None
    take_back: Callable[[SparkSession, RunName, float | None], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes all rows that have come, together, under their own ``names``, and passes none on."""

    write: Callable[[pa.Table], None]
    names: tuple[str, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write until the epoch ends."""
        with live_task():
            arrivals = Arrivals(batches, _MOST_WAITING)
            while arrived := arrivals.take():
                rows = pa.Table.from_batches(arrived).rename_columns(self.names)
                if (rows := rows.filter(rows[EPOCH].is_valid())).num_rows:
                    self.write(rows)
        yield from ()


def written_by_workers(frame: DataFrame, write: Callable[[pa.Table], None]) -> DataStreamWriter:
    """Return what passes all rows to ``write``, in the tasks that bring them."""
    names = tuple(frame.columns)
    # Spark takes no name with a point, such as min(o.amount), for a column of a Python function's input
    numbered = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return numbered.mapInArrow(WriteTask(write, names).run, "nothing INT").writeStream.format("noop")
