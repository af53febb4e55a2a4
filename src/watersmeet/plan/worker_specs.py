"""From a physical plan to the specs that workers receive, once the backend knows the columns' Arrow types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from watersmeet.columns import ID, TIME, WEIGHT
from watersmeet.engine.hot_keys import SpreadRule
from watersmeet.engine.specs import Downstream, InputSpec, OperatorSpec, PackSpec
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.plan.join_limits import max_bytes
from watersmeet.plan.physical_plan import Feed, PhysicalInput, PhysicalOperator, PhysicalPlan
from watersmeet.state.hot_bounds import HotBounds

#: The buckets of operators that kept theirs when the query got others, by the operator's name (engine/rescale.py).
KeptBuckets: TypeAlias = Mapping[str, tuple[int, ...]]
NOTHING_KEPT: KeptBuckets = {}


def pack_specs(
    plan: PhysicalPlan, schemas: Sequence[pa.Schema], buckets: Sequence[int], kept: KeptBuckets = NOTHING_KEPT
) -> list[PackSpec]:
    """How the rows of each source are packed; ``schemas`` give the types of what they carry."""
    specs = []
    for source, (part, schema) in enumerate(zip(plan.inputs, schemas, strict=True)):
        receiver, number = next(
            (operator, number)
            for operator in plan.operators
            for number, feed in enumerate(operator.feeds)
            if feed.source == source
        )
        specs.append(
            PackSpec(
                source=part.input.alias,
                operator=receiver.name,
                input=number,
                schema=_travelling(schema, part),
                hashes=part.routed_by,
                buckets=_buckets_of(receiver, buckets, kept),
                delay=part.delay,
                sequence=part.sequence if part.needs_sequence else None,
                spreads=_spread_rule(plan, receiver, buckets) is not None,
                fails_on_bad=plan.query.settings.bad_rows == "fail",
                keeps_late=plan.keeps_late,
                max_future=part.max_future,
                dated_by=part.input.dated_by.column if part.input.dated_by is not None else None,
                gathering=part.gathering,
                ties=tuple((each.name, each.descending) for each in part.ties),
            )
        )
    return specs


def operator_specs(
    plan: PhysicalPlan,
    schemas: Sequence[pa.Schema],
    parts: Sequence[tuple[str, ...]],
    buckets: Sequence[int],
    kept: KeptBuckets = NOTHING_KEPT,
) -> list[OperatorSpec]:
    """The specs of all operators; ``parts`` are the expected parts of each source."""
    specs: list[OperatorSpec] = []
    for index, operator in enumerate(plan.operators):
        inputs = tuple(_input_specs(plan, operator, specs, schemas, parts))
        output, *further = _output_schemas(operator, inputs)
        own_buckets = _buckets_of(operator, buckets, kept)
        specs.append(
            OperatorSpec(
                name=operator.name,
                kernel=operator.for_this_run(),
                inputs=inputs,
                buckets=own_buckets,
                fingerprint=operator.fingerprint(inputs, own_buckets, output),
                output=output,
                further=tuple(further),
                downstream=_downstream(plan, index, buckets, kept),
                max_state_bytes=max_bytes(plan.query.settings, plan.emission, evicts=operator.evicts_at_limit),
                evicts_at_limit=operator.evicts_at_limit,
                gives_matches=operator.gives_matches,
                hot=_hot_bounds(plan, operator, len(own_buckets)),
                accepts_late=all(each.passes_any_time for each in plan.operators[index:]),
                takes_pieces=operator.takes_pieces and all(_can_be_cut(each) for each in inputs),
                # in real time, the changes of a key leave in the order of its steps
                divides_keys=not plan.query.settings.is_real_time,
                taken_last=operator.taken_last,
                waiting=operator.waiting,
                spread=_spread_rule(plan, operator, own_buckets),
                hashed=operator.hashed,
                carried=_carried(operator, output),
            )
        )
    return specs


def _carried(operator: PhysicalOperator, output: pa.Schema) -> tuple[str, ...]:
    """The columns of text or bytes that an operator only passes on."""
    kinds = (pa.string(), pa.binary())
    return tuple(name for name in operator.passed_on if name in output.names and output.field(name).type in kinds)


def _can_be_cut(input: InputSpec) -> bool:
    """Whether rows have the columns that they are cut by.

    Partial results of an aggregate have no ids; they are few.
    """
    return set(input.cut_by or ()) <= set(input.schema.names)


def _spread_rule(plan: PhysicalPlan, operator: PhysicalOperator, buckets: Sequence[int]) -> SpreadRule | None:
    """How rows of hot keys are spread; None where they never are, so that nothing has to count keys."""
    if len(buckets) == 1 or any(plan.operators[number] is operator for task in plan.tasks for number in task[1:]):
        return None  # in a task, rows stay in their bucket
    return operator.spread_rule(plan.query.settings)


def _hot_bounds(plan: PhysicalPlan, operator: PhysicalOperator, buckets: int) -> HotBounds | None:
    """How much of each bucket's state stays in memory while the rest is on disk; None: all of it."""
    settings = plan.query.settings
    if not operator.is_hybrid(settings):
        return None
    shares = (None if each is None else max(each // buckets, 1) for each in (settings.hot_keys, settings.max_hot_bytes))
    return HotBounds(*shares)


def _input_specs(
    plan: PhysicalPlan,
    operator: PhysicalOperator,
    earlier: Sequence[OperatorSpec],
    schemas: Sequence[pa.Schema],
    parts: Sequence[tuple[str, ...]],
) -> list[InputSpec]:
    inputs = []
    for number, feed in enumerate(operator.feeds):
        label, time, scale = _texts(plan, feed)
        if feed.source is not None:
            part = plan.inputs[feed.source]
            schema = _nullable(_travelling(schemas[feed.source], part))
            sent_by = parts[feed.source]
            inputs.append(
                InputSpec(
                    schema,
                    part.input.alias,
                    sent_by,
                    lag=feed.lag,
                    origin=part.origin,
                    holds_back=feed.holds_back,
                    lateness=part.grace.lateness,
                    label=label,
                    time=time,
                    scale=scale,
                    retention=feed.retention,
                    late_by_own=feed.late_by_own,
                    cut_by=operator.cut_by(number, is_of_results=bool(part.branches)),
                    is_of_results=bool(part.branches),
                    until=feed.until,
                    waited_for=feed.waited_for,
                    order=part.input.stream.order_text if part.ties else "",
                )
            )
        else:
            assert feed.operator is not None
            sender = earlier[feed.operator]
            # a single event-time column arrives as $t; of several, the first that is not NULL is added as $t
            fields = [each for each in sender.output if feed.times != (each.name,)]
            schema = _nullable(pa.schema([*fields, pa.field(TIME, pa.int64())]))
            sent_by = tuple(str(bucket) for bucket in sender.buckets)
            inputs.append(
                InputSpec(
                    schema,
                    None,
                    sent_by,
                    lag=feed.lag,
                    label=label,
                    time=time,
                    scale=scale,
                    late_by_own=feed.late_by_own,
                    cut_by=operator.cut_by(number, is_of_results=True),
                    waited_for=feed.waited_for,
                )
            )
    return inputs


def _texts(plan: PhysicalPlan, feed: Feed) -> tuple[str, str, int | None]:
    """What an ``InputSpec`` has for texts; rows of an aggregate are dated by no stream."""
    for part in plan.inputs:
        if part.input.time_name == feed.times[0]:
            time = part.input.time
            return part.input.alias, time.column, time.unit.scale if time.unit.is_integer else None
    return "", "", None


def time_units(plan: PhysicalPlan) -> dict[str, TimeUnit]:
    """The unit of the event times that date the rows of each operator, by its name."""
    units = {part.input.time_name: part.input.time.unit for part in plan.inputs}
    return {each.name: units[each.feeds[0].times[0]] for each in plan.operators if each.feeds[0].times[0] in units}


def _output_schemas(operator: PhysicalOperator, inputs: Sequence[InputSpec]) -> list[pa.Schema]:
    """The schemas of an operator's results, one for each query that it serves."""
    types = {field.name: field.type for input in inputs for field in input.schema}
    types.update({name: pa.int64() for feed in operator.feeds for name in feed.times})
    types.update(operator.added_types)
    hidden = [pa.field(WEIGHT, pa.int8())] if operator.weighted else []
    hidden += [pa.field(ID, pa.string())] if operator.gives_ids else []
    return [
        pa.schema([*(pa.field(name, types[arrives]) for name, arrives in columns.items()), *hidden])
        for columns in operator.results
    ]


def _travelling(schema: pa.Schema, part: PhysicalInput) -> pa.Schema:
    """The columns of a source that travel, the event time first."""
    if part.gathering is not None:
        return part.gathering.schema(schema)
    return pa.schema([pa.field(TIME, pa.int64()), *(schema.field(name) for name in part.carried)])


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([each.with_nullable(True) for each in schema])


def _buckets_of(operator: PhysicalOperator, buckets: Sequence[int], kept: KeptBuckets) -> tuple[int, ...]:
    return tuple(buckets[:1]) if operator.single_bucket else kept.get(operator.name, tuple(buckets))


def _downstream(plan: PhysicalPlan, index: int, buckets: Sequence[int], kept: KeptBuckets) -> Downstream | None:
    """The input that an operator's results go to; None after the last operator."""
    for operator in plan.operators[index + 1 :]:
        for number, feed in enumerate(operator.feeds):
            if feed.operator == index:
                return Downstream(number, operator.routed_by[number], _buckets_of(operator, buckets, kept), feed.times)
    return None
