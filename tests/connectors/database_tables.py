"""Tables of databases that tests write to: their definitions, and batches of rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.connectors.jdbc.sink import JdbcSink
from watersmeet.lookup.tables import table_schema

ORDERS = "id BIGINT, status STRING, price DOUBLE"
LATER = "\nhint: fix the cause and run the query again: it writes the batch anew"


def table_of(columns: str = ORDERS, key: str = "id", connector: str = "jdbc", **options: str) -> StreamDef:
    """Columns such as ``id INT, a DECIMAL(3:1)``, with a colon in place of a comma within a type."""
    given = [column.strip().rpartition(" ") for column in columns.split(",")]
    return StreamDef(
        name="results",
        columns=tuple(StreamColumn(name=name, type=kind.replace(":", ",")) for name, _, kind in given),
        connector=connector,
        options={"table": "orders", **options},
        mode=StreamMode.VERSIONED,
        primary_key=tuple(name.strip() for name in key.split(",")),
    )


def batch(target: StreamDef, *rows: tuple[Any, ...]) -> pa.Table:
    """Rows with their delta last."""
    names = [column.name for column in target.columns]
    schema = table_schema(target, names).append(pa.field("_tp_delta", pa.int8()))
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def write(sink: JdbcSink, *rows: tuple[Any, ...]) -> None:
    """The batch, and once more, as after a failure: that changes nothing."""
    for _ in range(2):
        sink.write(batch(sink.stream, *rows), 7)
