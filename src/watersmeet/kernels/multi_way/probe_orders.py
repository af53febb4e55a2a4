"""The order in which the new rows of an input probe the stores of the others.

The cost of an order is the number of partial results on its way.  All orders end with the same results, so these do not
count.  A search over sets of inputs finds the order of least cost (dynamic programming: Selinger et al., "Access Path
Selection in a Relational Database Management System", SIGMOD 1979); of many inputs, it keeps the best sets alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: Sets kept for each number of inputs: all of them for seven inputs.
_BEAM = 32

Order = tuple[int, ...]


def cheapest_order(others: Iterable[int], partials: Callable[[Order], float]) -> Order:
    """Return the order of ``others`` with the fewest partial results; among equals, the first one as written.

    ``partials`` returns how many there are after probing some inputs, given in ascending order.
    """
    inputs = sorted(others)
    best: dict[Order, tuple[float, Order]] = {(): (0.0, ())}
    for _ in inputs[1:]:
        longer: dict[Order, tuple[float, Order]] = {}
        for probed, (cost, order) in best.items():
            for input in inputs:
                if input not in probed:
                    more = tuple(sorted((*probed, input)))
                    known = longer.get(more)
                    found = (cost + partials(more), (*order, input))
                    longer[more] = found if known is None else min(known, found)
        best = dict(sorted(longer.items(), key=lambda each: each[1])[:_BEAM])
    _, order = min(best.values())
    return (*order, *(input for input in inputs if input not in order))
