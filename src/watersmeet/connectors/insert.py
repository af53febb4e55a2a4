"""INSERT INTO … VALUES: rows of constant expressions, evaluated by Spark and cast to the stream's types."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from watersmeet.catalog import EMBEDDED, StreamDef
from watersmeet.connectors.registry import embedded_log, spark_schema
from watersmeet.errors import BindError, UnsupportedError, did_you_mean
from watersmeet.runtime.failures import first_sentence, without_stacks
from watersmeet.sql.positions import position_of
from watersmeet.sql.statements import InsertValues


def insert_values(spark: SparkSession, stream: StreamDef, statement: InsertValues, workspace: Path) -> int:
    """Append the rows to an embedded stream; their number comes back.

    Columns that are not named are NULL.  Raises ``BindError`` for columns and values that do not fit.
    """
    if stream.connector != EMBEDDED or stream.derived:
        raise UnsupportedError(
            f"{stream.name} takes no INSERT … VALUES: " + ("a query feeds it" if stream.derived else stream.connector),
            hint="INSERT … VALUES is for embedded streams (CREATE STREAM without WITH)",
            position=statement.position,
        )
    targets = _target_columns(stream, statement)
    for row in statement.rows:
        if len(row) != len(targets):
            raise BindError(
                f"a row has {len(row)} values for {len(targets)} columns",
                detail=f"columns: {', '.join(targets)}",
                position=position_of(row[0]) if row else statement.position,
            )
    schema = spark_schema(stream)
    values = {name.lower(): index for index, name in enumerate(targets)}
    structs = []
    for row in statement.rows:
        fields = []
        for field in schema:
            index = values.get(field.name.lower())
            value = F.lit(None) if index is None else F.expr(row[index].sql(dialect="spark"))
            fields.append(value.cast(field.dataType).alias(field.name))
        structs.append(F.struct(*fields))
    try:
        with without_stacks():
            rows = spark.range(1).select(F.inline(F.array(*structs)))
            embedded_log(stream, workspace).append_frame(rows, f"insert-{uuid.uuid4().hex}")
    except PySparkException as error:
        reason = first_sentence(error).splitlines()[0]
        raise BindError(f"INSERT INTO {stream.name}: {reason}", position=statement.position) from None
    return len(statement.rows)


def _target_columns(stream: StreamDef, statement: InsertValues) -> Sequence[str]:
    declared = [column.name for column in stream.columns]
    for name in statement.columns:
        if stream.column(name) is None:
            raise BindError(
                f"{stream.name} has no column {name}",
                hint=did_you_mean(name, declared),
                position=statement.position,
            )
    return statement.columns or declared
