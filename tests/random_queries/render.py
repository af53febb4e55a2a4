"""A query of the tree in query.py as Watersmeet's SQL, and as DuckDB's over whole tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.random_queries.query import AsofJoin, Condition, Join, Query, Subquery, WindowedJoin, Within, met_in_time
from tests.random_queries.rows import COLUMNS

PICKED = "p"  # the rows that an as-of join picks from, in DuckDB


def output_columns(query: Query) -> list[str]:
    """The names of the result's columns."""
    return [f"{alias}_{column}" for alias in query.visible for column in COLUMNS]


def watersmeet_sql(query: Query) -> str:
    """The query as it is tested."""
    lines = [f"SELECT {_select_list(query)}", f"FROM {query.first.watersmeet()}"]
    lines += [_asof(join) if isinstance(join, AsofJoin) else _windowed(join) for join in query.joins]
    if query.where:
        lines.append(f"WHERE {_all(_where(term) for term in query.where)}")
    if query.order:
        terms = (f"{term.alias}.{term.column}{' DESC' if term.descending else ''}" for term in query.order)
        lines.append(f"ORDER BY {', '.join(terms)}")
    return "\n".join(lines) + query.emit.value + ("\nSETTINGS multi_join = 'off'" if query.chained else "")


def duckdb_sql(query: Query) -> str:
    """The same over tables that hold all rows: no order, no times of emission."""
    windows = withins(query.joins)
    joined = query.first.duckdb()
    for i, join in enumerate(query.joins):
        if isinstance(join, AsofJoin):
            joined += f"\n{_asof_batch(join)}"
        else:
            before = met_in_time(query.first, query.joins[:i])
            joined = _windowed_batch(joined, join, windows[i], before)
    lines = [f"SELECT {_select_list(query)}", f"FROM {joined}"]
    if query.where:
        lines.append(f"WHERE {_all(_where_batch(term) for term in query.where)}")
    return "\n".join(lines)


def _select_list(query: Query) -> str:
    return ", ".join(f"{alias}.{column} AS {alias}_{column}" for alias in query.visible for column in COLUMNS)


def _all(terms: Iterable[str]) -> str:
    return " AND ".join(terms)


def _any(terms: Sequence[str]) -> str:
    return f"({' OR '.join(terms)})" if len(terms) > 1 else terms[0]


# -- Watersmeet --------------------------------------------------------------------------------------------------------


def _windowed(join: WindowedJoin) -> str:
    on = _all(condition.watersmeet() for condition in join.conditions)
    text = f"{join.kind.value[0]} {join.source.watersmeet()} ON {on}"
    within = join.within
    if within is None:
        return text
    before, after = f"INTERVAL '{within.before}' SECONDS", f"INTERVAL '{within.after}' SECONDS"
    text += f" WITHIN {before}" if within.short else f" WITHIN ({before}, {after})"
    return f"{text} GRACE PERIOD INTERVAL '{within.grace}' SECONDS" if within.grace else text


def _asof(join: AsofJoin) -> str:
    kind = "LEFT " if join.outer else ""
    conditions = (*join.keys, *join.tests)
    on = f" ON {_all(condition.watersmeet() for condition in conditions)}" if conditions else ""
    if join.temporal:
        clause = f"FOR SYSTEM_TIME AS OF {join.left}.ts{' VERSIONED ON ts' if join.turned else ''}"
        return f"{kind}JOIN {join.source.stream} {clause} {join.source.alias}{on}"
    match = Condition(join.pick.value[1 if join.turned else 0], join.left, join.source.alias)
    terms = [match, *([join.tolerance] if join.tolerance is not None else [])]
    condition = _all(term.watersmeet() for term in terms)
    return f"{kind}ASOF JOIN {join.source.watersmeet()} MATCH_CONDITION ({condition}){on}"


def _where(term: Condition | Subquery) -> str:
    if isinstance(term, Condition):
        return term.watersmeet()
    terms = [] if term.alternative is None else [term.alternative.watersmeet()]
    terms.append(_subquery(term, term.source.watersmeet(), [condition.watersmeet() for condition in term.conditions]))
    return _any([*terms, *([] if term.other is None else [_where(term.other)])])


def _subquery(term: Subquery, source: str, conditions: Sequence[str]) -> str:
    no = "NOT " if term.negated else ""
    rest = f"FROM {source} WHERE {_all(conditions)}"
    if term.column is None:
        return f"{no}EXISTS (SELECT 1 {rest})"
    return f"{term.outer}.{term.column} {no}IN (SELECT {term.source.alias}.{term.column} {rest})"


# -- DuckDB ------------------------------------------------------------------------------------------------------------


def withins(joins: Sequence[Join]) -> list[tuple[Within, bool] | None]:
    """The WITHIN of each join, and whether it is one at the end of a chain, which holds between every pair.

    A join as of a time takes no WITHIN and is bound by its own clause alone.
    """
    own = {i: join.within for i, join in enumerate(joins) if isinstance(join, WindowedJoin)}
    last = max(own, default=0)
    found: list[tuple[Within, bool] | None] = [None] * len(joins)
    for i, within in own.items():
        if within is not None:
            found[i] = (within, i == last and None in own.values())
        elif (trailing := own[last]) is not None:
            found[i] = (trailing, True)
    return found


def _windowed_batch(joined: str, join: WindowedJoin, window: tuple[Within, bool] | None, before: Sequence[str]) -> str:
    terms = [condition.duckdb() for condition in join.conditions]
    if window is not None:
        within, between_all = window
        named = [alias for alias in before if any(alias in condition.aliases for condition in join.conditions)]
        terms += _within(within, before if between_all or not named else named, join.source.alias)
    sides = (joined, join.source.duckdb())
    if not join.kind.shows_left:
        sides = (sides[1], f"({joined})" if "\n" in joined else joined)
    return f"{sides[0]}\n{join.kind.value[1]} {sides[1]} ON {_all(terms)}"


def _within(within: Within, lefts: Sequence[str], right: str) -> list[str]:
    """The window to every left alias that is there: an outer join before may have padded some, but not all."""
    bounds = [f"{right}.ts - {left}.ts BETWEEN -{within.before} AND {within.after}" for left in lefts]
    if len(lefts) == 1:
        return bounds
    there = " OR ".join(f"{left}.ts IS NOT NULL" for left in lefts)
    return [*(f"({left}.ts IS NULL OR {bound})" for left, bound in zip(lefts, bounds, strict=True)), f"({there})"]


def _asof_batch(join: AsofJoin) -> str:
    """A join with the one right row that comes first in the order of preference, the last in its source among ties."""
    match = Condition(join.pick.value[2], join.left, PICKED)
    asked = _all([*(key.duckdb(PICKED) for key in join.keys), match.duckdb()])
    order = f"abs({PICKED}.ts - {join.left}.ts), {PICKED}.ts, {PICKED}.seq DESC"
    picked = f"SELECT {PICKED}.seq FROM {join.source.duckdb(PICKED)} WHERE {asked} ORDER BY {order} LIMIT 1"
    tests = [*([join.tolerance] if join.tolerance is not None else []), *join.tests]
    on = _all([f"{join.source.alias}.seq = ({picked})", *(test.duckdb() for test in tests)])
    return f"{'LEFT ' if join.outer else ''}JOIN {join.source.duckdb()} ON {on}"


def _where_batch(term: Condition | Subquery) -> str:
    if isinstance(term, Condition):
        return term.duckdb()
    terms = [] if term.alternative is None else [term.alternative.duckdb()]
    terms.append(_subquery(term, term.source.duckdb(), [condition.duckdb() for condition in term.conditions]))
    return _any([*terms, *([] if term.other is None else [_where_batch(term.other)])])
