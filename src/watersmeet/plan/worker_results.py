"""Which results workers can turn into rows of another operator's input without the JVM.

A SELECT list of columns, and of expressions on which Spark and DuckDB agree (across_sides.py); and an input whose
packed columns a worker can compute (worker_projection.py).
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from watersmeet.columns import ID, WEIGHT
from watersmeet.engine.projection import COMPUTED_TYPES
from watersmeet.engine.results import ResultProjection
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.plan.across_sides import is_allowed, render
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import Branch, PhysicalInput
from watersmeet.plan.sources import quoted_column
from watersmeet.plan.worker_projection import worker_projection


def result_projection(
    part: PhysicalInput, number: int, output: pa.Schema, carried: pa.Schema
) -> ResultProjection | None:
    """How the results of branch ``number`` become rows of its input; None where only Spark can compute it.

    ``output`` are the columns of its last operator, ``carried`` those that Spark's projection of the input has.
    """
    branch, stream = part.branches[number], part.input.stream
    fields = [
        pa.field(each.name, arrow_type(exp.DataType.build(each.type, dialect="spark"))) for each in stream.columns
    ]
    times = [(name, input.time_name, *_time(input)) for name, input in branch.plan.restored()]
    known = {**{field.name: field.type for field in output}, **{name: kind for name, _, kind, _ in times}}
    taken, computed, nulls = [], [], []
    for field, column in zip(fields, branch.plan.outputs, strict=True):
        expression = column.expression
        if isinstance(expression, exp.Column) and _may_be(known.get(expression.name), field.type):
            taken.append((field.name, expression.name, field.type))
        elif isinstance(expression.this if isinstance(expression, exp.Cast) else expression, exp.Null):
            nulls.append((field.name, field.type))
        elif is_allowed(expression) and field.type in COMPUTED_TYPES:
            computed.append((field.name, render(expression, quoted_column), field.type))
        else:
            return None
    tests = branch.plan.post_filters
    if not all(map(is_allowed, tests)) or _reads_delta(branch):
        return None
    no_time = None if part.input.is_timed else stream.time_column
    hidden = [pa.field(no_time, pa.timestamp("us", tz="UTC"))] if no_time is not None else []
    if part.input.changes:
        hidden += [pa.field(WEIGHT, pa.int8()), pa.field(ID, pa.string())]
    rows = worker_projection(part, pa.schema([*fields, *hidden]), carried)
    if rows is None or rows.sequence is not None:
        return None
    return ResultProjection(
        times=tuple(times),
        taken=tuple(taken),
        computed=tuple(computed),
        nulls=tuple(nulls),
        where=" AND ".join(render(each, quoted_column) for each in tests) or None,
        part=str(number),
        lag=branch.lag or 0,
        no_time=no_time,
        weighted=part.input.changes,
        prefix=f"{number}:" if len(part.branches) > 1 else "",
        rows=rows,
    )


def _may_be(given: pa.DataType | None, wanted: pa.DataType) -> bool:
    """Whether every value of a type is one of another, so that a cast cannot fail."""
    if given is None:
        return False
    whole = pa.types.is_signed_integer(given) and pa.types.is_signed_integer(wanted)
    return bool(given == wanted or (whole and given.bit_width < wanted.bit_width))


def _time(input: Input) -> tuple[pa.DataType, int]:
    """The type of an event time, and the units of ``$t`` in one of it."""
    return arrow_type(input.time_type), input.time.unit.scale if input.time.unit.is_integer else 1


def _reads_delta(branch: Branch) -> bool:
    """Whether something reads a column that only Spark's form of the results has."""
    made = [*(column.expression for column in branch.plan.outputs), *branch.plan.post_filters]
    known = {name for operator in branch.plan.operators[-1:] for name in operator.output}
    known |= {name for name, _ in branch.plan.restored()}
    return any(column.name not in known for each in made for column in each.find_all(exp.Column))
