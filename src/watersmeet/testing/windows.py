"""The windows of rows, in DuckDB instead of Spark: written from what a window is, not as Spark computes it."""

from __future__ import annotations

from collections.abc import Collection

from watersmeet.columns import ID
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.windows import WindowBound, WindowKind, last_before_end
from watersmeet.kernels.api import quote
from watersmeet.plan.logical.tree import Input, window_column


def windowed_sql(input: Input, time: str, columns: Collection[str]) -> str:
    """SQL for the rows of ``input_rows``, once for each of their windows, whose bounds are columns of theirs.

    Rows have the ``columns`` of a source; ``time`` is the internal one that windows are over.
    """
    rows = "input_rows"
    for number, window in enumerate(input.windows):
        size, step, offset = (f"CAST({each} AS BIGINT)" for each in (window.size, window.step, window.offset))
        shifted = f"(({time}) - {offset})"
        whole = f"({offset} + CAST(floor({shifted} / {size}) AS BIGINT) * {size})"
        match window.kind:
            case WindowKind.TUMBLE:
                bounds = f"[{{s: {whole}, e: {whole} + {size}}}]"
            case WindowKind.HOP:
                first = f"CAST(floor(({shifted} - {size}) / {step}) AS BIGINT) + 1"
                last = f"CAST(floor({shifted} / {step}) AS BIGINT)"
                start = f"{offset} + k * {step}"
                bounds = f"[{{s: {start}, e: {start} + {size}}} FOR k IN generate_series({first}, {last})]"
            case _:
                first = f"CAST(floor((({time}) - {whole}) / {step}) AS BIGINT) + 1"
                end = f"{whole} + k * {step}"
                steps = f"generate_series({first}, {window.size // window.step})"
                bounds = f"[{{s: {whole}, e: {end}}} FOR k IN {steps}]"
        no_time = f"CASE WHEN ({time}) IS NULL THEN [{{s: NULL::BIGINT, e: NULL::BIGINT}}] ELSE {bounds} END"
        values = {
            WindowBound.START: "_window.s",
            WindowBound.END: "_window.e",
            WindowBound.TIME: f"_window.e - {last_before_end(input.window_time.unit)}",
        }
        items = [f"{_declared(sql, input)} AS {quote(window_column(number, each))}" for each, sql in values.items()]
        star = "* EXCLUDE (_window)"
        if ID in columns and not window.is_single:
            star += f" REPLACE ({quote(ID)} || ':' || _window.e AS {quote(ID)})"
        rows = f"(SELECT {star}, {', '.join(items)} FROM (SELECT *, unnest({no_time}) AS _window FROM {rows}))"
    return rows


def _declared(value: str, input: Input) -> str:
    unit = input.window_time.unit
    if unit is TimeUnit.TIMESTAMP:
        return f"CAST(make_timestamp({value}) AS TIMESTAMPTZ)"
    if unit is TimeUnit.TIMESTAMP_NTZ:
        return f"make_timestamp({value})"
    declared = input.stream.column(input.window_time.column)
    assert declared is not None
    return f"CAST(({value}) // {unit.scale} AS {declared.type})"
