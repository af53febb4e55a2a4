"""EXPLAIN: how a query runs, in words; every default that bounds or changes it stands here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from watersmeet.columns import TP_TIME
from watersmeet.expressions.times import span_text
from watersmeet.expressions.typing import plain_sql
from watersmeet.kernels.aggregate.kernel import Aggregate
from watersmeet.kernels.api import EmitMode, Side
from watersmeet.kernels.asof.at_once import AsofAtOnce
from watersmeet.kernels.asof.changelog import AsofChangelog
from watersmeet.kernels.asof.final import AsofJoin
from watersmeet.kernels.asof.match import AsofMatch, Direction
from watersmeet.kernels.changelog.join import ChangelogJoin
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.changelog.sides import Change
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.lookup import LookupJoin
from watersmeet.kernels.match import WindowMatch
from watersmeet.kernels.ordered import OrderedEmit
from watersmeet.kernels.upsert import Upsert
from watersmeet.lookup.retry import OnError
from watersmeet.lookup.tables import table_options
from watersmeet.plan.asof import AsofKernel, declared_keys, usable_index
from watersmeet.plan.emit import DEFAULT_LIMIT, LIMIT_SETTING
from watersmeet.plan.explain_aggregates import aggregate_lines, filter_line
from watersmeet.plan.logical.query import Input, joins_of
from watersmeet.plan.physical import PhysicalInput, PhysicalOperator, PhysicalPlan
from watersmeet.plan.skew import spreadable
from watersmeet.settings.query_settings import QuerySettings
from watersmeet.settings.secrets import masked

#: The kernel's ``l.`` or ``r.`` before a column whose name says itself whose it is.
_BESIDE_ALIAS = re.compile(r'\b[lr]\.(?="[^"]*:)')


def explain(plan: PhysicalPlan, counters: Mapping[str, int] | None = None) -> str:
    """The text of EXPLAIN; with the counters of the query's last run also what its operators held then."""
    text = "\n".join(_lines(plan, counters or {}))
    for name, made_of in _made_of(plan):
        text = re.sub(rf"(?<![^\s(]){re.escape(name)}(?!\w)", made_of.replace("\\", r"\\"), text)
    return text


def _made_of(plan: PhysicalPlan) -> Iterator[tuple[str, str]]:
    """Names that the planner gave to what is computed at a source, and what that is."""
    for part in plan.inputs:
        for name, expression in part.computed.items():
            yield _plain(name), plain_sql(expression)
        for name, keys in part.hashes.items():
            yield _plain(name), f"hash({', '.join(map(plain_sql, keys))})"
        yield _plain(part.sequence), "its place in the source"


def _lines(plan: PhysicalPlan, counters: Mapping[str, int]) -> Iterator[str]:
    query = plan.query
    yield f"EMIT {query.emit.value}: {query.emit_reason}"
    if query.max_state_bytes is not None:
        given = "set" if query.settings.join_max_buffered_bytes is not None else f"default ({DEFAULT_LIMIT:,})"
        limit = f"{LIMIT_SETTING} = {query.max_state_bytes:,}, {given}"
        yield f"state limit: {limit}; at the limit the query stops, nothing is lost"
    yield from _settings_lines(query.settings)
    feeds = {feed.source: feed for operator in plan.operators for feed in operator.feeds}
    for number, part in enumerate(plan.inputs):
        yield from _input_lines(part, any_time=feeds[number].lag is None)
    joins = list(joins_of(query.root))
    for operator in plan.operators:
        yield from _operator_lines(operator, plan)
        if (rows := counters.get(f"{operator.name}.state_rows")) is not None:
            size, segments = (counters.get(f"{operator.name}.{name}", 0) for name in ("state_bytes", "segments"))
            yield f"  statistics of its last batch: {rows:,} rows held, {size:,} bytes in {segments:,} segments"
    if any(join.null_aware for join in joins):
        yield "note: NOT IN compares with every row of the other side, in one bucket; NOT EXISTS is cheaper"
    for condition in plan.post_filters:
        yield filter_line(condition, query.aggregation)
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
    if settings.seek_to is not None:
        yield f"streams are read from {settings.seek_to} on, by arrival; fixed when the checkpoint is made"
    buckets = settings.buckets or "as many as Spark's shuffle partitions"
    trigger = f"every {settings.trigger:g} s" if settings.trigger else "as soon as the one before is done"
    yield f"buckets: {buckets}; batches: {trigger}"
    for what, place in (("joins", settings.default_hash_join), ("aggregates", settings.default_hash_table)):
        if place == "hybrid":
            yield f"state of {what}: the {settings.max_hot_keys:,} rows written last in memory, the others on disk"
    limit = settings.memory_limit or "DuckDB's own limit"
    yield f"memory of a worker: state up to {settings.cache_bytes:,} bytes is cached; {limit}, then disk"


def _input_lines(part: PhysicalInput, *, any_time: bool) -> Iterator[str]:
    input = part.input
    time = input.time
    origin = "declared" if time.declared else "by its name" if time.column != TP_TIME else "arrival"
    yield f"source {input.alias} ({input.stream.name}, {input.stream.connector})"
    delay = f"delay {span_text(time.delay, input.time.unit)}, grace {span_text(part.grace, input.time.unit)}"
    if any_time:
        delay = "no row is late"
    yield f"  event time {time.column} ({time.unit.value}, {origin}), {delay}"
    if part.keep is not None:
        yield f"  filter before packing: {plain_sql(part.keep)}"
    if part.passes is not None:
        yield f"  filter of the newest rows: {plain_sql(part.computed[part.passes])}"
    yield f"  carries {', '.join(_plain(name) for name in part.carried) or 'its event time only'}"


def _operator_lines(operator: PhysicalOperator, plan: PhysicalPlan) -> Iterator[str]:
    kernel = operator.kernel
    if isinstance(kernel, IntervalJoin | ChangelogJoin):
        yield from _join_lines(operator, kernel, plan)
    elif isinstance(kernel, AsofJoin | AsofAtOnce | AsofChangelog):
        yield from _asof_lines(operator, kernel, plan)
    elif isinstance(kernel, LookupJoin):
        yield from _lookup_lines(operator, kernel, plan)
    elif isinstance(kernel, Upsert):
        yield f"{operator.name}: {_newest(kernel.newest)}, as -old and +new; by key hash"
    elif isinstance(kernel, Aggregate):
        yield from aggregate_lines(operator, kernel, plan)
    elif isinstance(kernel, OrderedEmit):
        yield f"{operator.name}: rows in order of {_plain(kernel.time)}, once final; one bucket"
    else:
        yield f"{operator.name}: rows are handed on as they come"


def _join_lines(operator: PhysicalOperator, kernel: IntervalJoin | ChangelogJoin, plan: PhysicalPlan) -> Iterator[str]:
    match = kernel.match
    append_only = plan.query.emit is EmitMode.CHANGELOG and not operator.weighted
    results = "append-only" if append_only else f"EMIT {plan.query.emit.value}"
    buckets = "one bucket (no key)" if operator.single_bucket else "by key hash"
    yield f"{operator.name}: {match.kind.value} join, {results}, {buckets}"
    for key in match.keys:
        yield f"  key {_plain(key.left)} {'<=>' if key.null_safe else '='} {_plain(key.right)}"
    left, right = (_axis_input(feed.times[0], plan) for feed in operator.feeds)
    yield f"  window {_window(match, left, right)}"
    if match.residual is not None:
        yield f"  condition in the kernel: {_plain(_BESIDE_ALIAS.sub('', match.residual))}"
    for side, bound, input in ((Side.LEFT, match.upper, left), (Side.RIGHT, match.lower, right)):
        change = kernel.changes[side.index] if isinstance(kernel, ChangelogJoin) else Change.APPENDED
        if isinstance(change, Newest):
            yield f"  state of the {side.value} side: {_newest(change)}, deleted ones too"
        elif bound is None and change is Change.RETRACTED:
            yield f"  state of the {side.value} side: rows that have not been taken back"
        elif bound is None:
            yield f"  state of the {side.value} side: kept until the end of input"
        else:
            reach = max(bound if side is Side.LEFT else -bound, 0)
            kept = span_text(reach, input.time.unit)
            yield f"  state of the {side.value} side: rows up to {kept} behind the frontier"
    settings = plan.query.settings
    if (sides := spreadable(operator)) and settings.skew != "keep" and settings.buckets != 1:
        which = "the side that has more of them" if len(sides) > 1 else f"the {sides[0].value} side"
        unset = "" if settings.skew else ", but not in a DataFrame, unless skew = 'spread'"
        many = f"{settings.skew_rows:,} rows in a batch"
        yield f"  a key with {many}: those of {which} are spread over all buckets{unset}"
    taken_back = []
    if operator.weighted and match.kind.retracts:
        taken_back.append(f"a {'padded ' if match.kind.pairs else ''}row is taken back at its first partner")
    if isinstance(kernel, ChangelogJoin):
        taken_back.append("a result is taken back with the rows that it is made of")
    if taken_back:
        yield f"  results come at once; {', '.join(taken_back)}"


def _newest(newest: Newest) -> str:
    """What is kept of a stream that changes."""
    tested = "; its filter tests that one" if newest.passes is not None else ""
    key = ", ".join(_plain(name) for name in newest.by)
    return f"the newest change of each key ({key}) of {newest.alias}{tested}"


_PICKED = {
    Direction.BACKWARD: "the newest {right} at or before {left}",
    Direction.FORWARD: "the oldest {right} at or after {left}",
    Direction.NEAREST: "the {right} nearest to {left}, of two the earlier",
    Direction.CURRENT: "the newest {right} that is known when the row comes",
}
_PICKED_STRICTLY = {
    Direction.BACKWARD: "the newest {right} before {left}",
    Direction.FORWARD: "the oldest {right} after {left}",
}


def _asof_lines(operator: PhysicalOperator, kernel: AsofKernel, plan: PhysicalPlan) -> Iterator[str]:
    match = kernel.match
    left, right = (_axis_input(feed.times[0], plan) for feed in operator.feeds)
    yield (
        f"{operator.name}: {'left' if match.outer else 'inner'} join as of a time, {_results_of(kernel)}, "
        f"{'one bucket (no key that stays)' if operator.single_bucket else 'by key hash'}"
    )
    for key in match.keys:
        yield f"  key {_plain(key.left)} {'<=>' if key.null_safe else '='} {_plain(key.right)}"
    names = {"left": f"{left.alias}.{left.time.column}", "right": f"{right.alias}.{right.time.column}"}
    picked = (_PICKED_STRICTLY if match.strict else _PICKED)[match.direction].format(**names)
    reach = "any distance" if match.tolerance is None else f"at most {span_text(match.tolerance, left.time.unit)} away"
    each = "" if match.meets_one else f" for each {', '.join(map(_plain, match.versions.by))}"
    yield f"  partner{each}: {picked}, {reach}; of one time the last in its source"
    if not match.meets_one:
        yield f"  found by {_access(operator, plan, right)}"
    if match.versions.weight is not None:
        yield f"  deletes: {_deletes(match)}"
    if match.residual is not None:
        yield f"  tested on that row: {_plain(_BESIDE_ALIAS.sub('', match.residual))}"
    yield f"  state of the left side: {_left_state(kernel, left)}"
    kept = "" if match.direction is Direction.FORWARD else ", and of each key the newest behind it"
    which = "its own frontier" if match.direction is Direction.CURRENT else "the frontier"
    yield f"  state of the right side: rows from {which} on{kept}"


def _lookup_lines(operator: PhysicalOperator, kernel: LookupJoin, plan: PhysicalPlan) -> Iterator[str]:
    yield f"{operator.name}: {'left' if kernel.outer else 'inner'} lookup, at once and never revised, by key hash"
    table = plan.table_of(kernel.names)
    options = table_options(table.stream)
    yield f"  table {table.alias} ({table.stream.name}, {table.stream.connector}): {_written(table)}"
    for key in kernel.keys:
        yield f"  key {_plain(key.left)} = {_plain(key.right)}; NULL is not asked for"
    if kernel.residual is not None:
        yield f"  tested on each row found: {_plain(_BESIDE_ALIAS.sub('', kernel.residual))}"
    yield f"  asks for {', '.join(_plain(name) for name in kernel.names)}; one query for all keys of a batch"
    kept = f"up to {options.lookup_cache_rows:,} rows of a worker process, {options.lookup_cache_ttl:g} s"
    yield f"  cache: {kept if options.lookup_cache_rows else 'none'}"
    yield (
        f"  time-out {options.lookup_timeout:g} s; {options.lookup_max_retries} retries, then "
        f"{_ON_ERROR[kernel.retry.on_error]}"
    )
    yield "  state: none"


_ON_ERROR = {
    OnError.FAIL: "the query stops (lookup_on_error = 'fail')",
    OnError.NULL: "keys count as not found (lookup_on_error = 'null')",
    OnError.RETRY: "it goes on trying (lookup_on_error = 'retry')",
}


def _written(table: Input) -> str:
    """The options that say where the table is, as they were written; secrets stay references."""
    given = {name: value for name, value in table.stream.options.items() if not name.startswith("lookup_")}
    return ", ".join(f"{name} = '{value}'" for name, value in masked(given).items())


def _access(operator: PhysicalOperator, plan: PhysicalPlan, right: Input) -> str:
    """How rows of a table are found that is joined by other columns than its key."""
    joins = list(joins_of(plan.query.root))
    join = joins[int(operator.name.removeprefix("join_")) - 1]
    names = declared_keys(join, plan.query.columns)
    if (used := usable_index(right, names)) is not None:
        return f"index {used.name} ({', '.join(used.columns)})"
    if not names:
        return "reading all versions: no column of the table stands in the key"
    return f"reading all versions; CREATE INDEX … ON {right.stream.name} ({', '.join(names)}) would find them"


def _results_of(kernel: AsofKernel) -> str:
    match kernel:
        case AsofAtOnce():
            return "at once and never revised"
        case AsofChangelog():
            return "EMIT CHANGELOG"
        case AsofJoin():
            return "EMIT FINAL"


def _deletes(match: AsofMatch) -> str:
    versions = match.versions
    taken = "at the time of a version takes it away" if versions.takes_away else ""
    ended = "ends validity from its time on" if versions.ends else ""
    if taken and ended:
        return f"-1 {taken}, at any other time it {ended}"
    return f"-1 {taken or ended}"


def _left_state(kernel: AsofKernel, left: Input) -> str:
    match = kernel.match
    if isinstance(kernel, AsofAtOnce):
        return "none"
    waits = "until the frontier has passed them"
    if match.direction in (Direction.FORWARD, Direction.NEAREST):
        end = (
            "without end" if match.tolerance is None else f"at most {span_text(match.tolerance, left.time.unit)} longer"
        )
        waits = f"until their partner lies behind the frontier, {end}"
    if isinstance(kernel, AsofChangelog):
        return f"rows and what was given of them are kept {waits}, for corrections"
    return f"rows wait {waits}"


def _axis_input(time_name: str, plan: PhysicalPlan) -> Input:
    return next(part.input for part in plan.inputs if part.input.time_name == time_name)


def _window(match: WindowMatch, left: Input, right: Input) -> str:
    distance = f"{right.alias}.{right.time.column} - {left.alias}.{left.time.column}"
    if match.lower is None and match.upper is None:
        return "none: any two times match"
    lower = f"{span_text(match.lower, left.time.unit)} <= " if match.lower is not None else ""
    upper = f" <= {span_text(match.upper, left.time.unit)}" if match.upper is not None else ""
    return f"{lower}{distance}{upper}"


def _plain(name: str) -> str:
    return name.replace("`", "").replace('"', "").replace(":", ".")
