"""The manifest: what an operator's bucket knows durably, beside the rows of its segments.

One JSON value per bucket: format version, plan fingerprint, number of steps taken, frontiers of every part of every
input, the operator's own frontier, the newest event times, counters, and the live segments (a few hundred at most, see
compaction).  A batch is real once its manifest is committed; segments that no manifest names do not exist.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.state.segments import Segment
from watersmeet.state.store import Store

FORMAT_VERSION = 3
_READABLE = (1, 2, FORMAT_VERSION)  # 1 had no ``own``, 2 did not note the newest event times
_NAME = "manifest"


@dataclass(slots=True)
class PartFrontier:
    """How far one part of an input has come, and in which step it was last heard.

    An idle part does not hold the operator back.
    """

    frontier: int = NEVER
    idle: bool = False
    heard: int = 0


@dataclass(slots=True)
class Manifest:
    """What one bucket of one operator knows durably, beside its rows."""

    fingerprint: str
    step: int = 0
    next_rid: int = 0
    frontier: int = NEVER
    own: dict[int, int] = field(default_factory=dict)  # of each input; it never goes back
    parts: dict[int, dict[str, PartFrontier]] = field(default_factory=dict)
    # the first bucket's alone: the newest event time of each input (FOREVER: not known), and the batch of the newest
    # entry in the log of hot keys
    newest: dict[int, int] = field(default_factory=dict)
    hot_keys: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)

    @property
    def sealed(self) -> bool:
        """End of input has been declared: no further row is accepted."""
        return self.frontier == FOREVER

    def count(self, name: str, by: int) -> None:
        """Add to a counter."""
        self.counters[name] = self.counters.get(name, 0) + by

    def hear(self, input: int, part: str, frontier: int) -> None:
        """A part of an input has come to ``frontier`` (it never goes back) and is not idle."""
        known = self.parts.setdefault(input, {}).setdefault(part, PartFrontier())
        known.frontier = max(known.frontier, frontier)
        known.idle = False
        known.heard = self.step + 1

    def see(self, input: int, newest: int) -> None:
        """Rows of an input have come, the newest of this event time."""
        self.newest[input] = max(self.newest.get(input, NEVER), newest)

    def input_frontier(self, input: int) -> tuple[bool, int]:
        """Whether all parts of an input are idle, and its frontier.

        That is the minimum over the parts that are not idle.  Where all are, nothing holds back what the furthest of
        them has told, so it is their maximum.
        """
        parts = self.parts.get(input, {}).values()
        live = [part.frontier for part in parts if not part.idle]
        if live:
            return False, min(live)
        return True, max((part.frontier for part in parts), default=NEVER)

    def advance(self, lags: dict[int, int | None], aside: Container[int] = ()) -> None:
        """Move every input's frontier, behind by its lag, and the operator's to their minimum; never back.

        An input without a lag has no frontier before its end.  For the operator inputs ``aside`` do not count, nor do
        idle ones; where all others are idle, the furthest does.
        """
        told = []
        for input, lag in lags.items():
            idle, frontier = self.input_frontier(input)
            if frontier not in (NEVER, FOREVER):
                frontier = NEVER if lag is None else frontier - lag
            self.own[input] = max(self.own.get(input, NEVER), frontier)
            if input not in aside:
                told.append((idle, frontier))
        live = [frontier for idle, frontier in told if not idle]
        self.frontier = max(self.frontier, min(live) if live else max(frontier for _, frontier in told))

    def to_json(self) -> bytes:
        """The manifest as it is stored."""
        fields = {"version": FORMAT_VERSION, **_fields(self)}
        return json.dumps(fields, separators=(",", ":"), default=_fields).encode()


def _fields(record: Manifest | PartFrontier | Segment) -> dict[str, Any]:
    """A record's fields by name; unlike ``asdict`` it copies none of them, which takes a millisecond."""
    return {name: getattr(record, name) for name in record.__slots__}


def read_manifest(
    store: Store, fingerprint: str, expected_parts: dict[int, tuple[str, ...]], first_rid: int = 0
) -> Manifest:
    """The manifest of a bucket, or a new one in which every expected part has not been heard from.

    Rows are numbered from ``first_rid``, so that numbers are unique over all buckets of an operator.

    Raises ``CheckpointError`` where it was written by another version of the format or for another plan.
    """
    stored = store.get(_NAME)
    if stored is None:
        parts = {input: {part: PartFrontier() for part in names} for input, names in expected_parts.items()}
        return Manifest(fingerprint, parts=parts, next_rid=first_rid)
    fields = json.loads(stored)
    version = fields.pop("version")
    if version not in _READABLE:
        formats = ", ".join(str(each) for each in _READABLE)
        raise CheckpointError(
            f"the checkpoint has state format {version}, this version of Watersmeet reads formats {formats}",
            hint="run it with the version that wrote it, or start on a new checkpoint",
        )
    if fields["fingerprint"] != fingerprint:
        raise CheckpointError(
            "the checkpoint belongs to another query plan",
            detail=f"it holds the state of plan {fields['fingerprint']}, this is plan {fingerprint}",
            hint="start the changed query on a new checkpoint",
        )
    fields["own"] = {int(input): frontier for input, frontier in fields.get("own", {}).items()}
    newest = fields.get("newest", dict.fromkeys(expected_parts, FOREVER))
    fields["newest"] = {int(input): time for input, time in newest.items()}
    fields["parts"] = {
        int(input): {name: PartFrontier(**part) for name, part in parts.items()}
        for input, parts in fields["parts"].items()
    }
    for input, names in expected_parts.items():  # a topic may have gained partitions
        for name in names:
            fields["parts"].setdefault(input, {}).setdefault(name, PartFrontier())
    fields["segments"] = [Segment(**segment) for segment in fields["segments"]]
    return Manifest(**fields)


def write_manifest(store: Store, manifest: Manifest) -> None:
    """Put the manifest into the store: with the batch, it makes the step real."""
    store.put(_NAME, manifest.to_json())
