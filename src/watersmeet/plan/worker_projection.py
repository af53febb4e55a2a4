"""Which sources workers can read without the JVM: those whose packed columns they can compute as Spark would.

Workers can compute columns, hashes of columns, and expressions on which Spark and DuckDB agree (across_sides.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from watersmeet.columns import TP_DELTA, TP_TIME
from watersmeet.engine.explodes import ExplodedColumns, element_field
from watersmeet.engine.hashing import can_hash
from watersmeet.engine.projection import COMPUTED_TYPES, Changes, Projection
from watersmeet.engine.windows import WindowColumns
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.type_groups import INTEGERS
from watersmeet.expressions.windows import WindowBound, last_before_end
from watersmeet.plan.across_sides import is_allowed, render
from watersmeet.plan.logical.tree import Input, window_column
from watersmeet.plan.physical_plan import PhysicalInput


def worker_projection(
    part: PhysicalInput, declared: pa.Schema, carried: pa.Schema, *, one_row_each: bool = False
) -> Projection | None:
    """The projection of an input's rows; None where only Spark can compute it.

    ``declared`` are the columns of the source frame, ``carried`` those that Spark's projection of it has.  With
    ``one_row_each`` a row must stay one.
    """
    if not _may_be_repeated(part.input, one_row_each=one_row_each):
        return None
    windows = tuple(_window_columns(part.input, number, declared) for number in range(len(part.input.windows)))
    bounds = [pa.field(name, each.type) for each in windows for name in each.names.values()]
    exploded = _elements(part, pa.schema([*declared, *bounds]))
    if exploded is None:
        return None
    arrays, declared = exploded
    taken: list[tuple[str, str, pa.DataType]] = []
    computed: list[tuple[str, str, pa.DataType]] = []
    for name in part.packed:
        if name == part.sequence or name in part.hashes:
            continue
        expression = part.expression_of(name)
        kind = carried.field(name).type
        if (column := _column(expression, part, declared)) is not None and column[1] == kind:
            taken.append((name, *column))
        elif is_allowed(value := _without_cast(expression, part, declared)) and kind in COMPUTED_TYPES:
            computed.append((name, _sql(value, part), kind))
        else:
            return None
    hashes = _hashes(part, declared, {name: kind for name, _, kind in computed})
    if hashes is None or (part.keep is not None and not is_allowed(part.keep)):
        return None
    stream = part.input.stream
    time = _spelt(part.input.time.column, declared)
    primary_key = tuple(_spelt(name, declared) for name in stream.primary_key)
    declares_delta = stream.changes and stream.column(TP_DELTA) is not None
    tests = [part.keep] if part.keep is not None else []
    used = {time, *primary_key, *(column for _, column, _ in taken), *(key for _, keys in hashes for key, _ in keys)}
    if windows:
        used.add(windows[0].time)
    used |= _columns_of((*(part.expression_of(name) for name, _, _ in computed), *tests), part, declared)
    if part.max_future is not None:
        used.add(TP_TIME)
    made = {*(field.name for field in bounds), *(name for each in part.input.explodes for name in each.names)}
    if not declares_delta:
        made.add(TP_DELTA)
    read = (used | set(arrays)) - made
    return Projection(
        time=time,
        scale=part.input.time.unit.scale,
        taken=tuple(taken),
        hashes=hashes,
        reads=tuple(name for name in declared.names if name in read),
        record=tuple(column.name for column in stream.columns),
        computed=tuple(computed),
        keep=_sql(part.keep, part) if part.keep is not None else None,
        sequence=part.sequence if part.needs_sequence else None,
        changes=Changes(primary_key, declares_delta) if stream.changes else None,
        max_future=part.max_future,
        windows=windows,
        explodes=_exploded(part.input, arrays, used),
    )


def _without_cast(expression: exp.Expr, part: PhysicalInput, declared: pa.Schema) -> exp.Expr:
    """What is cast, where the computed column's own type makes the same of it: whole numbers, and truth values."""
    if type(expression) is not exp.Cast:
        return expression
    value, numbers = expression.this, (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren)
    if expression.to.is_type(exp.DType.BOOLEAN) and isinstance(value, exp.Predicate | exp.Connector | exp.Not):
        return value

    def is_whole(node: exp.Expr) -> bool:
        if isinstance(node, exp.Column):
            return bool(pa.types.is_integer(declared.field(_spelt(part.input.declared(node.name), declared)).type))
        if isinstance(node, exp.Literal):
            return node.is_int
        return isinstance(node, numbers) and all(is_whole(each) for each in node.iter_expressions())

    return value if expression.to.is_type(*INTEGERS) and is_whole(value) else expression


def _hashes(
    part: PhysicalInput, declared: pa.Schema, computed: Mapping[str, pa.DataType]
) -> tuple[tuple[str, tuple[tuple[str, pa.DataType], ...]], ...] | None:
    """The hashes of an input with their columns, some of them ``computed``; None where one is of something else."""
    made = {part.expression_of(name).sql(dialect="spark"): (name, kind) for name, kind in computed.items()}
    found = []
    for name, keys in part.hashes.items():
        if name not in part.routed_by and name not in part.carried:
            continue
        columns = [_column(key, part, declared) or made.get(key.sql(dialect="spark")) for key in keys]
        known = tuple(column for column in columns if column is not None and can_hash(column[1]))
        if len(known) < len(keys):
            return None
        found.append((name, known))
    return tuple(found)


def _may_be_repeated(input: Input, *, one_row_each: bool) -> bool:
    """Whether rows may be repeated for each of their windows and elements: a bad change would be, too."""
    if not (input.windows or input.explodes):
        return True
    is_single = all(window.is_single for window in input.windows) and not input.explodes
    return not input.stream.changes and (is_single or not one_row_each)


def _elements(part: PhysicalInput, declared: pa.Schema) -> tuple[list[str], pa.Schema] | None:
    """The columns of the arrays whose elements are rows, and the declared columns with those of these.

    None where one is no column.
    """
    arrays: list[str] = []
    for each in part.input.explodes:
        column = _column(each.array, part, declared)
        if column is None or isinstance(each.array, exp.Cast):
            return None
        array = declared.field(column[0])
        whole = element_field(array, each.element)
        fields = [pa.field(name, whole.type.field(field).type) for name, field in each.fields]
        declared = pa.schema([*declared, pa.field(each.position, pa.int32()), whole, *fields])
        arrays.append(array.name)
    return arrays, declared


def _exploded(input: Input, arrays: Sequence[str], used: set[str]) -> tuple[ExplodedColumns, ...]:
    """The arrays whose elements are rows; ``used`` are the columns that are read after them."""
    return tuple(
        ExplodedColumns(
            array, each.position, each.element, each.fields, last=array not in used | set(arrays[place + 1 :])
        )
        for place, (each, array) in enumerate(zip(input.explodes, arrays, strict=True))
    )


def _columns_of(expressions: Sequence[exp.Expr], part: PhysicalInput, declared: pa.Schema) -> set[str]:
    """The declared columns that expressions read."""
    return {
        _spelt(part.input.declared(column.name), declared)
        for expression in expressions
        for column in expression.find_all(exp.Column)
    }


def _window_columns(input: Input, number: int, declared: pa.Schema) -> WindowColumns:
    time = _spelt(input.window_time.column, declared)
    return WindowColumns(
        window=input.windows[number],
        time=time,
        names={bound: window_column(number, bound) for bound in WindowBound},
        type=declared.field(time).type,
        scale=input.window_time.unit.scale,
        last=last_before_end(input.window_time.unit),
    )


def _column(expression: exp.Expr, part: PhysicalInput, declared: pa.Schema) -> tuple[str, pa.DataType] | None:
    """The declared column of an expression, and the type it is widened to; None for anything but a column or a cast."""
    kind = None
    if isinstance(expression, exp.Cast) and not isinstance(expression, exp.TryCast):
        kind = arrow_type(expression.to)
        expression = expression.this
    if not isinstance(expression, exp.Column):
        return None
    name = _spelt(part.input.declared(expression.name), declared)
    given = declared.field(name).type
    if kind is None or kind == given:
        return name, given
    whole = pa.types.is_signed_integer(given) and pa.types.is_signed_integer(kind)
    return (name, kind) if whole and given.bit_width < kind.bit_width else None


def _spelt(name: str, declared: pa.Schema) -> str:
    """A column's name in the spelling of its declaration."""
    names: list[str] = declared.names
    return next(each for each in names if each.lower() == name.lower())


def _sql(expression: exp.Expr, part: PhysicalInput) -> str:
    """DuckDB SQL over declared columns."""
    return render(expression, lambda name: exp.column(exp.to_identifier(part.input.declared(name), quoted=True)))
