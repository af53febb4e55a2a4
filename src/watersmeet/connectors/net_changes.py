"""The net changes of a batch, by the primary key of the table or topic that takes them.

Per key this is the row after the batch (an upsert), or a delete where the key has no row any more. Changes that cancel
each other have no effect: +new -new is no delete and -old +old is no upsert, so a batch can be applied repeatedly.

    -(1, open) +(1, paid)   upsert (1, paid)        +(2, open) -(2, open)   nothing
    -(3, open)              delete (3, open)        +(4, open) +(4, paid)   an error: key 4 has two rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA, spark_name
from watersmeet.connectors.deltas import DELTA_FIELD
from watersmeet.errors import ConfigError, ConnectorError

_PLACE, _WEIGHT = "place", "weight"
_SHOWN = 40
"""The most characters of a key's value in an error."""


def net_changes(changes: pa.Table, target: StreamDef, *, keep_replaced: bool = False) -> pa.Table:
    """Return one row per changed key: deletes with -1 in ``_tp_delta``, then upserts with +1.

    With ``keep_replaced`` the result also has the rows that an upsert replaces, with -1. Rows are compared as GROUP BY
    compares them: NULL equals NULL, NaN equals NaN. Without ``_tp_delta`` each row is a +1, and equal rows count once.

    Raises ``ConnectorError`` for a NULL in the key, for a delta other than +1 and -1, and for several rows of a key.
    """
    key = target.primary_key
    _require_key(changes, target)
    weights = _weights(changes, target)
    names = [name for name in changes.column_names if name != TP_DELTA]
    net = _net(changes.select(names), weights, [names.index(name) for name in key])
    held, lost = pc.field("held"), pc.field(_WEIGHT) < 0
    if (several := net.filter((held > 1) & ~lost)).num_rows:
        raise _several_rows(changes, target, several.slice(0, 1).to_pylist()[0])
    gone = net.filter(lost if keep_replaced else lost & (held == 0) & (pc.field("nth") == 1))
    places = pa.chunked_array([*gone[_PLACE].chunks, *net.filter(~lost)[_PLACE].chunks], pa.int64())
    deltas = [-1] * gone.num_rows + [1] * (len(places) - gone.num_rows)
    return _with_deltas(changes.take(places), deltas)


def net_frame(frame: DataFrame, target: StreamDef, *, keep_replaced: bool = False) -> DataFrame:
    """Return the same as ``net_changes``, computed by Spark's workers for a batch of any size."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if found := list(batches):
            yield from net_changes(pa.Table.from_batches(found), target, keep_replaced=keep_replaced).to_batches()

    schema = frame.schema if TP_DELTA in frame.columns else StructType([*frame.schema.fields, DELTA_FIELD])
    return by_key(frame, target).mapInArrow(run, schema)


def by_key(frame: DataFrame, target: StreamDef) -> DataFrame:
    """Return a batch with all changes of a key in one partition."""
    return frame.repartition(*map(spark_name, target.primary_key))


def collected(frame: DataFrame) -> pa.Table:
    """Return all rows of a batch as one Arrow table, with times in UTC."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    return frame.toArrow().cast(pa.schema([field.with_nullable(True) for field in schema]))


def require_primary_key(stream: StreamDef) -> None:
    """Raise ``ConfigError`` for a stream without a key, whose rows a batch written again would double."""
    if not stream.changes:
        raise ConfigError(
            f"{stream.name} has no PRIMARY KEY: a batch written again, as after a failure, would double its rows",
            hint=f"CREATE MUTABLE STREAM … PRIMARY KEY (…) WITH (connector = '{stream.connector}', …), and INSERT INTO"
            " it",
        )


def require_columns_of_table(stream: StreamDef) -> None:
    """Raise ``ConfigError`` where an external table would need a column ``_tp_delta``."""
    if stream.column(TP_DELTA) is not None:
        raise ConfigError(
            f"{stream.name}: {TP_DELTA} is no column of the table: a row with -1 is deleted there",
            hint="leave it out",
        )


def _require_key(changes: pa.Table, target: StreamDef) -> None:
    for name in target.primary_key:
        if changes[name].null_count:
            raise null_key(target, name)


def null_key(target: StreamDef, name: str) -> ConnectorError:
    """Return the error for a result without a value in a column of the target's key."""
    return ConnectorError(
        f"{target.name}: column {name} of its PRIMARY KEY is NULL in a result",
        hint=f"leave such rows out (WHERE … IS NOT NULL), or choose a key without {name}",
    )


def _weights(changes: pa.Table, target: StreamDef) -> pa.ChunkedArray | None:
    if TP_DELTA not in changes.column_names:
        return None
    weights = changes[TP_DELTA]
    wrong = pc.invert(pc.fill_null(pc.is_in(weights, pa.array([1, -1], weights.type)), False))
    if (others := weights.filter(wrong)).length():
        shown = "NULL" if others[0].as_py() is None else others[0]
        raise ConnectorError(
            f"{target.name}: {TP_DELTA} is {shown} in a result: a change is +1 or -1",
            hint=f"give the column another name than {TP_DELTA}, which says whether a row holds",
        )
    return weights


def _net(rows: pa.Table, weights: pa.ChunkedArray | None, key: Sequence[int]) -> pa.Table:
    """Return the distinct rows whose weights do not cancel out, as the place of their first occurrence, in order.

    Each has its weight (1 without weights), the number of rows that its key holds now (``held``), and its number among
    the key's rows with a weight of that sign (``nth``).
    """
    columns = [f"c{number}" for number in range(rows.num_columns)]
    counted = rows.rename_columns(columns)
    counted = counted.append_column(_WEIGHT, pa.repeat(1, rows.num_rows) if weights is None else weights)
    counted = counted.append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    by_row, by_key = ", ".join(columns), ", ".join(columns[each] for each in key)
    weight = "1" if weights is None else f"sum({_WEIGHT})"
    query = f"""
        WITH net AS (
            SELECT {by_key}, min({_PLACE}) AS {_PLACE}, CAST({weight} AS BIGINT) AS {_WEIGHT}
            FROM counted GROUP BY {by_row} HAVING {weight} <> 0
        )
        SELECT {_PLACE}, {_WEIGHT},
            CAST(sum(greatest({_WEIGHT}, 0)) OVER (PARTITION BY {by_key}) AS BIGINT) AS held,
            row_number() OVER (PARTITION BY {by_key}, sign({_WEIGHT}) ORDER BY {_PLACE}) AS nth
        FROM net ORDER BY {_PLACE}
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("counted", counted)
        return connection.sql(query).to_arrow_table()


def _several_rows(changes: pa.Table, target: StreamDef, first: dict[str, Any]) -> ConnectorError:
    key = target.primary_key
    values = changes.select(key).slice(first[_PLACE], 1).to_pylist()[0]
    shown = ", ".join(f"{name} = {str(value)[:_SHOWN]}" for name, value in values.items())
    return ConnectorError(
        f"{target.name} has the PRIMARY KEY ({', '.join(key)}), and the query emits several rows for one key",
        detail=f"{shown}: {first['held']} rows after one batch",
        hint="choose a PRIMARY KEY that is unique in the results",
    )


def _with_deltas(rows: pa.Table, deltas: Sequence[int]) -> pa.Table:
    if TP_DELTA not in rows.column_names:
        return rows.append_column(TP_DELTA, pa.array(deltas, pa.int8()))
    place = rows.schema.get_field_index(TP_DELTA)
    return rows.set_column(place, rows.schema.field(place), pa.array(deltas, rows.schema.field(place).type))
