"""Fuzzing campaigns: ``make fuzz``, or ``python -m tests.fuzzing sql --first 0 --count 1000000``.

Each seed gives the same statement, records or damage in every run, so a campaign that was broken off goes on where it
was (``--first``), and a fault is seen again by its seed.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.fuzzing import checkpoints, records, sql

Campaign = Callable[[int, int], tuple[Counter[str], list[str]]]
#: What can be tried, with how many seeds between two reports, and how many in all.
CAMPAIGNS: dict[str, tuple[Campaign, int, int]] = {
    "sql": (sql.campaign, 5_000, 1_000_000),
    "records": (records.campaign, 50, 5_000),
    "checkpoints": (checkpoints.campaign, 200, 20_000),
}
#: A hang that no time limit ends shows where it is, and ends the campaign.
_HANG_SECONDS = 1_800


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*CAMPAIGNS, []], help="what to try; by default everything")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="how many seeds")
    options = parser.parse_args()
    gc.set_threshold(50_000, 20, 100)  # trees of SQL are cycles, and die young
    faults = 0
    for name in options.what or CAMPAIGNS:
        campaign, step, count = CAMPAIGNS[name]
        faults += _run(name, campaign, options.first, options.count or count, step)
    return 1 if faults else 0


def _run(name: str, campaign: Campaign, first: int, count: int, step: int) -> int:
    totals: Counter[str] = Counter()
    faults, began = 0, time.monotonic()
    for begin in range(first, first + count, step):
        faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
        counts, found = campaign(begin, min(step, first + count - begin))
        totals += counts
        faults += len(found)
        for fault in found:
            _say(f"FAULT {name}, {fault}\n")
        shown = ", ".join(f"{what} {number:,}" for what, number in sorted(totals.items()))
        done = f"seeds {first:,} to {min(begin + step, first + count) - 1:,} in {time.monotonic() - began:,.0f} s"
        _say(f"{name}: {done}: {shown}; faults {faults}")
    faulthandler.cancel_dump_traceback_later()
    return faults


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
