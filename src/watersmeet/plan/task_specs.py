"""From the specs of operators to those of tasks: which operators run together, and how frames name their inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from watersmeet.engine.bucket_task import Member, Reading
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.shared_results import later_inputs, receiver
from watersmeet.plan.worker_results import result_projection


@dataclass(frozen=True, slots=True)
class Arrival:
    """What comes to a task from a stream or from other tasks.

    - ``input``: rows of an input, and with them those of inputs that read the same results (``also``).
    - ``operator``: what an operator sends (None: it is rows of an input).
    """

    input: int | None = None
    also: tuple[int, ...] = ()
    operator: int | None = None

    def senders(self, plan: PhysicalPlan) -> tuple[int, ...]:
        """The operators whose frames these are."""
        if self.input is None:
            assert self.operator is not None
            return (self.operator,)
        return tuple(branch.operator for branch in plan.inputs[self.input].branches)


@dataclass(frozen=True, slots=True)
class Task:
    """Operators of one task, by their numbers in ascending order, how they run, and what comes to them."""

    operators: tuple[int, ...]
    members: tuple[Member, ...]
    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks, in the order in which rows pass them, and how the rows of each input are packed."""

    tasks: tuple[Task, ...]
    packs: tuple[PackSpec, ...]

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The operators that run in one task, by name."""
        return tuple(tuple(member.spec.name for member in task.members) for task in self.tasks if len(task.members) > 1)


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

    arrivals = _arrivals(plan, operators, schemas, groups)
    tasks = (
        Task(group, tuple(member(number, group) for number in group), arriving)
        for group, arriving in zip(groups, arrivals, strict=True)
    )
    return Tasks(tuple(tasks), numbered)


def _arrivals(
    plan: PhysicalPlan,
    operators: Sequence[OperatorSpec],
    schemas: Sequence[pa.Schema],
    groups: Sequence[tuple[int, ...]],
) -> Iterator[tuple[Arrival, ...]]:
    """What comes to each task.  Rows of several inputs come together if workers make them all of the same results."""

    def are_made_by_workers(input: int) -> bool:
        branches = enumerate(plan.inputs[input].branches)
        outputs = ((branch, operators[each.operator].output) for branch, each in branches)
        return all(result_projection(plan.inputs[input], *each, schemas[input]) is not None for each in outputs)

    later, passed = later_inputs(plan), set[int]()
    for group in groups:
        found = []
        feeds = [feed for number in group for feed in plan.operators[number].feeds]
        for input in (feed.source for feed in feeds if feed.source is not None):
            if input in passed or any(branch.operator in group for branch in plan.inputs[input].branches):
                continue
            also = later.get(input, ())
            if not all(map(are_made_by_workers, (input, *also) if also else ())):
                also = ()  # the other inputs compute the results anew
            passed.update(also)
            found.append(Arrival(input, also))
        senders = (feed.operator for feed in feeds if feed.operator is not None)
        yield (*found, *(Arrival(operator=sender) for sender in senders if sender not in group))


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
