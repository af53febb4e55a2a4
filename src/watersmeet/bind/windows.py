"""Windows of rows: TUMBLE, HOP, CUMULATE and SESSION in FROM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.bind.aggregate_functions import check_comparable
from watersmeet.bind.inputs import Inputs
from watersmeet.bind.relations import Relation
from watersmeet.bind.scope import Scope
from watersmeet.bind.time_units import counting
from watersmeet.errors import BindError, Position, UnsupportedError, did_you_mean
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.nodes import WINDOW_TABLES, WindowTable
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.windows import Window, WindowBound, WindowKind
from watersmeet.plan.logical.certain_types import known_type
from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import GroupKey, SessionWindows
from watersmeet.plan.logical.tree import Input, Join, Leaf, Node, leaves_of, timed
from watersmeet.plan.passes import optimize

#: More windows than this of one row are refused: each is a row of its own.
MOST_WINDOWS = 10_000


def bind_window_table(table: WindowTable, node: Node, relation: Relation, names: Inputs) -> Leaf:
    """Give the rows of a relation their windows; afterwards ``relation`` has the columns with their bounds.

    Raises ``BindError`` unless the named column is the relation's event time, and for lengths that are no windows.
    """
    leaf = timed_leaf(table, node, relation, names)
    lengths = _lengths(table, leaf.input)
    window = window_of(WindowKind(table.args["name"]), lengths, leaf.input, position_of(table))
    leaf, bounds = names.add_window(leaf, window)
    add_bounds(relation, bounds, table)
    return leaf


def bind_sessions(table: WindowTable, node: Node, relation: Relation, names: Inputs) -> SessionWindows:
    """The sessions of a relation's rows; afterwards ``relation`` has the columns with their bounds.

    Raises what ``bind_window_table`` does, and ``UnsupportedError`` for rows that replace each other.
    """
    leaf = timed_leaf(table, node, relation, names)
    if leaf.input.changes:
        raise UnsupportedError(
            f"there are no sessions of {relation.alias or 'the subquery'}, whose rows replace each other",
            detail="a session is final when its gap has passed, and such a row may be replaced after it",
            hint="TUMBLE, HOP and CUMULATE take these rows",
            position=position_of(table),
        )
    (gap,) = _lengths(table, leaf.input)
    if gap <= 0:
        raise BindError("the gap of SESSION must be greater than zero", position=position_of(table))
    scope, partition = Scope([relation]), []
    for place, given in enumerate(table.args.get("partition_by") or ()):
        expression = scope.substitute(given).unnest()
        kind = known_type(expression, names.columns, "PARTITION BY", given)
        check_comparable(kind, f"PARTITION BY {plain_sql(expression)}", position_of(given))
        partition.append(GroupKey(f"$p{place}", expression, kind))
    kind, unit = leaf.input.time_type, leaf.input.time.unit
    bounds = {
        bound: counting(exp.column(exp.to_identifier(f"${bound.value}", quoted=True)), kind, unit)
        for bound in WindowBound
    }
    add_bounds(relation, bounds, table)
    return SessionWindows(tuple(partition), leaf.input.index, gap)


def timed_leaf(table: WindowTable, node: Node, relation: Relation, names: Inputs) -> Leaf:
    """The input whose rows get windows; ``BindError`` unless the named column is its event time."""
    named: exp.Identifier = table.args["time"]
    position = position_of(named)
    column = relation.find(named.name)
    known = names.columns.get(column.name) if isinstance(column, exp.Column) else None
    if column is None:
        raise BindError(
            f"{relation.alias or 'the subquery'} has no column {named.name}",
            hint=did_you_mean(named.name, [*relation.columns, *relation.hidden]),
            position=position,
        )
    if not isinstance(node, Leaf) or known is None or not _may_be_windowed(node.input, known.column, table):
        detail, hint = _event_time(node, table)
        raise BindError(
            f"{named.name} is not the event time of {relation.alias or 'the subquery'}",
            detail=detail,
            hint=hint,
            position=position,
        )
    return node


def _may_be_windowed(input: Input, column: str, table: WindowTable) -> bool:
    if input.windowed_by is not None:  # changes in several windows each; sessions need an order of times
        return column.lower() == input.windowed_by.column.lower() and table.args["name"] != "SESSION"
    return input.is_time(column) and input.is_timed


def add_bounds(relation: Relation, bounds: Mapping[WindowBound, exp.Expr], table: WindowTable) -> None:
    """Add the bounds of windows to a relation's columns; ``BindError`` where it has such a column."""
    for bound, expression in bounds.items():
        if relation.find(bound.value) is not None:
            raise BindError(
                f"{relation.alias or 'the subquery'} has a column {bound.value} already",
                hint="rename it in a subquery",
                position=position_of(table),
            )
        (relation.hidden if table.args.get("hidden") else relation.columns)[bound.value] = expression


def window_of(kind: WindowKind, lengths: Sequence[int], input: Input, position: Position | None) -> Window:
    """The window with these lengths, in the order of the function's arguments.

    Raises ``BindError`` for lengths that make no windows.
    """
    unit = input.window_time.unit
    names = WINDOW_TABLES[kind.value]
    given = dict(zip(names, lengths, strict=False))
    for name, length in given.items():
        if length % unit.scale:
            raise BindError(
                f"the {name} of {kind.value} is no whole number of units of {input.alias}.{input.window_time.column}",
                detail=f"its event time counts {unit.value}",
                position=position,
            )
    size, offset = given["size"], given.get("offset", 0)
    step = given.get("slide", given.get("step", size))
    if size <= 0 or step <= 0:
        raise BindError(f"the lengths of {kind.value} must be greater than zero", position=position)
    if step > size:
        raise BindError(
            f"the {names[0]} of {kind.value} is at most its size: some rows would be in no window",
            hint="filter these rows in WHERE, if they are not wanted",
            position=position,
        )
    if kind is WindowKind.CUMULATE and size % step:
        raise BindError(
            "the size of CUMULATE is a multiple of its step", detail=f"step {step}, size {size}", position=position
        )
    if size // step > MOST_WINDOWS:
        raise UnsupportedError(
            f"a row would be in {size // step} windows; {MOST_WINDOWS} are supported",
            hint="make the slide or the step longer",
            position=position,
        )
    return Window(kind, size, step, offset)


def repeats_changes(table: WindowTable, node: Node) -> bool:
    """Whether rows of a changing stream would be in several windows.

    A row replaces the one before it by its key, of which there would be several.  So these windows are over the results
    of a query: what it adds and what it retracts is in the same windows.
    """
    return table.args["name"] != WindowKind.TUMBLE.value and any(leaf.input.stream.changes for leaf in leaves_of(node))


def _lengths(table: WindowTable, input: Input) -> list[int]:
    counts = input.window_time.unit is TimeUnit.ROWS
    found = []
    for length in table.expressions:
        if counts != isinstance(length, exp.Literal):
            what = "counts rows" if counts else "is a time"
            raise BindError(
                f"{input.alias}.{input.window_time.column} {what}: {table.args['name']} takes "
                f"{'numbers' if counts else 'intervals'}",
                hint="write 10" if counts else "write INTERVAL '10' SECONDS",
                position=position_of(length),
            )
        if counts and not length.name.removeprefix("-").isdigit():
            raise BindError("a number of rows is a whole number", position=position_of(length))
        found.append(int(length.name) if counts else interval_micros(length))
    return found


def _event_time(node: Node, table: WindowTable) -> tuple[str, str]:
    """What the event time of a relation is, or why it has none, and what to do."""
    if isinstance(node, Leaf) and _has_endless_join(node.input):
        hint = "bound the times of both: … IN (SELECT id FROM v WHERE v.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts)"
        if table.args["name"] == "SESSION":
            hint += "; with EMIT CHANGELOG, window(ts, '10 minutes') and TUMBLE over a stream need no bound"
        return "it has none: without a window, a JOIN, IN or EXISTS lets rows of any age through later", hint
    hint = "windows are over event times: declare WATERMARK FOR it, or name the event time"
    if not isinstance(node, Leaf) or not node.input.is_timed:
        return "it has none: it is the result of a query whose rows may come at any time", hint
    return f"its event time is {node.input.alias}.{node.input.time.column}", hint


def _has_endless_join(input: Input) -> bool:
    """Whether an input has the results of a join that may give a row however late."""
    roots = [] if input.results is None else [optimize(each).root for each in input.results.queries if each.is_plain]
    return any(lag_of(root, each) is None for root in roots if isinstance(root, Join) for each in timed(root))
