"""Random changing streams, random changes of them, and random queries over them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.kernels.changing_model import (
    JOINS,
    PLAIN,
    Change,
    Form,
    Join,
    Query,
    Row,
    Source,
    Stream,
    Subquery,
    TemporalJoin,
    Term,
)

NAMES = ("s", "t", "u")
#: How far a change may lie behind the newest: those with a WATERMARK are not late.
DELAY = 13


def _equal(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else bool(x == y)


def _at_most(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else bool(x <= y)


def _plus(x: int | None, by: int) -> int | None:
    return None if x is None else x + by


def _and(*terms: bool | None) -> bool | None:
    return False if False in terms else (None if None in terms else True)


def _or(*terms: bool | None) -> bool | None:
    return True if True in terms else (None if None in terms else False)


def _near(x: Row, y: Row, before: int, after: int) -> bool | None:
    return _and(_at_most(_plus(x.ts, -before), y.ts), _at_most(y.ts, _plus(x.ts, after)))


KEYS = (
    Term("{x}.id = {y}.id", lambda x, y: _equal(x.id, y.id)),
    Term("{x}.id = {y}.id AND {x}.g = {y}.g", lambda x, y: _and(_equal(x.id, y.id), _equal(x.g, y.g))),
    Term("{x}.k = {y}.k", lambda x, y: _equal(x.k, y.k)),
    Term("{x}.k = {y}.id", lambda x, y: _equal(x.k, y.id)),
    Term("{y}.k = {x}.id", lambda x, y: _equal(y.k, x.id)),
    Term("{x}.k IS NOT DISTINCT FROM {y}.k", lambda x, y: x.k == y.k),
    Term("{x}.id + 1 = {y}.id", lambda x, y: _equal(_plus(x.id, 1), y.id)),
    Term("{x}.g = {y}.g AND {x}.k = {y}.k", lambda x, y: _and(_equal(x.g, y.g), _equal(x.k, y.k))),
    Term("{x}.k IS NOT DISTINCT FROM nullif({y}.id, 3)", lambda x, y: x.k == (None if y.id == 3 else y.id)),
)
ACROSS = (
    Term("{x}.v <= {y}.v", lambda x, y: _at_most(x.v, y.v)),
    Term("({x}.v IS NULL OR {y}.v = 1)", lambda x, y: _or(x.v is None, _equal(y.v, 1))),
    Term("{x}.v = 1", lambda x, y: _equal(x.v, 1)),
    Term("{y}.v > 0", lambda x, y: None if y.v is None else y.v > 0),
    Term("coalesce({x}.v, {y}.v, 0) < 2", lambda x, y: next((v for v in (x.v, y.v) if v is not None), 0) < 2),
    Term("{x}.k <> {y}.k", lambda x, y: None if x.k is None or y.k is None else x.k != y.k),
)
NEAR = Term("{y}.ts BETWEEN {x}.ts - 3 AND {x}.ts + 2", lambda x, y: _near(x, y, 3, 2))
TIMES = (
    NEAR,
    Term("{x}.ts <= {y}.ts", lambda x, y: _at_most(x.ts, y.ts)),
    Term("{x}.ts = {y}.ts", lambda x, y: _equal(x.ts, y.ts)),
)
WITHIN = Term("WITHIN INTERVAL '4' SECONDS", lambda x, y: _near(x, y, 4, 4))
FILTERS = (  # of WHERE, over rows and over results
    Term("{x}.v > 0", lambda x, y: None if x.v is None else x.v > 0),
    Term("{x}.v IS NULL", lambda x, y: x.v is None),
    Term("{x}.k = 1", lambda x, y: _equal(x.k, 1)),
    Term("{x}.id IS NULL", lambda x, y: x.id is None),
    Term("({x}.v <= {y}.v OR {y}.id IS NULL)", lambda x, y: _or(_at_most(x.v, y.v), y.id is None)),
    Term("{x}.ts < 25", lambda x, y: None if x.ts is None else x.ts < 25),
)
FORMS = (
    Form("(SELECT * FROM {stream} WHERE v > 0)", lambda row: row.v is not None and row.v > 0),
    Form(
        "(SELECT id, g, coalesce(k, 2) AS k, v + 1 AS v, ts FROM {stream})",
        made=lambda row: row._replace(k=2 if row.k is None else row.k, v=_plus(row.v, 1)),
    ),
    Form(
        "(SELECT id, g, k, g AS v, ts FROM {stream} WHERE k = 1)",
        lambda row: row.k == 1,
        lambda row: row._replace(v=row.g),
    ),
)


def changes(rng: random.Random, stream: Stream, now: int, known: Sequence[Change]) -> list[Change]:
    """Changes of few keys around a time: equal times and older ones, deletes, moves to other values of k.

    Some say again what is known already, at another time.
    """
    found = []
    for _ in range(rng.randint(1, 6)):
        row = Row(
            id=rng.choice([1, 2, 3, 4]),
            g=rng.choice([0, 1]),
            k=rng.choice([1, 1, 2, 2, 3, None]),
            v=rng.choice([0, 1, 1, 2, 2, None]),
            ts=now + rng.choice([0, 0, 1, 2, 3, 4, -3, -9]),
        )
        if known and rng.random() < 0.2:
            row = rng.choice(known)[0]._replace(ts=row.ts)
        found.append((row, rng.choice([1, 1, 1, 1, -1]) if stream.key else 1))
    return found


def streams(rng: random.Random, *appended: str) -> dict[str, Stream]:
    """Return three streams; some are ``appended``, and some changing ones have no WATERMARK."""
    found = {}
    for name in NAMES:
        if name in appended:
            found[name] = Stream(name, (), DELAY)
            continue
        key = rng.choice([("id",), ("id",), ("id", "g")])
        found[name] = Stream(name, key, rng.choice([None, DELAY]), rng.choice(["versioned_kv", "changelog_kv"]))
    return found


def query(
    rng: random.Random,
    given: Sequence[Stream],
    *,
    windowed: Sequence[Stream] = (),
    table: Stream | None = None,
    under_or: bool = False,
) -> Query:
    """A chain of joins of the given streams, with conditions in WHERE over rows, results and other streams.

    It begins with a windowed join of ``windowed``, where there are some, and may end with a temporal join of ``table``.
    ``under_or``: a subquery is tested, and OR combines it with another condition.
    """
    first = _source(rng, windowed or given, "a")
    visible, joins = ["a"], []
    count = rng.choice([2, 2, 3] if windowed else [0, 0, 1, 1, 2] if under_or else [1, 1, 1, 2, 2, 3])
    for number, alias in enumerate("bcd"[:count], 1):
        x, kind = rng.choice(visible), rng.choice(list(JOINS))
        join: Join | TemporalJoin
        if windowed and number == 1:
            join = Join(kind, _source(rng, windowed, alias), x, (rng.choice(KEYS), NEAR))
        elif table is not None and number == count:
            terms = (rng.choice(KEYS), *rng.sample(ACROSS, rng.choice([0, 0, 1])))
            join = TemporalJoin(rng.choice(["inner", "left"]), Source(table, alias), x, terms)
        else:
            within = WITHIN if count == 1 and rng.random() < 0.2 else None
            join = Join(kind, _source(rng, given, alias), x, _terms(rng, keyed=True), within)
        joins.append(join)
        visible = join.visible(visible)
    where = [(rng.choice(FILTERS), rng.choice(visible), rng.choice(visible))] if rng.random() < 0.2 else []
    subqueries = []
    if under_or or rng.random() < 0.2:
        others = rng.choice(["", "", "f", "fg"]) if under_or else ""
        alternative = None
        if under_or and (not others or rng.random() < 0.5):
            alternative = (rng.choice(FILTERS), rng.choice(visible), rng.choice(visible))
        other = None
        for alias in reversed(others):
            other = replace(_subquery(rng, given, alias, visible), other=other)
        subqueries.append(replace(_subquery(rng, given, "e", visible), alternative=alternative, other=other))
    columns = [(alias, column) for alias in visible for column in Row._fields]
    shown = rng.sample(columns, rng.randint(1, 4))
    return Query(first, tuple(joins), tuple(where), tuple(subqueries), tuple(shown))


def _subquery(rng: random.Random, given: Sequence[Stream], alias: str, visible: Sequence[str]) -> Subquery:
    form = rng.choice(["EXISTS", "NOT EXISTS", "IN", "NOT IN"])
    terms = _terms(rng, keyed=form.endswith("EXISTS"))
    columns = rng.choice([("k",), ("k", "v"), ("v", "k", "g")])
    return Subquery(form, _source(rng, given, alias), rng.choice(visible), terms, columns)


def _terms(rng: random.Random, *, keyed: bool) -> tuple[Term, ...]:
    """A key (or none), and perhaps conditions across sides or over times."""
    terms = [rng.choice(KEYS)] if keyed and rng.random() < 0.9 else []
    if rng.random() < 0.25 or (keyed and not terms):
        terms.append(rng.choice(ACROSS))
    if rng.random() < 0.25:
        terms.append(rng.choice(TIMES))
    return tuple(terms)


def _source(rng: random.Random, given: Sequence[Stream], alias: str) -> Source:
    return Source(rng.choice(list(given)), alias, rng.choice([*[PLAIN] * 9, *FORMS]))
