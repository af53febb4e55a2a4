"""A join's conditions over the columns that travel: keys, routes to the buckets, and what the kernel tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from sqlglot import exp

from watersmeet.engine.keys import HashedKeys, KeyColumn
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.kernels.api import JoinKind, Side
from watersmeet.kernels.match import Key
from watersmeet.plan.across_sides import (
    carry_one_sided,
    is_allowed,
    require_allowed,
    require_allowed_beside_subquery,
    require_comparable,
)
from watersmeet.plan.external_tables import table_of
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Expiry, Join, JoinGroup, KeyPair, Leaf, nullable, operators_of
from watersmeet.plan.operators.version_rules import routing_keys
from watersmeet.plan.sources import Sources

Routes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """The conditions of join ``number``; ``routes`` are the hash columns of its key, by input of its operator.

    Each condition of ``residual`` belongs to one of ``owners``, which are several joins in a group. ``common`` are the
    columns of the keys that all inputs of a group share, by input.  ``hashed`` are the columns behind ``routes``.
    ``alternative`` is tested on left rows alone: those that meet it are results, whatever their partners.
    The terms of ``expiries`` are columns that travel, by side, and so is ``as_of``: the time that left rows ask for,
    where it is not their event time.
    """

    number: int
    keys: tuple[Key, ...]
    routes: Routes
    residual: tuple[exp.Expr, ...]
    owners: tuple[Join, ...]
    common: tuple[tuple[str, ...], ...] = ()
    alternative: exp.Expr | None = None
    expiries: tuple[tuple[Expiry, ...], ...] = ((), ())
    as_of: exp.Expr | None = None
    hashed: tuple[HashedKeys, ...] = ()


def join_terms(query: LogicalQuery, sources: Sources) -> tuple[dict[Join, JoinTerms], tuple[exp.Expr, ...]]:
    """The terms of every join, and conditions that are tested after the last join instead.

    Raises ``UnsupportedError`` for a condition across sides that neither the kernel nor Spark may evaluate.
    """
    joins = list(operators_of(query.root))
    found: dict[Join, JoinTerms] = {}
    postponed: list[exp.Expr] = []
    table_routes: dict[int, tuple[str, ...]] = {}  # by external table: what routed the rows to its lookup
    for number, join in enumerate(joins):
        common: tuple[tuple[str, ...], ...] = ()
        if join.group is None:
            keys = _keys(number, join.condition.keys, join, sources)
            routes, hashed = _routes(number, join, keys, sources, table_routes)
        else:
            keys = _keys(number, join.group.pairs, join, sources)
            common, routes, hashed = _common(number, join.group, sources)
        residual, owners = [], []
        for owner, condition in tested(join):
            carried = _carried(condition, owner, sources)
            require_comparable(carried, sources.columns)
            if is_allowed(carried):
                residual.append(carried)
                owners.append(owner)
            elif _commutes(query, joins[number:]):
                postponed.append(condition)
            else:
                require_allowed(carried, owner.title)
        alternative = _alternative(join, sources)
        expiries = tuple(tuple(_expiry(each, sources) for each in of_side) for of_side in join.condition.expiries)
        found[join] = JoinTerms(
            number=number,
            keys=keys,
            routes=routes,
            residual=tuple(residual),
            owners=tuple(owners),
            common=common,
            alternative=alternative,
            expiries=expiries,
            as_of=_as_of(join, sources),
            hashed=hashed,
        )
    return found, tuple(postponed)


def _keys(number: int, pairs: Sequence[KeyPair], join: Join, sources: Sources) -> tuple[Key, ...]:
    table = table_of(join)
    keys = []
    for i, pair in enumerate(pairs):
        name = f"$k{number}_{i}"
        right = sources.key(pair.right, pair.type, name) if table is None else pair.right.name
        keys.append(Key(sources.key(pair.left, pair.type, name), right, pair.null_safe))
    return tuple(keys)


def _common(
    number: int, group: JoinGroup, sources: Sources
) -> tuple[tuple[tuple[str, ...], ...], Routes, tuple[HashedKeys, ...]]:
    """The columns of a group's common keys, the column of their hash, and what it is made of, by input."""
    columns, routes, hashed = [], [], []
    for place, input in enumerate(group.inputs):
        own = [(key.expressions[place], key.type) for key in group.keys]
        columns.append(tuple(sources.key(each, type, f"$k{number}_c{i}") for i, (each, type) in enumerate(own)))
        routes.append((sources.hash(input, f"$h{number}", [exp.cast(each.copy(), type) for each, type in own]),))
        hashed.append((tuple(_hashed(name, type) for name, (_, type) in zip(columns[-1], own, strict=True)),))
    return tuple(columns), tuple(routes), tuple(hashed)


def _hashed(column: str, type: exp.DataType) -> KeyColumn:
    return KeyColumn((column,), arrow_type(type))


def tested(join: Join) -> Sequence[tuple[Join, exp.Expr]]:
    """The conditions beside keys and window, each with the join that it belongs to.

    Filters over an external table are tested on the rows it returns.
    """
    if join.group is not None:
        return join.group.residual
    table = table_of(join)
    return [(join, each) for each in (*join.condition.residual, *(table.filters if table is not None else ()))]


def _alternative(join: Join, sources: Sources) -> exp.Expr | None:
    tested = join.alternative
    if tested is None:
        return None
    if isinstance(join.left, Leaf) and not inputs_of(tested, sources.columns):  # such as rand() < 0.5
        return sources.condition(join.left.input.index, tested)
    carried = _carried(tested, join, sources)
    require_allowed_beside_subquery(carried)
    return carried


def _carried(condition: exp.Expr, join: Join, sources: Sources) -> exp.Expr:
    """A condition whose one-sided parts are computed at their sources."""
    padded = nullable(join.left) | nullable(join.right)
    return carry_one_sided(condition, sources.columns, padded, sources.compute, external=sources.external)


def _expiry(expiry: Expiry, sources: Sources) -> Expiry:
    """An expiry whose terms are columns, computed at their sources where need be."""
    return replace(expiry, terms=tuple((factor, _column(term, sources)) for factor, term in expiry.terms))


def _as_of(join: Join, sources: Sources) -> exp.Expr | None:
    if join.asof is None or join.asof.at is None:
        return None
    if not inputs_of(join.asof.at, sources.columns):  # a constant
        return sources.carried(join.asof.left, join.asof.at)
    return _column(join.asof.at, sources)


def _column(term: exp.Expr, sources: Sources) -> exp.Expr:
    """A term over one input as a column, computed there where need be."""
    if isinstance(term, exp.Column):
        return term
    (input,) = inputs_of(term, sources.columns)
    return sources.carried(input, term)


def _commutes(query: LogicalQuery, from_here: Sequence[Join]) -> bool:
    """Whether a condition of the first of these joins may as well be tested after the last."""
    visible = from_here[0].visible <= query.root.visible and query.is_plain
    return visible and all(_is_inner(join) for join in from_here)


def _is_inner(join: Join) -> bool:
    return join.kind is JoinKind.INNER and (join.group is None or not join.group.optional)


def _routes(
    number: int, join: Join, keys: Sequence[Key], sources: Sources, table_routes: dict[int, tuple[str, ...]]
) -> tuple[Routes, tuple[HashedKeys, ...]]:
    """One hash column for each pair of inputs that share keys, computed at the sources, and what it is made of."""
    if (table := table_of(join)) is not None:
        left = _lookup_route(number, join, sources, table_routes)
        table_routes[table.index] = left
        return (left, ()), ()  # it stores no rows
    chosen = routing_keys(join, sources.inputs, sources.columns)
    groups: dict[tuple[int, int], list[tuple[KeyPair, Key]]] = {}
    for pair, key in zip(join.condition.keys, keys, strict=True):
        if pair in chosen:
            (i,), (j,) = inputs_of(pair.left, sources.columns), inputs_of(pair.right, sources.columns)
            groups.setdefault((i, j), []).append((pair, key))
    routes: tuple[list[str], list[str]] = ([], [])
    hashed: tuple[list[tuple[KeyColumn, ...]], list[tuple[KeyColumn, ...]]] = ([], [])
    for group, (pair_of_inputs, of_group) in enumerate(sorted(groups.items(), key=itemgetter(0))):
        for side in Side:
            typed = [exp.cast((pair.left, pair.right)[side.index].copy(), pair.type) for pair, _ in of_group]
            input = pair_of_inputs[side.index]
            routes[side.index].append(sources.hash(input, f"$h{number}_{group}", typed))
            hashed[side.index].append(tuple(_hashed(key.of(side), pair.type) for pair, key in of_group))
    return (tuple(routes[0]), tuple(routes[1])), (tuple(hashed[0]), tuple(hashed[1]))


def _lookup_route(
    number: int, join: Join, sources: Sources, table_routes: Mapping[int, tuple[str, ...]]
) -> tuple[str, ...]:
    """Hash columns of a lookup's left side: of its keys, and for looked-up keys those that led to them."""
    keys: dict[int, list[exp.Expr]] = {}
    for pair in join.condition.keys:
        (i,) = inputs_of(pair.left, sources.columns)
        keys.setdefault(i, []).append(exp.cast(pair.left.copy(), pair.type))
    route: list[str] = []
    for i, of_input in sorted(keys.items()):
        if i in sources.external:
            route += table_routes[i]
        else:
            route.append(sources.hash(i, f"$h{number}_{i}", of_input))
    return tuple(dict.fromkeys(route))
