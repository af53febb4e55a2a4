"""What a packing task reports to the first bucket of an operator, as JSON in the payload of a mark."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields

from watersmeet.kernels.api import NEVER


@dataclass(slots=True)
class PackReport:
    """What one task found in its rows, beside their frontiers.

    ``hot_keys`` is the batch of the hot-key log's entry that the task packed by.  ``rows`` is the number of rows that
    may be spread.  ``frequent`` maps the hash of each key that may be hot to its approximate number of rows.
    """

    counters: Counter[str] = field(default_factory=Counter)
    newest: int = NEVER  # event time
    hot_keys: int | None = None
    rows: int = 0
    frequent: dict[int, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Encode the report as the payload of a mark."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)}).encode()

    @classmethod
    def from_json(cls, payload: bytes) -> PackReport:
        """Decode what ``to_json`` wrote."""
        report = cls(**json.loads(payload))
        report.counters = Counter(report.counters)
        report.frequent = {int(key): rows for key, rows in report.frequent.items()}
        return report
