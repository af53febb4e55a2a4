"""A stream's columns in Spark: as they are declared, as they are stored, and a query's rows cast to them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.columns import STORED_FRONTIER, TP_DELTA
from watersmeet.connectors.deltas import DELTA_FIELD
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.runtime.failures import first_sentence, without_stacks


def spark_schema(stream: StreamDef) -> StructType:
    """Return the declared columns as a Spark schema; this needs a running session."""
    ddl = ", ".join(f"`{column.name}` {column.type}" for column in stream.columns)
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def stored_schema(stream: StreamDef) -> StructType:
    """Return the columns that are written.

    In an embedded changing stream they include ``_tp_delta``, which INSERT can name undeclared.
    """
    columns = spark_schema(stream)
    keeps_delta = stream.changes and stream.connector == EMBEDDED and stream.column(TP_DELTA) is None
    return StructType([*columns.fields, DELTA_FIELD]) if keeps_delta else columns


def to_columns(frame: DataFrame, target: StreamDef, chosen: Sequence[str]) -> DataFrame:
    """Return the rows with the names and types of the target's columns, by position; columns not chosen are NULL.

    A target without declared columns takes the rows unchanged. Columns that the query did not select itself
    (``_tp_delta`` of a changelog, ``_frontier``) stay at the end. In a changing target, ``_tp_delta`` is that of the
    changelog, else the chosen one, else +1. Raises ``UnsupportedError`` where a changelog meets another choice, and
    ``BindError`` for values that cannot have the type of their column.
    """
    if not target.columns or target.derived:
        return frame
    wanted = chosen or [column.name for column in target.columns]
    selected = [name for name in frame.columns if name != STORED_FRONTIER][: len(wanted)]
    extra = [name for name in frame.columns if name not in selected]
    given = {column.lower(): name for column, name in zip(wanted, selected, strict=True)}
    weight = next((name for name in frame.columns if name.lower() == TP_DELTA), None) if target.changes else None
    if weight is not None:
        extra = [name for name in extra if name != weight]
        if given.setdefault(TP_DELTA, weight) != weight:
            raise UnsupportedError(
                f"{target.name}: its column {TP_DELTA} takes that of the query's changelog, and nothing else",
                hint=f"select {TP_DELTA} for it, or leave the column out: INSERT INTO {target.name} (column, …)",
            )
    items = []
    for field in stored_schema(target):
        source = given.get(field.name.lower())
        default = F.lit(1 if field.name == TP_DELTA else None)
        column = default if source is None else F.col(f"`{source}`")
        items.append(column.cast(field.dataType).alias(field.name))
    if weight is not None and TP_DELTA not in stored_schema(target).names:
        items.append(F.col(f"`{weight}`").alias(TP_DELTA))
    try:
        with without_stacks():
            return frame.select(*items, *(F.col(f"`{name}`") for name in extra))
    except AnalysisException as error:
        raise BindError(f"the query does not fit {target.name}: {first_sentence(error)}") from None
