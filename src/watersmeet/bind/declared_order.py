"""``ordered_by``: the order in which a stream's rows arrive, beside its event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from watersmeet.bind.generators import first_generator
from watersmeet.catalog.streams import OrderTerm, StreamMode
from watersmeet.errors import BindError, Position, did_you_mean
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.type_groups import INSTANTS
from watersmeet.plan.determinism import varying_calls

OPTION = "ordered_by"
_FORM = "write it like 'sn' or 'sn, a + b DESC'"


def declared_order(
    text: str, columns: Mapping[str, exp.DataType], mode: StreamMode, position: Position | None
) -> tuple[OrderTerm, ...]:
    """Return the terms of ``ordered_by``; ``columns`` are the stream's types by the names of its columns.

    The first term is a column of whole numbers or of times, in rising order: windows and frontiers can be over it.  The
    others say how rows that are equal there follow each other.

    Raises ``BindError`` for other terms, unknown columns, and streams whose rows change.
    """
    if mode is not StreamMode.APPEND:
        raise BindError(
            f"ordered_by is for streams that only append; rows of mode {mode.value} replace each other in any order",
            hint="leave it out",
            position=position,
        )
    terms, names = [], []
    for number, term in enumerate(_parsed(text, position)):
        expression, descending = term.this.unnest(), bool(term.args.get("desc"))
        _check_columns(expression, columns, position)
        if bool(term.args.get("nulls_first")) == descending or term.args.get("with_fill"):
            raise BindError(
                f"ordered_by = '{text}': NULLs are first in ascending order, last in descending order",
                hint="leave out all but ASC and DESC",
                position=position,
            )
        if number == 0 and (descending or not isinstance(expression, exp.Column)):
            raise BindError(
                f"ordered_by = '{text}': its first term is a column in rising order",
                hint=_FORM,
                position=position,
            )
        terms.append(OrderTerm(expression=expression.sql("spark", comments=False), descending=descending))
        names.append(expression.name.lower())
    lead = next(name for name in columns if name.lower() == names[0])
    if lead_unit(columns[lead]) is None:
        raise BindError(
            f"ordered_by = '{text}': {lead} is {columns[lead].sql('spark')}; the first term is a whole number, "
            "a TIMESTAMP or a TIMESTAMP_NTZ",
            position=position,
        )
    return (OrderTerm(expression=lead), *terms[1:])


def lead_unit(kind: exp.DataType) -> TimeUnit | None:
    """Return what a first term of that type counts; None if it cannot be one."""
    if kind.is_type(*exp.DataType.INTEGER_TYPES):
        return TimeUnit.ROWS
    if kind.is_type(exp.DataType.Type.TIMESTAMPNTZ):
        return TimeUnit.TIMESTAMP_NTZ
    return TimeUnit.TIMESTAMP if kind.is_type(*INSTANTS) else None


def _has_gap(text: str) -> bool:
    """Whether there is nothing between two commas, which sqlglot passes over."""
    return any(one.token_type is other.token_type is TokenType.COMMA for one, other in pairwise(sqlglot.tokenize(text)))


def _parsed(text: str, position: Position | None) -> Sequence[exp.Expr]:
    try:
        select: exp.Expr = sqlglot.parse_one(f"SELECT 1 FROM t ORDER BY {text}", dialect="spark")
    except SqlglotError:
        select = exp.Null()
    order = select.args.get("order")
    clauses = {name for name, value in select.args.items() if value} - {"expressions", "from_", "order", "kind"}
    if order is None or clauses or text.strip(" ,") != text.strip() or _has_gap(text):
        raise BindError(f"ordered_by = '{text}' is no list of columns and expressions", hint=_FORM, position=position)
    terms: Sequence[exp.Expr] = order.expressions
    return terms


def _check_columns(expression: exp.Expr, columns: Mapping[str, exp.DataType], position: Position | None) -> None:
    if refused := next(expression.find_all(exp.AggFunc, exp.Window, exp.Query), None):
        raise BindError(
            f"ordered_by takes expressions over one row, not {refused.sql('spark')}", hint=_FORM, position=position
        )
    if (call := first_generator(expression)) is not None:
        raise BindError(
            f"ordered_by takes expressions over one row: {call.sql('spark')} makes rows", hint=_FORM, position=position
        )
    for call in varying_calls([expression]):
        raise BindError(
            f"ordered_by: {call.sql('spark')} is nondeterministic, so rows would be in another order each time",
            hint=_FORM,
            position=position,
        )
    kinds = {name.lower(): kind for name, kind in columns.items()}
    found = list(expression.find_all(exp.Column))
    for column in found:
        if column.table or column.name.lower() not in kinds:
            raise BindError(
                f"ordered_by names {column.sql('spark')}: there is no such column",
                hint=did_you_mean(column.name, list(columns)),
                position=position,
            )
    if isinstance(expression, exp.Column) and _has_maps(kind := kinds[expression.name.lower()]):
        raise BindError(
            f"ordered_by: values of type {kind.sql('spark')} are in no order",
            hint="order by another column",
            position=position,
        )
    if not found:
        raise BindError(
            f"ordered_by: {expression.sql('spark')} reads no column",
            hint=f"{_FORM}; names stand in backquotes, not in quotes",
            position=position,
        )


def _has_maps(kind: exp.DataType) -> bool:
    return any(each.is_type(exp.DataType.Type.MAP) for each in kind.find_all(exp.DataType))
