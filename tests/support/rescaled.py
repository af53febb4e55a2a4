"""Queries whose number of buckets changes with every restart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from watersmeet.catalog.streams import StreamDef
from watersmeet.sql.statements import Query, StatementSet
from watersmeet.testing.harness import Harness

#: More, one, and again more than before; the query begins with two.
NUMBERS = (3, 1, 5, 2)


class RescaledHarness(Harness):
    """A query that is rescaled whenever it would only restart, unless its SETTINGS say how many buckets it has."""

    def __init__(self, streams: Mapping[str, StreamDef], query: Query | StatementSet, *, buckets: int = 2) -> None:
        self._numbers = itertools.cycle(NUMBERS)
        self._has_begun = False
        super().__init__(streams, query, buckets=buckets)
        self._has_begun = True

    def restart(self) -> None:
        if not self._has_begun or self.plan.query.settings.buckets is not None:
            super().restart()
            return
        self._has_begun = False  # rescaling restarts
        self.rescale(next(self._numbers))
        self._has_begun = True
