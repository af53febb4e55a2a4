"""The columns that INSERT INTO may name, and whether a query fits them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.bind.results import columns_above
from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.columns import TP_DELTA, TP_TIME
from watersmeet.errors import BindError, Position, did_you_mean
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import NESTED, TEXTS
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.sql.statements import InsertHistorical, InsertSelect


def takes_column(stream: StreamDef, name: str) -> bool:
    """Whether INSERT can name the column: a declared one, or ``_tp_delta`` of an embedded changing stream."""
    is_hidden_delta = name.lower() == TP_DELTA and stream.changes and stream.connector == EMBEDDED
    return is_hidden_delta or stream.column(name) is not None


def check_columns(stream: StreamDef, targets: Sequence[str], position: Position | None) -> None:
    """Raise ``BindError`` if rows of these columns could not be read, or a column has two values.

    Rows of an embedded stream need its event time, and changes their primary key.
    """
    named = [target.lower() for target in targets]
    if repeated := [name for number, name in enumerate(named) if name in named[:number]]:
        raise BindError(f"INSERT INTO {stream.name} names {repeated[0]} twice", position=position)
    time = stream.time_column
    if stream.connector == EMBEDDED and time != TP_TIME and time.lower() not in named:
        usual = "a column named timestamp or ts is the event time of a stream without a WATERMARK: another name is none"
        raise BindError(
            f"INSERT INTO {stream.name} leaves out {time}, its event time: the rows would be quarantined",
            hint=f"name {time} too" + ("" if stream.has_watermark else f" ({usual})"),
            position=position,
        )
    if missing := [name for name in stream.primary_key if name.lower() not in named]:
        raise BindError(
            f"INSERT INTO {stream.name} leaves out {missing[0]} of its PRIMARY KEY: the rows would be no changes",
            hint=f"name {missing[0]} too",
            position=position,
        )


def check_query(stream: StreamDef, query: LogicalQuery, statement: InsertSelect) -> None:
    """Raise ``BindError`` as ``check_target`` does, and for an array, map or struct that cannot be cast to its column.

    Other values are left to Spark, which casts them or says why not.
    """
    check_target(stream, [column.name for column in query.outputs], statement)
    types = {**query.columns, **columns_above(query)}
    targets = statement.columns or tuple(column.name for column in stream.columns)
    for name, output in zip(targets, query.outputs, strict=False):
        column, given = stream.column(name), certain_type(output.expression, types)
        if column is None or given is None:
            continue
        taken = exp.DataType.build(column.type, dialect="spark")
        if (
            given.this != taken.this
            and (given.is_type(*NESTED) or taken.is_type(*NESTED))
            and not taken.is_type(*TEXTS)
        ):
            raise BindError(
                f"{stream.name}.{column.name} is {column.type}, and cannot take {plain_sql(output.expression)}, which "
                f"is {given.sql(dialect='spark')}",
                position=position_of(output.expression) or statement.position,
            )


def check_target(stream: StreamDef, given: Sequence[str], statement: InsertSelect | InsertHistorical) -> None:
    """Raise ``BindError`` if the columns of INSERT INTO … SELECT do not fit its target.

    ``given`` are the query's columns. A target that declares no columns accepts any.
    """
    targets = statement.columns or tuple(column.name for column in stream.columns)
    if not targets:
        return
    check_columns(stream, targets, statement.position)
    if len(given) != len(targets):
        raise BindError(
            f"the query returns {len(given)} columns, {stream.name} takes {len(targets)}",
            detail=f"given: {', '.join(given)}\ntaken: {', '.join(targets)}",
            position=statement.position,
        )
    for name in statement.columns:
        if not takes_column(stream, name):
            declared = [column.name for column in stream.columns]
            raise BindError(
                f"{stream.name} has no column {name}", hint=did_you_mean(name, declared), position=statement.position
            )
