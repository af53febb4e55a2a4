"""The aggregate functions: what each of them stores, what it returns, and how partial results combine.

A function's result is computed from *terms* (a count, a sum, a mean ...).  ``of_rows`` computes the terms from rows,
``of_parts`` from the terms of several buckets, each over a part of the rows.  ``result`` computes the value from the
terms.  So a global aggregate over many buckets uses the same code as one over a single bucket.

count, sum, avg   exact running totals, also for FLOAT and DOUBLE (exact_sums.py): a retraction leaves no trace
all others        computed again from the current values of the group
first, last       by event time; of equal times the least (first) or greatest (last) value; NULL only if all are NULL
min_by, max_by    the same, by the values of an expression; rows for which it is NULL do not count
collect_list, listagg, percentile
                  over the values in their order, so the order of arrival is never seen
doubles           NaN is the greatest value and equals itself
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa
from sqlglot import exp

from watersmeet.kernels.aggregate.exact_sums import exact_double_sum
from watersmeet.kernels.aggregate.parts import Parts
from watersmeet.kernels.aggregate.value_order import collected, element, interpolated, joined
from watersmeet.kernels.api import quote

_MAX_DIGITS = 38
_COUNT = "BIGINT"
_FIRST, _LAST = "v1, v0 NULLS LAST", "v1 DESC, v0 DESC NULLS LAST"
_MEAN = "sum(CAST(v0 AS DOUBLE) * w ORDER BY v0) / sum(w)"
_COUNTED = f"CAST(count(*) AS {_COUNT})"
_SQUARES = "sum(w * (CAST(v0 AS DOUBLE) - mean) ^ 2 ORDER BY v0)"
# over terms of parts: v0 = count, v1 = mean, v2 = sum of squared distances from the mean
_BY_MEAN = "ORDER BY v1, v0, v2"
_MEAN_OF_PARTS = f"sum(v0 * v1 * w {_BY_MEAN}) / sum(v0 * w)"
_SQUARES_OF_PARTS = f"sum(w * (v2 + v0 * (v1 - mean) ^ 2) {_BY_MEAN})"


class Function(Enum):
    """An aggregate function; the value is its name in SQL."""

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
    SUM_DISTINCT = "sum_distinct"
    AVG_DISTINCT = "avg_distinct"
    MIN_BY = "min_by"
    MAX_BY = "max_by"
    COLLECT_LIST = "collect_list"
    COLLECT_SET = "collect_set"
    LISTAGG = "listagg"
    LISTAGG_DISTINCT = "listagg_distinct"
    PERCENTILE = "percentile"
    PERCENTILE_APPROX = "percentile_approx"

    @property
    def sums(self) -> bool:
        """Whether its value is a sum."""
        return self in (Function.SUM, Function.SUM_DISTINCT)

    @property
    def adds(self) -> bool:
        """Whether it adds values up."""
        return self.sums or self in (Function.AVG, Function.AVG_DISTINCT)

    @property
    def measures_dispersion(self) -> bool:
        """Whether it measures how far values lie apart."""
        return self in (Function.STDDEV_SAMP, Function.STDDEV_POP, Function.VAR_SAMP, Function.VAR_POP)

    @property
    def is_running(self) -> bool:
        """Whether its state is running totals only."""
        return self in (Function.COUNT, Function.SUM, Function.AVG)

    @property
    def takes_numbers(self) -> bool:
        """Whether its argument must be a number."""
        return self.adds or self.measures_dispersion or self is Function.PERCENTILE

    @property
    def counts_distinct(self) -> bool:
        """Whether it counts distinct values."""
        return self in (Function.COUNT_DISTINCT, Function.APPROX_COUNT_DISTINCT)

    @property
    def is_distinct(self) -> bool:
        """Whether equal values count once, and parts over different values combine."""
        return self.counts_distinct or self in (Function.SUM_DISTINCT, Function.AVG_DISTINCT)

    @property
    def needs_all(self) -> bool:
        """Whether it needs all values in one place: there are no parts that combine."""
        return self.collects or self.joins_texts or self.is_percentile

    @property
    def collects(self) -> bool:
        """Whether its value is an array of values."""
        return self in (Function.COLLECT_LIST, Function.COLLECT_SET)

    @property
    def joins_texts(self) -> bool:
        """Whether its value is all values in one text."""
        return self in (Function.LISTAGG, Function.LISTAGG_DISTINCT)

    @property
    def is_percentile(self) -> bool:
        """Whether it picks values by their place in the order."""
        return self in (Function.PERCENTILE, Function.PERCENTILE_APPROX)

    @property
    def keeps_type(self) -> bool:
        """Whether its value is one of the argument's, whatever their type."""
        return self in (Function.MIN, Function.MAX, Function.FIRST, Function.LAST) or self.is_ordered

    @property
    def is_ordered(self) -> bool:
        """Whether its second argument orders the values."""
        return self in (Function.MIN_BY, Function.MAX_BY)

    @property
    def is_timed(self) -> bool:
        """Whether it orders values by event time."""
        return self in (Function.FIRST, Function.LAST)


@dataclass(frozen=True, slots=True)
class Call:
    """A function over an argument: SQL over the input rows (None: the rows themselves) of a type.

    ``order`` is SQL for what orders the values, if the function needs it: the argument's event time, or a second
    argument.  ``given`` are arguments that are literals: the separator of texts, or percentages, of which ``many`` make
    an array.  ``text`` is the call as written in the query.
    """

    name: str
    function: Function
    argument: str | None
    type: pa.DataType
    order: str | None = None
    order_type: pa.DataType = field(default_factory=pa.int64)
    given: tuple[str | float, ...] = ()
    many: bool = False
    text: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether sums of the argument are integers or decimals."""
        return bool(pa.types.is_integer(self.type) or pa.types.is_decimal(self.type))

    @property
    def result_type(self) -> pa.DataType:
        """The type of the result, the same as in Spark."""
        function = self.function
        if function is Function.COUNT or function.counts_distinct:
            return pa.int64()
        if function.collects:
            return pa.list_(self.type)
        if function.joins_texts:
            return pa.string()
        if function.is_percentile:
            one = pa.float64() if function is Function.PERCENTILE else self.type
            return pa.list_(one) if self.many else one
        if function.adds and pa.types.is_decimal(self.type):
            more, scale = (10, 0) if function.sums else (4, 4)
            digits = min(self.type.precision + more, _MAX_DIGITS)
            return pa.decimal128(digits, min(self.type.scale + scale, _MAX_DIGITS))
        if function.sums and pa.types.is_integer(self.type):
            return pa.int64()
        return pa.float64() if function.takes_numbers else self.type


#: The terms of a call, by name: SQL and type.
Terms = dict[str, tuple[str, pa.DataType]]


def of_rows(call: Call, parts: Parts) -> Terms:
    """Return the terms of a call over the input rows."""
    argument = call.argument if call.argument is not None else "1"
    if call.function is Function.COUNT:
        return {"n": (parts.total(_is_there(argument), _COUNT), pa.int64())}
    if call.function.is_running:
        return _added(call, argument, _is_there(argument), parts)
    if call.function.adds:
        return _added_once(call, argument, parts)
    if call.function.counts_distinct:
        return {"n": (f"coalesce({parts.figure((argument,), 'count(DISTINCT v0)')}, 0)", pa.int64())}
    if call.function.measures_dispersion:
        bag = (argument,)
        return {
            "n": (parts.figure(bag, f"CAST(sum(w) AS {_COUNT})"), pa.int64()),
            "mean": (parts.figure(bag, "any_value(mean)", centre=_MEAN), pa.float64()),
            "squares": (parts.figure(bag, _SQUARES, centre=_MEAN), pa.float64()),
        }
    if call.function.needs_all:
        return {"value": (_of_all(call, argument, parts), call.result_type)}
    return _picked(call, argument, call.order, parts)


def of_parts(call: Call, parts: Parts) -> Terms:
    """Return the terms of a call over partial results: input rows that each hold the terms over a part of the rows.

    There is none for a function that ``needs_all`` values.
    """
    if call.function is Function.COUNT or call.function.counts_distinct:
        return {"n": (parts.total(_term(call, "n"), _COUNT), pa.int64())}
    if call.function.adds:
        return _added(call, _term(call, "sum"), _term(call, "n"), parts)
    if call.function.measures_dispersion:
        bag = tuple(_term(call, name) for name in ("n", "mean", "squares"))
        return {
            "n": (parts.figure(bag, f"CAST(sum(v0 * w) AS {_COUNT})"), pa.int64()),
            "mean": (parts.figure(bag, "any_value(mean)", centre=_MEAN_OF_PARTS), pa.float64()),
            "squares": (parts.figure(bag, _SQUARES_OF_PARTS, centre=_MEAN_OF_PARTS), pa.float64()),
        }
    return _picked(call, _term(call, "value"), _term(call, "t"), parts)


def result(call: Call, terms: Terms) -> str:
    """Return SQL for a call's value."""
    sql = {name: sql for name, (sql, _) in terms.items()}
    match call.function:
        case Function.COUNT | Function.COUNT_DISTINCT | Function.APPROX_COUNT_DISTINCT:
            return sql["n"]
        case Function.SUM | Function.SUM_DISTINCT:
            total = _fitting(call, sql["sum"]) if call.is_exact else sql["sum"]
            return f"CASE WHEN {sql['n']} > 0 THEN {total} END"
        case Function.AVG | Function.AVG_DISTINCT:
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
    """Return the name of a term's column between two operators."""
    return f"{call.name}:{term}"


def same_float(sql: str, type: pa.DataType) -> str:
    """Return SQL that normalizes a float, so that equal values are identical: one NaN and one zero."""
    if not pa.types.is_floating(type):
        return sql
    kind = "FLOAT" if pa.types.is_float32(type) else "DOUBLE"
    return f"CAST(CASE WHEN isnan({sql}) THEN 'nan' ELSE {sql} + 0 END AS {kind})"


# -- terms -----------------------------------------------------------------------------------------------------------


def _term(call: Call, name: str) -> str:
    return quote(term_name(call, name))


def _is_there(argument: str) -> str:
    """Return SQL that is 1 if a row has a value, else NULL."""
    return f"CASE WHEN {argument} IS NOT NULL THEN 1 END"


def _added(call: Call, value: str, count: str, parts: Parts) -> Terms:
    """Return the terms of a sum: the sum and the number of values, without which it is NULL."""
    n = (parts.total(count, _COUNT), pa.int64())
    if not call.is_exact:
        return {"sum": (exact_double_sum(value, parts), pa.float64()), "n": n}
    scale = call.type.scale if pa.types.is_decimal(call.type) else 0
    exact = f"CAST({value} AS HUGEINT)" if scale == 0 else value
    total = parts.total(exact, f"DECIMAL({_MAX_DIGITS}, {scale})")
    return {"sum": (total, pa.decimal128(_MAX_DIGITS, scale)), "n": n}


def _added_once(call: Call, value: str, parts: Parts) -> Terms:
    """Return the terms of a sum of distinct values, as those of a sum; doubles are added the greatest first."""
    n = (f"coalesce({parts.figure((value,), _COUNTED)}, 0)", pa.int64())
    if not call.is_exact:
        doubles = "sum(CAST(v0 AS DOUBLE) ORDER BY abs(v0) DESC, v0)"
        return {"sum": (f"coalesce({parts.figure((value,), doubles)}, 0.0)", pa.float64()), "n": n}
    scale = call.type.scale if pa.types.is_decimal(call.type) else 0
    type = f"DECIMAL({_MAX_DIGITS}, {scale})"
    total = parts.figure((value,), f"sum(CAST(v0 AS {type}))")
    return {"sum": (f"coalesce({total}, CAST(0 AS {type}))", pa.decimal128(_MAX_DIGITS, scale)), "n": n}


def _of_all(call: Call, value: str, parts: Parts) -> str:
    """Return SQL for the value of a function that needs all values."""
    function = call.function
    if function.collects:
        return collected(value, parts, once=function is Function.COLLECT_SET)
    if function.joins_texts:
        return joined(value, str(call.given[0]), parts, once=function is Function.LISTAGG_DISTINCT)
    one = interpolated if function is Function.PERCENTILE else element
    found = [one(value, float(percentage), parts) for percentage in call.given]
    return f"CASE WHEN {found[0]} IS NOT NULL THEN [{', '.join(found)}] END" if call.many else found[0]


def _picked(call: Call, value: str, order: str | None, parts: Parts) -> Terms:
    match call.function:
        case Function.MIN:
            return {"value": (parts.figure((value,), "min(v0)", end="v0"), call.type)}
        case Function.MAX:
            return {"value": (parts.figure((value,), "max(v0)", end="v0 DESC"), call.type)}
    assert order is not None
    is_first = call.function in (Function.FIRST, Function.MIN_BY)
    by, t = (_FIRST, "min(v1)") if is_first else (_LAST, "max(v1)")
    bag = (value, order)
    return {
        "value": (parts.figure(bag, f"first(v0 ORDER BY {by})", end=by), call.type),
        "t": (parts.figure(bag, t, end=by), call.order_type),
    }


# -- results ---------------------------------------------------------------------------------------------------------


def _sql_type(type: pa.DataType) -> str:
    return f"DECIMAL({type.precision}, {type.scale})" if pa.types.is_decimal(type) else "BIGINT"


def _fitting(call: Call, total: str) -> str:
    """Return SQL for a sum in its type; a sum that does not fit raises an error instead of wrapping around."""
    type = _sql_type(call.result_type)
    message = exp.Literal.string(f"{call.text} does not fit in {type}: it is ").sql(dialect="duckdb")
    fits = f"TRY_CAST({total} AS {type})"
    return (
        f"CASE WHEN {fits} IS NULL AND {total} IS NOT NULL THEN error({message} || CAST({total} AS VARCHAR)) "
        f"ELSE {fits} END"
    )


def _decimal_mean(call: Call, terms: dict[str, str]) -> str:
    """Return SQL for the mean of decimals, rounded half away from zero.

    It computes with integers: 1.00 / 3 to six digits is 100 * 10,000 / 3 = 333,333, so 0.333333.
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
