"""The SELECT list of a query, as columns over the results of its last operator."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.columns import TP_DELTA, WEIGHT, spark_name
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import PhysicalPlan


def select_list(
    plan: PhysicalPlan, rows: DataFrame, is_other: Column | None = None, also: Sequence[str] = ()
) -> DataFrame:
    """Evaluate the SELECT list; ``_tp_delta`` follows it if results are a changelog, then the columns ``also``.

    Rows that are something else than results pass all filters.
    """
    rows = with_hidden_columns(plan, rows)
    for condition in plan.post_filters:
        passes = F.expr(condition.sql(dialect="spark"))
        rows = rows.where(passes if is_other is None else is_other | passes)
    items = [item.alias(each.name) for item, each in zip(select_items(plan), plan.outputs, strict=True)]
    if plan.weighted and TP_DELTA not in {each.name.lower() for each in plan.outputs}:
        items.append(F.col(TP_DELTA))
    return rows.select(*items, *also)


def with_hidden_columns(plan: PhysicalPlan, rows: DataFrame) -> DataFrame:
    """The results with what the SELECT list may read beside them: event times, and ``_tp_delta``."""
    weight = F.col(spark_name(WEIGHT)) if plan.weighted else F.lit(1).cast("tinyint")
    restored = {name: _restored(input) for name, input in plan.restored()}
    return rows.withColumns({**restored, TP_DELTA: weight})


def select_items(plan: PhysicalPlan) -> list[Column]:
    """The columns of the SELECT list, without their names."""
    return [F.expr(each.expression.sql(dialect="spark")) for each in plan.outputs]


def _restored(input: Input) -> Column:
    """An input's event time in its declared type."""
    if input.time.unit is TimeUnit.TIMESTAMP:
        return F.timestamp_micros(F.col(spark_name(input.time_name)))
    declared = input.stream.column(input.time.column)
    assert declared is not None
    return F.expr(f"CAST({spark_name(input.time_name)} DIV {input.time.unit.scale} AS {declared.type})")
