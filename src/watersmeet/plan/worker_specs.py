"""From a physical plan to what the workers are told, once the backend knows the columns' Arrow types."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.columns import ID, TIME, WEIGHT
from watersmeet.engine.hot_keys import SpreadRule
from watersmeet.engine.specs import Downstream, InputSpec, OperatorSpec, PackSpec
from watersmeet.kernels.aggregate.kernel import Aggregate
from watersmeet.kernels.api import Kernel
from watersmeet.kernels.forward import Forward
from watersmeet.kernels.lookup import LookupJoin
from watersmeet.plan.physical import PhysicalOperator, PhysicalPlan
from watersmeet.plan.skew import reach_of, spreadable
from watersmeet.settings.query_settings import QuerySettings

#: Kernels that hand rows on whatever their time: behind them no row is late.
_TIMELESS = (Aggregate, Forward, LookupJoin)


def pack_specs(plan: PhysicalPlan, schemas: Sequence[pa.Schema], buckets: Sequence[int]) -> list[PackSpec]:
    """For each source how its rows are packed; ``schemas`` give the types of what they carry."""
    specs = []
    for source, (part, schema) in enumerate(zip(plan.inputs, schemas, strict=True)):
        taker, number = next(
            (operator, number)
            for operator in plan.operators
            for number, feed in enumerate(operator.feeds)
            if feed.source == source
        )
        specs.append(
            PackSpec(
                source=part.input.alias,
                operator=taker.name,
                input=number,
                schema=_carried(schema, part.carried),
                hashes=part.routed_by,
                buckets=_buckets_of(taker, buckets),
                delay=part.delay,
                sequence=part.sequence if part.needs_sequence else None,
                spreads=_spread_rule(plan, taker, buckets) is not None,
                fails_on_bad=plan.query.settings.bad_rows == "fail",
                keeps_late=plan.keeps_late,
            )
        )
    return specs


def operator_specs(
    plan: PhysicalPlan, schemas: Sequence[pa.Schema], parts: Sequence[tuple[str, ...]], buckets: Sequence[int]
) -> list[OperatorSpec]:
    """The specs of all operators; ``parts`` are the expected parts of each source."""
    specs: list[OperatorSpec] = []
    for index, operator in enumerate(plan.operators):
        inputs = tuple(_input_specs(plan, operator, specs, schemas, parts))
        output = _output_schema(operator, inputs)
        own_buckets = _buckets_of(operator, buckets)
        spread = _spread_rule(plan, operator, own_buckets)
        specs.append(
            OperatorSpec(
                name=operator.name,
                kernel=_of_its_own_run(operator.kernel),
                inputs=inputs,
                buckets=own_buckets,
                fingerprint=_fingerprint(operator.name, operator.kernel, inputs, own_buckets, output),
                output=output,
                downstream=_downstream(plan, index, buckets),
                max_state_bytes=plan.query.max_state_bytes,
                most_hot_rows=_most_hot_rows(plan.query.settings, operator, len(own_buckets)),
                accepts_late=all(isinstance(each.kernel, _TIMELESS) for each in plan.operators[index:]),
                spread=spread,
            )
        )
    return specs


def _spread_rule(plan: PhysicalPlan, operator: PhysicalOperator, buckets: Sequence[int]) -> SpreadRule | None:
    """How rows of hot keys are spread; None where they never are, and so need not be looked for."""
    inputs = tuple(side.index for side in spreadable(operator))
    if not inputs or len(buckets) == 1:
        return None
    settings = plan.query.settings
    return SpreadRule(() if settings.skew == "keep" else inputs, settings.skew_rows, reach_of(operator))


def _most_hot_rows(settings: QuerySettings, operator: PhysicalOperator, buckets: int) -> int | None:
    """How many rows of each bucket stay in memory, where the others lie on disk."""
    is_table = isinstance(operator.kernel, Aggregate)
    hybrid = settings.default_hash_table if is_table else settings.default_hash_join
    return max(settings.max_hot_keys // buckets, 1) if hybrid == "hybrid" else None


def _of_its_own_run(kernel: Kernel) -> Kernel:
    """The kernel; a lookup's cache is that of one run, so that after a restart it is empty."""
    return replace(kernel, cache=uuid.uuid4().hex) if isinstance(kernel, LookupJoin) else kernel


def _input_specs(
    plan: PhysicalPlan,
    operator: PhysicalOperator,
    earlier: Sequence[OperatorSpec],
    schemas: Sequence[pa.Schema],
    parts: Sequence[tuple[str, ...]],
) -> list[InputSpec]:
    inputs = []
    for feed in operator.feeds:
        if feed.source is not None:
            part = plan.inputs[feed.source]
            schema = _nullable(_carried(schemas[feed.source], part.carried))
            sent_by = parts[feed.source]
            unit = part.input.time.unit
            scale = unit.scale if unit.is_integer else None
            inputs.append(InputSpec(schema, part.input.alias, sent_by, feed.lag, part.origin, feed.holds_back, scale))
        else:
            assert feed.operator is not None
            sender = earlier[feed.operator]
            # where one column is the event time, it arrives as $t (of several, the first that is there: in addition)
            fields = [each for each in sender.output if feed.times != (each.name,)]
            schema = _nullable(pa.schema([*fields, pa.field(TIME, pa.int64())]))
            inputs.append(InputSpec(schema, None, tuple(str(bucket) for bucket in sender.buckets), feed.lag))
    return inputs


def _output_schema(operator: PhysicalOperator, inputs: Sequence[InputSpec]) -> pa.Schema:
    types = {field.name: field.type for input in inputs for field in input.schema}
    types.update({name: pa.int64() for feed in operator.feeds for name in feed.times})
    if isinstance(operator.kernel, LookupJoin):
        types.update(operator.kernel.looked_up)
    if isinstance(operator.kernel, Aggregate):
        types.update(operator.kernel.output_types)
    fields = [pa.field(name, types[name]) for name in operator.output]
    if operator.weighted:
        fields.append(pa.field(WEIGHT, pa.int8()))
    if operator.gives_ids:
        fields.append(pa.field(ID, pa.string()))
    return pa.schema(fields)


def _carried(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """What travels of a source's columns, the event time first."""
    return pa.schema([pa.field(TIME, pa.int64()), *(schema.field(name) for name in names)])


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([each.with_nullable(True) for each in schema])


def _buckets_of(operator: PhysicalOperator, buckets: Sequence[int]) -> tuple[int, ...]:
    return tuple(buckets[:1]) if operator.single_bucket else tuple(buckets)


def _downstream(plan: PhysicalPlan, index: int, buckets: Sequence[int]) -> Downstream | None:
    """The input that takes an operator's results; None after the last operator."""
    for operator in plan.operators[index + 1 :]:
        for number, feed in enumerate(operator.feeds):
            if feed.operator == index:
                return Downstream(number, operator.routed_by[number], _buckets_of(operator, buckets), feed.times)
    return None


def _fingerprint(
    name: str, kernel: Kernel, inputs: Sequence[InputSpec], buckets: tuple[int, ...], output: pa.Schema
) -> str:
    """Changes whenever stored state could be read wrongly: other inputs, types, keys, window, residual or buckets."""
    described = [(input.schema.to_string(), input.source, input.lag, input.origin) for input in inputs]
    text = repr((name, kernel, described, buckets, output.to_string()))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
