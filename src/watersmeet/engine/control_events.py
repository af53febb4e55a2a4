"""Control events: the input of a query beside its data.

No worker reads a clock.  End of input, idle inputs and frontiers set by hand are events in the query's control input.
Spark logs its offsets, so a batch that runs again reads the same events.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum


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
        """Encode the event as one line of JSON."""
        return json.dumps({**asdict(self), "kind": self.kind.value}).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> Event:
        """Decode what ``to_json`` wrote."""
        fields = json.loads(text)
        inputs, parts = (None if fields[name] is None else tuple(fields[name]) for name in ("inputs", "parts"))
        return cls(EventKind(fields["kind"]), inputs, parts, fields["frontier"], fields["observed"])
