"""A physical plan as a Spark streaming DataFrame.

    source ─ project, mark ─ pack ─┐
    Parquet files ─ read and pack ─┼─ union ─ by bucket ─ operator ─ … ─ operator ─ unpack ─ SELECT list
    control events ────────────────┘

Expressions over one source run in Spark before its rows are packed; the SELECT list and what is left of WHERE run in
Spark after the last operator.  Between lies the frames' world (frames.py).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from sqlglot import exp

from watersmeet.columns import BAD, PART, RAW, SEQUENCE, STORED_FRONTIER, TEXT, TIME, TP_DELTA, WEIGHT, spark_name
from watersmeet.engine.frames import FRAME_DDL, FrameKind
from watersmeet.engine.pack import GREATEST_TIME, RAW_TEXT
from watersmeet.engine.routing import bucket_numbers
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.unpack import FRONTIER, unpack
from watersmeet.expressions.times import EventTime, TimeUnit
from watersmeet.kernels.api import FOREVER
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalPlan
from watersmeet.plan.worker_projection import worker_projection
from watersmeet.plan.worker_specs import operator_specs, pack_specs
from watersmeet.runtime.exchange import Exchange, batch_id
from watersmeet.runtime.functions import check_functions
from watersmeet.runtime.hosted_operator import HostedOperator
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.runtime.metrics import METRICS, RESULTS, observed_counters
from watersmeet.runtime.packer import Packer
from watersmeet.runtime.processor import OperatorProcessor
from watersmeet.runtime.run_folder import new_folder
from watersmeet.runtime.worker_memory import give_back
from watersmeet.runtime.worker_scan import ParquetFiles, scanned

# Python functions take the environment of the session as they are built, and operators change it for theirs.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream's rows as a source frame (see connectors/__init__.py), and the parts its frontiers come from.

    ``stores_frontier``: the rows bring ``_frontier``, written by the stream's producer.  ``files``: the rows are
    those of Parquet files, which workers can read too.
    """

    frame: DataFrame
    parts: tuple[str, ...] = ("",)
    stores_frontier: bool = False
    files: ParquetFiles | None = None


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A built query: its result, the operators it consists of, and the folder of this run."""

    frame: DataFrame
    operators: tuple[OperatorSpec, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class Resources:
    """What a worker process may use for working sets, and where late and bad rows and hot keys are noted.

    Without a ``hot_key_folder``, a path or URI that a restart finds again, no key's rows are spread.
    """

    cache_bytes: int = 4 << 30
    memory_limit: str | None = None
    side_folder: str | None = None
    hot_key_folder: str | None = None


def build(
    spark: SparkSession,
    plan: PhysicalPlan,
    sources: Mapping[str, Source],
    buckets: Sequence[int],
    resources: Resources,
    control: DataFrame | None = None,
    frontier_lag: int | None = None,
    label: str = "",
) -> Dataflow:
    """The query over its sources (by stream name in lower case).

    With a ``frontier_lag`` the result has a column ``_frontier`` and rows that tell the frontier of an event time that
    lies so far behind that of the last operator.  ``control`` is a streaming frame of control events (``value``: a line
    of JSON), where the query has one.  ``label`` ends the names of its metrics, where several queries run as one.

    Raises ``BindError`` for a function that Spark does not have.
    """
    check_functions(spark, plan)
    inputs = [sources[part.input.stream.name.lower()] for part in plan.inputs]
    projected = [_project(part, source, plan.keeps_late) for part, source in zip(plan.inputs, inputs, strict=True)]
    schemas = [_arrow_schema(frame) for frame in projected]
    operators = operator_specs(plan, schemas, [source.parts for source in inputs], buckets)
    run, folder = uuid.uuid4().hex, new_folder()
    exchange = Exchange(folder if workers_are_here(spark) else None)
    packs = pack_specs(plan, schemas, buckets)
    hot_keys = {spec.name: _hot_keys(spec, resources) for spec in operators}
    packers = [Packer(spec, exchange, hot_keys[spec.operator]) for spec in packs]
    with _one_at_a_time:
        frames = [
            _scanned(part, source, schema, packer) or frame.mapInArrow(packer.pack, FRAME_DDL)
            for part, source, schema, frame, packer in zip(
                plan.inputs, inputs, schemas, projected, packers, strict=True
            )
        ]
        results: list[DataFrame] = []
        for operator, spec in zip(plan.operators, operators, strict=True):
            arriving = [frames[feed.source] for feed in operator.feeds if feed.source is not None]
            arriving += [results[feed.operator] for feed in operator.feeds if feed.operator is not None]
            if control is not None:
                arriving.append(_control_frames(control, spec.buckets))
            union = reduce(DataFrame.unionAll, arriving)
            results.append(_operate(spark, union, spec, run, resources, folder, exchange, hot_keys[spec.name]))
        observed = results[-1].observe(METRICS + label, observed_counters())
        rows = _unpacked(observed, operators[-1], resources, exchange, with_frontier=frontier_lag is not None)
    result = _select(plan, rows, frontier_lag)
    counted = F.count_if(F.col(STORED_FRONTIER).isNull()) if frontier_lag is not None else F.count(F.lit(1))
    return Dataflow(result.observe(RESULTS + label, counted.alias("rows_out")), tuple(operators), folder)


def workers_are_here(spark: SparkSession) -> bool:
    """Whether all workers are on this machine."""
    return str(spark.sparkContext.master).startswith("local[")


def new_buckets(spark: SparkSession, wanted: int | None) -> tuple[int, ...]:
    """Bucket numbers for a new query: as many as are wanted, by default one for each shuffle partition."""
    partitions = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return bucket_numbers(wanted or partitions, partitions)


# -- before the operators ----------------------------------------------------------------------------------------------


def _project(part: PhysicalInput, source: Source, keeps_late: bool) -> DataFrame:
    """The columns that packing and the operators need, computed by Spark."""
    frame = source.frame
    axis = on_axis(part.input.time)
    items: list[Column] = [axis.alias(TIME)]
    for name in part.carried:
        if name == part.sequence:
            items.append(F.col(SEQUENCE).alias(name))
        elif name not in part.hashes:
            items.append(F.expr(_sql(part.computed.get(name) or exp.column(name), part.input)).alias(name))
    for name, keys in part.hashes.items():
        if name in part.routed_by or name in part.carried:
            items.append(F.xxhash64(*(_hashable(key, part.input) for key in keys)).alias(name))
    if part.keep is not None:
        items.append(F.expr(_sql(part.keep, part.input)).alias("$keep"))
    items.append(_raw_text(part.input, frame, axis, of_all=keeps_late).alias(RAW_TEXT))
    if BAD in frame.columns:
        items.append(F.col(BAD).alias("$bad"))
    if source.parts != ("",):
        items.append(F.col(PART).alias("$part"))
    if source.stores_frontier:
        items.append(F.col(STORED_FRONTIER).alias("$frontier"))
    return frame.select(*items)


def _raw_text(input: Input, frame: DataFrame, axis: Column, *, of_all: bool) -> Column:
    """The text of rows that may have to be set aside: as it came where the source has text, else as JSON."""
    if TEXT in frame.columns:
        record = F.col(TEXT)
    else:
        record = F.to_json(F.struct(*(F.col(spark_name(column.name)) for column in input.stream.columns)))
    unusable = axis.isNull() | ~axis.between(-GREATEST_TIME, GREATEST_TIME)
    text = record if of_all else F.when(unusable, record)
    return F.coalesce(F.col(RAW), text) if BAD in frame.columns else text


def on_axis(time: EventTime) -> Column:
    """A source frame's event time as operators count it: whole microseconds, or plain numbers."""
    column = F.col(spark_name(time.column))
    match time.unit:
        case TimeUnit.TIMESTAMP:
            return F.unix_micros(column)
        case TimeUnit.TIMESTAMP_NTZ:
            return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {spark_name(time.column)})")
        case unit:
            return F.try_multiply(column.cast("bigint"), F.lit(unit.scale).cast("bigint"))


def _hashable(key: exp.Expr, input: Input) -> Column:
    """A key for hashing: −0.0 and 0.0 are equal, so they must hash alike."""
    column = F.expr(_sql(key, input))
    kind = key.args.get("to")
    if kind is not None and kind.is_type(exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT):
        return column + F.lit(0.0)
    return column


def _sql(expression: exp.Expr, input: Input) -> str:
    """Spark SQL of an expression over one input's declared columns."""

    def bare(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return exp.column(exp.to_identifier(input.declared(node.name), quoted=True))
        return node

    return expression.copy().transform(bare, copy=False).sql(dialect="spark")


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    return to_arrow_schema(frame.schema, timezone="UTC")


def _scanned(part: PhysicalInput, source: Source, schema: pa.Schema, packer: Packer) -> DataFrame | None:
    """Frames of rows that workers read themselves; None where Spark has to read or to compute them."""
    if source.files is None or packer.spec.keeps_late:
        return None
    projection = worker_projection(part, _arrow_schema(source.frame), schema)
    return scanned(source.files, projection, packer) if projection is not None else None


def _hot_keys(spec: OperatorSpec, resources: Resources) -> HotKeyFiles | None:
    if spec.spread is None or resources.hot_key_folder is None:
        return None
    return HotKeyFiles(resources.hot_key_folder, f"{spec.name}-{spec.fingerprint}")


def _control_frames(control: DataFrame, buckets: Sequence[int]) -> DataFrame:
    """Every control event, as a frame to every bucket."""
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
    operator = HostedOperator(spec, run, resources.cache_bytes, resources.memory_limit, folder, exchange, hot_keys)
    with _own_workers(spark):
        return frames.groupBy("bucket").transformWithStateInPandas(
            OperatorProcessor(operator), outputStructType=FRAME_DDL, outputMode="Append", timeMode="None"
        )


@contextmanager
def _own_workers(spark: SparkSession) -> Iterator[None]:
    """Give what is built here Python workers of its own.

    Spark keeps idle workers in pools by their environment.  Operators hold state in memory; in a pool that they share
    with packing and unpacking tasks, each batch would find another worker with older state.
    """
    environment = spark.sparkContext.environment
    environment["WATERSMEET_OPERATOR"] = "1"
    try:
        yield
    finally:
        del environment["WATERSMEET_OPERATOR"]


# -- after the operators -----------------------------------------------------------------------------------------------


def _unpacked(
    frames: DataFrame, spec: OperatorSpec, resources: Resources, exchange: Exchange, *, with_frontier: bool
) -> DataFrame:
    side_folder = resources.side_folder
    schema = spec.output.append(pa.field(FRONTIER, pa.int64())) if with_frontier else spec.output

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from unpack(map(exchange.receive, batches), schema, side_folder, batch_id())
        give_back()

    return frames.mapInArrow(run, from_arrow_schema(schema))


def _select(plan: PhysicalPlan, rows: DataFrame, frontier_lag: int | None) -> DataFrame:
    """The SELECT list, with ``_tp_delta`` as its last column where results are a changelog."""
    weight = F.col(spark_name(WEIGHT)) if plan.weighted else F.lit(1).cast("tinyint")
    restored = {name: _restored(input) for name, input in plan.restored()}
    rows = rows.withColumns({**restored, TP_DELTA: weight})
    marks = F.col(spark_name(FRONTIER)).isNotNull() if frontier_lag is not None else F.lit(False)
    for condition in plan.post_filters:
        rows = rows.where(marks | F.expr(condition.sql(dialect="spark")))
    items = [F.expr(each.expression.sql(dialect="spark")).alias(each.name) for each in plan.outputs]
    named = {each.name.lower() for each in plan.outputs}
    if plan.weighted and TP_DELTA not in named:
        items.append(F.col(TP_DELTA))
    if frontier_lag is not None:
        # the end of the axis stays where it is
        axis = F.col(spark_name(FRONTIER))
        items.append(F.when(axis == FOREVER, axis).otherwise(axis - F.lit(frontier_lag)).alias(STORED_FRONTIER))
    return rows.select(*items)


def _restored(input: Input) -> Column:
    axis = F.col(spark_name(input.time_name))
    if input.time.unit is TimeUnit.TIMESTAMP:
        return F.timestamp_micros(axis)
    declared = input.stream.column(input.time.column)
    assert declared is not None
    return F.expr(f"CAST({spark_name(input.time_name)} DIV {input.time.unit.scale} AS {declared.type})")
