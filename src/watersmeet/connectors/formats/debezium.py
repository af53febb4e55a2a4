"""Debezium's change records as rows: a JSON envelope has the row's image before and after a change.

In a versioned_kv stream ``after`` is the key's newest version, and a delete ends the key at its time. In a changelog_kv
stream ``before`` is a retraction and ``after`` a new row, in this order. Rows of one record share its position in the
source; packing keeps the order of such rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from watersmeet.catalog.streams import StreamDef, StreamMode
from watersmeet.columns import BAD, RAW, TEXT, TP_DELTA, spark_name
from watersmeet.connectors.deletes import BY_KEY, KEY, MICROS, in_time_column, with_deletes
from watersmeet.connectors.formats.envelope import NO_KEY, NO_OP, REPLICA_IDENTITY, TRUNCATED
from watersmeet.connectors.formats.values import decode

_IMAGE, _RECORD, _WRONG, _CHANGE, _HAS_TIME = "_wm_image", "_wm_record", "_wm_wrong", "_wm_change", "_wm_has_time"
_FIELDS = ("op", "before", "after", "source")
_ENVELOPE = StructType([*(StructField(name, StringType()) for name in _FIELDS), StructField("ts_ms", LongType())])
_WRAPPED = StructType([*_ENVELOPE.fields, StructField("payload", StringType())])


def decode_changes(
    frame: DataFrame, value: str, stream: StreamDef, columns: StructType, options: Mapping[str, str]
) -> DataFrame:
    """Replace the envelopes in column ``value`` as ``formats.decode`` does, and add ``_tp_delta``: one row per change.

    Where the frame has the records' keys (``KEY``), a delete without ``before`` deletes the record's key.
    """
    others = [name for name in frame.columns if name != value]
    changes = _changes(_envelopes(frame, value), stream)
    exploded = changes.select(F.explode(_CHANGE).alias(_CHANGE), _RECORD, MICROS, *others)
    flat = exploded.select(f"{_CHANGE}.*", _RECORD, MICROS, *others)
    image = StructType([each for each in columns if each.name != TP_DELTA])
    has_time = F.map_contains_key(F.from_json(_IMAGE, "MAP<STRING, STRING>"), stream.time_column)
    flat = flat.withColumn(_HAS_TIME, F.coalesce(has_time, F.lit(False)))
    rows = decode(flat, _IMAGE, "json", image, options)
    lacks_time = F.lit(False)
    if stream.time_column in image.names:
        given = F.col(spark_name(stream.time_column))
        happened = in_time_column(stream, MICROS)
        is_dated = F.col(_HAS_TIME)
        if stream.mode is StreamMode.VERSIONED:
            is_dated &= F.col(TP_DELTA) == 1
        else:
            lacks_time = is_dated & given.isNull() & (F.col(TP_DELTA) == -1)
        rows = rows.withColumn(stream.time_column, F.when(is_dated, given).otherwise(happened))
    wrong = F.coalesce(
        F.col(_WRONG),
        F.col(BAD),
        F.when(lacks_time, f"before has no {stream.time_column}: {REPLICA_IDENTITY}"),
    )
    known = rows.withColumns({BAD: wrong, TEXT: F.col(_RECORD), RAW: F.when(wrong.isNotNull(), F.col(_RECORD))})
    known = known.drop(_WRONG, _RECORD, _HAS_TIME)
    return with_deletes(known, stream, columns) if KEY in others else known.drop(BY_KEY, MICROS)


def _envelopes(frame: DataFrame, value: str) -> DataFrame:
    """Return the fields of each envelope, unwrapped; ``_bad`` is set where the record is no JSON object."""
    read = decode(frame, value, "json", _WRAPPED, {})
    is_wrapped = F.col("op").isNull() & F.col("payload").isNotNull()
    within = F.from_json(F.when(is_wrapped, F.col("payload")), _ENVELOPE)
    fields = {name: F.when(is_wrapped, within[name]).otherwise(F.col(name)) for name in _ENVELOPE.names}
    return read.withColumns(fields).withColumnRenamed(TEXT, _RECORD)


def _changes(envelopes: DataFrame, stream: StreamDef) -> DataFrame:
    """Return each envelope's changes as an array of (image, delta, whether it is by key, what is wrong)."""
    op, before, after = F.col("op"), F.col("before"), F.col("after")
    is_versioned = stream.mode is StreamMode.VERSIONED

    def of_op(what: str) -> Column:
        return F.concat(F.lit("op "), op, F.lit(what))

    wrong = (
        F.when(F.col(BAD).isNotNull(), F.col(BAD))
        .when(op.isNull(), NO_OP)
        .when(op == "t", TRUNCATED)
        .when(~op.isin("c", "r", "u", "d"), of_op(" is not known: it is c, r, u or d"))
        .when((op != "d") & after.isNull(), of_op(" without after"))
    )
    if is_versioned:
        by_key = (op == "d") & before.isNull()
        has_key = F.col(KEY).isNotNull() if KEY in envelopes.columns else F.lit(False)
        wrong = wrong.when(by_key & ~has_key, NO_KEY)
    else:
        by_key = F.lit(False)
        wrong = wrong.when(op.isin("u", "d") & before.isNull(), of_op(f" without before: {REPLICA_IDENTITY}"))
    inserted = _change(after, 1)
    deleted = _change(before, -1, by_key)
    changes = F.when(wrong.isNotNull(), F.array(_change(F.lit(None).cast("string"), 1, wrong=wrong)))
    changes = changes.when(op == "d", F.array(deleted))
    if not is_versioned:
        changes = changes.when(op == "u", F.array(deleted, inserted))
    source = F.from_json("source", "ts_ms BIGINT")["ts_ms"]
    millis = F.coalesce(source, F.col("ts_ms"))
    return envelopes.withColumns(
        {_CHANGE: changes.otherwise(F.array(inserted)), MICROS: F.try_multiply(millis, F.lit(1000))}
    )


def _change(image: Column, delta: int, by_key: Column | None = None, wrong: Column | None = None) -> Column:
    return F.struct(
        image.alias(_IMAGE),
        F.lit(delta).cast("tinyint").alias(TP_DELTA),
        F.coalesce(F.lit(False) if by_key is None else by_key, F.lit(False)).alias(BY_KEY),
        (F.lit(None).cast("string") if wrong is None else wrong).alias(_WRONG),
    )
