"""What sources of Spark warn of: they plan batches in other processes, and say it beside the newest offset."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

_log = logging.getLogger(__name__)
#: The member of the newest offset that a source reports: warnings, one a line.
WARNINGS = "warnings"


class SourceWarnings:
    """Logs the warnings of a query's sources, each once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logged: set[str] = set()

    def take(self, progress: Mapping[str, Any]) -> None:
        """Take those of a batch, or of a trigger that found nothing."""
        for text in warnings_of(progress):
            if text not in self._logged:
                self._logged.add(text)
                _log.warning("%s: %s", self._name, text)


def warnings_of(progress: Mapping[str, Any]) -> Iterator[str]:
    """Yield the warnings in Spark's progress of a query."""
    for newest in places_of(progress, "latestOffset"):
        if isinstance(newest.get(WARNINGS), str):
            yield from newest[WARNINGS].splitlines()


def places_of(progress: Mapping[str, Any], member: str) -> Iterator[Mapping[str, Any]]:
    """Yield where sources stand (``endOffset``), or could (``latestOffset``), of those whose places have names."""
    for source in progress.get("sources", ()):
        if (place := place_of(source, member)) is not None:
            yield place


def place_of(source: Mapping[str, Any], member: str) -> Mapping[str, Any] | None:
    """Return a place of a source, which Spark may give as text; None if there is none, or one without names."""
    place = source.get(member)
    if isinstance(place, str):
        try:
            place = json.loads(place)
        except ValueError:
            return None
    return place if isinstance(place, Mapping) else None
