"""A campaign: faults of one sort after another, in rounds, after each of which all results are compared."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.chaos.driver import Ending, LostDriverError
from tests.chaos.hits import Fault, Hit
from tests.chaos.rig import Rig, say, wait_until
from tests.chaos.table import Outcome, Tally

_CHECK_SECONDS, _SETTLE_SECONDS, _QUIET_SECONDS = 240.0, 90.0, 1.0
_LOOK_SECONDS = 0.2
#: After so many files a rig is made anew: its results, which are compared as a whole, have become many.
FILES = 260
#: What a sentence for people does not have: stacks, names of Java, and errors of this project's own making.
_UNCLEAR = re.compile(
    r"Traceback|py4j|Py4J|\bat (?:java|org|scala)\.|An error occurred while calling|no reason was given|AssertionError"
    r"|NullPointer|ClassCast|KeyError|AttributeError|TypeError|IndexError|assertion failed"
    r"|\borg\.apache\.|\bjava\.\w+\."
)


def complaint(ending: Ending, says: str = "") -> str:
    """What is wrong with how a query has ended: nothing, if it says in words what to do, and what it must ``say``."""
    if not ending["is_ours"]:
        return f"not one of our errors: {ending['kind']}: {ending['text'][:400]}"
    if not ending["hint"]:
        return f"it does not say what to do: {ending['kind']}: {ending['text'][:400]}"
    if _UNCLEAR.search(ending["text"]):
        return f"not in words: {ending['kind']}: {ending['text'][:400]}"
    if not re.search(says, f"{ending['kind']}: {ending['text']}"):
        return f"not {says!r}, but {ending['kind']}: {ending['text'][:400]}"
    return ""


class Campaign:
    """Lets faults befall a rig, and keeps the tally."""

    def __init__(self, rig: Rig, tally: Tally, seed: int) -> None:
        self._rig, self._tally, self._seed = rig, tally, seed
        self._hits: list[tuple[Fault, Hit, Outcome]] = []
        rig.load.feed(2)
        assert wait_until(lambda: min(rig.progress().values()) >= 0, _CHECK_SECONDS), "the jobs do not begin"

    def round(self, fault: Fault) -> bool:
        """Let a fault happen some times, and compare the results; False if the rig cannot be used any more."""
        began = time.monotonic()
        self.once(fault, fault.times)
        wrong = self.check()
        shown = "; ".join(f"{hit.what}: {outcome}" for _, hit, outcome in self._hits)
        say(f"{self._rig.kind} seed {self._seed}, {fault.name}, {time.monotonic() - began:.0f} s: {shown}")
        self._hits = []
        return not wrong

    def once(self, fault: Fault, times: int = 1) -> None:
        """Let a fault happen some times."""
        try:
            for _ in range(times):
                self._hits += [(fault, hit, outcome) for hit, outcome in self._once(fault)]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the campaign looks for
            said = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
            self._hits.append((fault, Hit(said), Outcome.WRONG))
            self._complain(fault.name, said)

    def check(self) -> str:
        """Compare all results, and count the faults since the last time; what is wrong comes back."""
        try:
            wrong = self._wrong()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the campaign looks for
            wrong = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
        for fault, hit, outcome in self._hits:
            self._tally.add(fault.name, Outcome.WRONG if wrong else outcome, hit.endings)
        if wrong:
            self._complain(", ".join(dict.fromkeys(fault.name for fault, _, _ in self._hits)), wrong)
        return wrong

    def _complain(self, what: str, said: str) -> None:
        self._tally.faults.append(f"{self._rig.kind} seed {self._seed}, {what}: {said}")
        say(f"FAULT {self._tally.faults[-1]}")

    def _once(self, fault: Fault) -> list[tuple[Hit, Outcome]]:
        rig = self._rig
        rig.feed()
        before, restarts = rig.progress(), rig.restarts
        try:
            hit = fault.inject(rig)
        except LostDriverError:
            hit = Hit("the driver has ended")
        endings = self._settle(before)
        if hit is None:
            return []
        hit.endings += endings
        for ending in hit.endings:
            say(f"  {fault.name}: {ending['kind']}: {ending['text'][:500]!r}")
            if said := complaint(ending, fault.says):
                self._complain(f"{fault.name}, {hit.what}", said)
                return [(hit, Outcome.UNCLEAR)]
        if hit.endings and not fault.refuses:
            self._complain(fault.name, "it must go on by itself, but has ended")
            return [(hit, Outcome.UNCLEAR)]
        if rig.restarts > restarts:
            return [(hit, Outcome.STARTED_AGAIN)]
        return [(hit, Outcome.REFUSED if hit.endings else Outcome.WENT_ON)]

    def _settle(self, before: dict[str, int]) -> list[Ending]:
        """Start what has ended, until all jobs have come further, or had time for it; the ends come back."""
        rig, endings = self._rig, list[Ending]()
        deadline, quiet = time.monotonic() + _SETTLE_SECONDS, time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < deadline:
            try:
                ended = {name: ending for name, ending in rig.driver.status().items() if ending is not None}
                endings += ended.values()
                if any("JVM has ended" in ending["text"] for ending in ended.values()):
                    raise LostDriverError
                for name in ended:
                    rig.driver.stop(name)
                    rig.restore(name)
                    endings += rig.start(name)
            except LostDriverError:
                rig.restart_driver()
                continue
            if ended:
                quiet = time.monotonic() + _QUIET_SECONDS
                continue
            now = rig.progress()
            if any(now[name] != before[name] for name in now) or time.monotonic() > quiet:
                return endings
            time.sleep(_LOOK_SECONDS)
        return endings

    def _wrong(self) -> str:
        """What is wrong with the results once everything has been read; empty if nothing is."""
        rig = self._rig
        rig.load.feed()
        rig.load.close_windows()
        due = rig.due()
        deadline, found = time.monotonic() + _CHECK_SECONDS, rig.differences(due)
        while found and time.monotonic() < deadline:
            time.sleep(2 * _LOOK_SECONDS)
            for ending in self._settle(rig.progress()) if _is_ended(rig) else []:
                say(f"  later: {ending['kind']}: {ending['text'][:500]!r}")
                if said := complaint(ending):
                    return f"later: {said}"
            found = rig.differences(due)
        return "; ".join(f"{name}: {difference}" for name, difference in found.items())


def _is_ended(rig: Rig) -> bool:
    try:
        return any(ending is not None for ending in rig.driver.status().values())
    except LostDriverError:
        return True


def run(kind: str, faults: Sequence[Fault], seed: int, folder: Path, tally: Tally, is_over: Callable[[], bool]) -> None:
    """Let each fault have a round on a rig of a kind, in an order that the seed gives, on new rigs where needed."""
    left = list(faults)
    number = 0
    while left and not is_over():
        where = folder / f"{kind}-{seed}-{number}"
        number += 1
        with Rig(kind, where, 101 * seed + number) as rig:
            if number == 1:
                rig.drawn.shuffle(left)
            campaign = Campaign(rig, tally, seed)
            while left and not is_over() and rig.load.files < FILES:
                is_sound = campaign.round(left.pop())
                tally.write(folder)
                if not is_sound:
                    rig.keep()
                    break
