"""In which order Spark has the sources of a query, which is how its checkpoint numbers them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.errors import UnsupportedError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.task_specs import Task

_CONTROL = "$control"
_BEGIN = "start it under another name, or delete the checkpoint to begin again"


@dataclass(frozen=True, slots=True)
class Order:
    """For each source of a new query the number of the same one in the old, and how many the old one has."""

    numbers: tuple[int, ...]
    before: int


def source_order(old: PhysicalPlan, old_tasks: Sequence[Task], new: PhysicalPlan, tasks: Sequence[Task]) -> Order:
    """The number in the old query of each source of the new one.

    Raises ``UnsupportedError`` if a source of either has none in the other.
    """
    if any(part.branches for plan in (old, new) for part in plan.inputs):
        raise UnsupportedError(
            "a query over queries cannot get a new version: its sources cannot be told apart in its checkpoint",
            hint=_BEGIN,
        )
    names = [list(_leaves(plan, each, each[-1])) for plan, each in ((old, old_tasks), (new, tasks))]
    known, wanted = (sorted({*each} - {_CONTROL}) for each in names)
    if known != wanted:
        raise UnsupportedError(
            f"the query read {', '.join(known)}, and would read {', '.join(wanted)}: it is not known where to begin"
            " in a stream that the old version did not read",
            hint=_BEGIN,
        )
    places: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names[0]):
        places[name].append(number)
    seen: Counter[str] = Counter()
    order = []
    for name in names[1]:
        order.append(places[name][min(seen[name], len(places[name]) - 1)])
        seen[name] += 1
    return Order(tuple(order), len(names[0]))


def _leaves(plan: PhysicalPlan, tasks: Sequence[Task], task: Task) -> Iterator[str]:
    """Streams, by name, as they stand in Spark's plan: those of a task in the order in which they come to it."""
    by_last = {each.operators[-1]: each for each in tasks}
    for arrival in task.arrivals:
        if arrival.input is not None:
            yield plan.inputs[arrival.input].input.stream.name.lower()
        else:
            for sender in arrival.senders(plan):
                yield from _leaves(plan, tasks, by_last[sender])
    yield _CONTROL
