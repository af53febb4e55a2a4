"""Several queries as one, whose joins share stores: what each of them reads of a stream is kept once.

Two inputs, of one query or of two, share a store if it would hold the same rows in the same places: they read one
stream, date its rows alike, wait equally long for late ones, and are routed by the same keys.  The store has the
columns that any of them needs.  Where their filters differ, it has the rows that any of them lets pass, and a column
for each filter that says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.multi_way.shared import SharedJoins, SharingJoin
from watersmeet.kernels.multi_way.stores import Store, relation
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Input, leaves_of
from watersmeet.plan.operators.multi_way import MultiWayOperator
from watersmeet.plan.operators.shared import SharedOperator
from watersmeet.plan.passes.group_joins import ungrouped
from watersmeet.plan.physical_plan import Feed, PhysicalInput, PhysicalPlan
from watersmeet.plan.sources import quoted_column


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """The ``queries`` as each would run alone, and the ``plan`` that runs them all: its sources and one operator."""

    plan: PhysicalPlan
    queries: tuple[PhysicalPlan, ...]


def share(queries: Sequence[PhysicalPlan]) -> SharedPlan:
    """One plan for queries that were planned to share stores.

    Raises ``PlanError`` for a query that is more than a join of append-only streams by a common key, and for one that
    would share no store with the others.
    """
    joins = [_join_of(query) for query in queries]
    stores = _stores(queries, joins)
    _check_connected(queries, stores)
    merged = [each.merged(place) for place, each in enumerate(stores)]
    read = {(use.query, use.number): place for place, store in enumerate(stores) for use in store.uses}
    found = {
        (use.query, use.number): store.store_of(use, place) for place, store in enumerate(stores) for use in store.uses
    }
    sharing = []
    for number, join in enumerate(joins):
        inputs = [(number, input) for input in range(len(join.feeds))]
        sharing.append(
            SharingJoin(join.kernel.match, tuple(read[each] for each in inputs), tuple(found[each] for each in inputs))
        )
    limits = [query.emission.max_state_bytes for query in queries]
    operator = SharedOperator(
        name=joins[0].name,
        kernel=SharedJoins(tuple(sharing), tuple(part.carried for part in merged)),
        feeds=tuple(Feed((part.input.time_name,), source=n, slack=part.delay) for n, part in enumerate(merged)),
        routed_by=tuple(part.routed_by for part in merged),
        output=joins[0].output,
        single_bucket=False,
        queries=tuple(queries),
    )
    first = queries[0]
    emission = replace(first.emission, max_state_bytes=max((each for each in limits if each is not None), default=None))
    return SharedPlan(PhysicalPlan(first.query, emission, tuple(merged), (operator,), ()), tuple(queries))


# -- which queries -----------------------------------------------------------------------------------------------------


def _join_of(plan: PhysicalPlan) -> MultiWayOperator:
    """The one operator of a query."""
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
    if query.aggregation is not None:
        return ["results of joins that share stores are not aggregated yet"]
    if query.ordering is not None:
        return ["results of joins that share stores are not ordered yet"]
    if query.settings.multi_join == "off":
        return ["multi_join = 'off'"]
    if len(list(leaves_of(query.root))) < 2:
        return ["it joins nothing"]
    return list(ungrouped(query)) or [
        "only inner and left joins of append-only streams do, with a common key and, for left joins, final results"
    ]


def _check_connected(queries: Sequence[PhysicalPlan], stores: Sequence[_SharedStore]) -> None:
    """Raise ``PlanError`` unless each query shares a store with one before it."""
    known = {0}
    while found := {use.query for store in stores for use in store.uses if store.queries & known} - known:
        known |= found
    for number, plan in enumerate(queries):
        if number not in known:
            raise PlanError(
                "this query shares no store with those before it",
                detail="; ".join(_differences(number, stores)),
                hint="run it by itself, or in a statement set with queries that it shares one with",
                position=plan.query.text.position,
            )


def _differences(number: int, stores: Sequence[_SharedStore]) -> list[str]:
    """Why the stores of a query are others than those of the first that reads the same streams."""
    found = []
    for store in stores:
        if number in store.queries:
            same = [each for each in stores if each.stream == store.stream and number not in each.queries]
            name = store.first.input.stream.name
            found.append(same[0].difference(store) if same else f"no query before it joins {name}")
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
    """A store that is planned, and the inputs that read it; its columns are named after ``alias``."""

    alias: str
    uses: list[_Use] = field(default_factory=list)
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

    def takes(self, part: PhysicalInput) -> bool:
        """Whether an input can share the store."""
        return _place(part) == _place(self.first)

    def difference(self, other: _SharedStore) -> str:
        """What keeps two stores of one stream apart."""
        ours, theirs = _place(self.first), _place(other.first)
        name = self.first.input.stream.name
        if ours.time != theirs.time:
            return f"{name} is dated by {ours.time[0]} and by {theirs.time[0]}"
        if ours.grace != theirs.grace:
            return f"{name} has another GRACE PERIOD"
        return f"{name} is kept by {' and by '.join(', '.join(each.keys) for each in (ours, theirs))}"

    def merged(self, place: int) -> PhysicalInput:
        """The source of the store, which is the one in this place: what any of its uses needs."""
        first = self.first
        names = {each for use in self.uses for each in self._names(use).values()}
        names |= {passes for use in self.uses if (passes := self._passes(use)) is not None}
        routes = {self._hash_name(number): self._keys(name) for number, name in enumerate(first.routed_by)}
        filters = [_filter(use.part, self.alias) for use in self.uses]
        kept = [each for each in filters if each is not None]
        different = list({each.sql(): each for each in kept}.values())
        return PhysicalInput(
            input=Input(
                index=place,
                alias=self.alias,
                stream=first.input.stream,
                position=first.input.position,
                filters=(exp.or_(*different),) if len(kept) == len(filters) else (),
                dated_by=first.input.dated_by,
            ),
            grace=first.grace,
            computed=self.computed,
            hashes=routes,
            routed_by=tuple(routes),
            carried=tuple(sorted(names)),
            max_future=first.max_future,
        )

    def store_of(self, use: _Use, place: int) -> Store:
        """How an input reads the store, which is the one in this place."""
        return Store(relation(place), tuple(self._names(use).items()), self._passes(use))

    def _names(self, use: _Use) -> dict[str, str]:
        """The store's names of the columns that an input carries."""
        part, names = use.part, {}
        for name in part.carried:
            if (expression := part.computed.get(name)) is not None:
                names[name] = self._compute(self._guarded(use, _renamed(expression, part.input, self.alias)))
            else:
                names[name] = f"{self.alias}:{part.input.declared(name)}"
        return names

    def _guarded(self, use: _Use, expression: exp.Expr) -> exp.Expr:
        """An expression that is evaluated for those rows alone that pass the input's filter."""
        own = self._own_filter(use)
        return expression if own is None else exp.Case(ifs=[exp.If(this=own, true=expression)])

    def _passes(self, use: _Use) -> str | None:
        own = self._own_filter(use)
        return None if own is None else self._compute(own)

    def _own_filter(self, use: _Use) -> exp.Expr | None:
        """The filter of an input; None if all inputs of the store have the same, or if it lets all rows pass."""
        filters = [_filter(each.part, self.alias) for each in self.uses]
        return _filter(use.part, self.alias) if any(each != filters[0] for each in filters) else None

    def _compute(self, expression: exp.Expr) -> str:
        """The column that holds an expression over the stream's columns; each is computed once."""
        known = next((name for name, each in self.computed.items() if each == expression), None)
        name = known or f"{self.alias}:$e{len(self.computed)}"
        self.computed[name] = expression
        return name

    def _hash_name(self, number: int) -> str:
        return f"{self.alias}:$h{number}"

    def _keys(self, name: str) -> Sequence[exp.Expr]:
        return [_renamed(key, self.first.input, self.alias) for key in self.first.hashes[name]]


@dataclass(frozen=True, slots=True)
class _Place:
    """What decides which rows a store holds, and in which buckets."""

    stream: str
    time: tuple[str, str, int]
    grace: int
    keys: tuple[str, ...]


def _place(part: PhysicalInput) -> _Place:
    input, time = part.input, part.input.time
    keys = (key for name in part.routed_by for key in part.hashes[name])
    return _Place(
        input.stream.name.lower(),
        (time.column.lower(), time.unit.value, time.delay),
        part.grace,
        tuple(_key_text(key, input) for key in keys),
    )


def _key_text(key: exp.Expr, input: Input) -> str:
    """A key of a route over the stream's own columns, and its type, if it is not a column of that type itself."""
    kind = f" ({key.to.sql(dialect='spark')})" if isinstance(key, exp.Cast) else ""
    return plain_sql(_renamed(key.this if kind else key, input, "")) + kind


def _stores(queries: Sequence[PhysicalPlan], joins: Sequence[MultiWayOperator]) -> list[_SharedStore]:
    """The stores of all queries, in the order in which the first of them names their streams."""
    stores: list[_SharedStore] = []
    for query, (plan, join) in enumerate(zip(queries, joins, strict=True)):
        for number, feed in enumerate(join.feeds):
            assert feed.source is not None
            part = plan.inputs[feed.source]
            store = next((each for each in stores if each.takes(part)), None)
            if store is None:
                name = part.input.stream.name
                same = sum(each.stream == name.lower() for each in stores)
                stores.append(store := _SharedStore(f"{name}_{same + 1}" if same else name, []))
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
