"""What the decoders of all formats share: names of formats, columns at work, and the decoded row."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from watersmeet.columns import BAD

VALUE, PARSED, ROW = "_wm_value", "_wm_parsed", "_wm_row"
MISSING = "the record has no value"
_SHOWN = 40
"""The most characters of a value that does not fit in the reason."""


class Format(StrEnum):
    """The format of a value."""

    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def is_text(self) -> bool:
        """Whether a value is text, with one row per line."""
        return self in (Format.JSON, Format.CSV)


def does_not_fit(field: StructField, text: Column) -> Column:
    """Return the reason for a value, as ``text``, that does not fit its column."""
    shown = F.substring(text, 1, _SHOWN)
    return F.concat(F.lit(f"{field.name}: "), shown, F.lit(f" does not fit {field.dataType.simpleString().upper()}"))


def with_row(parsed: DataFrame, columns: StructType, reason: Column, row: Column) -> DataFrame:
    """Add ``_bad`` and the row as a struct of the declared types, which is NULL where the row is bad."""
    # the casts narrow widened columns; try_cast because they may fail on bad rows, which are dropped
    fields = [row[field.name].try_cast(field.dataType).alias(field.name) for field in columns]
    return parsed.withColumn(BAD, reason).withColumn(ROW, F.when(F.col(BAD).isNull(), F.struct(*fields)))
