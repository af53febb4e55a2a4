"""Functions in a query that Spark does not have, reported with their position before the query starts."""

from __future__ import annotations

from pyspark.sql import SparkSession
from sqlglot import exp

from watersmeet.errors import BindError, did_you_mean
from watersmeet.expressions.positions import position_of
from watersmeet.plan.physical_plan import PhysicalPlan


def check_functions(spark: SparkSession, plan: PhysicalPlan) -> None:
    """Raise ``BindError`` for the first function that Spark is to evaluate and does not know."""
    expressions: list[exp.Expr] = []
    for query in plan.nested:
        expressions += [*(column.expression for column in query.outputs), *query.post_filters]
    for part in plan.inputs:
        expressions += [*part.computed.values(), *part.input.filters, *(each.array for each in part.input.explodes)]
    for call in (call for expression in expressions for call in expression.find_all(exp.Anonymous)):
        if isinstance(call.parent, exp.Dot) or spark.catalog.functionExists(call.name):
            continue  # Spark checks functions that are qualified with a catalog or schema
        known = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
        raise BindError(
            f"Spark has no function {call.name}", hint=did_you_mean(call.name, known), position=position_of(call)
        )
