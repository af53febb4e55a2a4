"""A physical plan as a Spark streaming DataFrame.

    source ─ project, mark ─ pack ─┐
    Parquet files ─ read and pack ─┼─ union ─ by bucket ─ operator ─ … ─ operator ─ unpack ─ SELECT list
    control events ────────────────┘

Spark evaluates expressions over one source before its rows are packed, and the SELECT list and the rest of WHERE after
the last operator.  In between, rows travel in frames (engine/frames.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.columns import STORED_FRONTIER, spark_name
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.unpack import FRONTIER
from watersmeet.errors import CheckpointError
from watersmeet.kernels.api import FOREVER
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.task_specs import Tasks, joint_tasks, task_specs
from watersmeet.plan.worker_specs import NOTHING_KEPT, KeptBuckets, operator_specs, pack_specs
from watersmeet.runtime.batch_results import BatchResults, OfQuery
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.metrics import METRICS, RESULTS, observed_counters, rows_in_frames
from watersmeet.runtime.process_folder import new_folder
from watersmeet.runtime.select_list import select_list
from watersmeet.runtime.source_frames import Source, input_schemas, parts_of
from watersmeet.runtime.spark_checks import check_functions, check_time_zone
from watersmeet.runtime.task_frames import Resources, TaskFrames, one_at_a_time
from watersmeet.runtime.worker_tasks import UnpackTask


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A built query: its frame, how a batch of it becomes results, its operators, and the folder of this run.

    ``tasks`` are the operators that run in one task, by name.
    """

    frame: DataFrame
    results: BatchResults
    operators: tuple[OperatorSpec, ...]
    tasks: tuple[tuple[str, ...], ...]
    folder: str


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
    tasks: Sequence[tuple[str, ...]] | None = None,
) -> Dataflow:
    """Build the query over its sources (by stream name in lower case).

    Where several queries run as one, the frame holds the results of all, and ``results`` splits each batch of it.

    With a ``frontier_lag`` the result has a column ``_frontier``, and rows that hold nothing else: the last operator's
    frontier minus the lag.  ``control`` is a streaming frame of control events (``value``: a line of JSON), if the
    query has one.  ``label`` ends the names of its metrics, for several queries that run as one.  ``kept`` are the
    buckets of operators that have others, ``tasks`` those of its checkpoint (None: it has none yet).

    Raises ``BindError`` for a function that Spark does not have, and ``CheckpointError`` if the operators of its tasks
    cannot run together.
    """
    for query in plan.queries:
        check_functions(spark, query)
        check_time_zone(spark, query)
    schemas = input_schemas(spark, plan, sources)
    operators, joint = _specs(plan, schemas, sources, buckets, kept, tasks)
    folder = new_folder()
    exchange = Exchange(folder if workers_are_here(spark) else None)
    frames = TaskFrames(spark, plan, sources, schemas, operators, joint, resources, folder, exchange, control)
    built = partial(Dataflow, operators=tuple(operators), tasks=joint.names, folder=folder)
    with one_at_a_time:
        reports = sum(len(spec.buckets) for spec in operators)
        observed = frames.results().observe(METRICS + label, observed_counters(reports))
        if plan.is_shared:
            of_queries = _of_queries(plan, operators[-1], resources, exchange)
            # counted before conditions that only Spark evaluates, as each query's results are written by themselves
            observed = observed.observe(RESULTS + label, rows_in_frames().alias("rows_out"))
            return built(observed, BatchResults(of_queries))
        schema = operators[-1].output
        if frontier_lag is not None:
            schema = schema.append(pa.field(FRONTIER, pa.int64()))
        unpacked = _unpacked(observed, schema, resources.side_folder, exchange)
    if frontier_lag is None:
        result, counted = select_list(plan, unpacked), F.count(F.lit(1))
    else:
        result, counted = _with_frontier(plan, unpacked, frontier_lag), F.count_if(F.col(STORED_FRONTIER).isNull())
    return built(result.observe(RESULTS + label, counted.alias("rows_out")), BatchResults())


def specs_of(
    spark: SparkSession,
    plan: PhysicalPlan,
    sources: Mapping[str, Source],
    buckets: Sequence[int],
    kept: KeptBuckets,
    tasks: Sequence[tuple[str, ...]] | None,
) -> tuple[list[OperatorSpec], Tasks]:
    """The specs of a query's operators and tasks over its sources, as ``build`` has them."""
    return _specs(plan, input_schemas(spark, plan, sources), sources, buckets, kept, tasks)


def _specs(
    plan: PhysicalPlan,
    schemas: Sequence[pa.Schema],
    sources: Mapping[str, Source],
    buckets: Sequence[int],
    kept: KeptBuckets,
    tasks: Sequence[tuple[str, ...]] | None,
) -> tuple[list[OperatorSpec], Tasks]:
    operators = operator_specs(plan, schemas, parts_of(plan, sources), buckets, kept)
    plan = replace(plan, tasks=tasks_of(plan, operators, schemas, tasks))
    return operators, task_specs(plan, operators, pack_specs(plan, schemas, buckets, kept), schemas)


def tasks_of(
    plan: PhysicalPlan,
    operators: Sequence[OperatorSpec],
    schemas: Sequence[pa.Schema],
    stored: Sequence[tuple[str, ...]] | None,
) -> tuple[tuple[int, ...], ...]:
    """The operators that run in one task: those of the checkpoint, or all that can.

    Raises ``CheckpointError`` if those of the checkpoint cannot.
    """
    possible = joint_tasks(plan, operators, schemas)
    if stored is None:
        return possible
    numbers = {operator.name: number for number, operator in enumerate(plan.operators)}
    found = tuple(tuple(numbers[name] for name in task if name in numbers) for task in stored)
    if not set(found) <= set(possible):
        raise CheckpointError(
            "the checkpoint was made by operators that ran in one task, which this query's cannot",
            detail="; ".join(", ".join(task) for task in stored),
            hint="run the query and the version of Watersmeet that made it, or start on a new checkpoint",
        )
    return found


# -- after the operators -----------------------------------------------------------------------------------------------


def _unpacked(frames: DataFrame, schema: pa.Schema, side_folder: str | None, exchange: Exchange) -> DataFrame:
    task = UnpackTask(schema, exchange, side_folder)
    return frames.mapInArrow(task.run, from_arrow_schema(schema))


def _of_queries(plan: PhysicalPlan, spec: OperatorSpec, resources: Resources, exchange: Exchange) -> list[OfQuery]:
    """How the frames of a shared operator become the results of each query."""

    def of_query(number: int, query: PhysicalPlan, schema: pa.Schema, frames: DataFrame) -> DataFrame:
        own = frames.where(F.col("input") == number)  # counters and side rows have input 0: the first query takes them
        side_folder = resources.side_folder if number == 0 else None
        with one_at_a_time:
            rows = _unpacked(own, schema, side_folder, exchange)
        return select_list(query, rows)

    return [
        partial(of_query, number, query, schema)
        for number, (query, schema) in enumerate(zip(plan.queries, spec.outputs, strict=True))
    ]


def _with_frontier(plan: PhysicalPlan, rows: DataFrame, lag: int) -> DataFrame:
    """The SELECT list and ``_frontier``; rows that hold nothing else pass."""
    frontier = F.col(spark_name(FRONTIER))
    behind = F.when(frontier == FOREVER, frontier).otherwise(frontier - F.lit(lag))
    stored = rows.withColumn(STORED_FRONTIER, behind)
    return select_list(plan, stored, frontier.isNotNull(), also=(STORED_FRONTIER,))
