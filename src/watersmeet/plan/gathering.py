"""Which aggregates get gathered rows (engine/gathering.py): those of sums, and of least and greatest values.

A gathered row must be late if each of its rows is, so its group has a window, by whose end rows are late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.gathering import Gathering
from watersmeet.kernels.aggregate.functions import Call, Function
from watersmeet.kernels.aggregate.kernel import Aggregate
from watersmeet.kernels.aggregate.parts import Bag, Total
from watersmeet.kernels.api import quote
from watersmeet.plan.physical_plan import Feed

#: By the only order in which the values of a bag count: the function that finds its first value.
_FIRST = {"v0": "min", "v0 DESC": "max"}


def gathering_of(kernel: Aggregate, feed: Feed, calls: Sequence[Call]) -> tuple[Gathering, Aggregate] | None:
    """How the rows of a feed are gathered, and the kernel over gathered rows; None where they are not."""
    if (
        feed.until is None
        or feed.changelog
        or kernel.where is not None  # a row that it leaves out has been used all the same
        or any(len(bag.ends) != 1 or bag.ends[0] not in _FIRST for bag in kernel.bags)
    ):
        return None
    kinds = {call.argument: call.type for call in calls if call.function in (Function.MIN, Function.MAX)}
    sums = [(total.name, f"CAST(sum({total.sql}) AS {total.type})", _sum_type(total)) for total in kernel.totals]
    firsts = [
        (_value(bag), f"{_FIRST[bag.ends[0]]}({bag.columns[0]})", kinds.get(bag.columns[0])) for bag in kernel.bags
    ]
    figures = []
    for name, sql, kind in (*sums, *firsts):
        if kind is None:
            return None
        figures.append((name, sql, kind))
    gathering = Gathering(kernel.keys, tuple(figures), (feed.until.column,))
    over = replace(
        kernel,
        keys=tuple((name, quote(name), kind) for name, _, kind in kernel.keys),
        totals=tuple(replace(total, sql=quote(total.name)) for total in kernel.totals),
        bags=tuple(replace(bag, columns=(quote(_value(bag)),)) for bag in kernel.bags),
        gathered=True,
    )
    return gathering, over


def _value(bag: Bag) -> str:
    """The column with a bag's value."""
    return f"${bag.name}"


def _sum_type(total: Total) -> pa.DataType | None:
    """The type of a sum that does not depend on the order of rows."""
    if total.type == "BIGINT":
        return pa.int64()
    digits, _, scale = total.type.removeprefix("DECIMAL(").removesuffix(")").partition(", ")
    return pa.decimal128(int(digits), int(scale)) if digits.isdigit() else None
