"""The event time of results on the right side of a join as of a time: whether they have one, and another one."""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import Position, UnsupportedError
from watersmeet.plan.emission import decide_emission, emits_changes
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Input, Leaf
from watersmeet.plan.passes import optimize

_OF_STREAM = (
    "group by a window: a result is final once it has ended. The newest row of each key is WHERE n = 1"
    " over ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) AS n, with FOR SYSTEM_TIME AS OF. A plain"
    " JOIN with EMIT CHANGELOG follows all corrections"
)


def check_results(input: Input, position: Position | None) -> None:
    """Raise ``UnsupportedError`` for results that are corrected, or that have no event time."""
    if input.results is None:
        return
    for query in map(optimize, input.results.queries):
        emission = decide_emission(query)
        if emits_changes(query, emission.mode):
            raise UnsupportedError(
                f"the results of {input.alias} are corrected ({emission.reason}), and no time says from when on a"
                " correction holds: a join as of a time needs rows that stay",
                hint=_of_table(query) or _OF_STREAM,
                position=position,
            )
    if input.results.lags is None:
        several = " at the same place in each query of the UNION ALL" if len(input.results.queries) > 1 else ""
        raise UnsupportedError(
            f"the results of {input.alias} have no event time by which they could be joined as of a time",
            hint=f"select a bound of a window, or an event time{several}; after a join without a window there is none:"
            " results of any time may still come",
            position=position,
        )


def _of_table(query: LogicalQuery) -> str:
    """What to write instead of a query over one table with a primary key; empty for any other query."""
    if not isinstance(query.root, Leaf) or query.root.input.results is not None or query.aggregation is not None:
        return ""
    table = query.root.input.stream
    if not table.changes or not table.primary_key:
        return ""
    return (
        f"{table.name} is a table with versions by itself, of each {', '.join(table.primary_key)}: join it, or a query"
        " that only filters and names its columns, FOR SYSTEM_TIME AS OF"
    )


def dated_by(input: Input, column: str) -> Input | None:
    """Results with another event time, a column that lies a fixed time from theirs; None for any other column."""
    results, distance = input.results, input.distance_of(column)
    if results is None or results.lags is None or distance is None:
        return None
    lags = tuple(max(lag - distance, 0) for lag in results.lags)
    distances = {input.time.column: -distance}
    distances |= {name: each - distance for name, each in results.distances.items() if name != column}
    stream = input.stream.model_copy(update={"time_column": column})
    return replace(input, stream=stream, results=replace(results, lags=lags, distances=distances))


def versioned_on(input: Input, column: str, position: Position | None) -> Input:
    """Results with the event time that VERSIONED ON names.

    Raises ``UnsupportedError`` for a column that does not lie a fixed time from theirs.
    """
    name = next((each.name for each in input.stream.columns if each.name.lower() == column.lower()), column)
    dated = dated_by(input, name)
    if dated is None:
        known = [input.time.column, *(input.results.distances if input.results is not None else ())]
        raise UnsupportedError(
            f"VERSIONED ON {column} names no event time of the results of {input.alias}",
            hint=f"event times there: {', '.join(each for each in known if not each.startswith('$'))}",
            position=position,
        )
    return dated
