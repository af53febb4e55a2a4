"""The streams for late and evicted rows, which SETTINGS ``late_rows`` and ``evicted_rows`` name."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.bind.define import check_name
from watersmeet.catalog.streams import EMBEDDED, StreamColumn, StreamDef
from watersmeet.errors import ConfigError, Position
from watersmeet.settings.query_settings import QuerySettings

SIDE_COLUMNS = tuple(StreamColumn(name=name, type="STRING") for name in ("source", "reason", "raw"))


def check_side_streams(
    settings: QuerySettings, streams: Mapping[str, StreamDef], positions: Mapping[str, Position]
) -> None:
    """Raise ``BindError`` for a name that no stream can have, ``ConfigError`` for a stream that cannot store such rows.

    ``streams`` are those that exist, by name in lower case, and ``positions`` those of the settings.
    """
    for setting, name in {"late_rows": settings.late_rows, "evicted_rows": settings.evicted_rows}.items():
        if name == "drop":
            continue
        check_name(name, positions.get(setting))
        if (stream := streams.get(name.lower())) is not None:
            check_side_stream(stream, setting, positions.get(setting))


def check_side_stream(stream: StreamDef, setting: str, position: Position | None = None) -> None:
    """Raise ``ConfigError`` if a stream cannot store such rows: it has other columns or another connector."""
    if stream.connector != EMBEDDED or stream.derived or stream.columns != SIDE_COLUMNS:
        raise ConfigError(
            f"{setting} = '{stream.name}': that stream cannot store such rows",
            hint="name an embedded stream (source STRING, reason STRING, raw STRING), or a new one",
            position=position,
        )
