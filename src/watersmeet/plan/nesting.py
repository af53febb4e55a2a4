"""Queries over the results of queries, as one plan: their inputs and operators in the order in which rows pass them.

inputs      those of the queries below, then this query's own      an own input may have branches: operators below
operators   the same; those of a query below have its alias before their names
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from watersmeet.plan.physical_plan import Branch, Feed, PhysicalInput, PhysicalOperator, PhysicalPlan


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
