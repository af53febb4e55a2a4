"""Decode JSON and CSV with Spark's readers, and find what they would silently turn into NULL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from watersmeet.connectors.formats.decoded_rows import MISSING, PARSED, VALUE, does_not_fit, with_row
from watersmeet.errors import UnsupportedError

_SEAL = "_wm_seal"
_CORRUPT = "_wm_corrupt"


@dataclass(frozen=True, slots=True)
class _Misfit:
    """Why values do not fit: NULL or a reason for a row that was read, and a reason for one that was not."""

    out_of_range: Column
    other_kind: Column


def parse_json(source: DataFrame, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """Parse each text as the first of two elements of an array whose second element is a seal.

    Spark's JSON parser stops at the end of the first document and ignores the rest. Within an array the rest is an
    error, and the seal proves that the array was read to its end.
    """
    for field in columns:
        if not isinstance(field.dataType, ByteType) and "tinyint" in field.dataType.simpleString():
            raise UnsupportedError(
                f"column {field.name}: a TINYINT inside another type cannot be checked when it is read from JSON",
                hint="declare SMALLINT",
            )
    element = StructType([*map(_widened, columns), StructField(_SEAL, IntegerType())])
    schema = StructType([StructField("v", ArrayType(element)), StructField(_CORRUPT, StringType())])
    plain = {"allowSingleQuotes": "false", **options}
    settings = {**plain, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col(VALUE).cast(StringType())
    wrapped = F.concat(F.lit('{"v":['), text, F.lit(f',{{"{_SEAL}":1}}]}}'))
    parsed = source.withColumn(PARSED, F.from_json(wrapped, schema, settings))
    elements = F.col(PARSED)["v"]
    document = F.get(elements, 0)
    sealed = F.coalesce((F.size(elements) == 2) & F.get(elements, 1)[_SEAL].isNotNull(), F.lit(False))
    texts = F.from_json(text, MapType(StringType(), StringType()), plain)
    misfit = _misfit(columns, document, texts, lambda name: text.rlike(rf'(?i)"{re.escape(name)}"\s*:\s*"[+-]?inf'))
    reason = (
        F.when(F.col(VALUE).isNull(), MISSING)
        .when(~F.is_valid_utf8(text), "not valid UTF-8")
        .when(F.col(PARSED)[_CORRUPT].isNull() & sealed & document.isNotNull(), misfit.out_of_range)
        .when(~text.rlike(r"\S"), "empty text")
        .when(~text.rlike(r"^\s*\{"), "not a JSON object")
        .when(texts.isNull(), "not valid JSON")
        .when(~sealed, "not one JSON object: there is text after its end")
        .otherwise(misfit.other_kind)
    )
    return with_row(parsed, columns, reason, document)


def parse_csv(source: DataFrame, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """Parse each text as one line of cells."""
    corrupt = StructField(_CORRUPT, StringType())
    # RFC 4180 doubles a quote within quotes; Spark's default is a backslash
    settings = {"escape": '"', **options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col(VALUE).cast(StringType())
    parsed = source.withColumn(PARSED, F.from_csv(text, StructType([*columns, corrupt]).toDDL(), settings))
    row = F.col(PARSED)
    as_text = StructType([*[StructField(field.name, StringType()) for field in columns], corrupt])
    cells = F.from_csv(text, as_text.toDDL(), settings)
    misfit = _misfit(columns, row, cells, lambda name: F.lower(cells[name]).contains("inf"))
    reason = (
        F.when(F.col(VALUE).isNull(), MISSING)
        .when(~F.is_valid_utf8(text), "not valid UTF-8")
        .when(~text.rlike(r"\S"), "empty text")
        .when(row[_CORRUPT].isNull(), misfit.out_of_range)
        .when(cells[_CORRUPT].isNotNull(), f"not a line of {len(columns)} cells")
        .otherwise(misfit.other_kind)
    )
    return with_row(parsed, columns, reason, row)


def _widened(field: StructField) -> StructField:
    # the JSON parser wraps 128 to 255 into a negative TINYINT; a SMALLINT holds them until they are checked
    return StructField(field.name, ShortType()) if isinstance(field.dataType, ByteType) else field


def _misfit(columns: StructType, row: Column, texts: Column, infinite: Callable[[str], Column]) -> _Misfit:
    """Return reasons from ``row``, the values as far as they were read, and ``texts``, the same values as text.

    ``infinite`` returns whether a column's text itself is an infinity, because a number that is too large is read as
    infinity.
    """
    nothing = F.lit(None).cast(StringType())
    outside: list[Column] = []
    unread: list[Column] = []
    for field in columns:
        value, text = row[field.name], texts[field.name]
        reason = does_not_fit(field, text)
        unread.append(F.when(value.isNull() & text.isNotNull(), reason))
        if isinstance(field.dataType, ByteType):
            outside.append(F.when(~value.between(-128, 127), reason))
        elif isinstance(field.dataType, (FloatType, DoubleType)):
            too_large = value.isin(float("inf"), float("-inf")) & ~infinite(field.name)
            type_name = field.dataType.simpleString().upper()
            outside.append(F.when(too_large, f"{field.name}: the number is out of the range of {type_name}"))
        elif isinstance(field.dataType, TimestampType):
            # milliseconds read as seconds are far past this year
            outside.append(F.when(value >= F.expr("TIMESTAMP'+10000-01-01 00:00:00'"), reason))
    return _Misfit(
        out_of_range=F.coalesce(nothing, *outside),
        other_kind=F.coalesce(nothing, *unread, F.lit("a value does not fit its column")),
    )
