"""Queries of test cases that run side by side in one Spark query, step i of each in the same micro-batch.

Every query has its own operators, state and frontiers.  The results are combined by UNION; each row has the number of
its query.  Two queries at once are as fast as one after the other, and share the cost of restarts.  With four or more,
planning takes longer than that saves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.engine.control_events import Event
from watersmeet.errors import CatalogError, WatersmeetError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.buckets import new_buckets
from watersmeet.runtime.checkpoint_files import BY_RENAMES, with_settings
from watersmeet.runtime.dataflow import build
from watersmeet.runtime.failures import planning, translate
from watersmeet.runtime.metrics import ProgressReader, counters_of
from watersmeet.runtime.task_frames import Resources
from watersmeet.sql.statements import Query
from watersmeet.testing.cells import Row, Value, parse_cell
from watersmeet.testing.feed import Portion, control_frame, read_feed, stream_source, write_feed
from watersmeet.testing.nested_cells import is_nested
from watersmeet.testing.nested_json import nested_value
from watersmeet.testing.rig import PlannedQuery, StepInput, StepOutcome
from watersmeet.testing.tables import TableFiles

_NAME = "of the test"
#: Spark's default forks processes for each file that it creates on a local disk.
QUICK_FILES = {
    **BY_RENAMES,
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
}


class QueryRun(PlannedQuery):
    """One query of a group, and what it has emitted."""

    def __init__(
        self,
        number: int,
        streams: Mapping[str, StreamDef],
        plan: PhysicalPlan,
        tables: TableFiles,
        *,
        has_raw: bool,
    ) -> None:
        super().__init__(plan, ())  # the types of its columns are known once its dataflow is built
        self._tables = tables
        self.number = number
        self.streams = streams
        self.has_raw = has_raw
        self.changes: list[tuple[int, Row]] = []
        self.counters: dict[str, int] = {}
        self.fed: Counter[str] = Counter()

    @property
    def label(self) -> str:
        """The suffix of its metrics, unique in the group."""
        return f"_{self.number}"

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Replace the rows of an external table."""
        self._tables.fill(self.streams[table.lower()], rows)

    def portions(self, inputs: Mapping[str, StepInput]) -> Iterator[Portion]:
        """Yield the step's rows for the feed; row numbers continue from the steps before."""
        for name, rows in inputs.items():
            if name.lower() not in self.streams:
                raise CatalogError(f"there is no stream {name}")
            yield Portion(self.number, name.lower(), self.fed[name.lower()], rows.rows, rows.raw)
            self.fed[name.lower()] += len(rows.rows) + len(rows.raw)

    def take(self) -> StepOutcome:
        """Return what the query has emitted since the last call."""
        outcome = StepOutcome(self.changes, counters=dict(self.counters))
        self.changes = []
        return outcome


class SparkGroup:
    """Several queries in one Spark query over one feed, in a folder of their own; call ``close`` at the end.

    Call ``add`` for all queries before the first ``step``, which starts them.  ``buckets`` applies to queries whose
    SETTINGS do not name a number.
    """

    def __init__(self, spark: SparkSession, folder: Path, *, buckets: int = 2) -> None:
        self._spark = spark
        self._folder = folder
        self._feed = folder / "feed"
        self._checkpoint = folder / "checkpoint"
        self._feed.mkdir(parents=True)
        self._source = read_feed(spark, self._feed)
        self._default_buckets = buckets
        self._resources = Resources()
        self._runs: list[QueryRun] = []
        self._frames: dict[int, DataFrame] = {}
        self._query: StreamingQuery | None = None
        self._progress = ProgressReader()
        self._steps = 0

    def add(self, streams: Mapping[str, StreamDef], query: Query, *, has_raw: bool = True) -> QueryRun:
        """Add a query; raises the errors of its plan."""
        tables = TableFiles(self._folder / f"tables-{len(self._runs)}")
        plan = plan_query(query, streams, tables.open)
        run = QueryRun(len(self._runs), streams, plan, tables, has_raw=has_raw)
        with planning(_NAME):
            self._frames[run.number] = self._build(run)
        self._runs.append(run)
        return run

    def restart(self) -> None:
        """Stop; the next step continues from the checkpoint, with nothing in the workers' memory."""
        if self._query is not None:
            self.close()
            self._frames = {}

    def step(
        self, inputs: Mapping[int, Mapping[str, StepInput]], events: Mapping[int, Sequence[Event]]
    ) -> dict[int, StepOutcome]:
        """Run one micro-batch with the queries' rows and control events, by number; return the outcomes of all."""
        if self._query is None:
            self._start()
        assert self._query is not None
        by_number = {run.number: run for run in self._runs}
        portions = [portion for number, rows in inputs.items() for portion in by_number[number].portions(rows)]
        if write_feed(self._feed, self._steps, portions, events):
            self._steps += 1
            try:
                self._query.processAllAvailable()
            except PySparkException as error:
                raise _failed(error) from None
            self._take_counters(self._query)
        return {run.number: run.take() for run in self._runs}

    def close(self) -> None:
        """Stop the Spark query; keep the folder."""
        if self._query is not None:
            with suppress(PySparkException, Py4JError):
                self._query.stop()
            self._query = None

    def _start(self) -> None:
        for run in self._runs:
            if run.number not in self._frames:
                self._frames[run.number] = self._build(run)
        union = reduce(DataFrame.unionAll, (self._frames[run.number] for run in self._runs))
        writer = union.writeStream.option("checkpointLocation", str(self._checkpoint)).foreachBatch(self._collect)
        with with_settings(self._spark, QUICK_FILES):
            self._query = writer.start()

    def _build(self, run: QueryRun) -> DataFrame:
        """Return the query's results as (query, weight, cells as text).

        All queries select from the same frame, so Spark lists the feed once per batch for all of them.
        """
        feed = self._source
        sources = {
            name: stream_source(feed, run.number, stream, has_raw=run.has_raw)
            for name, stream in run.streams.items()
            if not stream.outside
        }
        control = control_frame(feed, run.number)
        buckets = new_buckets(self._spark, run.plan.query.settings.buckets or self._default_buckets)
        dataflow = build(self._spark, run.plan, sources, buckets, self._resources, control=control, label=run.label)
        names = [each.name for each in run.plan.outputs]
        fields = list(dataflow.frame.schema)
        run.column_types = [each.dataType.simpleString() for each in fields[: len(names)]]
        places = [each.name.lower() for each in fields]
        numbered = dataflow.frame.toDF(*(f"c{i}" for i in range(len(fields))))
        texts = [_text(f"c{i}", kind) for i, kind in enumerate(run.column_types)]
        weight = F.col(f"c{places.index(TP_DELTA)}") if run.plan.weighted else F.lit(1)
        return numbered.select(
            F.lit(run.number).alias("query"), weight.cast("int").alias("weight"), F.array(*texts).alias("cells")
        )

    def _collect(self, frame: DataFrame, batch_id: int) -> None:
        for number, weight, cells in frame.collect():
            run = self._runs[number]
            row = tuple(_value(cell, kind) for cell, kind in zip(cells, run.column_types, strict=True))
            run.changes.append((weight, row))

    def _take_counters(self, query: StreamingQuery) -> None:
        for progress in self._progress.new(query):
            for run in self._runs:
                run.counters.update(counters_of(progress, run.label))


def _text(name: str, kind: str) -> Column:
    """A column of results as text; nested values are JSON."""
    if is_nested(kind):
        return F.to_json(name, {"ignoreNullFields": "false"})
    return F.hex(name) if kind == "binary" else F.col(name).cast("string")


def _value(text: str | None, kind: str) -> Value:
    """The value of such a text."""
    if text is None or not is_nested(kind):
        return parse_cell(text, kind)
    found: Value = nested_value(json.loads(text, parse_float=str), kind, lambda part, of: parse_cell(_plain(part), of))
    return found


def _plain(part: object) -> str:
    return str(part).lower() if isinstance(part, bool) else str(part)


def _failed(error: PySparkException) -> WatersmeetError:
    translated = translate(error, _NAME)
    if type(translated) is WatersmeetError:
        translated.hint = None  # it mentions the checkpoint, which a test does not keep
    return translated
