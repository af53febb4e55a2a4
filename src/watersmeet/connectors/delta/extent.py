"""How many bytes of a Delta table's files a query has not read yet, by the places that Spark keeps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from watersmeet.connectors.delta.changes import Changes, Place
from watersmeet.connectors.delta.listing import Listing
from watersmeet.errors import ConnectorError
from watersmeet.runtime.run_progress import Logged, Measure, Unit
from watersmeet.runtime.run_progress import Place as SparkPlace
from watersmeet.runtime.source_warnings import place_of

#: Each version's file of the log is read: of more versions it is not said how much they hold.
_MOST_VERSIONS = 1000


@dataclass(slots=True)
class TableFiles:
    """The files of a table up to its ``last`` version, listed once, from the first place that is asked for."""

    first: Place
    changes: Changes
    last: int
    _keys: list[tuple[int, int]] = field(default_factory=list)  # version and number of each file
    _ahead: list[int] = field(default_factory=list)  # the bytes from each file on, and 0

    def ahead(self, place: SparkPlace, logged: Logged) -> int:
        """The bytes of the files that are not read at a place; ``ConnectorError`` if they are too many to list."""
        start = self.first if place is None else Place.decoded(place)
        if not self._ahead:
            self._list(start)
        return self._ahead[bisect_left(self._keys, (start.version, start.file))]

    def _list(self, start: Place) -> None:
        if self.last - start.version > _MOST_VERSIONS:
            raise ConnectorError(f"more than {_MOST_VERSIONS} versions lie ahead")
        end = self.changes.latest(start, None, self.last)
        found = [(file.version, file.number, size) for file, size in self.changes.files(start, end)]
        left = sum(size for _, _, size in found)
        for version, number, size in found:
            self._keys.append((version, number))
            self._ahead.append(left)
            left -= size
        self._ahead.append(0)


def table_measure(listing: Listing) -> Measure:
    """Return how to measure what a listing has to list."""
    return Measure(Unit.BYTES, partial(_reads, listing.declared.stream), partial(_listed, listing))


def _reads(stream: str, source: Mapping[str, Any]) -> bool:
    return (place_of(source, "endOffset") or {}).get("stream") == stream


def _listed(listing: Listing) -> TableFiles:
    changes = Changes(listing.log, listing.declared, skips=listing.skips, pairs=listing.pairs)
    return TableFiles(listing.first, changes, listing.log.open().version())
