"""A physical plan as a Spark streaming DataFrame.

    source ─ project, mark ─ pack ─┐
    Parquet files ─ read and pack ─┼─ union ─ by bucket ─ operator ─ … ─ operator ─ unpack ─ SELECT list
    control events ────────────────┘

Spark evaluates expressions over one source before its rows are packed, and the SELECT list and the rest of WHERE after
the last operator.  In between, rows travel in frames (engine/frames.py).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from watersmeet.columns import STORED_FRONTIER, TP_DELTA, spark_name
from watersmeet.engine.frames import FRAME_DDL, FrameKind
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.unpack import FRONTIER
from watersmeet.kernels.api import FOREVER
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalPlan
from watersmeet.plan.worker_projection import worker_projection
from watersmeet.plan.worker_specs import NOTHING_KEPT, KeptBuckets, operator_specs, pack_specs
from watersmeet.runtime.batch_results import BatchResults, OfQuery
from watersmeet.runtime.bucket_size_files import BucketSizeFiles
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.function_check import check_functions
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.memory_setting import MemorySetting
from watersmeet.runtime.metrics import METRICS, RESULTS, observed_counters, rows_in_frames
from watersmeet.runtime.process_folder import new_folder
from watersmeet.runtime.processor import OperatorProcessor
from watersmeet.runtime.real_time.tails import LiveRecords
from watersmeet.runtime.results import ReadResults, empty_results, parts_of_results, repacked, source_of_results
from watersmeet.runtime.select_list import select_items, with_hidden_columns
from watersmeet.runtime.shared_results import later_inputs, receiver
from watersmeet.runtime.source_columns import source_columns
from watersmeet.runtime.worker_records import RecordSource, RestTask, decoded_in_workers
from watersmeet.runtime.worker_scan import ParquetFiles, scanned
from watersmeet.runtime.worker_tasks import OperatorTask, PackTask, UnpackTask

# A Python function copies the session's environment when it is built, and operators change that for theirs.
one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream's rows as a source frame (see connectors/__init__.py), and the parts that have frontiers.

    ``stores_frontier``: the rows bring ``_frontier``, written by the stream's producer.  ``files`` and ``records``: the
    Parquet files or the records that hold the rows, if workers can read them.  ``live``: what a query in real time
    follows instead.
    """

    frame: DataFrame
    parts: tuple[str, ...] = ("",)
    stores_frontier: bool = False
    files: ParquetFiles | None = None
    records: RecordSource | None = None
    live: LiveRecords | None = None


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A built query: its frame, how a batch of it becomes results, its operators, and the folder of this run."""

    frame: DataFrame
    results: BatchResults
    operators: tuple[OperatorSpec, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class Resources:
    """The memory of a worker process, and folders, as paths or URIs that a restart finds again.

    - ``side_folder``: for late, bad and evicted rows.
    - ``hot_key_folder``: without it, hot keys are not spread.
    - ``size_folder``: without it, each bucket may hold an even share of a limit.
    """

    memory: MemorySetting = field(default_factory=MemorySetting)
    side_folder: str | None = None
    hot_key_folder: str | None = None
    size_folder: str | None = None


def build(
    spark: SparkSession,
    plan: PhysicalPlan,
    sources: Mapping[str, Source],
    buckets: Sequence[int],
    resources: Resources,
    control: DataFrame | None = None,
    frontier_lag: int | None = None,
    label: str = "",
    kept: KeptBuckets = NOTHING_KEPT,
) -> Dataflow:
    """Build the query over its sources (by stream name in lower case).

    Where several queries run as one, the frame holds the results of all, and ``results`` splits each batch of it.

    With a ``frontier_lag`` the result has a column ``_frontier``, and rows that hold nothing else: the last operator's
    frontier minus the lag.  ``control`` is a streaming frame of control events (``value``: a line of JSON), if the
    query has one.  ``label`` ends the names of its metrics, for several queries that run as one.  ``kept`` are the
    buckets of operators that have others.

    Raises ``BindError`` for a function that Spark does not have.
    """
    for query in plan.queries:
        check_functions(spark, query)
    schemas = input_schemas(spark, plan, sources)
    operators = operator_specs(plan, schemas, parts_of(plan, sources), buckets, kept)
    run, folder = uuid.uuid4().hex, new_folder()
    exchange = Exchange(folder if workers_are_here(spark) else None)
    packs = pack_specs(plan, schemas, buckets, kept)
    hot_keys = {spec.name: _hot_keys(spec, resources) for spec in operators}
    pack_tasks = [PackTask(spec, exchange, hot_keys[spec.operator]) for spec in packs]
    with one_at_a_time:
        results: list[DataFrame] = []
        later, passed = later_inputs(plan), set[int]()

        def packed(number: int) -> DataFrame:
            part, task = plan.inputs[number], pack_tasks[number]
            if not part.branches:
                source = sources[part.input.stream.name.lower()]
                frame = projected(part, source, plan.keeps_late)
                return _by_workers(part, source, schemas[number], task) or frame.mapInArrow(task.run, FRAME_DDL)
            below = [branch.operator for branch in part.branches]
            frames, outputs = [results[each] for each in below], [operators[each].output for each in below]
            own = receiver(plan, number)
            read = [ReadResults(part, schemas[number], task)]
            for other in later.get(number, ()):
                to = receiver(plan, other)
                name = None if to == own else plan.operators[to].name
                read.append(ReadResults(plan.inputs[other], schemas[other], pack_tasks[other], name))
            if (by_workers := repacked(frames, outputs, read)) is not None:
                passed.update(later.get(number, ()))
                return by_workers
            if len(read) > 1 and (by_workers := repacked(frames, outputs, read[:1])) is not None:
                return by_workers  # the other inputs compute the results anew
            frame = source_of_results(part, frames, outputs, exchange, task.spec.buckets)
            source = Source(frame, parts_of_results(part), stores_frontier=True)
            return projected(part, source, plan.keeps_late).mapInArrow(RestTask(task).run, FRAME_DDL)

        for operator, spec in zip(plan.operators, operators, strict=True):
            inputs = (feed.source for feed in operator.feeds if feed.source is not None)
            arriving = [packed(number) for number in inputs if number not in passed]
            arriving += [results[feed.operator] for feed in operator.feeds if feed.operator is not None]
            if control is not None:
                arriving.append(control_frames(control, spec.buckets))
            union = reduce(DataFrame.unionAll, arriving)
            results.append(_operate(spark, union, spec, run, resources, folder, exchange, hot_keys[spec.name]))
        observed = results[-1].observe(METRICS + label, observed_counters(sum(len(spec.buckets) for spec in operators)))
        if plan.is_shared:
            of_queries = _of_queries(plan, operators[-1], resources, exchange)
            # counted before conditions that only Spark evaluates, as each query's results are written by themselves
            observed = observed.observe(RESULTS + label, rows_in_frames().alias("rows_out"))
            return Dataflow(observed, BatchResults(of_queries), tuple(operators), folder)
        schema = operators[-1].output
        if frontier_lag is not None:
            schema = schema.append(pa.field(FRONTIER, pa.int64()))
        unpacked = _unpacked(observed, schema, resources, exchange)
    result = select_list(plan, unpacked, frontier_lag)
    counted = F.count_if(F.col(STORED_FRONTIER).isNull()) if frontier_lag is not None else F.count(F.lit(1))
    result = result.observe(RESULTS + label, counted.alias("rows_out"))
    return Dataflow(result, BatchResults(), tuple(operators), folder)


def specs_of(
    spark: SparkSession,
    plan: PhysicalPlan,
    sources: Mapping[str, Source],
    buckets: Sequence[int],
    kept: KeptBuckets = NOTHING_KEPT,
) -> list[OperatorSpec]:
    """The specs of a query's operators over its sources, as ``build`` has them."""
    schemas = input_schemas(spark, plan, sources)
    return operator_specs(plan, schemas, parts_of(plan, sources), buckets, kept)


def parts_of(plan: PhysicalPlan, sources: Mapping[str, Source]) -> list[tuple[str, ...]]:
    """The parts of each input that have frontiers of their own."""
    return [
        parts_of_results(part) if part.branches else sources[part.input.stream.name.lower()].parts
        for part in plan.inputs
    ]


def input_schemas(spark: SparkSession, plan: PhysicalPlan, sources: Mapping[str, Source]) -> list[pa.Schema]:
    """The columns of each input's rows as they are packed."""
    found = []
    for part in plan.inputs:
        if part.branches:
            source = Source(empty_results(spark, part), parts_of_results(part), stores_frontier=True)
        else:
            source = sources[part.input.stream.name.lower()]
        found.append(arrow_schema(projected(part, source, plan.keeps_late)))
    return found


def projected(part: PhysicalInput, source: Source, keeps_late: bool) -> DataFrame:
    """The columns of a source that an input needs, computed by Spark."""
    return source_columns(
        part,
        source.frame,
        keeps_late=keeps_late,
        has_parts=source.parts != ("",),
        stores_frontier=source.stores_frontier,
    )


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """A frame's columns as Arrow's, with times in UTC."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def _by_workers(part: PhysicalInput, source: Source, schema: pa.Schema, task: PackTask) -> DataFrame | None:
    """Frames of rows that workers read themselves; None if Spark must read the rows or compute columns."""
    files, records, keeps_late = source.files, source.records, task.spec.keeps_late
    can_show = records is not None and (records.format.is_text or not keeps_late)
    can_read = can_show or (files is not None and not keeps_late)
    declared = arrow_schema(source.frame)
    projection = worker_projection(part, declared, schema, one_row_each=files is None) if can_read else None
    if projection is None:
        return None
    if files is not None:
        return scanned(files, projection, task)
    assert records is not None

    def by_spark(frame: DataFrame) -> DataFrame:
        return projected(part, replace(source, frame=frame), keeps_late)

    return decoded_in_workers(records, projection, task, by_spark, has_parts=source.parts != ("",))


def _hot_keys(spec: OperatorSpec, resources: Resources) -> HotKeyFiles | None:
    if spec.spread is None or resources.hot_key_folder is None:
        return None
    return HotKeyFiles(resources.hot_key_folder, f"{spec.name}-{spec.fingerprint}")


def _sizes(spec: OperatorSpec, resources: Resources) -> BucketSizeFiles | None:
    if spec.max_state_bytes is None or len(spec.buckets) == 1 or resources.size_folder is None:
        return None
    return BucketSizeFiles(resources.size_folder, f"{spec.name}-{spec.fingerprint}")


def control_frames(control: DataFrame, buckets: Sequence[int]) -> DataFrame:
    """A frame of every control event for every bucket."""
    return control.select(
        F.explode(F.array(*(F.lit(bucket) for bucket in buckets))).alias("bucket"),
        F.lit(0).alias("input"),
        F.lit("").alias("part"),
        F.lit(int(FrameKind.CONTROL)).alias("kind"),
        F.lit(0).cast("bigint").alias("frontier"),
        F.coalesce(F.encode("value", "UTF-8"), F.lit(b"")).alias("payload"),
    )


# -- operators ---------------------------------------------------------------------------------------------------------


def _operate(
    spark: SparkSession,
    frames: DataFrame,
    spec: OperatorSpec,
    run: str,
    resources: Resources,
    folder: str,
    exchange: Exchange,
    hot_keys: HotKeyFiles | None,
) -> DataFrame:
    sizes = _sizes(spec, resources)
    task = OperatorTask(spec, run, resources.memory, folder, exchange, hot_keys, sizes)
    with own_workers(spark):
        return frames.groupBy("bucket").transformWithStateInPandas(
            OperatorProcessor(task), outputStructType=FRAME_DDL, outputMode="Append", timeMode="None"
        )


@contextmanager
def own_workers(spark: SparkSession) -> Iterator[None]:
    """Give Python functions that are built meanwhile a pool of workers of their own.

    Spark keeps idle workers in one pool per environment.  Operators hold state in memory; if they shared a pool with
    packing and unpacking tasks, a bucket would often meet a worker with older state.
    """
    environment = spark.sparkContext.environment
    environment["WATERSMEET_OPERATOR"] = "1"
    try:
        yield
    finally:
        del environment["WATERSMEET_OPERATOR"]


# -- after the operators -----------------------------------------------------------------------------------------------


def _unpacked(frames: DataFrame, schema: pa.Schema, resources: Resources, exchange: Exchange) -> DataFrame:
    task = UnpackTask(schema, exchange, resources.side_folder)
    return frames.mapInArrow(task.run, from_arrow_schema(schema))


def _of_queries(plan: PhysicalPlan, spec: OperatorSpec, resources: Resources, exchange: Exchange) -> list[OfQuery]:
    """How the frames of a shared operator become the results of each query."""

    def of_query(number: int, query: PhysicalPlan, schema: pa.Schema, frames: DataFrame) -> DataFrame:
        own = frames.where(F.col("input") == number)  # counters and side rows have input 0: the first query takes them
        with one_at_a_time:
            rows = _unpacked(own, schema, resources, exchange)
        return select_list(query, rows, None)

    schemas = [spec.output, *spec.further]
    return [
        partial(of_query, number, query, schema)
        for number, (query, schema) in enumerate(zip(plan.queries, schemas, strict=True))
    ]


def select_list(plan: PhysicalPlan, rows: DataFrame, frontier_lag: int | None, also: Sequence[str] = ()) -> DataFrame:
    """Evaluate the SELECT list; ``_tp_delta`` follows it if results are a changelog, then the columns ``also``.

    Rows in which one of these is NULL are no results, and pass all filters.
    """
    rows = with_hidden_columns(plan, rows)
    no_result = F.col(spark_name(FRONTIER)).isNotNull() if frontier_lag is not None else F.lit(False)
    for name in also:
        no_result |= F.col(name).isNull()
    for condition in plan.post_filters:
        rows = rows.where(no_result | F.expr(condition.sql(dialect="spark")))
    items = [item.alias(each.name) for item, each in zip(select_items(plan), plan.outputs, strict=True)]
    named = {each.name.lower() for each in plan.outputs}
    if plan.weighted and TP_DELTA not in named:
        items.append(F.col(TP_DELTA))
    if frontier_lag is not None:
        frontier = F.col(spark_name(FRONTIER))
        behind = F.when(frontier == FOREVER, frontier).otherwise(frontier - F.lit(frontier_lag))
        items.append(behind.alias(STORED_FRONTIER))
    return rows.select(*items, *also)
