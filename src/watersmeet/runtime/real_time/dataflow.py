"""A physical plan as a Spark query in real-time mode; see the package for its stages."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.engine.frames import FRAME_DDL
from watersmeet.engine.specs import OperatorSpec
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalPlan
from watersmeet.plan.worker_projection import worker_projection
from watersmeet.plan.worker_specs import operator_specs, pack_specs
from watersmeet.runtime.dataflow import (
    Resources,
    Source,
    arrow_schema,
    control_frames,
    one_at_a_time,
    own_workers,
    projected,
    select_list,
)
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.function_check import check_functions
from watersmeet.runtime.metrics import METRICS, RESULTS, observed_counters
from watersmeet.runtime.real_time.epochs import Epochs, RunStart
from watersmeet.runtime.real_time.operator_task import COUNTER, EPOCH, LiveOperatorTask
from watersmeet.runtime.real_time.source_task import FollowTask, LiveRestTask
from watersmeet.runtime.real_time.tails import LiveRecords
from watersmeet.runtime.real_time.ticks import MemoryTicks
from watersmeet.runtime.worker_records import RecordRows, record_rows
from watersmeet.runtime.worker_tasks import PackTask


@dataclass(frozen=True, slots=True)
class LiveDataflow:
    """A built query: its results with the column ``_wm_epoch``, its operators, and the task slots that it needs."""

    frame: DataFrame
    operators: tuple[OperatorSpec, ...]
    slots: int


def live_inputs(plan: PhysicalPlan, sources: Mapping[str, Source]) -> dict[str, LiveRecords]:
    """The sources of a plan's inputs, by alias; all of them can be followed."""
    found = {part.input.alias: sources[part.input.stream.name.lower()].live for part in plan.inputs}
    return {alias: live for alias, live in found.items() if live is not None}


def source_tasks(plan: PhysicalPlan, sources: Mapping[str, Source], buckets: Sequence[int]) -> dict[str, int]:
    """How many tasks read each input of a new query: at most one per partition, and together one per bucket."""
    share = max(1, len(buckets) // len(plan.inputs))
    return {part.input.alias: min(share, len(sources[part.input.stream.name.lower()].parts)) for part in plan.inputs}


def build_live(
    spark: SparkSession,
    plan: PhysicalPlan,
    sources: Mapping[str, Source],
    buckets: Sequence[int],
    resources: Resources,
    epochs: Epochs,
    start: RunStart,
    control: MemoryTicks,
) -> LiveDataflow:
    """Build the query over its sources (by stream name in lower case), which all can be followed.

    ``start`` is that of the query's first run, ``control`` brings control events.

    Raises ``BindError`` for a function that Spark does not have.
    """
    check_functions(spark, plan)
    inputs = [sources[part.input.stream.name.lower()] for part in plan.inputs]
    shown = [projected(part, source, plan.keeps_late) for part, source in zip(plan.inputs, inputs, strict=True)]
    schemas = [arrow_schema(frame) for frame in shown]
    specs = operator_specs(plan, schemas, [source.parts for source in inputs], buckets)
    # keys are not spread: a hot key is known only when a batch has ended
    packing = [
        PackTask(replace(spec, spreads=False), Exchange(None), None) for spec in pack_specs(plan, schemas, buckets)
    ]
    live, run, firsts = live_inputs(plan, sources), uuid.uuid4().hex, _first_tasks(plan, start)
    with one_at_a_time:
        frames = [
            _followed(spark, plan, number, source, live[part.input.alias], schema, task, epochs, start, firsts[number])
            for number, (part, source, schema, task) in enumerate(
                zip(plan.inputs, inputs, schemas, packing, strict=True)
            )
        ]
        results: list[DataFrame] = []
        for operator, spec in zip(plan.operators, specs, strict=True):
            arriving = [frames[feed.source] for feed in operator.feeds if feed.source is not None]
            arriving += [results[feed.operator] for feed in operator.feeds if feed.operator is not None]
            arriving.append(control_frames(control.frame, spec.buckets))
            shuffled = reduce(DataFrame.unionAll, arriving).repartition(len(spec.buckets), "bucket")
            step = LiveOperatorTask(
                spec, run, epochs, resources.cache_bytes, resources.memory_limit, resources.side_folder
            )
            with own_workers(spark):
                results.append(shuffled.mapInArrow(step.run, from_arrow_schema(step.schema)))
    observed = results[-1].observe(METRICS, observed_counters(COUNTER))
    result = select_list(plan, observed.where(F.col(COUNTER).isNull()), None, also=(EPOCH,))
    counted = result.observe(RESULTS, F.count(F.lit(1)).alias("rows_out"))
    slots = sum(start.tasks.values()) + sum(1 + len(spec.buckets) for spec in specs)
    return LiveDataflow(counted, tuple(specs), slots)


def _first_tasks(plan: PhysicalPlan, start: RunStart) -> dict[int, int]:
    """The number of each input's first task in its stage: an operator's sources come first there, in their order."""
    found: dict[int, int] = {}
    for operator in plan.operators:
        first = 0
        for feed in operator.feeds:
            if feed.source is not None:
                found[feed.source] = first
                first += start.tasks[plan.inputs[feed.source].input.alias]
    return found


def _followed(
    spark: SparkSession,
    plan: PhysicalPlan,
    number: int,
    source: Source,
    live: LiveRecords,
    schema: pa.Schema,
    packing: PackTask,
    epochs: Epochs,
    start: RunStart,
    first_task: int,
) -> DataFrame:
    """The frames of one input."""
    part, keeps_late = plan.inputs[number], plan.keeps_late
    alias = part.input.alias
    rows = _rows(part, source, live, schema, packing)
    tasks, first = start.tasks[alias], start.positions.get(alias, {})
    idle = plan.query.settings.idle_timeout
    follow = FollowTask(live.topic, rows, epochs, number, tasks, first_task, first, idle)
    read = MemoryTicks(spark, tasks).frame.mapInArrow(follow.run, rows.schema)
    rest = projected(part, replace(source, frame=live.format.by_spark(read)), keeps_late)
    return rest.mapInArrow(LiveRestTask(packing).run, FRAME_DDL)


def _rows(part: PhysicalInput, source: Source, live: LiveRecords, schema: pa.Schema, task: PackTask) -> RecordRows:
    """How workers turn records into rows; all are left to Spark where only Spark can compute the columns."""
    can_show = live.format.is_text or not task.spec.keeps_late
    projection = worker_projection(part, arrow_schema(source.frame), schema) if can_show else None
    return record_rows(live.format, projection, task, has_parts=source.parts != ("",))
