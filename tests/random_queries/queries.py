"""Random queries: chains of one to four joins over random streams, simplest choices first so that failures shrink."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.random_queries.conditions import FILTERS, KEYS, RESIDUALS, conditions, rarely, tolerances, windows
from tests.random_queries.query import (
    AsofJoin,
    Condition,
    Emit,
    Form,
    Join,
    Kind,
    OrderTerm,
    Pick,
    Query,
    Source,
    Subquery,
    WindowedJoin,
    Within,
    visible_after,
)
from tests.random_queries.rows import Streams, Unit

#: How many joins a query has, the usual numbers several times.
COUNTS = (1, 1, 1, 2, 2, 3, 4)


@st.composite
def queries(draw: st.DrawFn, streams: Streams, counts: Sequence[int] = COUNTS) -> Query:
    """A query over the streams, of one of ``counts`` of joins.

    A few are refused, for what follows from several windows together.
    """
    first = draw(_source(streams.streams, "s0"))
    count = draw(st.sampled_from(counts))
    trailing = streams.unit is Unit.SECONDS and count > 1 and draw(rarely(0.3))
    if count > 1 and not trailing and draw(rarely(0.15)):
        return draw(_closed_chain(streams, first, count))
    joins: tuple[Join, ...] = ()
    for number in range(1, count + 1):
        visible = visible_after(first, joins)
        if bool(streams.appended) and draw(rarely(0.35)):
            joins += (draw(_asof_join(streams, f"s{number}", visible)),)
            continue
        join = draw(_windowed_join(streams, f"s{number}", visible, trailing=trailing))
        if trailing and number == count:
            join = WindowedJoin(join.kind, join.source, join.conditions, draw(_within()))
        joins += (join,)
    visible = visible_after(first, joins)
    where: list[Condition | Subquery] = []
    if draw(rarely(0.35)):
        where.append(draw(conditions(FILTERS, draw(st.sampled_from(visible)), draw(st.sampled_from(visible)))))
    where += [
        draw(_subquery(streams, f"e{number}", visible, (f"f{number}", f"g{number}")))
        for number in range(draw(st.sampled_from([0, 0, 0, 1, 2])))
    ]
    query = Query(first, joins, tuple(where), (), Emit.DEFAULT)
    if any(streams.streams[source.stream].key for source in query.sources):
        return replace(query, emit=draw(st.sampled_from([Emit.DEFAULT, Emit.CHANGELOG])))
    order = draw(_order(visible)) if draw(rarely(0.15)) else ()
    modes = [Emit.DEFAULT, Emit.FINAL, *([] if order else [Emit.CHANGELOG, Emit.CHANGELOG])]
    return replace(query, order=order, emit=draw(st.sampled_from(modes)))


@st.composite
def _closed_chain(draw: st.DrawFn, streams: Streams, first: Source, count: int) -> Query:
    """Joins without a window, or even without a key, between others that have some.

    Their windows follow from the last join's, or there are none; and they may be made in another order.
    """
    joins: list[Join] = []
    aliases = [first.alias]
    unkeyed: list[str] = []
    for number in range(1, count + 1):
        source = draw(_source(streams.streams, f"s{number}"))
        is_last = number == count
        kind = draw(st.sampled_from(Kind)) if draw(rarely(0.3 if is_last else 0.2)) else Kind.INNER
        if not is_last and kind is Kind.INNER and draw(st.booleans()):
            terms = [Condition("1 = 1", source.alias, source.alias)]
            unkeyed.append(source.alias)
        else:
            met = {draw(st.sampled_from(aliases)), *(unkeyed if is_last else [])} & set(aliases)
            terms = [draw(conditions(KEYS, left, source.alias)) for left in sorted(met)]
        if draw(rarely(0.3)):
            terms.append(draw(conditions(RESIDUALS, draw(st.sampled_from(aliases)), source.alias)))
        within = None
        if is_last and streams.unit is Unit.SECONDS and draw(st.booleans()):
            within = draw(_within())
        elif is_last or draw(rarely(0.3)):
            terms += [draw(windows(left, source.alias, intervals=False)) for left in aliases]
        joins.append(WindowedJoin(kind, source, tuple(terms), within))
        aliases = list(visible_after(first, tuple(joins)))
    emit = draw(st.sampled_from([Emit.DEFAULT, Emit.DEFAULT, Emit.CHANGELOG]))
    return Query(first, tuple(joins), (), (), emit)


@st.composite
def _source(draw: st.DrawFn, names: Iterable[str], alias: str) -> Source:
    form = draw(st.sampled_from([Form.PLAIN] * 7 + [Form.FILTERED, Form.COMPUTED, Form.NEVER_NULL]))
    return Source(draw(st.sampled_from(sorted(names))), alias, form)


@st.composite
def _windowed_join(
    draw: st.DrawFn, streams: Streams, alias: str, visible: Sequence[str], *, trailing: bool
) -> WindowedJoin:
    """A join with a window of its own, or none where that at the end of the chain may stand in.

    Of several windows of a join one bounds its state. The others are conditions, and an INTERVAL added to a whole
    number is not one.
    """
    source = draw(_source(streams.streams, alias))
    kind = draw(st.sampled_from(Kind))
    any_left = st.sampled_from(visible)
    left = draw(any_left)
    terms = [] if draw(rarely(0.07)) else [draw(conditions(KEYS, left, alias))]
    if not terms or draw(rarely(0.4)):
        terms.append(draw(conditions(RESIDUALS, draw(any_left), alias)))
    if trailing and not draw(rarely(0.4)):
        return WindowedJoin(kind, source, tuple(terms))
    if streams.unit is Unit.SECONDS and draw(st.booleans()):
        return WindowedJoin(kind, source, tuple(terms), draw(_within()))
    twice = draw(rarely(0.15))
    intervals = streams.unit is Unit.SECONDS and not twice and not trailing
    terms.append(draw(windows(left, alias, intervals=intervals)))
    if twice:
        terms.append(draw(windows(draw(any_left), alias, intervals=False)))
    return WindowedJoin(kind, source, tuple(draw(st.permutations(terms))))


@st.composite
def _within(draw: st.DrawFn) -> Within:
    before = draw(st.sampled_from([5, 0, 1, 2, 10, 30]))
    after = draw(st.sampled_from([None, 5, 0, 1, 20]))
    grace = 3 if draw(rarely(0.2)) else 0
    return Within(before, before if after is None else after, short=after is None, grace=grace)


@st.composite
def _asof_join(draw: st.DrawFn, streams: Streams, alias: str, visible: Sequence[str]) -> AsofJoin:
    any_left = st.sampled_from(visible)
    left = draw(any_left)
    temporal = draw(rarely(0.25))
    source = draw(_source(streams.appended, alias))
    pick = draw(st.sampled_from(Pick))
    tolerance = None
    if temporal:
        source, pick = Source(source.stream, alias), Pick.NEWEST_AT
    elif draw(rarely(0.7)):
        tolerance = draw(tolerances(pick, left, alias, intervals=streams.unit is Unit.SECONDS))
    keys = () if draw(rarely(0.2)) else (draw(conditions(KEYS, draw(any_left), alias)),)
    tests = (
        (draw(conditions(RESIDUALS, draw(any_left), alias)),) if (temporal and not keys) or draw(rarely(0.3)) else ()
    )
    return AsofJoin(
        source=source,
        left=left,
        pick=pick,
        outer=draw(st.booleans()),
        keys=keys,
        tests=tests,
        tolerance=tolerance,
        turned=draw(st.booleans()),
        temporal=temporal,
    )


@st.composite
def _subquery(
    draw: st.DrawFn, streams: Streams, alias: str, visible: Sequence[str], others: Sequence[str] = ()
) -> Subquery:
    """A test, perhaps with more of them under OR, of ``others`` at most."""
    outer = draw(st.sampled_from(visible))
    column = draw(st.sampled_from([None, None, None, "v", "id", "k"]))
    terms = [draw(windows(outer, alias, intervals=streams.unit is Unit.SECONDS))]
    if column is None and not draw(rarely(0.1)):
        terms.append(draw(conditions(KEYS, outer, alias)))
    if draw(rarely(0.4)):
        terms.append(draw(conditions(RESIDUALS, draw(st.sampled_from(visible)), alias)))
    source, negated = draw(_source(streams.streams, alias)), draw(st.booleans())
    alternative = None
    if draw(rarely(0.3)):
        alternative = draw(conditions(FILTERS, draw(st.sampled_from(visible)), draw(st.sampled_from(visible))))
    other = draw(_subquery(streams, others[0], visible, others[1:])) if bool(others) and draw(rarely(0.4)) else None
    return Subquery(source, negated, tuple(terms), outer, column, alternative, other)


@st.composite
def _order(draw: st.DrawFn, visible: Sequence[str]) -> tuple[OrderTerm, ...]:
    """An event time, and perhaps a column that breaks ties."""
    first = OrderTerm(draw(st.sampled_from(visible)), "ts")
    if not draw(st.booleans()):
        return (first,)
    tie = OrderTerm(draw(st.sampled_from(visible)), draw(st.sampled_from(["id", "ts"])), draw(st.booleans()))
    return (first, tie)
