"""EXPLAIN: how a query runs, in words, with every default that bounds or changes it.

Each operator describes itself (operators/); this module adds what holds for the whole query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from textwrap import indent

from sqlglot import exp

from watersmeet.columns import ID, TP_TIME, WEIGHT
from watersmeet.expressions.event_time import span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.explain_phrases import plain_name, written_column
from watersmeet.plan.join_limits import explain_limits
from watersmeet.plan.logical.query import Aggregation
from watersmeet.plan.logical.tree import Input, joins_of, leaves_of
from watersmeet.plan.operator_tree import drawn_tree
from watersmeet.plan.operators.shared import SharedOperator
from watersmeet.plan.passes.group_joins import ungrouped
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalOperator, PhysicalPlan
from watersmeet.settings.durations import duration_text
from watersmeet.settings.query_settings import QuerySettings
from watersmeet.settings.sizes import size_text


def explain(plan: PhysicalPlan, counters: Mapping[str, int] | None = None) -> str:
    """The text of EXPLAIN; with the counters of the query's last run, also what its operators held then."""
    return _with_definitions(_lines(plan, counters or {}), plan)


def explain_set(plan: PhysicalPlan, targets: Sequence[str], counters: Mapping[str, int] | None = None) -> str:
    """The same of queries that run as one; each feeds one of the ``targets``."""
    return "\n".join(_set_lines(plan, targets, counters or {}))


def headlines(plan: PhysicalPlan) -> dict[str, str]:
    """What each operator is, in the first of its lines in EXPLAIN, by its name."""
    found = {}
    for own in plan.nested:
        for operator in own.own_operators:
            line = _with_definitions([next(operator.explain(own))], own)
            found[operator.name] = line.strip().removeprefix(f"{operator.name}: ")
    return found


def _set_lines(plan: PhysicalPlan, targets: Sequence[str], counters: Mapping[str, int]) -> Iterator[str]:
    (operator,) = plan.operators
    assert isinstance(operator, SharedOperator)
    yield _with_definitions(chain(_common_lines(plan), _source_lines(plan), operator.explain(plan)), plan)
    yield from _statistics_lines(operator, counters)
    for number, (query, target) in enumerate(zip(plan.queries, targets, strict=True)):
        yield f"query {number + 1}, into {target}; EMIT {query.emission.mode.value}: {query.emission.reason}"
        filters = (
            f"filter of {part.input.alias}: {plain_sql(part.keep)}" for part in query.inputs if part.keep is not None
        )
        own = chain(operator.explain_query(number, counters), filters, _result_lines(query))
        yield indent(_with_definitions(own, query), "  ")


def _with_definitions(lines: Iterable[str], plan: PhysicalPlan) -> str:
    """Lines in which what is computed at a source stands for the planner's name of it."""
    text = "\n".join(lines)
    for name, definition in _computed(plan):
        text = re.sub(rf"(?<![^\s(]){re.escape(name)}(?!\w)", definition.replace("\\", r"\\"), text)
    return text


def _computed(plan: PhysicalPlan) -> Iterator[tuple[str, str]]:
    """The planner's names for what is computed at a source, and what that is."""
    for part in plan.inputs:
        for name, expression in part.computed.items():
            yield plain_name(name), plain_sql(expression)
        for name, keys in part.hashes.items():
            yield plain_name(name), f"hash({', '.join(map(plain_sql, keys))})"
        yield plain_name(part.sequence), "its position in the source"


def _lines(plan: PhysicalPlan, counters: Mapping[str, int]) -> Iterator[str]:
    yield f"EMIT {plan.emission.mode.value}: {plan.emission.reason}"
    if plan.operators_below:
        yield from indent("\n".join(drawn_tree(plan)), "  ").splitlines()
    for task in plan.tasks:
        yield f"in one task: {', '.join(plan.operators[number].name for number in task)}"
    yield from _common_lines(plan)
    yield from _query_lines(plan, counters)


def _query_lines(plan: PhysicalPlan, counters: Mapping[str, int]) -> Iterator[str]:
    """The sources of a query and its operators, after the queries whose results it reads."""
    for part in plan.own_inputs:
        for branch in part.branches:
            below = branch.plan
            yield f"query for {part.input.alias}, EMIT {below.emission.mode.value}: {below.emission.reason}"
            yield from indent("\n".join(_query_lines(below, counters)), "  ").splitlines()
    yield from _source_lines(plan)
    for operator in plan.own_operators:
        yield from operator.explain(plan)
        yield from _statistics_lines(operator, counters)
        yield from operator.explain_run(plan, counters)
    yield from _result_lines(plan)


def _common_lines(plan: PhysicalPlan) -> Iterator[str]:
    """The limit of the state, and the settings."""
    others = not all(operator.evicts_at_limit for operator in plan.operators)
    yield from explain_limits(plan.query.settings, plan.emission, others=others)
    yield from _settings_lines(plan.query.settings)


def _source_lines(plan: PhysicalPlan) -> Iterator[str]:
    feeds = {feed.source: feed for operator in plan.operators for feed in operator.feeds}
    for number, part in enumerate(plan.own_inputs, plan.inputs_below):
        yield from _input_lines(part, any_time=feeds[number].lag is None)


def _statistics_lines(operator: PhysicalOperator, counters: Mapping[str, int]) -> Iterator[str]:
    if (rows := counters.get(f"{operator.name}.state_rows")) is not None:
        size, segments = (counters.get(f"{operator.name}.{name}", 0) for name in ("state_bytes", "segments"))
        yield f"  statistics of its last batch: {rows:,} rows held, {size:,} bytes in {segments:,} segments"


def _result_lines(plan: PhysicalPlan) -> Iterator[str]:
    """Notes, what is filtered after the operators, and the columns of the results."""
    query = plan.query
    if any(join.reordered for join in joins_of(query.root)):
        order = ", ".join(leaf.input.alias for leaf in leaves_of(query.root))
        yield f"note: joined in the order {order}, not as written, so that fewer joins lack a key"
    if query.settings.multi_join != "off":
        for reason in ungrouped(query):
            yield f"note: {reason}, so they are joined one after the other"
    if any(join.null_aware and not join.condition.keys for join in joins_of(query.root)):
        yield "note: NOT IN compares with every row of the other side, in one bucket; NOT EXISTS is cheaper"
    for condition in plan.post_filters:
        yield _filter_line(condition, query.aggregation)
    columns = []
    for column in plan.outputs:
        renamed = f" (was {column.renamed_from}: the name was taken)" if column.renamed_from else ""
        columns.append(f"{column.name}{renamed}")
    yield f"columns: {', '.join(columns)}"


def _settings_lines(settings: QuerySettings) -> Iterator[str]:
    late = "counted and dropped" if settings.late_rows == "drop" else f"counted, and kept in {settings.late_rows}"
    bad = "quarantined" if settings.bad_rows == "quarantine" else "stop the query"
    idle = "waited for" if settings.idle_timeout is None else f"waited for {settings.idle_timeout:g} s"
    yield f"late rows: {late}; bad rows: {bad}; idle inputs: {idle}"
    if settings.seek_to is not None:
        yield f"streams are read from {settings.seek_to} on, by arrival; fixed when the checkpoint is made"
    buckets = settings.buckets or "as many as Spark's shuffle partitions"
    if settings.is_real_time:
        yield f"buckets: {buckets}; in real time: rows as they come, state durable every {settings.epoch:g} s"
    else:
        trigger = f"every {settings.trigger:g} s" if settings.trigger else "as soon as the one before is done"
        yield f"buckets: {buckets}; batches: {trigger}"
    if settings.model_fields_set & {"sink_retry", "source_retry"}:
        sinks, sources = duration_text(settings.sink_retry), duration_text(settings.source_retry)
        yield f"outages: a sink is waited for {sinks}, a source and the checkpoint's store {sources}"
    for what, place in (("joins", settings.default_hash_join), ("aggregates", settings.default_hash_table)):
        if place == "hybrid":
            yield f"state of {what}: rows written or found last in memory, {_hot_text(settings)}, the others on disk"
    share = "a share of what its machine or container has"
    memory = share if settings.worker_memory is None else size_text(settings.worker_memory)
    yield f"memory of a worker: {memory} (worker_memory); state beyond is on disk"


def _hot_text(settings: QuerySettings) -> str:
    """The bounds of what a hybrid operator keeps in memory."""
    rows = [] if settings.hot_keys is None else [f"{settings.hot_keys:,} rows"]
    nbytes = [] if settings.max_hot_bytes is None else [size_text(settings.max_hot_bytes)]
    return f"at most {' and '.join([*rows, *nbytes])}"


def _window_lines(input: Input) -> Iterator[str]:
    for window in input.windows:
        each = "a row for each of its" if not window.is_single else "rows with their"
        yield f"  {each} {window.text(input.window_time.unit)}"


def _explode_lines(input: Input) -> Iterator[str]:
    for explode in input.explodes:
        without = "; one row with NULL where there is none" if explode.outer else ""
        yield f"  a row for each {'entry' if explode.is_map else 'element'} of {explode.text}{without}"


def _input_lines(part: PhysicalInput, *, any_time: bool) -> Iterator[str]:
    input = part.input
    time = input.time
    origin = "declared" if time.declared else "by its name" if time.column != TP_TIME else "arrival"
    unit = input.time.unit
    if input.results is not None:
        changes = "a changelog" if input.changes else "rows that are final"
        yield f"source {input.alias}: results of the query above, {changes}"
        if not input.is_timed:
            yield from _window_lines(input)
            yield from _explode_lines(input)
            yield from _filter_lines(part)
            yield f"  no event time; carries {_carried(part)}"
            return
    else:
        yield f"source {input.alias} ({input.stream.name}, {input.stream.connector})"
    yield from _window_lines(input)
    yield from _explode_lines(input)
    delay = f"delay {span_text(time.delay, unit)}, grace {span_text(part.grace.period, unit)}"
    if part.grace.lateness:
        delay += f", allowed lateness {span_text(part.grace.lateness, unit)}"
    if any_time:
        delay = "no row is late"
    if input.dated_by is not None:
        late = "no row is late" if any_time else _late_in_order(part)
        yield f"  dated by {time.column}, its declared order ({input.stream.order_text}); {late}"
    else:
        column = written_column(input, time.column) if time.column.startswith("$") else time.column
        yield f"  event time {column} ({time.unit.value}, {origin}), {delay}"
        if part.ties:
            yield f"  its declared order ({input.stream.order_text}): {_late_in_order(part)}"
        if input.stream.lead is not None:
            order = input.stream.order_text
            yield f"  its declared order ({order}) dates no rows: no window, ORDER BY or EMIT FINAL is over it alone"
    if part.max_future is not None:
        yield f"  quarantines a row that is more than {span_text(part.max_future, time.unit)} after its arrival"
    yield from _filter_lines(part)
    yield f"  carries {_carried(part)}"


def _late_in_order(part: PhysicalInput) -> str:
    return f"a row behind its frontier{', or at it and before the last row there,' if part.ties else ''} is late"


def _filter_lines(part: PhysicalInput) -> Iterator[str]:
    if part.input.filters and part.passes is None:
        yield f"  filter before packing: {plain_sql(exp.and_(*part.input.filters))}"
    if part.passes is not None:
        yield f"  filter of the newest rows: {plain_sql(part.computed[part.passes])}"


def _carried(part: PhysicalInput) -> str:
    """The columns of an input that travel, without those that only Watersmeet reads."""
    names = [name for name in part.carried if name not in (WEIGHT, ID) and name not in part.hashes]
    return ", ".join(map(plain_name, names)) or "its event time only"


def _filter_line(condition: exp.Expr, aggregation: Aggregation | None) -> str:
    """A condition on results; in HAVING, the functions as written instead of the names of their values."""
    if aggregation is None:
        return f"filter after the joins: {plain_sql(condition)}"
    shown = {key.name: plain_sql(key.expression) for key in aggregation.keys}
    shown |= {call.name: call.text for call in aggregation.calls}

    def written(node: exp.Expr) -> exp.Expr:
        return exp.var(shown.get(node.name, node.name)) if isinstance(node, exp.Column) else node

    return f"filter after the aggregate: {plain_sql(condition.copy().transform(written, copy=False))}"
