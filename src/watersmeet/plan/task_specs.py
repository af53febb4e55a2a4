"""From the specs of operators to those of tasks: which operators run together, and how frames name their inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from watersmeet.engine.bucket_task import Member, Reading
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.worker_results import result_projection


@dataclass(frozen=True, slots=True)
class Task:
    """Operators of one task, by their numbers in ascending order, and how they run."""

    operators: tuple[int, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks, in the order in which rows pass them, and how the rows of each input are packed."""

    tasks: tuple[Task, ...]
    packs: tuple[PackSpec, ...]

    def of(self, operator: int) -> Task:
        """The task of an operator."""
        return next(task for task in self.tasks if operator in task.operators)


def joint_tasks(
    plan: PhysicalPlan, operators: Sequence[OperatorSpec], schemas: Sequence[pa.Schema]
) -> tuple[tuple[int, ...], ...]:
    """Those of the plan's tasks in which workers can turn results into rows of the next operator; all others are left.

    ``schemas`` are the columns of each input as Spark computes them.
    """
    return tuple(
        task
        for task in plan.tasks
        if all(
            result_projection(plan.inputs[input], branch, operators[sender].output, schemas[input]) is not None
            for input, branch, sender in _read_within(plan, task)
        )
    )


def task_specs(
    plan: PhysicalPlan, operators: Sequence[OperatorSpec], packs: Sequence[PackSpec], schemas: Sequence[pa.Schema]
) -> Tasks:
    """The tasks of a plan, all of which workers can run."""
    joint = {task[0]: task for task in plan.tasks}
    apart = {number for task in plan.tasks for number in task}
    groups = [*joint.values(), *((number,) for number in range(len(operators)) if number not in apart)]
    groups.sort(key=lambda group: group[-1])
    firsts = {number: first for group in groups for number, first in zip(group, _firsts(plan, group), strict=True)}
    numbered = tuple(
        replace(pack, input=pack.input + firsts[receiver(plan, input)]) for input, pack in enumerate(packs)
    )

    def member(number: int, group: tuple[int, ...]) -> Member:
        readings = (
            Reading(projection, numbered[input])
            for input, branch, sender in _read_within(plan, group)
            if sender == number
            and (projection := result_projection(plan.inputs[input], branch, operators[sender].output, schemas[input]))
        )
        return Member(_addressed(plan, operators[number], number, firsts, group), firsts[number], tuple(readings))

    tasks = (Task(group, tuple(member(number, group) for number in group)) for group in groups)
    return Tasks(tuple(tasks), numbered)


def receiver(plan: PhysicalPlan, input: int) -> int:
    """The operator that an input's rows go to."""
    return next(
        number for number, operator in enumerate(plan.operators) if any(feed.source == input for feed in operator.feeds)
    )


def _firsts(plan: PhysicalPlan, group: Sequence[int]) -> Iterator[int]:
    first = 0
    for number in group:
        yield first
        first += len(plan.operators[number].feeds)


def _read_within(plan: PhysicalPlan, group: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The results that operators of a group read of others of it: input, branch, and the operator that gives them."""
    feeds = chain.from_iterable(plan.operators[number].feeds for number in group)
    for input in (feed.source for feed in feeds if feed.source is not None):
        for branch, each in enumerate(plan.inputs[input].branches):
            if each.operator in group:
                yield input, branch, each.operator


def _addressed(
    plan: PhysicalPlan, spec: OperatorSpec, number: int, firsts: dict[int, int], group: Sequence[int]
) -> OperatorSpec:
    """An operator whose results name the input of the next one by its number in that one's task."""
    if spec.downstream is None:
        return spec
    to = next(
        place
        for place, operator in enumerate(plan.operators)
        if any(feed.operator == number for feed in operator.feeds)
    )
    input = spec.downstream.input + firsts[to]
    return replace(spec, downstream=replace(spec.downstream, input=input, in_task=to in group))
