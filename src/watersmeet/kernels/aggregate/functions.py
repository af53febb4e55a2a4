"""The aggregate functions: what each of them keeps, what comes out, and how results of parts are put together.

A function's result is made of *terms* (a count, a sum, a mean …).  They come from the rows themselves (``of_rows``), or
from the terms of several buckets, each over a part of the rows (``of_parts``); ``result`` makes the function's value of
them.  So a global aggregate over many buckets goes through the same three steps as one over a single bucket.

count, sum, avg   are exact running totals, of FLOAT and DOUBLE too (binary.py): what is taken away leaves no trace
min, max, first, last, count(DISTINCT), approx_count_distinct, variances
                  are computed anew from the values that are there
first, last       by event time; of one time the least (first) or greatest (last) value, NULL only where all are
Doubles           NaN is the greatest, and equal to itself
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
from sqlglot import exp

from watersmeet.kernels.aggregate.binary import binary_sum
from watersmeet.kernels.aggregate.parts import Parts
from watersmeet.kernels.api import quote

_MOST_DIGITS = 38
_COUNT = "BIGINT"
_FIRST, _LAST = "v1, v0 NULLS LAST", "v1 DESC, v0 DESC NULLS LAST"
_MEAN = "sum(CAST(v0 AS DOUBLE) * w ORDER BY v0) / sum(w)"
_SQUARES = "sum(w * (CAST(v0 AS DOUBLE) - mean) ^ 2 ORDER BY v0)"
# of parts (count, mean, sum of squared distances from the mean)
_BY_MEAN = "ORDER BY v1, v0, v2"
_MEAN_OF_PARTS = f"sum(v0 * v1 * w {_BY_MEAN}) / sum(v0 * w)"
_SQUARES_OF_PARTS = f"sum(w * (v2 + v0 * (v1 - mean) ^ 2) {_BY_MEAN})"


class Function(Enum):
    """An aggregate function, by its name in SQL."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COUNT_DISTINCT = "count_distinct"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"
    VAR_SAMP = "var_samp"
    VAR_POP = "var_pop"
    FIRST = "first"
    LAST = "last"

    @property
    def adds(self) -> bool:
        """It adds values up."""
        return self in (Function.SUM, Function.AVG)

    @property
    def spreads(self) -> bool:
        """It tells how far values lie apart."""
        return self in (Function.STDDEV_SAMP, Function.STDDEV_POP, Function.VAR_SAMP, Function.VAR_POP)

    @property
    def is_running(self) -> bool:
        """Running totals are all that is kept."""
        return self is Function.COUNT or self.adds

    @property
    def takes_numbers(self) -> bool:
        """Its argument is a number."""
        return self.adds or self.spreads

    @property
    def is_distinct(self) -> bool:
        """Equal values count once."""
        return self in (Function.COUNT_DISTINCT, Function.APPROX_COUNT_DISTINCT)

    @property
    def is_timed(self) -> bool:
        """It goes by the event time of the values."""
        return self in (Function.FIRST, Function.LAST)


@dataclass(frozen=True, slots=True)
class Call:
    """A function over an argument: SQL over the input rows (None: the rows themselves) and its type.

    ``time`` is SQL of the argument's event time, where that counts.  ``text`` is the call as its author wrote it.
    """

    name: str
    function: Function
    argument: str | None
    type: pa.DataType
    time: str | None = None
    text: str = ""

    @property
    def is_exact(self) -> bool:
        """Sums of the argument are exact."""
        return bool(pa.types.is_integer(self.type) or pa.types.is_decimal(self.type))

    @property
    def result_type(self) -> pa.DataType:
        """The type of the result, as Spark has it."""
        function = self.function
        if function is Function.COUNT or function.is_distinct:
            return pa.int64()
        if function.adds and pa.types.is_decimal(self.type):
            more, scale = (10, 0) if function is Function.SUM else (4, 4)
            digits = min(self.type.precision + more, _MOST_DIGITS)
            return pa.decimal128(digits, min(self.type.scale + scale, _MOST_DIGITS))
        if function is Function.SUM and pa.types.is_integer(self.type):
            return pa.int64()
        return pa.float64() if function.takes_numbers else self.type


#: The terms of a call, by name: SQL and type.
Terms = dict[str, tuple[str, pa.DataType]]


def of_rows(call: Call, parts: Parts) -> Terms:
    """The terms of a call over all rows that an operator takes."""
    argument = call.argument if call.argument is not None else "1"
    if call.function is Function.COUNT:
        return {"n": (parts.total(_is_there(argument), _COUNT), pa.int64())}
    if call.function.adds:
        return _added(call, argument, _is_there(argument), parts)
    if call.function.is_distinct:
        return {"n": (f"coalesce({parts.figure((argument,), 'count(DISTINCT v0)')}, 0)", pa.int64())}
    if call.function.spreads:
        bag = (argument,)
        return {
            "n": (parts.figure(bag, f"CAST(sum(w) AS {_COUNT})"), pa.int64()),
            "mean": (parts.figure(bag, "any_value(mean)", centre=_MEAN), pa.float64()),
            "squares": (parts.figure(bag, _SQUARES, centre=_MEAN), pa.float64()),
        }
    return _picked(call, argument, call.time, parts)


def of_parts(call: Call, parts: Parts) -> Terms:
    """The terms of a call over input rows that have its terms over a part of the rows each."""
    if call.function is Function.COUNT or call.function.is_distinct:
        return {"n": (parts.total(_term(call, "n"), _COUNT), pa.int64())}
    if call.function.adds:
        return _added(call, _term(call, "sum"), _term(call, "n"), parts)
    if call.function.spreads:
        bag = tuple(_term(call, name) for name in ("n", "mean", "squares"))
        return {
            "n": (parts.figure(bag, f"CAST(sum(v0 * w) AS {_COUNT})"), pa.int64()),
            "mean": (parts.figure(bag, "any_value(mean)", centre=_MEAN_OF_PARTS), pa.float64()),
            "squares": (parts.figure(bag, _SQUARES_OF_PARTS, centre=_MEAN_OF_PARTS), pa.float64()),
        }
    return _picked(call, _term(call, "value"), _term(call, "t"), parts)


def result(call: Call, terms: Terms) -> str:
    """SQL of a call's value."""
    sql = {name: sql for name, (sql, _) in terms.items()}
    match call.function:
        case Function.COUNT | Function.COUNT_DISTINCT | Function.APPROX_COUNT_DISTINCT:
            return sql["n"]
        case Function.SUM:
            total = _fitting(call, sql["sum"]) if call.is_exact else sql["sum"]
            return f"CASE WHEN {sql['n']} > 0 THEN {total} END"
        case Function.AVG:
            mean = f"CAST({sql['sum']} AS DOUBLE) / {sql['n']}"
            if pa.types.is_decimal(call.type):
                mean = _decimal_mean(call, sql)
            return f"CASE WHEN {sql['n']} > 0 THEN {mean} END"
        case Function.VAR_POP | Function.STDDEV_POP:
            variance = f"CASE WHEN {sql['n']} > 0 THEN {sql['squares']} / {sql['n']} END"
            return f"sqrt({variance})" if call.function is Function.STDDEV_POP else variance
        case Function.VAR_SAMP | Function.STDDEV_SAMP:
            variance = f"CASE WHEN {sql['n']} > 1 THEN {sql['squares']} / ({sql['n']} - 1) END"
            return f"sqrt({variance})" if call.function is Function.STDDEV_SAMP else variance
    return sql["value"]


def term_name(call: Call, term: str) -> str:
    """What the column of a term is called between two operators."""
    return f"{call.name}:{term}"


def same_float(sql: str, type: pa.DataType) -> str:
    """SQL of a value of which equal ones are the same: there is one NaN and one zero."""
    if not pa.types.is_floating(type):
        return sql
    kind = "FLOAT" if pa.types.is_float32(type) else "DOUBLE"
    return f"CAST(CASE WHEN isnan({sql}) THEN 'nan' ELSE {sql} + 0 END AS {kind})"


# -- terms -----------------------------------------------------------------------------------------------------------


def _term(call: Call, name: str) -> str:
    return quote(term_name(call, name))


def _is_there(argument: str) -> str:
    """SQL of 1 where a row has a value, else NULL."""
    return f"CASE WHEN {argument} IS NOT NULL THEN 1 END"


def _added(call: Call, value: str, count: str, parts: Parts) -> Terms:
    """A sum, and how many values there are: without any it is NULL."""
    n = (parts.total(count, _COUNT), pa.int64())
    if not call.is_exact:
        return {"sum": (binary_sum(value, parts), pa.float64()), "n": n}
    scale = call.type.scale if pa.types.is_decimal(call.type) else 0
    exact = f"CAST({value} AS HUGEINT)" if scale == 0 else value
    total = parts.total(exact, f"DECIMAL({_MOST_DIGITS}, {scale})")
    return {"sum": (total, pa.decimal128(_MOST_DIGITS, scale)), "n": n}


def _picked(call: Call, value: str, time: str | None, parts: Parts) -> Terms:
    match call.function:
        case Function.MIN:
            return {"value": (parts.figure((value,), "min(v0)", end="v0"), call.type)}
        case Function.MAX:
            return {"value": (parts.figure((value,), "max(v0)", end="v0 DESC"), call.type)}
    assert time is not None
    order, t = (_FIRST, "min(v1)") if call.function is Function.FIRST else (_LAST, "max(v1)")
    bag = (value, time)
    return {
        "value": (parts.figure(bag, f"first(v0 ORDER BY {order})", end=order), call.type),
        "t": (parts.figure(bag, t, end=order), pa.int64()),
    }


# -- results ---------------------------------------------------------------------------------------------------------


def _sql_type(type: pa.DataType) -> str:
    return f"DECIMAL({type.precision}, {type.scale})" if pa.types.is_decimal(type) else "BIGINT"


def _fitting(call: Call, total: str) -> str:
    """SQL of a sum in its type; one that does not fit there is an error, and no wrong number."""
    type = _sql_type(call.result_type)
    message = exp.Literal.string(f"{call.text} does not fit in {type}: it is ").sql(dialect="duckdb")
    fits = f"TRY_CAST({total} AS {type})"
    return (
        f"CASE WHEN {fits} IS NULL AND {total} IS NOT NULL THEN error({message} || CAST({total} AS VARCHAR)) "
        f"ELSE {fits} END"
    )


def _decimal_mean(call: Call, terms: dict[str, str]) -> str:
    """SQL of the mean of decimals, rounded half away from zero.

    In whole numbers: with sum s and count n, 1.00 / 3 at six digits is 100 * 10000 / 3 = 333333, and so 0.333333.
    """
    type = call.result_type
    total, n = terms["sum"], f"CAST({terms['n']} AS HUGEINT)"
    factor = 10 ** (type.scale - call.type.scale)
    whole = f"CAST(replace(CAST(abs({total}) AS VARCHAR), '.', '') AS HUGEINT)"
    units = f"(({whole} // {n}) * {factor} + (({whole} % {n}) * {factor} * 2 + {n}) // ({n} * 2))"
    one = f"CAST({10**type.scale} AS HUGEINT)"
    fraction = f"lpad(CAST({units} % {one} AS VARCHAR), {type.scale}, '0')"
    sign = f"CASE WHEN {total} < 0 THEN '-' ELSE '' END"
    return f"CAST({sign} || CAST({units} // {one} AS VARCHAR) || '.' || {fraction} AS {_sql_type(type)})"
