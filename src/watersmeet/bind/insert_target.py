"""The columns that INSERT INTO may name, and whether a query fits them."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, did_you_mean
from watersmeet.sql.statements import InsertHistorical, InsertSelect


def takes_column(stream: StreamDef, name: str) -> bool:
    """Whether INSERT can name the column: a declared one, or ``_tp_delta`` of an embedded changing stream."""
    is_hidden_delta = name.lower() == TP_DELTA and stream.changes and stream.connector == EMBEDDED
    return is_hidden_delta or stream.column(name) is not None


def check_target(stream: StreamDef, given: Sequence[str], statement: InsertSelect | InsertHistorical) -> None:
    """Raise ``BindError`` if the columns of INSERT INTO … SELECT do not fit its target.

    ``given`` are the query's columns. A target that declares no columns accepts any.
    """
    targets = statement.columns or tuple(column.name for column in stream.columns)
    if not targets:
        return
    if len(given) != len(targets):
        raise BindError(
            f"the query returns {len(given)} columns, {stream.name} takes {len(targets)}",
            detail=f"given: {', '.join(given)}\ntaken: {', '.join(targets)}",
            position=statement.position,
        )
    for name in statement.columns:
        if not takes_column(stream, name):
            declared = [column.name for column in stream.columns]
            raise BindError(
                f"{stream.name} has no column {name}", hint=did_you_mean(name, declared), position=statement.position
            )
