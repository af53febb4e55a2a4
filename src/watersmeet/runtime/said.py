"""What a query said when it last ran: its text, and the streams that it read, beside its checkpoint.

With them the query can be planned again as it was, so that a changed one can be compared with it (``watersmeet
replace``).  Options are left out: no plan needs them, and they may hold secrets.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from watersmeet.catalog.streams import StreamDef


class Said(BaseModel):
    """The content of ``query.json``; ``streams`` by lower-case name, ``targets`` those that it feeds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    text: str
    mode: str
    streams: dict[str, StreamDef]
    targets: tuple[str, ...]


def plain(stream: StreamDef) -> StreamDef:
    """A stream without options and text."""
    return stream.model_copy(update={"options": {}, "definition": ""})
