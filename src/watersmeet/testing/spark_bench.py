"""Running the cases of the test notation on Spark.

The queries of several cases can run side by side in one Spark query, step i of each in the same micro-batch: every
case keeps its own operators, state and frontiers, and their results are united, each row tagged with its case.  Two in
one query are as fast as one after the other and share what a restart costs; from four on, planning eats the gain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import count
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.catalog import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.engine.events import Event
from watersmeet.engine.routing import bucket_numbers
from watersmeet.errors import CatalogError, WatersmeetError
from watersmeet.plan.physical import PhysicalPlan, plan
from watersmeet.runtime.dataflow import Resources, build
from watersmeet.runtime.metrics import counters_of
from watersmeet.runtime.query import translate
from watersmeet.sql.bind import bind
from watersmeet.sql.statements import Query
from watersmeet.testing.cells import Row, parse_cell
from watersmeet.testing.feed import Portion, control_frame, read_feed, stream_source, write_feed
from watersmeet.testing.harness import StepInput, StepOutcome, load_script
from watersmeet.testing.notation import Case
from watersmeet.testing.runner import Failure, Turn, case_turns, run_case

#: Each file that Spark's default manager creates on a local disk forks a process; nothing here must outlive a crash.
_QUICK_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
}


@dataclass(slots=True)
class QueryRun:
    """One query of a group: what a case asks of it, and what it has brought."""

    number: int
    streams: Mapping[str, StreamDef]
    plan: PhysicalPlan
    has_raw: bool
    column_types: list[str] = field(default_factory=list)
    changes: list[tuple[int, Row]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    fed: Counter[str] = field(default_factory=Counter)

    @property
    def label(self) -> str:
        """What tells its metrics from those of its neighbours."""
        return f"_{self.number}"

    @property
    def is_ordered(self) -> bool:
        """Whether results come in the order of ORDER BY."""
        return self.plan.query.ordering is not None

    def inputs_of(self, stream: str) -> tuple[str, ...]:
        """The aliases under which the query reads a stream."""
        named = stream.lower()
        return tuple(part.input.alias for part in self.plan.inputs if part.input.stream.name.lower() == named)

    def portions(self, inputs: Mapping[str, StepInput]) -> Iterator[Portion]:
        """The step's rows for the feed, numbered on from those before."""
        for name, given in inputs.items():
            if name.lower() not in self.streams:
                raise CatalogError(f"there is no stream {name}")
            yield Portion(self.number, name.lower(), self.fed[name.lower()], given.rows, given.raw)
            self.fed[name.lower()] += len(given.rows) + len(given.raw)

    def take(self) -> StepOutcome:
        """What has come since the last call."""
        outcome = StepOutcome(self.changes, counters=dict(self.counters))
        self.changes = []
        return outcome


class SparkGroup:
    """Several queries in one Spark query over one feed, in a folder of their own; ``close`` it at the end.

    ``add`` the queries first; the first step starts them.  With ``cache_bytes = 1`` a worker keeps one bucket's set.
    """

    def __init__(self, spark: SparkSession, folder: Path, *, buckets: int = 2, cache_bytes: int = 1 << 30) -> None:
        self._spark = spark
        self._feed = folder / "feed"
        self._checkpoint = folder / "checkpoint"
        self._feed.mkdir(parents=True)
        self._source = read_feed(spark, self._feed)
        self._buckets = bucket_numbers(buckets, int(str(spark.conf.get("spark.sql.shuffle.partitions"))))
        self._resources = Resources(cache_bytes=cache_bytes)
        self._runs: list[QueryRun] = []
        self._frames: dict[int, DataFrame] = {}
        self._query: StreamingQuery | None = None
        self._last_batch = -1
        self._steps = 0

    def add(self, streams: Mapping[str, StreamDef], query: Query, *, has_raw: bool = True) -> QueryRun:
        """Take one more query in; raises what is wrong with it."""
        run = QueryRun(len(self._runs), streams, plan(bind(query, streams)), has_raw)
        self._frames[run.number] = self._build(run)
        self._runs.append(run)
        return run

    def restart(self) -> None:
        """Stop; the next step goes on from the checkpoint, with nothing in the workers' memory."""
        if self._query is not None:
            self.close()
            self._frames = {}

    def step(
        self, inputs: Mapping[int, Mapping[str, StepInput]], events: Mapping[int, Sequence[Event]]
    ) -> dict[int, StepOutcome]:
        """One micro-batch with rows and control events of any of the queries, by number; outcomes of all."""
        if self._query is None:
            self._start()
        assert self._query is not None
        by_number = {run.number: run for run in self._runs}
        portions = [portion for number, given in inputs.items() for portion in by_number[number].portions(given)]
        if write_feed(self._feed, self._steps, portions, events):
            self._steps += 1
            try:
                self._query.processAllAvailable()
            except PySparkException as error:
                raise translate(error, "of the test") from None
            self._take_counters(self._query)
        return {run.number: run.take() for run in self._runs}

    def close(self) -> None:
        """Stop the Spark query; the folder stays."""
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
        with _settings(self._spark, _QUICK_FILES):
            self._query = writer.start()

    def _build(self, run: QueryRun) -> DataFrame:
        """The query's results as (query, weight, cells as text).

        All queries select from one and the same frame: so Spark lists the feed once for all of them in each batch.
        """
        feed = self._source
        sources = {
            name: stream_source(feed, run.number, stream, has_raw=run.has_raw) for name, stream in run.streams.items()
        }
        control = control_frame(feed, run.number)
        dataflow = build(
            self._spark, run.plan, sources, self._buckets, self._resources, control=control, label=run.label
        )
        names = [each.name for each in run.plan.outputs]
        fields = list(dataflow.frame.schema)
        run.column_types = [each.dataType.simpleString() for each in fields[: len(names)]]
        places = [each.name.lower() for each in fields]
        numbered = dataflow.frame.toDF(*(f"c{i}" for i in range(len(fields))))
        texts = [
            F.hex(f"c{i}") if kind == "binary" else F.col(f"c{i}").cast("string")
            for i, kind in enumerate(run.column_types)
        ]
        weight = F.col(f"c{places.index(TP_DELTA)}") if run.plan.weighted else F.lit(1)
        return numbered.select(
            F.lit(run.number).alias("query"), weight.cast("int").alias("weight"), F.array(*texts).alias("cells")
        )

    def _collect(self, frame: DataFrame, batch_id: int) -> None:
        for number, weight, cells in frame.collect():
            run = self._runs[number]
            row = tuple(parse_cell(cell, kind) for cell, kind in zip(cells, run.column_types, strict=True))
            run.changes.append((weight, row))

    def _take_counters(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            if int(progress["batchId"]) <= self._last_batch:
                continue
            told = {run.number: counters_of(progress, run.label) for run in self._runs}
            if any(told.values()):  # a report without any is of a trigger that found nothing, and counts ahead
                self._last_batch = int(progress["batchId"])
            for run in self._runs:
                run.counters.update(told[run.number])


class SparkBench:
    """One query on Spark: what the harness is without it (``runner.Bench``)."""

    def __init__(
        self, spark: SparkSession, folder: Path, streams: Mapping[str, StreamDef], query: Query, *, buckets: int = 2
    ) -> None:
        self._group = SparkGroup(spark, folder, buckets=buckets)
        self._run = self._group.add(streams, query)

    @property
    def column_types(self) -> list[str]:
        """Spark type names of the result's columns."""
        return self._run.column_types

    @property
    def is_ordered(self) -> bool:
        """Whether results come in the order of ORDER BY."""
        return self._run.is_ordered

    def inputs_of(self, stream: str) -> tuple[str, ...]:
        """The aliases under which the query reads a stream."""
        return self._run.inputs_of(stream)

    def restart(self) -> None:
        """Forget everything that is not durable."""
        self._group.restart()

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed rows by stream name and control events; what comes out comes back."""
        return self._group.step({0: inputs}, {0: events})[0]

    def close(self) -> None:
        """Stop its Spark query."""
        self._group.close()


@contextmanager
def spark_benches(
    spark: SparkSession, folder: Path
) -> Iterator[Callable[[Mapping[str, StreamDef], Query], SparkBench]]:
    """Makes benches one after another, for ``run_case``; each new one, and the end, stops the one before."""
    made: list[SparkBench] = []
    numbers = count()

    def make(streams: Mapping[str, StreamDef], query: Query) -> SparkBench:
        while made:
            made.pop().close()
        made.append(SparkBench(spark, folder / f"bench-{next(numbers)}", streams, query))
        return made[-1]

    try:
        yield make
    finally:
        while made:
            made.pop().close()


def run_group(
    spark: SparkSession, cases: Sequence[Case], folder: Path, *, buckets: int = 2, cache_bytes: int = 1 << 30
) -> list[Failure | None]:
    """Run cases side by side; for each None, or the first difference.

    A restart that one of them asks for restarts all, which must change nothing.  Where the machinery itself breaks
    off, the cases are run again one by one, to tell whose fault it is.
    """
    failures: list[Failure | None] = [None] * len(cases)
    group = SparkGroup(spark, folder / "group", buckets=buckets, cache_bytes=cache_bytes)
    try:
        _run_together(group, cases, failures)
    except Exception:  # noqa: BLE001 - whatever it is, the single runs tell it again
        group.close()
        with spark_benches(spark, folder) as make:
            return [_run_alone(case, make) for case in cases]
    finally:
        group.close()
    return failures


def _run_together(group: SparkGroup, cases: Sequence[Case], failures: list[Failure | None]) -> None:
    runs = {}
    for index, case in enumerate(cases):
        if case.error is not None:
            failures[index] = run_case(case)
            continue
        streams, query = load_script(case.script)
        has_raw = any(block.raw for step in case.steps for block in step.inputs)
        runs[index] = group.add(streams, query, has_raw=has_raw)
    turns = {index: case_turns(cases[index], run.streams, run) for index, run in runs.items()}
    due: dict[int, Turn] = {}
    outcomes: dict[int, StepOutcome] = {}
    while turns:
        for index in list(turns):
            try:
                due[index] = turns[index].send(outcomes.get(runs[index].number))  # type: ignore[arg-type]
            except StopIteration as end:
                failures[index] = end.value
                due.pop(index, None)
                del turns[index]
            except WatersmeetError as error:
                failures[index] = Failure(cases[index].line, str(error))
                due.pop(index, None)
                del turns[index]
        if not due:
            return
        if any(turn.restart for turn in due.values()):
            group.restart()
        by_number = {runs[index].number: turn for index, turn in due.items()}
        outcomes = group.step(
            {number: turn.inputs for number, turn in by_number.items()},
            {number: turn.events for number, turn in by_number.items()},
        )


def _run_alone(case: Case, make: Callable[[Mapping[str, StreamDef], Query], SparkBench]) -> Failure | None:
    try:
        return run_case(case, make)
    except Exception as error:  # noqa: BLE001 - told as this case's failure
        return Failure(case.line, f"broke off: {type(error).__name__}: {error}")


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings that a query takes with it when it starts; the session has its own again afterwards."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)
