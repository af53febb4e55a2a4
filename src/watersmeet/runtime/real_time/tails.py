"""Sources that a task can follow: it takes records as they come, and knows its positions in the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from watersmeet.records.records import Records
    from watersmeet.runtime.worker_records import RecordFormat


class Tail(Protocol):
    """A task's share of a source, from some positions on.

    ``positions`` are where its partitions are now, ``parts`` the names of all its partitions, as ``_part`` has them.
    """

    positions: dict[int, int]
    parts: dict[int, str]

    def poll(self) -> Sequence[Records]:
        """Return the records that have come; waits for some milliseconds."""

    def close(self) -> None:
        """End the connection."""


class LiveTopic(Protocol):
    """A source that can be followed."""

    def tail(self, positions: Mapping[int, int], task: int, tasks: int) -> Tail:
        """Follow one of ``tasks`` shares of its partitions, each from its position, or from its first record."""

    def start(self) -> dict[int, int]:
        """Where a new query begins, for partitions that it does not read from their first record."""


@dataclass(frozen=True, slots=True)
class LiveRecords:
    """A source of records that workers follow."""

    topic: LiveTopic
    format: RecordFormat
