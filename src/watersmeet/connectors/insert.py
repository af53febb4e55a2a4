"""INSERT INTO … VALUES: rows of constant expressions, evaluated by Spark and cast to the stream's types."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.bind.insert_target import check_columns, takes_column
from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.deltas import change_reason
from watersmeet.connectors.embedded.connector import embedded_log
from watersmeet.connectors.stream_schema import stored_schema
from watersmeet.errors import BindError, UnsupportedError, did_you_mean
from watersmeet.expressions.positions import position_of
from watersmeet.runtime.failures import first_sentence, without_stacks
from watersmeet.runtime.store_folder import Place
from watersmeet.sql.statements import InsertValues


def insert_values(spark: SparkSession, stream: StreamDef, statement: InsertValues, workspace: Place) -> int:
    """Append the rows to an embedded stream and return their number.

    Columns that are not named are NULL; ``_tp_delta`` is +1, and a changing stream takes it even undeclared. Raises
    ``BindError`` for columns and values that do not fit, columns left out that rows need, and rows that are no change.
    """
    if stream.connector != EMBEDDED or stream.derived:
        raise UnsupportedError(
            f"{stream.name} takes no INSERT … VALUES: " + ("a query feeds it" if stream.derived else stream.connector),
            hint="INSERT … VALUES is for embedded streams (CREATE STREAM without WITH)",
            position=statement.position,
        )
    targets = _target_columns(stream, statement)
    check_columns(stream, targets, statement.position)
    for row in statement.rows:
        if len(row) != len(targets):
            raise BindError(
                f"a row has {len(row)} values for {len(targets)} columns",
                detail=f"columns: {', '.join(targets)}",
                position=position_of(row[0]) if row else statement.position,
            )
    schema = stored_schema(stream)
    values = {name.lower(): index for index, name in enumerate(targets)}
    structs = []
    for row in statement.rows:
        fields = []
        for field in schema:
            index = values.get(field.name.lower())
            is_delta = field.name == TP_DELTA
            default = F.lit(1 if is_delta else None)
            value = default if index is None else F.expr(row[index].sql(dialect="spark"))
            # a delta is checked before it is narrowed to TINYINT
            fields.append(value.cast("bigint" if is_delta else field.dataType).alias(field.name))
        structs.append(F.struct(*fields))
    try:
        with without_stacks():
            rows = spark.range(1).select(F.inline(F.array(*structs)))
            if stream.changes:
                _check_changes(rows, stream, statement)
                rows = rows.withColumn(TP_DELTA, F.col(TP_DELTA).cast(schema[TP_DELTA].dataType))
            embedded_log(stream, workspace).append_frame(rows, f"insert-{uuid.uuid4().hex}")
    except PySparkException as error:
        reason = first_sentence(error).splitlines()[0]
        raise BindError(f"INSERT INTO {stream.name}: {reason}", position=statement.position) from None
    return len(statement.rows)


def _check_changes(rows: DataFrame, stream: StreamDef, statement: InsertValues) -> None:
    """Raise ``BindError`` for rows that would be bad rows when the stream is read."""
    found = rows.select(change_reason(stream, F.col(TP_DELTA))).collect()
    for values, (reason,) in zip(statement.rows, found, strict=True):
        if reason is not None:
            raise BindError(
                f"INSERT INTO {stream.name}: {reason}", position=position_of(values[0]) or statement.position
            )


def _target_columns(stream: StreamDef, statement: InsertValues) -> Sequence[str]:
    declared = [column.name for column in stream.columns]
    for name in statement.columns:
        if not takes_column(stream, name):
            raise BindError(
                f"{stream.name} has no column {name}",
                hint=did_you_mean(name, declared),
                position=statement.position,
            )
    return statement.columns or declared
