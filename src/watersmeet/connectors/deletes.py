"""Deletes by key alone: Kafka records without a value, Debezium's deletes without ``before``.

The key columns come from the record's key: a JSON object with the columns' names, also inside Debezium's ``payload``.
For a single key column, the record's key may also be its bare value as text.
"""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NumericType, StructField, StructType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, RAW, TEXT, TP_DELTA, spark_name
from watersmeet.connectors.formats.values import decode
from watersmeet.expressions.event_time import TimeUnit

KEY = "_key"
"""The record's key as bytes or text."""
BY_KEY = "_wm_by_key"
"""Whether the row comes from the key."""
MICROS = "_wm_micros"
"""When the delete happened, in microseconds."""
_READ, _DOCUMENT, _KEY_TEXT = "_wm_read", "_wm_document", "_wm_key_text"
_NUMBER = r"^\s*(-?[0-9.]+([eE][+-]?[0-9]+)?|true|false)\s*$"


def with_deletes(frame: DataFrame, stream: StreamDef, columns: StructType) -> DataFrame:
    """Turn the rows of a decoded frame that are marked ``BY_KEY`` into deletes of the key in ``KEY`` at ``MICROS``.

    In such rows only the key's columns and the event time have values; an event time within the key takes precedence
    over ``MICROS``. The result has no columns ``BY_KEY``, ``KEY`` and ``MICROS``.
    """
    names = [*(name for name in columns.names if name != TP_DELTA), BAD, RAW, TEXT]
    others = [name for name in frame.columns if name not in (*names, TP_DELTA, BY_KEY, KEY, MICROS)]
    delta = F.col(TP_DELTA) if TP_DELTA in frame.columns else F.lit(1)
    key = [each for each in columns if each.name in stream.primary_key]
    time = [each for each in columns if each.name == stream.time_column and each not in key]
    text = F.when(F.col(BY_KEY), F.col(KEY).cast("string"))
    read = frame.select(
        F.struct(*(F.col(spark_name(name)).alias(name) for name in names), delta.alias(TP_DELTA)).alias(_READ),
        _document(text, key).alias(_DOCUMENT),
        text.alias(_KEY_TEXT),
        BY_KEY,
        MICROS,
        *map(spark_name, others),
    )
    keyed = decode(read, _DOCUMENT, "json", StructType([*key, *time]), {})
    reason = F.when(F.col(_KEY_TEXT).isNull(), "the record has neither a value nor a key").otherwise(
        F.concat(F.lit("the record's key: "), F.col(BAD))
    )
    of_key: dict[str, Column] = {each.name: F.col(spark_name(each.name)) for each in [*key, *time]}
    for each in time:
        happened = F.when(F.col(BAD).isNull(), in_time_column(stream, MICROS))
        of_key[each.name] = F.coalesce(of_key[each.name], happened)
    of_key |= {BAD: reason, RAW: F.when(reason.isNotNull(), F.coalesce(_KEY_TEXT, F.lit(""))), TEXT: F.col(_KEY_TEXT)}
    of_key[TP_DELTA] = F.lit(-1)
    return keyed.select(
        *(
            F.when(F.col(BY_KEY), of_key.get(name, F.lit(None))).otherwise(F.col(_READ)[name]).alias(name)
            for name in (*names, TP_DELTA)
        ),
        *map(spark_name, others),
    )


def in_time_column(stream: StreamDef, micros: str) -> Column:
    """Return the time in column ``micros`` as a value of the event-time column; NULL where that column is no time."""
    name = spark_name(micros)
    match stream.time_unit:
        case TimeUnit.TIMESTAMP:
            return F.timestamp_micros(micros)
        case TimeUnit.TIMESTAMP_NTZ:
            return F.expr(f"timestampadd(MICROSECOND, {name}, TIMESTAMP_NTZ'1970-01-01 00:00:00')")
        case TimeUnit.ROWS:
            return F.lit(None)
        case unit:
            declared = stream.column(stream.time_column)
            assert declared is not None  # whole numbers are declared
            whole = F.expr(f"({name} - pmod({name}, {unit.scale})) DIV {unit.scale}")
            return whole.try_cast(declared.type)


def _document(text: Column, key: list[StructField]) -> Column:
    """Return the key as a JSON object of its columns."""
    payload = F.get_json_object(text, "$.payload")
    document = F.when(F.get_json_object(text, "$.schema").isNotNull() & payload.isNotNull(), payload).otherwise(text)
    if len(key) != 1:
        return document
    (field,) = key
    bare = F.to_json(F.struct(text.alias(field.name)))
    if isinstance(field.dataType, (NumericType, BooleanType)):
        number = F.concat(F.lit(f"{{{json.dumps(field.name)}:"), text, F.lit("}"))
        bare = F.when(text.rlike(_NUMBER), number).otherwise(bare)
    return F.when(text.isNull() | ~F.is_valid_utf8(text) | text.rlike(r"^\s*\{"), document).otherwise(bare)
