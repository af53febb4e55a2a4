"""Control events: the input of a query beside its data.

No worker reads a clock.  End of input, idle inputs and frontiers set by hand are events in the query's control input.
Spark logs its offsets, so a batch that runs again reads the same events.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum

from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.errors import CheckpointError


class EventKind(Enum):
    """The kind of a control event."""

    END = "end"  # no input brings further rows
    IDLE = "idle"  # an input, or parts of it, must not hold the frontier back until it brings rows again
    ADVANCE = "advance"  # rows before ``frontier`` are no longer expected


@dataclass(frozen=True, slots=True)
class Event:
    """One event for some inputs, by alias, and their parts (None: all); ``frontier`` is in units of ``$t``.

    ``observed``, for IDLE, is the parts' ``heard`` counter when they were observed to be idle (None: idle in any case).
    """

    kind: EventKind
    inputs: tuple[str, ...] | None = None
    parts: tuple[str, ...] | None = None
    frontier: int = 0
    observed: int | None = None

    def to_json(self) -> bytes:
        """Encode the event as one line of JSON, with its checksum."""
        return sealed(json.dumps({**asdict(self), "kind": self.kind.value}))

    @classmethod
    def from_json(cls, text: bytes | str) -> Event:
        """Decode what ``to_json`` wrote; earlier versions wrote no checksum.  ``CheckpointError`` if it is damaged."""
        try:
            fields, seal = read_sealed(text if isinstance(text, bytes) else text.encode())
            inputs, parts = (None if fields[name] is None else tuple(fields[name]) for name in ("inputs", "parts"))
            event = cls(**{**fields, "kind": EventKind(fields["kind"]), "inputs": inputs, "parts": parts})
            numbers = [event.frontier, *([] if event.observed is None else [event.observed])]
            if seal is Seal.WRONG or any(type(number) is not int for number in numbers):
                raise DamageError
            return event
        except (DamageError, KeyError, TypeError, ValueError):
            raise CheckpointError(
                "a control event of the checkpoint is damaged",
                hint="restore the file from a copy, or start on a new checkpoint",
            ) from None
