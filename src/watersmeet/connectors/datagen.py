"""The ``datagen`` connector: generated rows at a steady rate."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    FractionalType,
    IntegralType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from watersmeet.columns import SEQUENCE, TP_TIME
from watersmeet.connectors.connector import Reading, SourceConnector
from watersmeet.errors import ConfigError
from watersmeet.runtime.source_frames import Source
from watersmeet.settings.option_parsing import parse_options

_PREFIXES = {"columns": ("columns.",)}


class DatagenOptions(BaseModel):
    """The WITH options of a generated stream."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows_per_second: Annotated[int, Field(gt=0)] = 10
    columns: dict[str, str] = {}


class DatagenConnector(SourceConnector):
    """A source of generated rows, for trials: a replay generates the same rows again.

    ``rows_per_second`` sets the rate (default 10). ``columns.NAME`` sets a column to a Spark SQL expression over ``n``
    (the row's number, from 0) and ``ts`` (when the row is due). By default whole numbers are ``n``, fractions a hash of
    n between 0 and 1, times ``ts``, booleans ``n % 2 = 0`` and text is ``NAME_n`` with n modulo 100.
    """

    name = "datagen"
    model = DatagenOptions
    prefixes = _PREFIXES

    def open_source(self, reading: Reading) -> Source:
        """Return the generated rows; raises ``ConfigError`` for an expression that does not fit."""
        given = parse_options(DatagenOptions, self.name, reading.stream.options, nested=_PREFIXES)
        expressions = {name.removeprefix("columns.").lower(): text for name, text in given.columns.items()}
        for name in expressions.keys() - {field.name.lower() for field in reading.columns}:
            raise ConfigError(f"datagen: option columns.{name} names no column of the stream")
        rate = reading.spark.readStream.format("rate").option("rowsPerSecond", given.rows_per_second).load()
        rows = rate.select(F.col("value").alias("n"), F.col("timestamp").alias("ts"))
        items = []
        for field in reading.columns:
            text = expressions.get(field.name.lower())
            column = F.expr(text) if text is not None else _default(field)
            items.append(column.cast(field.dataType).alias(field.name))
        place = F.encode(F.lpad(F.hex("n"), 16, "0"), "UTF-8")
        try:
            return Source(rows.select(*items, place.alias(SEQUENCE), F.col("ts").alias(TP_TIME)))
        except PySparkException as error:
            raise ConfigError(f"datagen: {str(error).splitlines()[0]}") from None


def _default(field: StructField) -> Column:
    match field.dataType:
        case BooleanType():
            return F.col("n") % 2 == 0
        case TimestampType() | TimestampNTZType():
            return F.col("ts")
        case StringType():
            return F.concat(F.lit(f"{field.name}_"), (F.col("n") % 100).cast("string"))
        case FractionalType():
            return F.pmod(F.xxhash64("n"), F.lit(1_000_000)) / 1_000_000
        case IntegralType():
            return F.col("n")
        case other:
            raise ConfigError(
                f"datagen has no default for {field.name} ({other.simpleString()})",
                hint=f"set the option columns.{field.name} to a Spark SQL expression over n and ts",
            )
