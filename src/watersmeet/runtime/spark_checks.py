"""What a query asks of the Spark that runs it, reported with its position before it starts: functions, a time zone."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from sqlglot import exp

from watersmeet.errors import BindError, ConfigError, did_you_mean
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.operators.aggregate import AggregateOperator
from watersmeet.plan.physical_plan import PhysicalPlan

_TIME_ZONE = "spark.sql.session.timeZone"


def check_time_zone(spark: SparkSession, plan: PhysicalPlan) -> None:
    """Raise ``ConfigError`` if a group ends with a day or hour of another time zone than UTC.

    Workers compute its end in UTC, and with summer time a clock does not always rise.
    """
    closings = [each.closing for each in plan.operators if isinstance(each, AggregateOperator)]
    zoned = next((each.zoned for each in closings if each is not None and each.zoned is not None), None)
    if zoned is None or _is_utc(spark, zone := str(spark.conf.get(_TIME_ZONE))):
        return
    raise ConfigError(
        f"EMIT FINAL: groups by {plain_sql(zoned)} end by the days and hours of UTC, but {_TIME_ZONE} is {zone}",
        hint=f"set {_TIME_ZONE} to UTC, add a window (TUMBLE), which has no time zone, or leave out EMIT FINAL",
        position=position_of(zoned),
    )


def _is_utc(spark: SparkSession, zone: str) -> bool:
    """Whether a time zone is another name of UTC."""
    jvm: Any = spark._jvm
    try:
        return str(jvm.java.time.ZoneId.of(zone).normalized()) == "Z"
    except Py4JJavaError:  # a name that only Spark knows
        return False


def check_functions(spark: SparkSession, plan: PhysicalPlan) -> None:
    """Raise ``BindError`` for the first function that Spark is to evaluate and does not know."""
    expressions: list[exp.Expr] = []
    for query in plan.nested:
        expressions += [*(column.expression for column in query.outputs), *query.post_filters]
    for part in plan.inputs:
        expressions += [*part.computed.values(), *(each.expression for each in part.ties), *part.input.filters]
        expressions += [each.array for each in part.input.explodes]
    for call in (call for expression in expressions for call in expression.find_all(exp.Anonymous)):
        if isinstance(call.parent, exp.Dot) or spark.catalog.functionExists(call.name):
            continue  # Spark checks functions that are qualified with a catalog or schema
        known = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
        raise BindError(
            f"Spark has no function {call.name}", hint=did_you_mean(call.name, known), position=position_of(call)
        )
