"""The manifest: the durable state of an operator's bucket, beside the rows of its segments.

One JSON value per bucket: format version, plan fingerprint, number of steps taken, frontiers of every part of every
input, the operator's own frontier, the newest event times, counters, what the kernel has learned of its inputs, and the
live segments (a few hundred at most, see compaction_plan.py).  A batch counts once its manifest is committed; segments
that no manifest names do not exist.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.errors import CheckpointError
from watersmeet.kernels.api import FOREVER, NEVER, shift
from watersmeet.state.segments import Segment
from watersmeet.state.store import Store

FORMAT_VERSION = 7
#: 1 lacks ``own``, 2 lacks ``newest``, 3 lacks ``statistics``, all before 5 lack a checksum, all before 6 ``alike``,
#: and all before 7 ``orders`` and ``tie``.
_READABLE = (1, 2, 3, 4, 5, 6, FORMAT_VERSION)
_FIRST_SEALED = 5
#: The name of a bucket's manifest in its store.
MANIFEST = "manifest"
#: The part that stands for all buckets of an earlier operator, while their frontiers are the same.
EVERY = "*"


@dataclass(slots=True)
class PartFrontier:
    """The frontier of one part of an input, and the step in which the part last reported (``heard``).

    An idle part does not hold the operator back.  ``tie`` is the last ``$tie`` of its rows at the frontier, in
    hexadecimal digits, which are in the same order.
    """

    frontier: int = NEVER
    idle: bool = False
    heard: int = 0
    tie: str = ""


@dataclass(slots=True)
class Manifest:
    """The durable state of one bucket of one operator, beside its rows."""

    fingerprint: str
    step: int = 0
    next_rid: int = 0
    frontier: int = NEVER
    # all buckets of the operator have the same frontier: so it is as long as all take the same marks in every step
    alike: bool = True
    own: dict[int, int] = field(default_factory=dict)  # the frontier of each input, which never decreases
    orders: dict[int, str] = field(default_factory=dict)  # by what the ties of each input are ordered
    parts: dict[int, dict[str, PartFrontier]] = field(default_factory=dict)
    # in the first bucket only: the newest event time of each input (FOREVER: unknown), and the batch of the newest
    # entry in the log of hot keys
    newest: dict[int, int] = field(default_factory=dict)
    hot_keys: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict)  # see StepResult
    segments: list[Segment] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """What the rows of all segments take."""
        return sum(segment.nbytes for segment in self.segments)

    @property
    def sealed(self) -> bool:
        """Whether the end of input has been declared: then every further row is late."""
        return self.frontier == FOREVER

    def count(self, name: str, by: int) -> None:
        """Add to a counter."""
        self.counters[name] = self.counters.get(name, 0) + by

    def report_frontier(self, input: int, part: str, frontier: int, tie: str = "") -> None:
        """Raise the frontier of a part of an input (it never decreases); the part is no longer idle."""
        known = self.parts.setdefault(input, {}).setdefault(part, PartFrontier())
        known.frontier, known.tie = max((known.frontier, known.tie), (frontier, tie))
        known.idle = False
        known.heard = self.step + 1

    def divide(self, input: int, names: Iterable[str]) -> None:
        """Let each bucket of an earlier operator be a part of its own."""
        known = self.parts[input][EVERY]
        self.parts[input] = {name: replace(known) for name in names}

    def report_newest(self, input: int, newest: int) -> None:
        """Raise the newest event time of an input."""
        self.newest[input] = max(self.newest.get(input, NEVER), newest)

    def input_frontier(self, input: int) -> tuple[bool, int]:
        """Return whether all parts of an input are idle, and its frontier.

        The frontier is the minimum over the parts that are not idle.  If all are idle, no part holds back the furthest
        one, and it is their maximum.
        """
        parts = self.parts.get(input, {}).values()
        live = [part.frontier for part in parts if not part.idle]
        if live:
            return False, min(live)
        return True, max((part.frontier for part in parts), default=NEVER)

    def take_order(self, input: int, order: str) -> None:
        """Note the declared order of an input; ties of another one are forgotten."""
        if self.orders.get(input, "") == order:
            return
        self.orders[input] = order
        for part in self.parts.get(input, {}).values():
            part.tie = ""

    def tie(self, input: int, frontier: int) -> bytes:
        """Return the least of the ties that the parts of an input have at its frontier; empty if it is another one."""
        parts = self.parts.get(input, {}).values()
        if self.input_frontier(input)[1] != frontier:
            return b""
        return bytes.fromhex(min((part.tie for part in parts if part.frontier == frontier), default=""))

    def advance(
        self, lags: Mapping[int, int | None], excluded: Container[int] = (), waits: Mapping[int, int] | None = None
    ) -> None:
        """Advance each input's frontier to that of its parts minus its lag, and the operator's to their minimum.

        With ``waits``, for all inputs, the operator's stays behind that of each by so much.  Frontiers never decrease.
        An input whose lag is None has no frontier before its end.  Inputs in ``excluded`` and idle inputs do not hold
        the operator back; if all others are idle, the furthest of them counts.
        """
        reported: dict[int, tuple[bool, int]] = {}
        for input, lag in lags.items():
            idle, frontier = self.input_frontier(input)
            if frontier not in (NEVER, FOREVER):
                frontier = NEVER if lag is None else frontier - lag
            self.own[input] = max(self.own.get(input, NEVER), frontier)
            if input not in excluded:
                reported[input] = idle, frontier
        live = [frontier for idle, frontier in reported.values() if not idle]
        shared = min(live) if live else max(frontier for _, frontier in reported.values())
        if waits:  # what waits for an idle input goes on as if it were as far as the others
            self.own |= {input: max(self.own[input], shared) for input, (idle, _) in reported.items() if idle}
            shared = min(shift(self.own[input], -wait) for input, wait in waits.items())
        self.frontier = max(self.frontier, shared)

    def to_json(self) -> bytes:
        """Encode the manifest for the store, with its checksum."""
        fields = {"version": FORMAT_VERSION, **_fields(self)}
        return sealed(json.dumps(fields, separators=(",", ":"), default=_fields))


def _fields(record: Manifest | PartFrontier | Segment) -> dict[str, Any]:
    """Return a record's fields by name; ``asdict`` would copy them all, which takes a millisecond."""
    return {name: getattr(record, name) for name in record.__slots__}


def read_manifest(
    store: Store, fingerprint: str, expected_parts: dict[int, tuple[str, ...]], first_rid: int = 0
) -> Manifest:
    """Return the manifest of a bucket, or a new one in which no expected part has reported yet.

    A new bucket numbers its rows from ``first_rid`` on.

    Raises ``CheckpointError`` if the manifest is damaged, has an unknown format or belongs to another plan.
    """
    stored = store.get(MANIFEST)
    if stored is None:
        parts = {input: {part: PartFrontier() for part in names} for input, names in expected_parts.items()}
        return Manifest(fingerprint, parts=parts, next_rid=first_rid)
    found = decode_manifest(stored, expected_parts)
    if found.fingerprint != fingerprint:
        raise CheckpointError(
            "the checkpoint belongs to another query plan",
            detail=f"it holds the state of plan {found.fingerprint}, this is plan {fingerprint}",
            hint="start the changed query on a new checkpoint",
        )
    for input, names in expected_parts.items():
        known = found.parts.setdefault(input, {})
        if names != (EVERY,):  # a topic may have gained partitions
            for name in names:
                known.setdefault(name, PartFrontier())
    return found


def decode_manifest(stored: bytes, inputs: Iterable[int]) -> Manifest:
    """Decode a manifest; old formats do not say what ``inputs`` there are.

    Raises ``CheckpointError`` if it is damaged or has an unknown format.
    """
    try:
        fields, seal = read_sealed(stored)
        version = fields.pop("version")
    except (DamageError, KeyError):
        raise _damaged() from None
    if version not in _READABLE:
        formats = ", ".join(str(each) for each in _READABLE)
        raise CheckpointError(
            f"the checkpoint has state format {version}; this version of Watersmeet reads formats {formats}",
            hint="run it with the version that wrote it, or start on a new checkpoint",
        )
    if seal is not (Seal.RIGHT if version >= _FIRST_SEALED else Seal.ABSENT):
        raise _damaged()
    try:
        return _decoded(fields, inputs)
    except (KeyError, TypeError, ValueError, AttributeError):  # of a format without a checksum
        raise _damaged() from None


def _damaged() -> CheckpointError:
    return CheckpointError(
        "the state is damaged: the manifest of a bucket is not what was written",
        hint="restore the checkpoint from a copy, or start on a new one (its state begins empty)",
    )


def _decoded(fields: dict[str, Any], inputs: Iterable[int]) -> Manifest:
    fields.setdefault("alike", False)
    fields["orders"] = {int(input): order for input, order in fields.get("orders", {}).items()}
    fields["own"] = {int(input): frontier for input, frontier in fields.get("own", {}).items()}
    newest = fields.get("newest", dict.fromkeys(inputs, FOREVER))
    fields["newest"] = {int(input): time for input, time in newest.items()}
    fields["parts"] = {
        int(input): {name: PartFrontier(**part) for name, part in parts.items()}
        for input, parts in fields["parts"].items()
    }
    fields["segments"] = [Segment(**segment) for segment in fields["segments"]]
    return Manifest(**fields)


def write_manifest(store: Store, manifest: Manifest) -> None:
    """Write the manifest to the store: once the batch commits, the step counts."""
    store.put(MANIFEST, manifest.to_json())
