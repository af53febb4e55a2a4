"""The results of operators as the rows of another operator's input, in the harness."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from watersmeet.columns import BAD, ID, PART, RAW, SEQUENCE, STORED_FRONTIER, TP_TIME, WEIGHT
from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.kernels.api import FOREVER, NEVER, shift
from watersmeet.plan.physical_plan import Branch, PhysicalInput
from watersmeet.testing.expressions import select

_HIDDEN = pa.schema(
    [
        pa.field(STORED_FRONTIER, pa.int64()),
        pa.field(PART, pa.string()),
        pa.field(SEQUENCE, pa.binary()),
        pa.field(BAD, pa.string()),
        pa.field(RAW, pa.string()),
        pa.field(TP_TIME, pa.timestamp("us", tz="UTC")),
    ]
)


def results_table(part: PhysicalInput, frames: Sequence[Sequence[Frame]], schemas: Sequence[pa.Schema]) -> pa.Table:
    """The rows in the frames of a part's branches, and rows that hold nothing but a frontier."""
    schema = _schema(part)
    found = []
    for number, (branch, sent, output) in enumerate(zip(part.branches, frames, schemas, strict=True)):
        found += [_rows(part, branch, number, sent, output, schema), _frontiers(branch, number, sent, schema)]
    return pa.concat_tables(found)


def empty_results(part: PhysicalInput) -> pa.Table:
    """A table without rows, and with the columns of ``results_table``."""
    return _schema(part).empty_table()


def _schema(part: PhysicalInput) -> pa.Schema:
    stream = part.input.stream
    fields = [
        pa.field(each.name, arrow_type(exp.DataType.build(each.type, dialect="spark"))) for each in stream.columns
    ]
    if not part.input.is_timed:
        fields.append(pa.field(stream.time_column, pa.timestamp("us", tz="UTC")))
    if part.input.changes:
        fields += [pa.field(WEIGHT, pa.int8()), pa.field(ID, pa.string())]
    return pa.schema([*fields, *_HIDDEN])


def _rows(
    part: PhysicalInput, branch: Branch, number: int, sent: Sequence[Frame], output: pa.Schema, schema: pa.Schema
) -> pa.Table:
    tables = [decode_table(frame.payload) for frame in sent if frame.kind is FrameKind.ROWS]
    has_ids = ID in output.names
    rows = select(branch.plan, pa.concat_tables([output.empty_table(), *tables]), (ID,) if has_ids else ())
    weights = rows[WEIGHT]
    ids = rows[ID] if has_ids else pa.nulls(rows.num_rows, pa.string())
    columns = dict(zip((each.name for each in part.input.stream.columns), rows.columns, strict=False))
    if part.input.changes:
        prefix = f"{number}:" if len(part.branches) > 1 else ""
        columns[WEIGHT] = weights
        columns[ID] = pa.array([None if each is None else prefix + each for each in ids.to_pylist()], pa.string())
    if not part.input.is_timed:
        columns[part.input.stream.time_column] = pa.array([0] * rows.num_rows, pa.timestamp("us", tz="UTC"))
    columns[PART] = pa.array([str(number)] * rows.num_rows, pa.string())
    columns[SEQUENCE] = pa.array([b""] * rows.num_rows, pa.binary())
    return pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def _frontiers(branch: Branch, number: int, sent: Sequence[Frame], schema: pa.Schema) -> pa.Table:
    marks = [frame.frontier for frame in sent if frame.kind is FrameKind.MARK and frame.frontier != NEVER]
    lag = branch.lag or 0
    rows = [{STORED_FRONTIER: each if each == FOREVER else shift(each, -lag), PART: str(number)} for each in marks]
    return pa.Table.from_pylist(rows, schema=schema)
