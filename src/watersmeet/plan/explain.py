"""EXPLAIN: how a query runs, in words; every default that bounds or changes it stands here."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.columns import TP_TIME
from watersmeet.config import QuerySettings
from watersmeet.kernels.api import EmitMode
from watersmeet.kernels.corrected import CorrectedJoin
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.ordered import OrderedEmit
from watersmeet.plan.emit import DEFAULT_LIMIT, LIMIT_SETTING
from watersmeet.plan.logical import Input, joins_of
from watersmeet.plan.physical import PhysicalInput, PhysicalOperator, PhysicalPlan
from watersmeet.plan.times import TimeUnit
from watersmeet.plan.typing import plain_sql


def explain(plan: PhysicalPlan) -> str:
    """The text of EXPLAIN."""
    return "\n".join(_lines(plan))


def _lines(plan: PhysicalPlan) -> Iterator[str]:
    query = plan.query
    yield f"EMIT {query.emit.value}: {query.emit_reason}"
    if query.max_state_bytes is not None:
        given = "set" if query.settings.join_max_buffered_bytes is not None else f"default ({DEFAULT_LIMIT:,})"
        limit = f"{LIMIT_SETTING} = {query.max_state_bytes:,}, {given}"
        yield f"state limit: {limit}; at the limit the query stops, nothing is lost"
    yield from _settings_lines(query.settings)
    for part in plan.inputs:
        yield from _input_lines(part)
    joins = list(joins_of(query.root))
    for stage in plan.stages:
        yield from _stage_lines(stage, plan)
    if any(join.null_aware for join in joins):
        yield "note: NOT IN compares with every row of the other side, in one bucket; NOT EXISTS is cheaper"
    for condition in plan.post_filters:
        yield f"filter after the joins: {plain_sql(condition)}"
    columns = []
    for column in plan.outputs:
        renamed = f" (was {column.renamed_from}: the name was taken)" if column.renamed_from else ""
        columns.append(f"{column.name}{renamed}")
    yield f"columns: {', '.join(columns)}"


def _settings_lines(settings: QuerySettings) -> Iterator[str]:
    late = "counted and dropped" if settings.late_rows == "drop" else f"counted, and kept in {settings.late_rows}"
    bad = "set aside" if settings.bad_rows == "quarantine" else "stop the query"
    idle = "waited for" if settings.idle_timeout is None else f"waited for {settings.idle_timeout:g} s"
    yield f"late rows: {late}; bad rows: {bad}; silent inputs: {idle}"
    buckets = settings.buckets or "as many as Spark's shuffle partitions"
    trigger = f"every {settings.trigger:g} s" if settings.trigger else "as soon as the one before is done"
    yield f"buckets: {buckets}; batches: {trigger}"
    limit = settings.memory_limit or "DuckDB's own limit"
    yield f"memory of a worker: state up to {settings.cache_bytes:,} bytes is cached; {limit}, then disk"


def _input_lines(part: PhysicalInput) -> Iterator[str]:
    input = part.input
    time = input.time
    origin = "declared" if time.declared else "by its name" if time.column != TP_TIME else "arrival"
    yield f"source {input.alias} ({input.stream.name}, {input.stream.connector})"
    delay = f"delay {_span(time.delay, input)}"
    grace = f", grace {_span(part.grace, input)}"
    yield f"  event time {time.column} ({time.unit.value}, {origin}), {delay}{grace}"
    if part.keep is not None:
        yield f"  filter before packing: {plain_sql(part.keep)}"
    yield f"  carries {', '.join(_plain(name) for name in part.carried) or 'its event time only'}"


def _stage_lines(stage: PhysicalOperator, plan: PhysicalPlan) -> Iterator[str]:
    kernel = stage.kernel
    buckets = "one bucket (no key)" if stage.single_bucket else "by key hash"
    if isinstance(kernel, OrderedEmit):
        yield f"{stage.name}: rows in order of {_plain(kernel.time)}, once final; one bucket"
        return
    if isinstance(kernel, CorrectedJoin):
        kernel = kernel.join
    if not isinstance(kernel, IntervalJoin):
        yield f"{stage.name}: rows are handed on as they come"
        return
    yield f"{stage.name}: {kernel.kind.value} join, EMIT {kernel.emit.value}, {buckets}"
    for key in kernel.keys:
        yield f"  key {_plain(key.left)} {'<=>' if key.null_safe else '='} {_plain(key.right)}"
    left, right = (_axis_input(feed.times[0], plan) for feed in stage.feeds)
    yield f"  window {_window(kernel, left, right)}"
    if kernel.residual is not None:
        yield f"  condition in the kernel: {_plain(kernel.residual)}"
    for side, bound, input in (("left", kernel.upper, left), ("right", kernel.lower, right)):
        if bound is None:
            yield f"  state of the {side} side: kept until the end of input"
        else:
            reach = max(bound if side == "left" else -bound, 0)
            yield f"  state of the {side} side: rows up to {_span(reach, input)} behind the frontier"
    if kernel.emit is EmitMode.CHANGELOG:
        yield "  results come at once; a padded row is taken back at its first partner"


def _axis_input(time_name: str, plan: PhysicalPlan) -> Input:
    return next(part.input for part in plan.inputs if part.input.time_name == time_name)


def _window(kernel: IntervalJoin, left: Input, right: Input) -> str:
    distance = f"{right.alias}.{right.time.column} - {left.alias}.{left.time.column}"
    if kernel.lower is None and kernel.upper is None:
        return "none: any two times match"
    lower = f"{_span(kernel.lower, left)} <= " if kernel.lower is not None else ""
    upper = f" <= {_span(kernel.upper, left)}" if kernel.upper is not None else ""
    return f"{lower}{distance}{upper}"


def _span(amount: int, input: Input) -> str:
    if input.time.unit is TimeUnit.ROWS:
        return f"{amount} rows"
    seconds = amount / 1_000_000
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def _plain(name: str) -> str:
    return name.replace("`", "").replace('"', "").replace(":", ".")
