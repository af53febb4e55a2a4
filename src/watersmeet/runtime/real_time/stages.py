"""How a query's operators are divided into Spark's stages.

A stage reads one streaming shuffle: Spark takes a task's number in its stage for the number of the partition that it
reads, so two shuffles in one stage would be mixed up.  So the operators that are equally far from the sources share a
stage, and what is for a later stage passes through the ones before it.  Operators of one task (plan/co_location.py)
are one step on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from watersmeet.plan.physical_plan import PhysicalPlan


def stages_of(plan: PhysicalPlan) -> list[list[int]]:
    """The numbers of the operators of each stage, in the order in which rows pass the stages."""
    tasks = {number: task for task in plan.tasks for number in task}
    depths: dict[int, int] = {}
    for number in range(len(plan.operators)):
        task = tasks.get(number, (number,))
        if number == task[-1]:  # all that leads to the task comes before its last operator
            before = (depths[each] for member in task for each in _senders(plan, member) if each not in task)
            depths |= dict.fromkeys(task, 1 + max(before, default=-1))
    return [[number for number in sorted(depths) if depths[number] == depth] for depth in sorted({*depths.values()})]


def _senders(plan: PhysicalPlan, number: int) -> Iterator[int]:
    """The operators whose results come to an operator, as they are or as rows of an input."""
    for feed in plan.operators[number].feeds:
        if feed.operator is not None:
            yield feed.operator
        elif feed.source is not None:
            yield from (branch.operator for branch in plan.inputs[feed.source].branches)


def sources_of(plan: PhysicalPlan, stage: Sequence[int]) -> list[int]:
    """The numbers of the inputs over streams that a stage's operators read, in the order of their tasks in it."""
    feeds = (feed for number in stage for feed in plan.operators[number].feeds)
    return [feed.source for feed in feeds if feed.source is not None and not plan.inputs[feed.source].branches]


def first_tasks(plan: PhysicalPlan, tasks: Mapping[int, int], buckets: int) -> dict[int, int]:
    """The number of each input's first task in its stage.

    ``tasks`` are the numbers of tasks that read each input.  The tasks of the stage before, one for each bucket, come
    first.
    """
    found: dict[int, int] = {}
    for depth, stage in enumerate(stages_of(plan)):
        first = buckets if depth else 0
        for source in sources_of(plan, stage):
            found[source] = first
            first += tasks[source]
    return found
