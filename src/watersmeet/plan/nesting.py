"""Queries over the results of queries, as one plan: their inputs and operators in the order in which rows pass them.

    inputs      those of the queries below, then this query's own      an own input may have branches: operators below
    operators   the same; those of a query below have its alias before their names

A query whose results several others read is there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from watersmeet.columns import WEIGHT
from watersmeet.plan.co_location import CoLocation, co_located
from watersmeet.plan.physical_plan import Branch, Feed, PhysicalInput, PhysicalOperator, PhysicalPlan


@dataclass(frozen=True, slots=True, eq=False)
class PlannedQuery:
    """The plan of a query alone, and by its inputs' indexes the queries whose results these are."""

    plan: PhysicalPlan
    below: Mapping[int, Sequence[PlannedQuery]]


def without_unread_columns(plan: PhysicalPlan, uses: Mapping[int, int]) -> PhysicalPlan:
    """The plan; the queries below select only those columns that it reads.

    ``uses`` says how often the results of a query are read, by its ``id``: those that others read too stay whole.
    """
    return replace(plan, inputs=tuple(_with_read_columns(part, uses) for part in plan.inputs))


def _with_read_columns(part: PhysicalInput, uses: Mapping[int, int]) -> PhysicalInput:
    input = part.input
    if input.results is None or any(uses[id(query)] > 1 for query in input.results.queries):
        return part
    read = _read(part)
    places = [place for place, column in enumerate(input.stream.columns) if column.name in read]
    if not places and isinstance(input.results.queries[0].outputs[0].expression, exp.Literal):
        places = [0]  # rows that are only counted have a column too (bind/across_streams.py)
    queries = tuple(
        replace(query, outputs=tuple(query.outputs[place] for place in places)) for query in input.results.queries
    )
    columns = tuple(input.stream.columns[place] for place in places)
    stream = input.stream.model_copy(update={"columns": columns})
    return replace(part, input=replace(input, stream=stream, results=replace(input.results, queries=queries)))


def _read(part: PhysicalInput) -> set[str]:
    """The declared columns of an input that its packing reads, and its times."""
    made = [*part.computed.values(), *part.input.filters, *(key for keys in part.hashes.values() for key in keys)]
    made += [each.array for each in part.input.explodes]
    names = {column.name for expression in made for column in expression.find_all(exp.Column)}
    times = {part.input.time.column, part.input.window_time.column}
    return {part.input.declared(name) for name in (*names, *part.carried)} | times


def nested(planned: PlannedQuery) -> PhysicalPlan:
    """The plan of a query together with those whose results it reads."""
    whole = _Whole()
    plan, _ = whole.place(planned, "")
    found = co_located(_joined(plan, whole), whole.owners)
    whole = _Whole(found)
    plan, _ = whole.place(planned, "")
    return replace(_joined(plan, whole), tasks=found.tasks)


def _joined(plan: PhysicalPlan, whole: _Whole) -> PhysicalPlan:
    """The plan of the outermost query with all that is placed."""
    limits = (each.emission.max_state_bytes for each in whole.plans)
    return replace(
        plan,
        emission=replace(plan.emission, max_state_bytes=next((each for each in limits if each is not None), None)),
        inputs=tuple(whole.inputs),
        operators=tuple(whole.operators),
        tables=tuple(table for each in whole.plans for table in each.tables),
        inputs_below=len(whole.inputs) - len(plan.inputs),
        operators_below=len(whole.operators) - len(plan.operators),
    )


@dataclass(slots=True)
class _Whole:
    """The queries placed so far, each after those below it; they are routed as is ``found``."""

    found: CoLocation = field(default_factory=CoLocation)
    plans: list[PhysicalPlan] = field(default_factory=list)
    inputs: list[PhysicalInput] = field(default_factory=list)
    operators: list[PhysicalOperator] = field(default_factory=list)
    owners: list[PhysicalPlan] = field(default_factory=list)  # by operator
    _placed: dict[PlannedQuery, tuple[PhysicalPlan, int]] = field(default_factory=dict)

    def place(self, planned: PlannedQuery, alias: str) -> tuple[PhysicalPlan, int]:
        """Place a query, unless it is; return its plan alone, and the number of its last operator in the whole."""
        if planned not in self._placed:
            plan = planned.plan
            placed = [replace(part, branches=self._branches(planned, part)) for part in plan.inputs]
            prefix = f"{alias}_" if alias else ""
            named = [replace(each, name=f"{prefix}{each.name}") for each in plan.operators]
            own = tuple(self._hashed(part, len(self.inputs) + place) for place, part in enumerate(placed))
            routed = tuple(self._routed(each, len(self.operators) + place) for place, each in enumerate(named))
            plan = replace(plan, inputs=own, operators=routed)
            self.operators += _shifted(routed, len(self.inputs), len(self.operators))
            self.inputs += own
            self.plans.append(plan)
            self.owners += [plan] * len(routed)
            self._placed[planned] = (plan, len(self.operators) - 1)
        return self._placed[planned]

    def _hashed(self, part: PhysicalInput, number: int) -> PhysicalInput:
        hashes = self.found.hashes.get(number)
        if hashes is None:
            return part
        added = tuple(name for name in hashes if name not in part.hashes)
        carried = part.carried
        if WEIGHT in carried:  # a row and its retraction come in one step, by the hash
            place = carried.index(WEIGHT)
            carried = (*carried[:place], *added, *carried[place:])
        return replace(part, hashes=hashes, routed_by=added or part.routed_by, carried=carried)

    def _routed(self, operator: PhysicalOperator, number: int) -> PhysicalOperator:
        route = self.found.routes.get(number)
        if route is None:
            return operator
        return replace(operator, routed_by=route.routed_by, hashed=route.hashed, single_bucket=False)

    def _branches(self, planned: PlannedQuery, part: PhysicalInput) -> tuple[Branch, ...]:
        results, below = part.input.results, planned.below.get(part.input.index, ())
        if results is None:
            return ()
        found = []
        for number, each in enumerate(below):
            suffix = f"_{number + 1}" if len(below) > 1 else ""
            lag = None if results.lags is None else results.lags[number]
            found.append(Branch(*self.place(each, f"{part.input.alias}{suffix}"), lag))
        return tuple(found)


def _shifted(operators: Sequence[PhysicalOperator], inputs: int, before: int) -> list[PhysicalOperator]:
    """Operators after so many inputs and operators of others."""
    return [
        replace(each, feeds=tuple(_shifted_feed(feed, inputs, before) for feed in each.feeds)) for each in operators
    ]


def _shifted_feed(feed: Feed, inputs: int, operators: int) -> Feed:
    return replace(
        feed,
        source=None if feed.source is None else feed.source + inputs,
        operator=None if feed.operator is None else feed.operator + operators,
    )
