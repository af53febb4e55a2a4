"""EXPLAIN of aggregates: what groups rows, what is kept of them, and where they are put together."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.expressions.typing import plain_sql
from watersmeet.kernels.aggregate.kernel import Aggregate
from watersmeet.plan.aggregates import FINAL_NAME, PARTS_NAME, distinct_arguments
from watersmeet.plan.logical.query import Aggregation
from watersmeet.plan.physical import PhysicalOperator, PhysicalPlan


def aggregate_lines(operator: PhysicalOperator, kernel: Aggregate, plan: PhysicalPlan) -> Iterator[str]:
    """What one of the operators of an aggregation does."""
    aggregation = plan.query.aggregation
    assert aggregation is not None
    in_parts = any(each.name == PARTS_NAME for each in plan.operators)
    if in_parts and operator.name == FINAL_NAME:
        yield f"{operator.name}: puts the results of all buckets together, in one bucket"
        return
    keys = ", ".join(plain_sql(key.expression) for key in aggregation.keys)
    what = f"GROUP BY {keys}" if keys else "all rows"
    yield f"{operator.name}: {what}, EMIT CHANGELOG, {_buckets(operator, plan, aggregation)}"
    for condition in aggregation.conditions:
        yield f"  filter before it: {plain_sql(condition)}"
    values = [call.text for call in aggregation.calls if not call.function.is_running]
    running = [call.text for call in aggregation.calls if call.function.is_running]
    if running:
        yield f"  running totals: {', '.join(running)}"
    if values:
        yield f"  computed anew where values come or go: {', '.join(values)}"
    kept = ""
    if values:
        ends = all(bag.ends for bag in kernel.bags if bag.amount is None)
        kept = ", and its first and last values (rows only ever come)" if ends else ", and its distinct values"
    yield f"  state: {'a row for each group' if keys else 'one row'}{kept}; kept until the end of input"
    if keys:
        yield "  for each group that changed, the row that was shown is taken back (-1), and the new one comes (+1)"


def filter_line(condition: exp.Expr, aggregation: Aggregation | None) -> str:
    """What is tested of results; in HAVING the names of functions' values stand for the functions."""
    if aggregation is None:
        return f"filter after the joins: {plain_sql(condition)}"
    shown = {key.name: plain_sql(key.expression) for key in aggregation.keys}
    shown |= {call.name: call.text for call in aggregation.calls}

    def written(node: exp.Expr) -> exp.Expr:
        return exp.var(shown.get(node.name, node.name)) if isinstance(node, exp.Column) else node

    return f"filter after the aggregate: {plain_sql(condition.copy().transform(written, copy=False))}"


def _buckets(operator: PhysicalOperator, plan: PhysicalPlan, aggregation: Aggregation) -> str:
    if operator.name == PARTS_NAME:
        distinct = distinct_arguments(aggregation)
        if distinct is None:
            return "in each bucket of the rows that are there"
        return f"in each bucket, by hash of {plain_sql(distinct[0])}"
    if not operator.single_bucket:
        return "by hash of the group"
    if aggregation.keys:
        return "one bucket (no key is computed from one stream whose rows are always there)"
    if plan.query.settings.buckets == 1:
        return "one bucket"
    if (distinct := distinct_arguments(aggregation)) is not None:
        why = "several DISTINCT arguments" if len(distinct) > 1 else "DISTINCT over several streams"
        return f"one bucket ({why})"
    return "one bucket (its rows are in one: the join has no key)"
