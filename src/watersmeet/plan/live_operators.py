"""The operators of a plan in real time: which share a task, and who takes their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.live_results import LiveOperator, LiveReading, SparkReading, part_of_bucket
from watersmeet.engine.specs import InputSpec, OperatorSpec, PackSpec
from watersmeet.plan.physical_plan import PhysicalOperator, PhysicalPlan
from watersmeet.plan.shared_results import receiver
from watersmeet.plan.worker_results import result_projection


def live_operators(
    plan: PhysicalPlan, operators: Sequence[OperatorSpec], packs: Sequence[PackSpec], schemas: Sequence[pa.Schema]
) -> tuple[LiveOperator, ...]:
    """The operators of a plan; those of its ``tasks`` run beside each other.

    ``schemas`` are the columns of each input as Spark computes them.
    """
    beside = {number: frozenset(task) - {number} for task in plan.tasks for number in task}
    found = []
    for number, spec in enumerate(operators):
        takes = next((place for place, each in enumerate(plan.operators) if _feeds(each, number)), None)
        if takes is not None and spec.downstream is not None:
            in_task = takes in beside.get(number, ())
            spec = replace(spec, downstream=replace(spec.downstream, in_task=in_task))
        spec = replace(spec, inputs=tuple(_inputs(plan, number, spec, operators, beside)))
        readings = list(_readings(plan, number, operators, packs, schemas))
        by_workers = tuple(each for each in readings if isinstance(each, LiveReading))
        by_spark = tuple(each for each in readings if isinstance(each, SparkReading))
        found.append(LiveOperator(spec, takes, by_workers, by_spark, beside.get(number, frozenset())))
    return tuple(found)


def _feeds(operator: PhysicalOperator, sender: int) -> bool:
    return any(feed.operator == sender for feed in operator.feeds)


def _inputs(
    plan: PhysicalPlan,
    number: int,
    spec: OperatorSpec,
    operators: Sequence[OperatorSpec],
    beside: Mapping[int, frozenset[int]],
) -> Iterator[InputSpec]:
    """The inputs of an operator; those over results have a part for each bucket that gives them."""
    for feed, input in zip(plan.operators[number].feeds, spec.inputs, strict=True):
        parts: list[str] = []
        for branch, each in enumerate(plan.inputs[feed.source].branches if feed.source is not None else ()):
            if each.operator in beside.get(number, ()):
                parts.append(str(branch))
            else:
                parts += [part_of_bucket(str(branch), bucket) for bucket in operators[each.operator].buckets]
        yield replace(input, parts=tuple(parts)) if parts else input


def _readings(
    plan: PhysicalPlan,
    number: int,
    operators: Sequence[OperatorSpec],
    packs: Sequence[PackSpec],
    schemas: Sequence[pa.Schema],
) -> Iterator[LiveReading | SparkReading]:
    """The inputs that read an operator's results."""
    for input, part in enumerate(plan.inputs):
        for place, branch in enumerate(part.branches):
            if branch.operator == number:
                to = receiver(plan, input)
                projection = result_projection(part, place, operators[number].output, schemas[input])
                if projection is not None:
                    yield LiveReading(to, projection, packs[input])
                else:
                    yield SparkReading(to, input, place, branch.lag or 0, packs[input])
