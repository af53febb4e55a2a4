"""ROLLUP, CUBE and GROUPING SETS: an aggregation for each set of keys, and all their results in one (UNION ALL).

    GROUP BY ROLLUP(a, b)      =  GROUP BY a, b  +  GROUP BY a  +  GROUP BY ()

A key that a set leaves out is NULL in its results; grouping(a) tells it from a NULL of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from sqlglot import exp

from watersmeet.bind.rewriting import column_of
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.closing import closing_of
from watersmeet.plan.emission import is_distinct
from watersmeet.plan.logical.query import AggregateCall, LogicalQuery, OutputColumn, QueryText
from watersmeet.plan.passes import optimize

#: Each set is an aggregation of its own, with its own state.
MOST_SETS = 32
CALLS = (exp.Grouping, exp.GroupingId)
_Set = tuple[exp.Expr, ...]
_ROWS = "$rows"


@dataclass(slots=True)
class Groupings:
    """The sets, as names of keys, and the calls of grouping and grouping_id: their column, keys and type."""

    sets: list[tuple[str, ...]] = field(default_factory=list)
    calls: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict)

    def call(self, keys: Sequence[str], kind: str) -> str:
        """Return the column with the bits of keys that a set leaves out, the first of them the highest."""
        return self.calls.setdefault((tuple(keys), kind), f"$s{len(self.calls)}")


def with_sets(select: exp.Select) -> exp.Select:
    """The select with all its keys in GROUP BY, and each grouping set as a tuple; itself if it has none.

    Raises ``UnsupportedError`` for more sets than ``MOST_SETS``.
    """
    group = select.args.get("group")
    if group is None or group.args.get("all"):
        return select
    counts = [_count(item) for item in _set_items(group)]
    if all(count == 1 for count in counts) and not any(map(_is_grouping, _parts(group))):
        return select
    if (count := prod(counts)) > MOST_SETS:  # before they are made: a CUBE of 60 keys has 2**60
        raise UnsupportedError(
            f"GROUP BY has {count:,} grouping sets: at most {MOST_SETS} are supported",
            hint="name those that are needed, in GROUPING SETS (…)",
            position=position_of(group) or position_of(select),
        )
    sets = [[each for part in chosen for each in part] for chosen in product(*map(_sets_of, _set_items(group)))]
    found: exp.Select = select.copy()
    keys = [key for part in _parts(group) for key in _keys(part)]
    grouped = exp.Group(
        expressions=[key.copy() for key in keys],
        grouping_sets=[exp.Tuple(expressions=[key.copy() for key in each]) for each in sets],
    )
    grouped.meta.update(group.meta)
    found.set("group", grouped)
    return found


def has_sets(select: exp.Select) -> bool:
    """Whether a select is grouped by several sets of keys."""
    group = select.args.get("group")
    return group is not None and bool(group.args.get("grouping_sets"))


def of_set(query: LogicalQuery, groupings: Groupings, number: int) -> LogicalQuery:
    """The aggregation of one set: its keys, NULL for all others, the functions' values, and what is grouped.

    ``query`` is grouped by all keys. As in Spark, the set without keys has a result only if there are rows.
    """
    aggregation = query.aggregation
    assert aggregation is not None
    names = groupings.sets[number]
    outputs = [
        OutputColumn(key.name, column_of(key.name) if key.name in names else exp.cast(exp.null(), key.type.copy()))
        for key in aggregation.keys
    ]
    outputs += [OutputColumn(call.name, column_of(call.name)) for call in aggregation.calls]
    for (keys, kind), name in groupings.calls.items():
        bits = "".join("0" if key in names else "1" for key in keys)
        outputs.append(OutputColumn(name, exp.cast(exp.Literal.number(int(bits, 2)), kind)))
    kept = tuple(key for key in aggregation.keys if key.name in names)
    there = exp.Not(this=exp.Is(this=column_of(_ROWS), expression=exp.null()))
    calls = aggregation.calls if kept else (*aggregation.calls, _any_row(query))
    return replace(
        query,
        aggregation=replace(aggregation, keys=kept, calls=calls),
        outputs=tuple(outputs),
        filters=() if kept else (there,),
    )


def refuse_endless(queries: Sequence[LogicalQuery], text: QueryText) -> None:
    """Raise ``UnsupportedError`` for EMIT FINAL if some sets end and others do not."""
    if text.emit is not EmitMode.FINAL:
        return
    for query in map(optimize, queries):
        if closing_of(query) is None and not is_distinct(query):
            assert query.aggregation is not None
            keys = ", ".join(plain_sql(key.expression) for key in query.aggregation.keys)
            raise UnsupportedError(
                f"EMIT FINAL: results of the grouping set ({keys}) can always change: it has no window that ends",
                hint="group by the window in all sets: GROUP BY window_start, ROLLUP(…); or use EMIT CHANGELOG",
                position=text.emit_position,
            )


def _any_row(query: LogicalQuery) -> AggregateCall:
    """What is NULL without rows; a count would change with each of them, and with it a result that stays the same."""
    return AggregateCall(
        name=_ROWS,
        function=Function.MAX,
        arguments=(exp.Literal.number(1),),
        type=exp.DataType.build("INT", dialect="spark"),
        condition=None,
        time=None,
        text="whether there are rows",
        position=query.text.position,
    )


# -- sets in SQL -----------------------------------------------------------------------------------------------------


def _is_grouping(node: exp.Expr) -> bool:
    return isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets)


def _parts(group: exp.Group) -> Iterator[exp.Expr]:
    """Yield the parts of GROUP BY: keys, and groupings with keys in them or after them (WITH ROLLUP)."""
    yield from group.expressions
    for name in ("rollup", "cube", "grouping_sets"):
        yield from group.args.get(name) or ()


def _set_items(group: exp.Group) -> list[exp.Expr]:
    """The parts of GROUP BY of which each stands for some sets."""
    if group.args.get("grouping_sets"):  # GROUP BY a, b GROUPING SETS (…): only the sets count
        return list(group.args["grouping_sets"])
    for name, kind in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        for part in group.args.get(name) or ():
            return [kind(expressions=part.expressions or group.expressions)]
    return list(group.expressions)


def _sets_of(item: exp.Expr) -> list[_Set]:
    return _sets(item) if _is_grouping(item) else [(item,)]


def _count(node: exp.Expr) -> int:
    """How many sets a part of GROUP BY, or of GROUPING SETS, stands for."""
    if isinstance(node, exp.Rollup):
        return len(node.expressions) + 1
    if isinstance(node, exp.Cube):
        return 1 << len(node.expressions)
    return sum(map(_count, node.expressions)) if isinstance(node, exp.GroupingSets) else 1


def _sets(node: exp.Expr) -> list[_Set]:
    """The sets that a part of GROUP BY, or of GROUPING SETS, stands for."""
    units = [_unit(each) for each in node.expressions]
    if isinstance(node, exp.Rollup):
        return [_joined(units[:length]) for length in range(len(units), -1, -1)]
    if isinstance(node, exp.Cube):
        chosen = product((True, False), repeat=len(units))
        return [_joined([unit for unit, taken in zip(units, which, strict=True) if taken]) for which in chosen]
    if isinstance(node, exp.GroupingSets):
        return [found for each in node.expressions for found in (_sets(each) if _is_grouping(each) else [_unit(each)])]
    return [_unit(node)]


def _unit(node: exp.Expr) -> _Set:
    """The keys that are grouped together: those in parentheses, or one."""
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node.unnest(),)


def _joined(units: Sequence[_Set]) -> _Set:
    return tuple(key for unit in units for key in unit)


def _keys(node: exp.Expr) -> _Set:
    """All keys in a part of GROUP BY, in the order of the text."""
    return _joined([_keys(each) for each in node.expressions]) if _is_grouping(node) else _unit(node)
