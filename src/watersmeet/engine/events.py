"""Control events: what enters a query beside its data.

No worker reads a clock.  End of input, idle inputs and frontiers set by hand are events in the query's control input,
whose offsets Spark logs, so that a batch that is run again sees the same ones.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum


class EventKind(Enum):
    """What a control event says."""

    END = "end"  # no input brings any further row
    IDLE = "idle"  # an input (or some of its parts) is silent and must not hold time back until it speaks again
    ADVANCE = "advance"  # rows before a time are no longer expected


@dataclass(frozen=True, slots=True)
class Event:
    """One event; ``inputs`` are aliases and ``parts`` parts of them (None: all), ``frontier`` lies on the axis.

    ``observed`` goes with IDLE: the parts' ``heard`` counter when the silence was seen (None: idle in any case).
    """

    kind: EventKind
    inputs: tuple[str, ...] | None = None
    parts: tuple[str, ...] | None = None
    frontier: int = 0
    observed: int | None = None

    def to_json(self) -> bytes:
        """The event as one line of JSON."""
        return json.dumps({**asdict(self), "kind": self.kind.value}).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> Event:
        """The event that ``to_json`` wrote."""
        fields = json.loads(text)
        inputs, parts = (None if fields[name] is None else tuple(fields[name]) for name in ("inputs", "parts"))
        return cls(EventKind(fields["kind"]), inputs, parts, fields["frontier"], fields["observed"])
