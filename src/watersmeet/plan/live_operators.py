"""The operators of a plan in real time: which share a task, and who takes their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.live_results import LiveOperator, LiveReading, part_of_bucket
from watersmeet.engine.specs import InputSpec, OperatorSpec, PackSpec
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.physical_plan import PhysicalOperator, PhysicalPlan
from watersmeet.plan.shared_results import receiver
from watersmeet.plan.worker_results import by_spark_alone, result_projection


def live_operators(
    plan: PhysicalPlan, operators: Sequence[OperatorSpec], packs: Sequence[PackSpec], schemas: Sequence[pa.Schema]
) -> tuple[LiveOperator, ...]:
    """The operators of a plan; those of its ``tasks`` run beside each other.

    ``schemas`` are the columns of each input as Spark computes them.  Raises ``UnsupportedError`` for results that only
    Spark can turn into rows of an input.
    """
    beside = {number: frozenset(task) - {number} for task in plan.tasks for number in task}
    found = []
    for number, spec in enumerate(operators):
        takes = next((place for place, each in enumerate(plan.operators) if _feeds(each, number)), None)
        if takes is not None and spec.downstream is not None:
            in_task = takes in beside.get(number, ())
            spec = replace(spec, downstream=replace(spec.downstream, in_task=in_task))
        spec = replace(spec, inputs=tuple(_inputs(plan, number, spec, operators, beside)))
        readings = tuple(_readings(plan, number, operators, packs, schemas))
        found.append(LiveOperator(spec, takes, readings, beside.get(number, frozenset())))
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
) -> Iterator[LiveReading]:
    """The inputs that read an operator's results."""
    for input, part in enumerate(plan.inputs):
        for branch, each in enumerate(part.branches):
            if each.operator != number:
                continue
            if part.needs_sequence:
                raise UnsupportedError(
                    f"the results of {part.input.alias} have no order of arrival in real time, by which ORDER BY puts"
                    " what it does not tell apart",
                    hint="leave out ORDER BY, or leave out mode = 'real_time' (or --real-time): micro-batches take it",
                )
            projection = result_projection(part, branch, operators[number].output, schemas[input])
            if projection is None:
                raise UnsupportedError(
                    "a query in real time cannot ask Spark between two operators, and what is read of the results"
                    " there can be computed by Spark alone",
                    detail=", ".join(map(plain_sql, by_spark_alone(part, branch))) or None,
                    hint="move these expressions to the SELECT list of the whole query, or leave out mode = 'real_time'"
                    " (or --real-time): micro-batches take it",
                )
            yield LiveReading(receiver(plan, input), projection, packs[input])
