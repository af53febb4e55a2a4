"""The tally of a campaign, and the table that is made of it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from tests.chaos.driver import Ending


class Outcome(StrEnum):
    """What followed a fault."""

    WENT_ON = "went on"
    STARTED_AGAIN = "started again"
    REFUSED = "refused in words"
    UNCLEAR = "ended without clear words"
    WRONG = "wrong"

    @property
    def is_fault(self) -> bool:
        """Whether that must not be."""
        return self in (Outcome.UNCLEAR, Outcome.WRONG)


_SHOWN = [outcome for outcome in Outcome if not outcome.is_fault]


class Tally:
    """How often each fault had which outcome, what queries said, and what must not be."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.said: dict[str, Counter[str]] = defaultdict(Counter)
        self.faults: list[str] = []

    def add(self, fault: str, outcome: Outcome, endings: Iterable[Ending]) -> None:
        """Count a fault."""
        self.counts[fault][outcome] += 1
        for ending in endings:
            self.said[fault][f"{ending['kind']}: {re.sub(r'[0-9]+', 'N', ending['text'])}"] += 1

    @property
    def total(self) -> int:
        """How many faults there were."""
        return sum(counts.total() for counts in self.counts.values())

    def write(self, folder: Path) -> None:
        """Keep it in a folder."""
        (folder / "tally.json").write_text(
            json.dumps({"counts": self.counts, "said": self.said, "faults": self.faults}, indent=1, sort_keys=True)
        )

    def take(self, path: Path) -> None:
        """Add what another campaign has kept."""
        found = json.loads(path.read_text())
        for name, into in (("counts", self.counts), ("said", self.said)):
            for fault, counts in found[name].items():
                into[fault].update(counts)
        self.faults += found["faults"]

    def table(self) -> str:
        """The table, in Markdown."""
        lines = [
            f"| fault | times | {' | '.join(_SHOWN)} | faults of the product |",
            "|---|" + "---:|" * (len(_SHOWN) + 2),
        ]
        for fault, counts in sorted(self.counts.items()):
            wrong = sum(counts[each] for each in Outcome if each.is_fault)
            cells = [str(counts.total()), *(str(counts[each] or "") for each in _SHOWN), str(wrong or "")]
            lines.append(f"| {fault} | {' | '.join(cells)} |")
        return "\n".join(lines)
