"""Pieces of EXPLAIN that several operators share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from watersmeet.expressions.event_time import span_text
from watersmeet.expressions.text import plain_sql, without_owner
from watersmeet.kernels.api import Side
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.match import Key
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import PhysicalPlan

#: The kernel's ``l.`` or ``r.`` before a column whose name says itself which side it belongs to.
_ALIAS = re.compile(r'\b[lr](?=\.")')
_BEFORE_ALIAS = re.compile(r'\b[lr]\.(?="[^"]*:)')


def plain_name(name: str) -> str:
    """A physical name, or SQL over such names, as its author would write it: ``o:id`` is o.id."""
    bare = name.replace("`", "").replace('"', "").replace(":$window", ".window")
    return without_owner(bare).replace(":", ".")


def written_column(input: Input, name: str) -> str:
    """A column of an input; one that is added to the results of a query, as what it is made of there."""
    if not name.startswith("$") or input.results is None:
        return f"{input.alias}.{name}"
    query = input.results.queries[0]
    made = next(each.expression for each in query.outputs if each.name == name)
    keys = query.aggregation.keys if query.aggregation is not None else ()
    return plain_sql(next((key.expression for key in keys if key.name == made.name), made))


def plain_condition(sql: str, *, mirrored: bool = False) -> str:
    """A kernel's condition without the names of its two rows where a column says whose it is.

    ``mirrored`` exchanges the names that stay: the text has the two sides the other way round.
    """
    if mirrored:
        sql = _ALIAS.sub(lambda alias: "r" if alias[0] == "l" else "l", sql)
    return plain_name(_BEFORE_ALIAS.sub("", sql))


def newest_text(newest: Newest) -> str:
    """What is kept of a changing stream."""
    tested = "; its filter tests that one" if newest.passes is not None else ""
    key = ", ".join(plain_name(name) for name in newest.by)
    return f"the newest change of each key ({key}) of {newest.alias}{tested}"


def key_lines(keys: Iterable[Key], sides: Iterable[Side] = Side) -> Iterator[str]:
    """A line for each key of a join, its sides in the order of the text."""
    first, second = sides
    for key in keys:
        equals = "<=>" if key.null_safe else "="
        yield f"  key {plain_name(key.of(first))} {equals} {plain_name(key.of(second))}"


def input_of(time_name: str, plan: PhysicalPlan) -> Input:
    """The input whose event time travels under a name."""
    return next(part.input for part in plan.inputs if part.input.time_name == time_name)


def window_text(window: Interval, left: Input, right: Input) -> str:
    """The bounds on the distance of two times."""
    distance = f"{right.alias}.{right.time.column} - {left.alias}.{left.time.column}"
    if window.is_free:
        return "none: any two times match"
    lower = f"{span_text(window.lower, left.time.unit)} <= " if window.lower is not None else ""
    upper = f" <= {span_text(window.upper, left.time.unit)}" if window.upper is not None else ""
    return f"{lower}{distance}{upper}"
