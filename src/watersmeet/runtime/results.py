"""The results of operators as the rows of another operator's input.

    frames of an operator ─ unpack, SELECT list, project, pack (a worker) ─ frames

Where only Spark can compute the SELECT list or what is packed:

    frames of an operator ─ unpack ─ SELECT list (Spark) ─┐
    frames of another one ─ unpack ─ SELECT list (Spark) ─┴─ union ─ project (Spark) ─ pack ─ frames

Frontiers travel beside the rows, as those that a stream's producer stores do; frames of side rows and counters travel
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.columns import ID, PACKED, PART, SEQUENCE, STORED_FRONTIER, TP_DELTA, WEIGHT, spark_name
from watersmeet.engine.frames import FRAME_DDL, FRAME_SCHEMA
from watersmeet.engine.results import Reader, ResultProjection, packed_results, rows_with_frontiers
from watersmeet.engine.unpack import FRONTIER
from watersmeet.kernels.api import FOREVER
from watersmeet.plan.physical_plan import PhysicalInput
from watersmeet.plan.worker_results import result_projection
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.select_list import select_items, with_hidden_columns
from watersmeet.runtime.worker_tasks import PackTask, worker_task


@dataclass(frozen=True, slots=True)
class ResultTask:
    """Unpacks the frames of an operator: rows of ``schema``, the operator's frontier, and other frames whole.

    These are passed on to the operator that reads the results, which has ``buckets``.
    """

    schema: pa.Schema
    exchange: Exchange
    buckets: tuple[int, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the frames, and the frames that are no rows."""
        with worker_task():
            for batch in batches:
                yield from rows_with_frontiers(self.exchange.receive(batch), with_others(self.schema), self.buckets)


def with_others(results: pa.Schema) -> pa.Schema:
    """The columns of results, and of what travels beside them: frontiers, and frames that are no rows."""
    hidden = [pa.field(FRONTIER, pa.int64()), pa.field(PACKED, pa.struct(list(FRAME_SCHEMA)))]
    return pa.schema([*results, *hidden])


@dataclass(frozen=True, slots=True)
class RepackTask:
    """Turns the frames of an operator into those for the operators that read its results.

    ``readers`` are how results become rows of an input, what packs these, and the name of the operator where that is a
    later one.
    """

    readers: tuple[tuple[ResultProjection, PackTask, str | None], ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Frames for these operators."""
        with worker_task():
            (_, first, _), *_ = self.readers
            readers = [Reader(projection, packing.packer(), later) for projection, packing, later in self.readers]
            for batch in batches:
                received = first.exchange.receive(batch)
                yield from first.exchange.send_in_batches(packed_results(received, readers, first.spec.buckets))
            for reader in readers:
                yield from first.exchange.send_in_batches(reader.send(reader.packer.finish()))


@dataclass(frozen=True, slots=True)
class ReadResults:
    """An input over results: its part of the plan, its columns as they are packed, and what packs them.

    ``later`` is the name of the operator that it feeds, where other operators pass on what is for it.
    """

    part: PhysicalInput
    carried: pa.Schema
    packing: PackTask
    later: str | None = None


def repacked(frames: list[DataFrame], outputs: list[pa.Schema], inputs: Sequence[ReadResults]) -> DataFrame | None:
    """Frames of results for several inputs, made by workers alone; None where Spark must compute something.

    ``frames`` are those of the branches of the first input, of which there is one if there are further inputs.
    """
    tasks = []
    for number, output in enumerate(outputs):
        readers = []
        for each in inputs:
            projection = result_projection(each.part, number, output, each.carried)
            if projection is None:
                return None
            readers.append((projection, each.packing, each.later))
        tasks.append(RepackTask(tuple(readers)))
    found = [frame.mapInArrow(task.run, FRAME_DDL) for frame, task in zip(frames, tasks, strict=True)]
    return reduce(DataFrame.unionAll, found)


def parts_of_results(part: PhysicalInput) -> tuple[str, ...]:
    """The parts of an input over results that have frontiers of their own: one for each query."""
    return tuple(str(number) for number in range(len(part.branches)))


def empty_results(spark: SparkSession, part: PhysicalInput) -> DataFrame:
    """A frame without rows, and with the columns of ``source_of_results``."""
    stream = part.input.stream
    columns = {column.name: column.type for column in stream.columns}
    columns.setdefault(stream.time_column, "TIMESTAMP")
    if part.input.changes:
        columns |= {WEIGHT: "TINYINT", ID: "STRING"}
    columns |= {STORED_FRONTIER: "BIGINT", PART: "STRING", SEQUENCE: "BINARY"}
    return spark.createDataFrame([], ", ".join(f"{spark_name(name)} {kind}" for name, kind in columns.items()))


def source_of_results(
    part: PhysicalInput,
    frames: list[DataFrame],
    schemas: list[pa.Schema],
    exchange: Exchange,
    buckets: tuple[int, ...],
) -> DataFrame:
    """The results of a part's branches as a source frame: its columns, weights and ids, frontiers and other frames."""
    rows = [
        rows_of_branch(part, number, _unpacked(frame, ResultTask(schema, exchange, buckets)))
        for number, (frame, schema) in enumerate(zip(frames, schemas, strict=True))
    ]
    return reduce(DataFrame.unionAll, rows)


def _unpacked(frames: DataFrame, task: ResultTask) -> DataFrame:
    return frames.mapInArrow(task.run, from_arrow_schema(with_others(task.schema)))


def rows_of_branch(part: PhysicalInput, number: int, results: DataFrame) -> DataFrame:
    """The results of one of a part's branches as a source frame; ``results`` have the columns of ``with_others``."""
    branch, stream = part.branches[number], part.input.stream
    plan = branch.plan
    rows = with_hidden_columns(plan, results)
    is_other = F.col(spark_name(FRONTIER)).isNotNull() | F.col(PACKED).isNotNull()
    for condition in plan.post_filters:
        rows = rows.where(is_other | F.expr(condition.sql(dialect="spark")))
    items = [
        item.cast(column.type).alias(column.name)
        for item, column in zip(select_items(plan), stream.columns, strict=True)
    ]
    if not part.input.is_timed:
        items.append(F.timestamp_micros(F.lit(0)).alias(stream.time_column))
    if part.input.changes:
        id = F.col(spark_name(ID)) if plan.weighted else F.lit(None).cast("string")
        of_branch = F.concat(F.lit(f"{number}:"), id) if len(part.branches) > 1 else id
        items += [F.col(TP_DELTA).alias(WEIGHT), of_branch.alias(ID)]
    frontier = F.col(spark_name(FRONTIER))
    behind = F.when(frontier == FOREVER, frontier).otherwise(frontier - F.lit(branch.lag or 0))
    items += [
        behind.alias(STORED_FRONTIER),
        F.lit(str(number)).alias(PART),
        F.lit(b"").alias(SEQUENCE),
        F.col(PACKED),
    ]
    return rows.select(*items)
