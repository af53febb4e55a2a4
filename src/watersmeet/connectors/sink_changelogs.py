"""The ways in which sinks take a changelog, and what each requires of a stream's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from pydantic import TypeAdapter

from watersmeet.catalog.streams import EMBEDDED, StreamDef


class Changelogs(Enum):
    """A way in which a sink takes retractions. The value follows the connector's name in messages."""

    BY_KEY = " with a PRIMARY KEY"
    """As upserts and deletes of the key's row."""
    IF_ASKED = " WITH (changelog = 'true')"
    """Appended, each row with its ``_tp_delta``."""
    ALWAYS = ""

    def fits(self, stream: StreamDef) -> bool:
        """Return whether a stream of a connector that offers this way is defined for it."""
        match self:
            case Changelogs.BY_KEY:
                return stream.changes
            case Changelogs.IF_ASKED:
                return TypeAdapter(bool).validate_python(stream.options.get("changelog", "false"))
            case Changelogs.ALWAYS:
                return True


def sinks_of_changelogs(connectors: Mapping[str, Iterable[Changelogs]]) -> str:
    """Return the sinks that take a changelog, by way, as a hint names them."""
    taking = []
    for way in Changelogs:
        names = ["embedded streams" if name == EMBEDDED else name for name, ways in connectors.items() if way in ways]
        taking.append(f"{', '.join(names)}{way.value}")
    return "; ".join(taking)
