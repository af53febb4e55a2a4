"""Results that several inputs read, computed once.

Spark computes a frame anew for each use of it.  So the frames for all inputs leave the operator together: those for the
next operator as they are, those for a later one in bundles, which the operators in between pass on.
"""

from __future__ import annotations

from watersmeet.plan.physical_plan import PhysicalPlan


def later_inputs(plan: PhysicalPlan) -> dict[int, tuple[int, ...]]:
    """By the input that reads an operator's results first: the other inputs that read them, which it passes on.

    Inputs that what passes through the first one's operator does not reach are left out.
    """
    readers: dict[int, list[int]] = {}
    for number, part in enumerate(plan.inputs):
        if len(part.branches) == 1:
            readers.setdefault(part.branches[0].operator, []).append(number)
    found = {}
    for inputs in readers.values():
        first, *others = sorted(inputs, key=lambda number: _place(plan, number))
        reached = tuple(each for each in others if _leads_to(plan, receiver(plan, first), receiver(plan, each)))
        if reached:
            found[first] = reached
    return found


def _place(plan: PhysicalPlan, input: int) -> tuple[int, int, int]:
    """Where an input stands among those of all operators, in the order of their tasks."""
    operator = receiver(plan, input)
    return _last(plan, operator), operator, [feed.source for feed in plan.operators[operator].feeds].index(input)


def _last(plan: PhysicalPlan, operator: int) -> int:
    """The last operator of an operator's task."""
    return next((task[-1] for task in plan.tasks if operator in task), operator)


def _leads_to(plan: PhysicalPlan, operator: int, target: int) -> bool:
    """Whether frames that an operator's task passes on come to that of another one."""
    at: int | None = _last(plan, operator)
    end = _last(plan, target)
    while at is not None and at < end:
        following = _next(plan, at)
        at = None if following is None else _last(plan, following)
    return at == end


def _next(plan: PhysicalPlan, operator: int) -> int | None:
    """The operator to which frames go first from another one; None after the last."""
    for number, each in enumerate(plan.operators):
        if any(feed.operator == operator for feed in each.feeds):
            return number
    readers = (
        receiver(plan, number)
        for number, part in enumerate(plan.inputs)
        if any(branch.operator == operator for branch in part.branches)
    )
    return min(readers, key=lambda reader: _last(plan, reader), default=None)


def receiver(plan: PhysicalPlan, input: int) -> int:
    """The operator that an input's rows go to."""
    return next(
        number for number, operator in enumerate(plan.operators) if any(feed.source == input for feed in operator.feeds)
    )
