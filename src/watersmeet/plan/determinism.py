"""Checks that results depend only on input rows, not on the time of the run or the order of arrival.

Other queries are refused with ``SETTINGS deterministic = true``, and wherever a retraction could not repeat the emitted
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from watersmeet.columns import TP_TIME
from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.logical.tree import joins_of
from watersmeet.plan.operators.over import OverOperator
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.settings.seek import EARLIEST

SETTING = "deterministic"
_CLOCK = ("current_date", "current_time", "current_timestamp", "curdate", "getdate", "localtimestamp", "now")
_RANDOM = ("rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid")
_INPUT_FILE = ("input_file_block_length", "input_file_block_start", "input_file_name")
_PARTITION = ("monotonically_increasing_id", "spark_partition_id")
_VARYING = frozenset((*_CLOCK, *_RANDOM, *_INPUT_FILE, *_PARTITION))


def check_determinism(plan: PhysicalPlan) -> None:
    """Raise ``UnsupportedError`` for a nondeterministic function that is evaluated over changelog results.

    Such are the SELECT list and conditions tested after joins and aggregates.  Raise ``PlanError`` for the first cause
    by which a query with ``deterministic = true`` is not deterministic.
    """
    if plan.weighted:
        for call in varying_calls([*(column.expression for column in plan.outputs), *plan.post_filters]):
            raise UnsupportedError(
                f"{plain_sql(call)} is nondeterministic, so a retraction could not repeat the emitted row",
                hint="leave it out; for the time at which a row arrived use its column _tp_time",
                position=position_of(call),
            )
    if plan.query.settings.deterministic:
        _check_joins(plan)
        _check_limit(plan)
        _check_settings(plan)
        _check_times(plan)
        for call in varying_calls([plan.query.text.select]):
            raise PlanError(
                f"{SETTING} = true, but {plain_sql(call)} is nondeterministic",
                hint=f"leave it out, or {SETTING}",
                position=position_of(call),
            )


def _check_joins(plan: PhysicalPlan) -> None:
    for join in joins_of(plan.query.root):
        if join.asof is not None and join.asof.direction is Direction.CURRENT:
            raise PlanError(
                f"{SETTING} = true, but FOR SYSTEM_TIME AS OF PROCTIME() depends on the order of arrival",
                hint=f"join AS OF an event time, or leave out {SETTING}",
                position=join.position,
            )


def _check_limit(plan: PhysicalPlan) -> None:
    if any(isinstance(each, OverOperator) and each.kernel.by_arrival for each in plan.operators):
        raise PlanError(
            f"{SETTING} = true, but LIMIT without ORDER BY takes the rows that come first",
            hint=f"add ORDER BY, or leave out {SETTING}",
            position=plan.query.text.position,
        )


def _check_settings(plan: PhysicalPlan) -> None:
    settings = plan.query.settings
    depends = {
        "temporal_wait": settings.temporal_wait == "none" and "makes results depend on the order of arrival",
        "idle_timeout": settings.idle_timeout is not None and "depends on the clock",
        "eviction": settings.eviction != "stop" and "makes results depend on the cut of batches",
        "join_ttl": settings.join_ttl is not None and "makes results depend on the cut of batches",
        "max_future": isinstance(settings.max_future, float) and "depends on when rows arrived",
        "seek_to": settings.seek_to not in (None, EARLIEST) and "depends on when rows arrived",
    }
    for name, why in depends.items():
        if why:
            raise PlanError(
                f"{SETTING} = true, but {name} {why}",
                hint=f"leave out {name}, or {SETTING}",
                position=plan.query.text.settings_positions.get(name),
            )


def _check_times(plan: PhysicalPlan) -> None:
    """Times of arrival, as an event time or as a column."""
    inputs = [part.input for part in plan.own_inputs if not part.branches]
    arriving = [each for each in inputs if all(column.name.lower() != TP_TIME for column in each.stream.columns)]
    matters = len(plan.query.inputs) > 1 or not plan.query.is_plain
    for input in arriving:
        if input.time.column == TP_TIME and (matters or input.stream.changes):
            raise PlanError(
                f"{SETTING} = true, but {input.stream.name} has no event time: a row has the time of its arrival",
                hint=f"declare one with WATERMARK FOR, or leave out {SETTING}",
                position=input.position,
            )
    for column in plan.query.text.select.find_all(exp.Column):
        if column.name.lower() == TP_TIME and arriving:
            raise PlanError(
                f"{SETTING} = true, but {TP_TIME} is the time of arrival",
                hint=f"leave it out, or {SETTING}",
                position=position_of(column),
            )


def varying_calls(expressions: Iterable[exp.Expr]) -> Iterator[exp.Func]:
    """The calls of nondeterministic functions in some expressions."""
    for expression in expressions:
        for call in expression.find_all(exp.Func):
            name = call.name if isinstance(call, exp.Anonymous) else type(call).sql_name()
            if name.lower() in _VARYING:
                yield call
