"""How a query's operators are divided into Spark's stages.

A stage reads one streaming shuffle: Spark takes a task's number in its stage for the number of the partition that it
reads, so two shuffles in one stage would be mixed up.  So the operators that are equally far from the sources share a
stage, and what is for a later stage passes through the ones before it.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.plan.physical_plan import PhysicalPlan


def stages_of(plan: PhysicalPlan) -> list[list[int]]:
    """The numbers of the operators of each stage, in the order in which rows pass the stages."""
    depths: list[int] = []
    for operator in plan.operators:
        before = (depths[feed.operator] for feed in operator.feeds if feed.operator is not None)
        depths.append(1 + max(before, default=-1))
    return [[number for number, each in enumerate(depths) if each == depth] for depth in range(max(depths) + 1)]


def receivers_of(plan: PhysicalPlan) -> dict[int, int]:
    """The number of the operator that takes each operator's results; the last one's are those of the query."""
    return {
        feed.operator: number
        for number, operator in enumerate(plan.operators)
        for feed in operator.feeds
        if feed.operator is not None
    }


def sources_of(plan: PhysicalPlan, stage: list[int]) -> list[int]:
    """The numbers of the inputs that a stage's operators read, in the order of their tasks in it."""
    feeds = (feed for number in stage for feed in plan.operators[number].feeds)
    return [feed.source for feed in feeds if feed.source is not None]


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
