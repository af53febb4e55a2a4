"""Several queries as one, whose joins share stores: what each of them reads of a stream is kept once.

Two inputs, of one query or of two, share a store if it would hold the same rows in the same places: they read one
stream, date its rows alike, wait equally long for late ones, and are routed by the same keys.  The store has the
columns that any of them needs.  Where their filters differ, it has the rows that any of them lets pass, and a column
for each filter that says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from sqlglot import exp

from watersmeet.engine.keys import HashedKeys, KeyColumn
from watersmeet.errors import PlanError
from watersmeet.expressions.event_time import EventTime
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.multi_way.shared import QueryJoin, SharedJoins
from watersmeet.kernels.multi_way.stores import Store, relation
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Grace, Input, Leaf
from watersmeet.plan.operators.multi_way import MultiWayOperator
from watersmeet.plan.operators.shared import SharedOperator
from watersmeet.plan.passes.group_joins import ungrouped
from watersmeet.plan.physical_plan import Feed, PhysicalInput, PhysicalPlan
from watersmeet.plan.sources import quoted_column


def share(queries: Sequence[PhysicalPlan]) -> PhysicalPlan:
    """The plan that runs all queries, which were planned to share stores: its sources, and one operator.

    Raises ``PlanError`` for a query that is more than a join of append-only streams by a common key, and unless shared
    stores connect every query with the first.
    """
    joins = [_join_of(query) for query in queries]
    stores = _stores(queries, joins)
    _check_connected(queries, stores)
    reads = {
        (use.query, use.number): (place, store.read(use, place))
        for place, store in enumerate(stores)
        for use in store.uses
    }
    sharing = []
    for number, join in enumerate(joins):
        places, used = zip(*(reads[number, input] for input in range(len(join.feeds))), strict=True)
        sharing.append(QueryJoin(join.kernel.match, places, used))
    sources = tuple(store.source(place) for place, store in enumerate(stores))
    operator = SharedOperator(
        name=joins[0].name,
        kernel=SharedJoins(tuple(sharing), tuple(source.carried for source in sources)),
        feeds=tuple(Feed((each.input.time_name,), source=n, slack=each.delay) for n, each in enumerate(sources)),
        routed_by=tuple(source.routed_by for source in sources),
        hashed=tuple(_hashed(place, joins, sharing) for place in range(len(stores))),
        output=joins[0].output,
        single_bucket=False,
        queries=tuple(queries),
    )
    first = queries[0]
    limits = [query.emission.max_state_bytes for query in queries if query.emission.max_state_bytes is not None]
    emission = replace(first.emission, max_state_bytes=max(limits, default=None))
    return PhysicalPlan(first.query, emission, sources, (operator,), ())


def _hashed(place: int, joins: Sequence[MultiWayOperator], sharing: Sequence[QueryJoin]) -> HashedKeys:
    """What the hash of a store's rows is made of: the keys of a query that reads the row have its values."""
    readers = [
        (own.hashed[input], dict(join.stores[input].names))
        for own, join in zip(joins, sharing, strict=True)
        for input, read in enumerate(join.reads)
        if read == place
    ]
    (first, _) = readers[0]
    found = []
    for number, parts in enumerate(first):
        columns = zip(*([names[each.columns[0]] for each in keys[number]] for keys, names in readers), strict=True)
        found.append(
            tuple(KeyColumn(tuple(dict.fromkeys(each)), part.type) for each, part in zip(columns, parts, strict=True))
        )
    return tuple(found)


# -- which queries -----------------------------------------------------------------------------------------------------


def _join_of(plan: PhysicalPlan) -> MultiWayOperator:
    """The join that a query consists of; raises ``PlanError`` with the reason if it is anything else."""
    *others, last = plan.operators
    if isinstance(last, MultiWayOperator) and not others:
        return last
    raise PlanError(
        "this query cannot share stores with others",
        detail="; ".join(_reasons(plan.query)),
        hint="run it by itself, outside of the statement set",
        position=plan.query.text.position,
    )


def _reasons(query: LogicalQuery) -> list[str]:
    if not query.is_plain:
        return ["results of joins that share stores are not aggregated or ranked yet"]
    if any(input.results is not None or input.windows or input.explodes for input in query.inputs):
        return ["it reads windows, the elements of arrays, or the results of a subquery"]
    if query.ordering is not None:
        return ["results of joins that share stores are not ordered yet"]
    if query.settings.multi_join == "off":
        return ["multi_join = 'off'"]
    if isinstance(query.root, Leaf):
        return ["it joins nothing"]
    return list(ungrouped(query)) or [
        "only inner and left joins of append-only streams do, with a common key and, for left joins, final results"
    ]


def _check_connected(queries: Sequence[PhysicalPlan], stores: Sequence[_SharedStore]) -> None:
    """Raise ``PlanError`` unless shared stores connect every query with the first."""
    known = {0}
    while found := {use.query for store in stores for use in store.uses if store.queries & known} - known:
        known |= found
    for number, plan in enumerate(queries):
        if number not in known:
            raise PlanError(
                "this query shares no store with the others",
                detail="; ".join(_differences(number, stores)),
                hint="run it by itself, or in a statement set with queries that it shares one with",
                position=plan.query.text.position,
            )


def _differences(number: int, stores: Sequence[_SharedStore]) -> list[str]:
    """Why a query's stores differ from other queries' stores of the same streams."""
    found = []
    for store in stores:
        if number in store.queries:
            same = [each for each in stores if each.stream == store.stream and number not in each.queries]
            name = store.first.input.stream.name
            found.append(same[0].difference(store) if same else f"no other query joins {name}")
    return found


# -- stores ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    """An input of a query's join, by the number of the query and that of the input, and its source."""

    query: int
    number: int
    part: PhysicalInput


@dataclass(slots=True)
class _SharedStore:
    """A store that is planned, and the inputs that read it; its columns are named after ``alias``.

    ``computed`` grows while uses are told how to ``read`` it; the ``source`` is planned after that.
    """

    alias: str
    uses: list[_Use] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    computed: dict[str, exp.Expr] = field(default_factory=dict)

    @property
    def first(self) -> PhysicalInput:
        return self.uses[0].part

    @property
    def stream(self) -> str:
        return self.first.input.stream.name.lower()

    @property
    def queries(self) -> set[int]:
        return {use.query for use in self.uses}

    @property
    def filters(self) -> list[exp.Expr | None]:
        """The filter of each use; None lets all rows pass."""
        return [_filter(use.part, self.alias) for use in self.uses]

    def takes(self, part: PhysicalInput) -> bool:
        """Whether an input can share the store."""
        return _place(part) == _place(self.first)

    def difference(self, other: _SharedStore) -> str:
        """What keeps two stores of one stream apart."""
        ours, theirs = _place(self.first), _place(other.first)
        name = self.first.input.stream.name
        if ours.time != theirs.time:
            return f"{name} is dated by {ours.time.column} and by {theirs.time.column}"
        if ours.grace != theirs.grace:
            return f"{name} has another GRACE PERIOD or ALLOWED LATENESS"
        return f"{name} is kept by {' and by '.join(', '.join(map(_key_text, each.keys)) for each in (ours, theirs))}"

    def read(self, use: _Use, place: int) -> Store:
        """How an input reads the store, which is the one in this place."""
        own = self._own_filter(use)
        names = {name: self._column(name, use.part, own) for name in use.part.carried}
        passes = None if own is None else self._compute(own)
        self.columns |= {*names.values(), *([] if passes is None else [passes])}
        return Store(relation(place), tuple(names.items()), passes)

    def source(self, place: int) -> PhysicalInput:
        """The source of the store: what any of its uses needs."""
        first, filters = self.first, [each for each in self.filters if each is not None]
        different = list({each.sql(): each for each in filters}.values())
        hashes = {
            f"{self.alias}:$h{number}": [_renamed(key, first.input, self.alias) for key in first.hashes[name]]
            for number, name in enumerate(first.routed_by)
        }
        return PhysicalInput(
            input=Input(
                index=place,
                alias=self.alias,
                stream=first.input.stream,
                position=first.input.position,
                filters=(exp.or_(*different),) if len(filters) == len(self.uses) else (),
                dated_by=first.input.dated_by,
            ),
            grace=first.grace,
            computed=self.computed,
            hashes=hashes,
            routed_by=tuple(hashes),
            carried=tuple(sorted(self.columns)),
            max_future=first.max_future,
            ties=tuple(
                replace(each, expression=_renamed(each.expression, first.input, self.alias)) for each in first.ties
            ),
        )

    def _own_filter(self, use: _Use) -> exp.Expr | None:
        """The filter of an input; None if all inputs of the store have the same, or if it lets all rows pass."""
        filters = self.filters
        return filters[self.uses.index(use)] if any(each != filters[0] for each in filters) else None

    def _column(self, name: str, part: PhysicalInput, own: exp.Expr | None) -> str:
        """The store's name of a column that an input carries; one that it computes, for rows that pass its filter."""
        expression = part.computed.get(name)
        if expression is None:
            return f"{self.alias}:{part.input.declared(name)}"
        expression = _renamed(expression, part.input, self.alias)
        return self._compute(expression if own is None else exp.Case(ifs=[exp.If(this=own, true=expression)]))

    def _compute(self, expression: exp.Expr) -> str:
        """The column that holds an expression over the stream's columns; each is computed once."""
        known = next((name for name, each in self.computed.items() if each == expression), None)
        name = known or f"{self.alias}:$e{len(self.computed)}"
        self.computed[name] = expression
        return name


@dataclass(frozen=True, slots=True)
class _Place:
    """What decides which rows a store holds, and in which buckets."""

    stream: str
    time: EventTime
    grace: Grace
    keys: tuple[exp.Expr, ...]  # over the stream's columns


def _place(part: PhysicalInput) -> _Place:
    keys = (_renamed(key, part.input, "") for name in part.routed_by for key in part.hashes[name])
    return _Place(part.input.stream.name.lower(), part.input.time, part.grace, tuple(keys))


def _key_text(key: exp.Expr) -> str:
    """A routing key, and the type in which it is hashed."""
    assert isinstance(key, exp.Cast)
    return f"{plain_sql(key.this)} ({key.to.sql(dialect='spark')})"


def _stores(queries: Sequence[PhysicalPlan], joins: Sequence[MultiWayOperator]) -> list[_SharedStore]:
    """The stores of all queries, in the order in which the first of them names their streams."""
    stores: list[_SharedStore] = []
    taken = {part.input.stream.name.lower() for plan in queries for part in plan.inputs}
    for query, (plan, join) in enumerate(zip(queries, joins, strict=True)):
        for number, feed in enumerate(join.feeds):
            assert feed.source is not None
            part = plan.inputs[feed.source]
            store = next((each for each in stores if each.takes(part)), None)
            if store is None:
                name = part.input.stream.name
                if any(each.stream == name.lower() for each in stores):
                    name = next(each for n in count(2) if (each := f"{name}_{n}").lower() not in taken)
                    taken.add(name.lower())
                stores.append(store := _SharedStore(name))
            store.uses.append(_Use(query, number, part))
    return stores


def _filter(part: PhysicalInput, alias: str) -> exp.Expr | None:
    return None if part.keep is None else _renamed(part.keep, part.input, alias)


def _renamed(expression: exp.Expr, input: Input, alias: str) -> exp.Expr:
    """An expression over one input, over the columns of a store (without an alias: of the stream)."""

    def column(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        name = input.declared(node.name)
        return quoted_column(f"{alias}:{name}" if alias else name)

    return expression.copy().transform(column, copy=False)
