"""The replication slot of a stream in a query: its name, and the note of it in the folder of pieces."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.connectors.postgres.failures import ANEW
from watersmeet.errors import CheckpointError
from watersmeet.runtime.pieces import SLOT_FILE, Pieces


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as it is noted in the folder: its name, the server, the table, the publication, the columns' numbers."""

    name: str
    system: str
    table: int
    publication: str
    columns: Mapping[str, int] = field(default_factory=dict)


def new_name(stream: str) -> str:
    """Return a name for a slot: of lower-case letters, digits and underscores."""
    plain = "".join(each if each.isascii() and each.isalnum() else "_" for each in stream.lower())
    return f"watersmeet_{plain[:40]}_{uuid.uuid4().hex[:10]}"


def read_slot(pieces: Pieces) -> Slot | None:
    """Return the slot that the folder notes; ``CheckpointError`` if the note is damaged."""
    text = pieces.read_text(SLOT_FILE)
    if text is None:
        return None
    try:
        fields, seal = read_sealed(text.encode())
        if seal is Seal.RIGHT:
            return Slot(**fields)
    except (DamageError, TypeError):
        pass
    raise CheckpointError(f"{pieces.folder}/{SLOT_FILE} is damaged", hint=f"restore the file from a copy, or {ANEW}")


def write_slot(pieces: Pieces, slot: Slot) -> None:
    """Note a slot in the folder."""
    fields = {name: getattr(slot, name) for name in Slot.__slots__}
    pieces.write(SLOT_FILE, sealed(json.dumps(fields)))
