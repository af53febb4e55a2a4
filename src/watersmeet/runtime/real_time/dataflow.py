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
from watersmeet.plan.live_operators import live_operators
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalPlan
from watersmeet.plan.shared_results import receiver
from watersmeet.plan.worker_projection import worker_projection
from watersmeet.plan.worker_specs import NOTHING_KEPT, KeptBuckets, operator_specs, pack_specs
from watersmeet.runtime.bucket_size_files import size_files
from watersmeet.runtime.dataflow import tasks_of
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.metrics import METRICS, observed_counters
from watersmeet.runtime.real_time.epochs import Epochs, RunStart
from watersmeet.runtime.real_time.operator_task import COUNTER, LiveOperatorTask
from watersmeet.runtime.real_time.records_for_spark import RecordsForSparkTask
from watersmeet.runtime.real_time.source_task import FollowTask
from watersmeet.runtime.real_time.spark_results import with_rows_by_spark
from watersmeet.runtime.real_time.stages import first_tasks, sources_of, stages_of
from watersmeet.runtime.real_time.tails import LiveRecords
from watersmeet.runtime.real_time.ticks import ControlEvents, MemoryTicks
from watersmeet.runtime.source_frames import Source, arrow_schema, input_schemas, parts_of, projected
from watersmeet.runtime.spark_checks import check_functions, check_time_zone
from watersmeet.runtime.task_frames import Resources, control_frames, one_at_a_time, own_workers
from watersmeet.runtime.worker_records import RecordRows, record_rows
from watersmeet.runtime.worker_tasks import PackTask


@dataclass(frozen=True, slots=True)
class LiveDataflow:
    """A built query: its results as ``written`` takes them, its operators, and the task slots that it needs.

    ``tasks`` are the operators that run in one task, by name; each of ``stages`` needs a slot for every bucket.
    """

    frame: DataFrame
    operators: tuple[OperatorSpec, ...]
    tasks: tuple[tuple[str, ...], ...]
    slots: int
    stages: int


def live_inputs(plan: PhysicalPlan, sources: Mapping[str, Source]) -> dict[str, LiveRecords]:
    """The sources of a plan's inputs, by alias; all of them can be followed."""
    found = {part.input.alias: sources[part.input.stream.name.lower()].live for part in plan.streams}
    return {alias: live for alias, live in found.items() if live is not None}


def source_tasks(plan: PhysicalPlan, sources: Mapping[str, Source], buckets: Sequence[int]) -> dict[str, int]:
    """How many tasks read each input of a new query: at most one per partition, and together one per bucket."""
    share = max(1, len(buckets) // len(plan.streams))
    return {part.input.alias: min(share, len(sources[part.input.stream.name.lower()].parts)) for part in plan.streams}


def build_live(
    spark: SparkSession,
    plan: PhysicalPlan,
    sources: Mapping[str, Source],
    buckets: Sequence[int],
    resources: Resources,
    epochs: Epochs,
    start: RunStart,
    control: ControlEvents | None = None,
    kept: KeptBuckets = NOTHING_KEPT,
    joint: Sequence[tuple[str, ...]] | None = None,
) -> LiveDataflow:
    """Build the query over its sources (by stream name in lower case), which all can be followed.

    ``start`` is that of the query's first run, ``control`` brings control events, if there are any.  ``kept`` are the
    buckets of operators that have others, ``joint`` the operators that share a task in its checkpoint (None: it has
    none yet).

    Raises ``BindError`` for a function that Spark does not have, and what ``tasks_of`` raises.
    """
    for query in plan.queries:
        check_functions(spark, query)
        check_time_zone(spark, query)
    schemas = input_schemas(spark, plan, sources)
    specs = operator_specs(plan, schemas, parts_of(plan, sources), buckets, kept)
    plan = replace(plan, tasks=tasks_of(plan, specs, schemas, joint))
    # keys are not spread: a hot key is known only when a batch has ended
    packs = [replace(spec, spreads=False) for spec in pack_specs(plan, schemas, buckets, kept)]
    operators = live_operators(plan, specs, packs, schemas)
    tasks = {number: start.tasks[part.input.alias] for number, part in enumerate(plan.inputs) if not part.branches}
    firsts, stages = first_tasks(plan, tasks, len(buckets)), stages_of(plan)
    run, results = uuid.uuid4().hex, None
    with one_at_a_time:
        for depth, stage in enumerate(stages):
            frames = [] if results is None else [results]  # its tasks have the lowest numbers: see stages.py
            for number in sources_of(plan, stage):
                place = _Place(number, receiver(plan, number), tasks[number], firsts[number])
                packing = PackTask(packs[number], Exchange(None), None)
                source = sources[plan.inputs[number].input.stream.name.lower()]
                frames.append(_followed(spark, plan, source, schemas[number], packing, epochs, start, place))
            if control is not None:
                numbers = dict.fromkeys(bucket for spec in specs for bucket in spec.buckets)
                frames.append(control_frames(control.frame(depth), list(numbers)))
            step = LiveOperatorTask(
                {number: operators[number] for number in stage},
                run,
                epochs,
                resources.memory,
                resources.side_folder,
                size_files(specs, resources.size_folder),
            )
            shuffled = reduce(DataFrame.unionAll, frames).repartition(len(buckets), "bucket")
            with own_workers(spark):
                results = shuffled.mapInArrow(step.run, from_arrow_schema(step.schema))
            for number in stage:
                for reading in operators[number].by_spark:
                    results = with_rows_by_spark(results, plan, reading, specs[number].output)
    assert results is not None  # a plan has an operator
    observed = results.observe(METRICS, observed_counters(reported=COUNTER))
    found = observed.where(F.col(COUNTER).isNull()).drop(COUNTER)
    slots = sum(tasks.values()) + len(stages) * (len(buckets) + (control is not None))
    names = tuple(tuple(specs[number].name for number in task) for task in plan.tasks)
    return LiveDataflow(found, tuple(each.spec for each in operators), names, slots, len(stages))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an input is read: its number, that of the operator that takes it, its tasks, and the first of them."""

    input: int
    operator: int
    tasks: int
    first_task: int


def _followed(
    spark: SparkSession,
    plan: PhysicalPlan,
    source: Source,
    schema: pa.Schema,
    packing: PackTask,
    epochs: Epochs,
    start: RunStart,
    place: _Place,
) -> DataFrame:
    """The frames of one input."""
    part, live = plan.inputs[place.input], source.live
    assert live is not None
    follow = FollowTask(
        live.topic,
        _rows(part, source, live, schema, packing),
        epochs,
        place.input,
        place.operator,
        place.tasks,
        place.first_task,
        start.positions.get(part.input.alias, {}),
        plan.query.settings.idle_timeout,
    )
    left = MemoryTicks(spark, place.tasks).frame.mapInArrow(RecordsForSparkTask(follow.rows).run, follow.rows.schema)
    decoded = projected(part, replace(source, frame=live.format.by_spark(left)), plan.keeps_late)
    return decoded.mapInArrow(follow.run, FRAME_DDL)


def _rows(part: PhysicalInput, source: Source, live: LiveRecords, schema: pa.Schema, task: PackTask) -> RecordRows:
    """How workers turn records into rows; all are left to Spark where only Spark can compute the columns."""
    can_show = live.format.is_text or not task.spec.keeps_late
    declared = arrow_schema(source.frame)
    projection = worker_projection(part, declared, schema, one_row_each=True) if can_show else None
    return record_rows(live.format, projection, task, has_parts=source.parts != ("",))
