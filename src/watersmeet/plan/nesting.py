"""Queries over the results of queries, as one plan: their inputs and operators in the order in which rows pass them.

inputs      those of the queries below, then this query's own      an own input may have branches: operators below
operators   the same; those of a query below have its alias before their names
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.plan.physical_plan import Branch, Feed, PhysicalInput, PhysicalOperator, PhysicalPlan


def without_unread_columns(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan; the queries below select only those columns that it reads."""
    return replace(plan, inputs=tuple(map(_with_read_columns, plan.inputs)))


def _with_read_columns(part: PhysicalInput) -> PhysicalInput:
    input = part.input
    if input.results is None:
        return part
    read = _read(part)
    places = [place for place, column in enumerate(input.stream.columns) if column.name in read]
    queries = tuple(
        replace(query, outputs=tuple(query.outputs[place] for place in places)) for query in input.results.queries
    )
    columns = tuple(input.stream.columns[place] for place in places)
    stream = input.stream.model_copy(update={"columns": columns})
    return replace(part, input=replace(input, stream=stream, results=replace(input.results, queries=queries)))


def _read(part: PhysicalInput) -> set[str]:
    """The declared columns of an input that its packing reads, and its event time."""
    made = [*part.computed.values(), *part.input.filters, *(key for keys in part.hashes.values() for key in keys)]
    names = {column.name for expression in made for column in expression.find_all(exp.Column)}
    return {part.input.declared(name) for name in (*names, *part.carried)} | {part.input.time.column}


def nested(plan: PhysicalPlan, below: Mapping[int, Sequence[PhysicalPlan]]) -> PhysicalPlan:
    """The plan of a query together with the plans of those whose results are its inputs, by the inputs' indexes."""
    if not below:
        return plan
    inputs: list[PhysicalInput] = []
    operators: list[PhysicalOperator] = []
    branches: dict[int, list[Branch]] = {}
    limits = [plan.emission.max_state_bytes]
    tables = list(plan.tables)
    for part in plan.inputs:
        results = part.input.results
        if results is None:
            continue
        plans = below[part.input.index]
        for number, each in enumerate(plans):
            suffix = f"_{number + 1}" if len(plans) > 1 else ""
            each = _named(each, f"{part.input.alias}{suffix}")
            operators_before, inputs_before = len(operators), len(inputs)
            inputs += _shifted_inputs(each.inputs, operators_before)
            operators += _shifted(each.operators, inputs_before, operators_before)
            lag = None if results.lags is None else results.lags[number]
            branches.setdefault(part.input.index, []).append(Branch(each, len(operators) - 1, lag))
            limits.append(each.emission.max_state_bytes)
            tables += each.tables
    own = [replace(part, branches=tuple(branches.get(part.input.index, ()))) for part in plan.inputs]
    return replace(
        plan,
        emission=replace(plan.emission, max_state_bytes=next((each for each in limits if each is not None), None)),
        inputs=(*inputs, *own),
        operators=(*operators, *_shifted(plan.operators, len(inputs), len(operators))),
        tables=tuple(tables),
        inputs_below=len(inputs),
        operators_below=len(operators),
    )


def _shifted_inputs(inputs: Sequence[PhysicalInput], operators: int) -> list[PhysicalInput]:
    return [
        replace(part, branches=tuple(replace(each, operator=each.operator + operators) for each in part.branches))
        for part in inputs
    ]


def _named(plan: PhysicalPlan, alias: str) -> PhysicalPlan:
    """The plan with an alias before the names of its own operators."""
    below = plan.operators_below
    own = (replace(each, name=f"{alias}_{each.name}") for each in plan.own_operators)
    return replace(plan, operators=(*plan.operators[:below], *own))


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
