"""How many versions of Delta tables a query has left out, as the places say that Spark keeps of its sources."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from watersmeet.runtime.source_warnings import places_of

_log = logging.getLogger(__name__)


class SkippedVersions:
    """Counts the versions that a query has left out since it began, by stream, and warns of new ones."""

    def __init__(self, query: str) -> None:
        self._query = query
        self.counters: dict[str, int] = {}

    def take(self, progress: Mapping[str, Any]) -> None:
        """Take what a report of Spark says of the sources."""
        for place in places_of(progress, "endOffset"):
            skipped, stream = place.get("skipped"), place.get("stream")
            name = f"{stream}.skipped_versions"
            if skipped and stream and self.counters.get(name) != skipped:
                self.counters[name] = int(skipped)
                _log.warning(
                    "%s: versions of the Delta table of %s that remove or change rows were left out (%d so far)",
                    self._query,
                    stream,
                    skipped,
                )
