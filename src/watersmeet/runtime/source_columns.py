"""The columns that packing and the operators need from a source, computed by Spark."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from watersmeet.columns import BAD, ID, PACKED, PART, RAW, SEQUENCE, STORED_FRONTIER, TEXT, TIME, TP_TIME, spark_name
from watersmeet.engine.pack import ARRIVAL, GREATEST_TIME, RAW_TEXT
from watersmeet.expressions.event_time import EventTime, TimeUnit
from watersmeet.expressions.windows import WindowBound, WindowKind, last_before_end
from watersmeet.plan.logical.tree import Input, window_column
from watersmeet.plan.physical_plan import PhysicalInput

_WINDOW = "_window"
_POSITION, _ELEMENT = "_position", "_element"


def source_columns(
    part: PhysicalInput, frame: DataFrame, *, keeps_late: bool, has_parts: bool, stores_frontier: bool
) -> DataFrame:
    """Select from a source frame what one input of a plan carries.

    ``keeps_late``: late rows are kept with their text.  ``has_parts``: the source has several frontiers, one per part.
    ``stores_frontier``: the rows bring ``_frontier``.
    """
    time = internal_time(part.input.time)
    arrival = F.unix_micros(F.col(TP_TIME)) if part.max_future is not None else None
    unusable = time.isNull() | ~time.between(-GREATEST_TIME, GREATEST_TIME)
    if arrival is not None:
        unusable |= time > arrival + F.lit(part.max_future)
    frame = exploded(part.input, windowed(part.input, frame), unusable)
    items: list[Column] = [time.alias(TIME)]
    for name in part.packed:
        if name == part.sequence:
            items.append(F.col(SEQUENCE).alias(name))
        elif name not in part.hashes:
            items.append(F.expr(_sql(part.expression_of(name), part.input)).alias(name))
    for name, keys in part.hashes.items():
        if name in part.routed_by or name in part.carried:
            items.append(F.xxhash64(*(_hashable(key, part.input) for key in keys)).alias(name))
    if part.keep is not None:
        items.append(F.expr(_sql(part.keep, part.input)).alias("$keep"))
    if arrival is not None:
        items.append(arrival.alias(ARRIVAL))
    items.append(_raw_text(part.input, frame, None if keeps_late else unusable).alias(RAW_TEXT))
    passed = {BAD: BAD in frame.columns, PART: has_parts, STORED_FRONTIER: stores_frontier}
    items += [F.col(name).alias(f"${name.removeprefix('_')}") for name, is_there in passed.items() if is_there]
    if PACKED in frame.columns:
        items.append(F.col(PACKED))
    return frame.select(*items)


def windowed(input: Input, frame: DataFrame) -> DataFrame:
    """The frame with the bounds of its rows' windows; a row in several windows is there once for each."""
    unit, time = input.window_time.unit, internal_time(input.window_time)
    for number, window in enumerate(input.windows):
        since = time - F.lit(window.offset)
        match window.kind:
            case WindowKind.TUMBLE:
                start = time - F.pmod(since, F.lit(window.size))
                end = start + F.lit(window.size)
            case WindowKind.HOP:
                last = time - F.pmod(since, F.lit(window.step))
                first = time - F.lit(window.size - 1)
                starts = F.sequence(last, first, F.lit(-window.step))
                frame = frame.withColumn(_WINDOW, F.explode_outer(starts))
                start = F.col(_WINDOW)
                end = start + F.lit(window.size)
            case _:
                start = time - F.pmod(since, F.lit(window.size))
                step = F.lit(window.step)
                end = time - F.pmod(time - start, step) + step
                frame = frame.withColumn(_WINDOW, F.explode_outer(F.sequence(end, start + F.lit(window.size), step)))
                start = time - F.pmod(since, F.lit(window.size))
                end = F.col(_WINDOW)
        last_time = end - F.lit(last_before_end(unit))
        bounds = {WindowBound.START: start, WindowBound.END: end, WindowBound.TIME: last_time}
        named = {window_column(number, each): _declared(value, input) for each, value in bounds.items()}
        if not window.is_single and ID in frame.columns:  # a retraction has the names that its rows had
            named[ID] = F.concat(F.col(spark_name(ID)), F.lit(":"), end.cast("string"))
        frame = frame.withColumns(named).drop(_WINDOW)
    return frame


def exploded(input: Input, frame: DataFrame, unusable: Column) -> DataFrame:
    """The frame with a row for each element of its rows' arrays; without elements, and if it is no row, one stays.

    ``unusable`` are rows with an event time that cannot be used.
    """
    other = [F.col(name).isNotNull() for name in (BAD, STORED_FRONTIER, PACKED) if name in frame.columns]
    whole = reduce(Column.__or__, [F.coalesce(unusable, F.lit(True)), *other])
    for each in input.explodes:
        array = F.expr(_sql(each.array, input))
        elements = F.when(~whole, F.map_entries(array) if each.is_map else array)
        frame = frame.select("*", F.posexplode_outer(elements).alias(_POSITION, _ELEMENT))
        columns = {each.position: F.col(_POSITION), each.element: F.col(_ELEMENT)}
        columns |= {name: F.col(_ELEMENT).getField(field) for name, field in each.fields}
        if ID in frame.columns:  # a retraction has the names that its rows had
            place = F.coalesce(F.col(_POSITION).cast("string"), F.lit(""))
            columns[ID] = F.concat_ws(":", F.col(ID), place)
        frame = frame.withColumns(columns).drop(_POSITION, _ELEMENT)
    return frame


def _declared(value: Column, input: Input) -> Column:
    """An internal time in the type of the time that an input's windows are over."""
    time = input.window_time
    match time.unit:
        case TimeUnit.TIMESTAMP:
            return F.timestamp_micros(value)
        case TimeUnit.TIMESTAMP_NTZ:
            epoch = F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'")
            return F.timestamp_add("MICROSECOND", value, epoch)
    declared = input.stream.column(time.column)
    assert declared is not None
    return F.call_function("div", value, F.lit(time.unit.scale)).cast(declared.type)


def _raw_text(input: Input, frame: DataFrame, needs_text: Column | None) -> Column:
    """The text of rows that may be late or quarantined (None: of all); the source's own if it has text, else JSON."""
    if TEXT in frame.columns:
        record = F.col(TEXT)
    else:
        record = F.to_json(F.struct(*(F.col(spark_name(column.name)) for column in input.stream.columns)))
    text = record if needs_text is None else F.when(needs_text, record)
    return F.coalesce(F.col(RAW), text) if BAD in frame.columns else text


def internal_time(time: EventTime) -> Column:
    """A source frame's event time as int64: microseconds since 1970, or row numbers."""
    column = F.col(spark_name(time.column))
    match time.unit:
        case TimeUnit.TIMESTAMP:
            return F.unix_micros(column)
        case TimeUnit.TIMESTAMP_NTZ:
            return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {spark_name(time.column)})")
        case unit:
            return F.try_multiply(column.cast("bigint"), F.lit(unit.scale).cast("bigint"))


def _hashable(key: exp.Expr, input: Input) -> Column:
    """A key to hash: −0.0 and 0.0 are equal, so they must have one hash."""
    column = F.expr(_sql(key, input))
    kind = key.args.get("to")
    if kind is not None and kind.is_type(exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT):
        return column + F.lit(0.0)
    return column


def _sql(expression: exp.Expr, input: Input) -> str:
    """Render an expression over one input's declared columns as Spark SQL."""

    def bare(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return exp.column(exp.to_identifier(input.declared(node.name), quoted=True))
        return node

    return expression.copy().transform(bare, copy=False).sql(dialect="spark")
