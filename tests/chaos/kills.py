"""Processes that are killed or stand still, at any time and at each named point of a batch."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.hits import Fault, Hit, until
from tests.chaos.jobs import Places
from tests.chaos.load import PARTITIONS
from tests.chaos.rig import Rig
from tests.support.killing import Moment, Victim, kill, wait_for_a_file

_MOST_SECONDS = 4.0
_LOOK_SECONDS, _SHORT_LOOK_SECONDS = 0.01, 0.002
_IN_A_ROW = 3
_BATCHES = (Moment.BEGUN, Moment.MANIFEST_WRITTEN, Moment.STATE_COMMITTED, Moment.COMMITTED)
RESULTS_WRITTEN = "results written"


def _at(rig: Rig, point: str) -> None:
    if point == RESULTS_WRITTEN:
        wait_for_a_file(lambda: {str(path) for path in rig.out.glob("*/*")}, until(_MOST_SECONDS))
    else:
        Moment(point).wait(rig.workspace, rig.drawn, until(_MOST_SECONDS))


def kill_at(rig: Rig, victim: Victim, point: str) -> Hit | None:
    """Kill one of a kind of processes when a batch has come to a point."""
    _at(rig, point)
    return Hit(f"{victim}, {point}") if kill(victim, rig.driver.pid, rig.drawn) else None


def _kill_again_and_again(rig: Rig) -> Hit | None:
    """Kill the JVM when a batch that is not committed has stored a state, and again at the next such batches.

    What the attempts at one batch store differs (``Load.reorder``).  A start that mixes them shows it, unless a whole
    state has been stored since, as happens every ten batches.
    """
    kills = 0
    met: set[tuple[str, int]] = set()
    for _ in range(_IN_A_ROW):
        rig.feed()
        is_over = until(8 * _MOST_SECONDS)
        while not (now := _stored(rig) - met) and not is_over():
            time.sleep(_SHORT_LOOK_SECONDS)
        if now and _kill_all(Victim.JVM, rig):
            met |= now
            kills += 1
            rig.restart_driver()
    return Hit(f"jvm, {kills} times") if kills else None


def _stored(rig: Rig) -> set[tuple[str, int]]:
    """The states that are stored and not committed, by job and version; version n is that after batch n - 1."""
    found = set()
    for job in rig.jobs:
        spark = rig.checkpoint(job) / "spark"
        version = max((int(path.stem) for path in spark.glob("state/*/*/[0-9]*.changelog")), default=0)
        if version > max((int(path.name) for path in spark.glob("commits/[0-9]*")), default=-1) + 1:
            found.add((job.name, version))
    return found


def _freeze(rig: Rig, victim: Victim) -> Hit | None:
    """Let processes stand still for some seconds, as a machine does that swaps, or a virtual one that is moved."""
    _at(rig, Moment.ANY)
    found = victim.of(rig.driver.pid)
    if not found:
        return None
    for signalled in (signal.SIGSTOP, signal.SIGCONT):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signalled)
        if signalled == signal.SIGSTOP:
            time.sleep(rig.drawn.uniform(0.5, 3))
    return Hit(f"{victim} stands still")


# -- transactions of Kafka ---------------------------------------------------------------------------------------------


class _Ends:
    """How far a topic goes: all of it, and what is committed."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumers = [
            Consumer(
                {"bootstrap.servers": address, "group.id": "ends", "isolation.level": f"read_{level}", "log_level": 0}
            )
            for level in ("uncommitted", "committed")
        ]
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def __call__(self) -> tuple[int, int]:
        written, committed = (
            sum(consumer.get_watermark_offsets(place, 10)[1] for place in self._places) for consumer in self._consumers
        )
        return written, committed

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()


def _kill_in_transaction(rig: Rig, victim: Victim, *, committed: bool) -> Hit | None:
    """Kill while a transaction is open, or when it is committed and Spark has not noted the batch yet."""
    places = Places.read(rig.folder / "places.json")
    ends = _Ends(places.broker, f"{places.topics}-out")
    try:
        before, is_over = ends(), until(8 * _MOST_SECONDS)
        noted = rig.progress()
        while not is_over():
            now = ends()
            is_open = now[0] > now[1]
            if committed and not is_open and now[1] > before[1]:
                killed = _kill_all(victim, rig)
                time.sleep(0.5)
                is_noted = rig.progress() != noted
                return _after(killed, f"{victim}, {'batch noted' if is_noted else 'committed, batch not noted'}")
            if not committed and is_open:
                killed = _kill_all(victim, rig)
                time.sleep(0.5)
                written, read = ends()
                return _after(killed, f"{victim}, transaction {'left open' if written > read else 'over meanwhile'}")
            if not is_open:
                before, noted = now, rig.progress()
            time.sleep(_LOOK_SECONDS)
        return None
    finally:
        ends.close()


def _kill_all(victim: Victim, rig: Rig) -> bool:
    """Kill all of them, that which writes is among them."""
    found = victim.of(rig.driver.pid)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def _after(killed: bool, what: str) -> Hit | None:
    return Hit(what) if killed else None


_MANY = ("disk", "database", "kafka")


def _kills(victim: Victim, points: tuple[str, ...], times: int) -> list[Fault]:
    return [
        Fault(
            f"{victim} killed, {point}",
            _MANY if point == Moment.ANY else ("disk",),
            partial(kill_at, victim=victim, point=point),
            times,
        )
        for point in points
    ]


FAULTS = (
    Fault("jvm killed again and again, a state stored", _MANY, _kill_again_and_again, times=2),
    *_kills(Victim.WORKER, (Moment.ANY, *_BATCHES, RESULTS_WRITTEN), 20),
    *_kills(Victim.DAEMON, (Moment.ANY, Moment.STATE_COMMITTED), 10),
    *_kills(Victim.FORK_SERVER, (Moment.ANY,), 1),
    *_kills(Victim.JVM, (Moment.ANY, *_BATCHES, RESULTS_WRITTEN), 1),
    *_kills(Victim.DRIVER, (Moment.ANY, *_BATCHES, RESULTS_WRITTEN), 1),
    *(
        Fault(f"{victim} stands still", _MANY, partial(_freeze, victim=victim), 6)
        for victim in (Victim.WORKER, Victim.JVM)
    ),
    *(
        Fault(
            f"{victim} killed, {'after' if committed else 'before'} the commit of a Kafka transaction",
            ("kafka",),
            partial(_kill_in_transaction, victim=victim, committed=committed),
            times=11,
        )
        for victim in (Victim.JVM, Victim.WORKER)
        for committed in (False, True)
    ),
)
