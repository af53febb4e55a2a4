"""Sends the records of a query, receives its results, and prints what came as JSON.

    python -m benchmarks.latency.load QUERY RATE --broker ADDRESS --topics PREFIX --seconds S --warm-up S --patience S

A few records a second are sent until the first result comes: an engine that starts slowly has no backlog then.  Then
both sides get RATE records a second.  Those of the warm-up do not count, nor do those that only close windows at the
end.  The topics must exist.  The process ends early when its standard input does.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.arguments import count
from benchmarks.figures import nearest_rank
from benchmarks.latency.expected import NONE, Measured, Outcome, Results, Sent, judged
from benchmarks.latency.parent import when_input_ends
from benchmarks.latency.queries import PARTITIONS, QUERIES, Query

_NS = 1_000_000_000
#: Until the first result comes: so many records a second, of so many keys that no other record has.
_FIRST_RATE, _FIRST_KEYS = 10, 10
#: How long the first result may take: an engine starts, and compiles its first steps.
FIRST_SECONDS = 300.0
#: Keys are drawn before anything is timed, and used again after so many records.
_KEYS_DRAWN = 1 << 20
_PAUSE_SECONDS = 0.001
_POLL_SECONDS = 0.1
#: No more results come for now if none has come for so long.
_QUIET_SECONDS = 2.0
_PRODUCER = {"linger.ms": 5, "enable.idempotence": True, "socket.nagle.disable": True}
_CONSUMER = {
    "group.id": "latency",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 1,
    "socket.nagle.disable": True,
}
#: A thread that has received a record waits no longer than this for one that sends.
_SWITCH_SECONDS = 0.0005


class NoResultsError(Exception):
    """No result came in time."""


@dataclass(slots=True)
class Stream:
    """The records of a side that have been sent: their keys, and the moments just before."""

    topic: str
    keys: array[int] = field(default_factory=lambda: array("q"))
    at_ns: array[int] = field(default_factory=lambda: array("q"))

    def sent(self, epoch_ns: int) -> Sent:
        """Return the records as arrays."""
        at_ns = np.array(self.at_ns)
        return Sent(np.array(self.keys), at_ns, (at_ns + epoch_ns) // 1_000_000)


class Sender:
    """Sends records of all sides at a rate; ``epoch_ns`` turns the clock that it measures with into the time of day."""

    def __init__(self, query: Query, rate: int, broker: str, topics: str) -> None:
        self.streams = {side: Stream(f"{topics}-{side}") for side in query.sides}
        self.epoch_ns = time.time_ns() - time.monotonic_ns()
        self._producer = Producer({"bootstrap.servers": broker, **_PRODUCER})
        drawn = np.random.default_rng(rate).integers(0, query.keys(rate) // PARTITIONS, (len(query.sides), _KEYS_DRAWN))
        # partitions take turns, so that at a low rate each has a record soon: it holds back the watermark
        self._keys = (drawn * PARTITIONS + np.arange(_KEYS_DRAWN) % PARTITIONS).tolist()

    def first(self, is_over: Callable[[], bool]) -> None:
        """Send few records."""
        keys = [-_FIRST_KEYS + number for number in range(_FIRST_KEYS)]
        self._send(_FIRST_RATE, [keys] * len(self.streams), is_over)

    def at(self, rate: int, seconds: float) -> tuple[int, int]:
        """Send at the rate for so long, and return the moments when it began and ended."""
        started = time.monotonic_ns()
        ends = started + round(seconds * _NS)
        self._send(rate, self._keys, lambda: time.monotonic_ns() >= ends)
        return started, ends

    def flush(self) -> None:
        """Wait until the broker has all records."""
        if self._producer.flush(30):
            raise NoResultsError("the broker does not take the records")

    def _send(self, rate: int, keys: list[list[int]], is_over: Callable[[], bool]) -> None:
        """Send a record of each side in turn."""
        sides = [(side, stream, keys[place]) for place, (side, stream) in enumerate(self.streams.items())]
        rate *= len(sides)
        started, done = time.monotonic_ns(), 0
        while not is_over():
            due = (time.monotonic_ns() - started) * rate // _NS + 1
            for number in range(done, due):
                side, stream, chosen = sides[number % len(sides)]
                self._produce(side, stream, chosen[len(stream.keys) % len(chosen)])
            done = due
            self._producer.poll(0)
            next_ns = started + done * _NS // rate
            time.sleep(max((next_ns - time.monotonic_ns()) / _NS, _PAUSE_SECONDS))

    def _produce(self, side: str, stream: Stream, key: int) -> None:
        id, at_ns = len(stream.keys), time.monotonic_ns()
        stream.keys.append(key)
        stream.at_ns.append(at_ns)
        columns = (side, id, side, key, side, (at_ns + self.epoch_ns) // 1_000_000)
        record = '{"%s_id":%d,"%s_key":%d,"%s_ts":%d}' % columns  # noqa: UP031 - twice as fast
        while True:
            try:
                self._producer.produce(stream.topic, record, str(key), key % PARTITIONS)
                return
            except BufferError:  # the broker is slower; the record waits, and so does its time
                self._producer.poll(_PAUSE_SECONDS)


class Receiver:
    """Receives results in a thread, and keeps the moment of each."""

    def __init__(self, broker: str, topics: str) -> None:
        self.at_ns = array("q")
        self.has_results = threading.Event()
        self._records: list[bytes] = []
        self._ends = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": broker, **_CONSUMER})
        self._consumer.assign([TopicPartition(f"{topics}-o", partition, 0) for partition in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def results(self, columns: tuple[str, ...]) -> Results:
        """Return all results that have come."""
        total = len(self.at_ns)  # each record is there before its moment
        schema = pa.schema([(name, pa.int64()) for name in columns])
        options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        lines = pa.py_buffer(b"\n".join(self._records[:total]))
        found = pa.json.read_json(pa.BufferReader(lines), parse_options=options)
        missing = pa.repeat(pa.scalar(NONE, pa.int64()), total)
        by_name = {
            name: found[name].fill_null(NONE) if name in columns else missing for name in ("l_id", "r_id", "l_key", "n")
        }
        return Results(np.array(self.at_ns[:total]), *(each.to_numpy() for each in by_name.values()))

    def close(self) -> None:
        """Stop receiving."""
        self._ends.set()
        self._thread.join()
        self._consumer.close()

    def _receive(self) -> None:
        while not self._ends.is_set():
            record = self._consumer.poll(_POLL_SECONDS)
            if record is None or record.error() is not None:
                continue
            at_ns = time.monotonic_ns()
            self._records.append(record.value() or record.key() or b"{}")  # a delete has a key alone
            self.at_ns.append(at_ns)
            self.has_results.set()


def measure(
    query: Query, rate: int, broker: str, topics: str, *, seconds: float, warm_up: float, patience: float
) -> dict[str, Any]:
    """Send, receive, and return the figures; raises ``NoResultsError`` if no result comes in time."""
    receiver = Receiver(broker, topics)
    sender = Sender(query, rate, broker, topics)
    gc.disable()  # millions of records are kept, and none is in a cycle
    gives_up = time.monotonic() + FIRST_SECONDS
    sender.first(lambda: receiver.has_results.is_set() or time.monotonic() > gives_up)
    if not receiver.has_results.is_set():
        raise NoResultsError(f"no result came within {FIRST_SECONDS:g} s")
    sender.at(rate, warm_up)
    measured = Measured(*sender.at(rate, seconds))
    sender.at(rate, query.tail_ms / 1000)
    sender.flush()
    outcome = _awaited(query, sender, receiver, measured, patience)
    receiver.close()
    sent = sum(int(measured.covers(np.array(stream.at_ns)).sum()) for stream in sender.streams.values())
    return {"sent": sent, **figures(outcome)}


def figures(outcome: Outcome) -> dict[str, Any]:
    """Return the counts of an outcome, and the latencies' figures in milliseconds if the results are right."""
    counts = {name: getattr(outcome, name) for name in ("expected", "received", "missing", "unexpected", "repeated")}
    if not outcome.is_right:
        return {**counts, "latency_ms": {}}
    latency = {name: _statistics(found) for name, found in outcome.latencies.items() if len(found)}
    return {**counts, "latency_ms": latency}


def _statistics(millis: np.ndarray) -> dict[str, float]:
    ascending = np.sort(millis).tolist()
    ranks = {f"p{percent}": nearest_rank(ascending, percent) for percent in (50, 95, 99)}
    found = {"mean": millis.mean(), **ranks, "max": ascending[-1]}
    return {name: round(float(value), 2) for name, value in found.items()}


def _awaited(query: Query, sender: Sender, receiver: Receiver, measured: Measured, patience: float) -> Outcome:
    """Check the results whenever no more come, until none is missing, at most for ``patience`` seconds."""
    sent = {side: stream.sent(sender.epoch_ns) for side, stream in sender.streams.items()}
    gives_up = time.monotonic() + patience
    while True:
        before = len(receiver.at_ns)
        time.sleep(_QUIET_SECONDS)
        is_late = time.monotonic() > gives_up
        if len(receiver.at_ns) == before or is_late:
            outcome = judged(query, sent, receiver.results(query.columns), measured)
            if outcome.missing == 0 or is_late:
                return outcome


def main() -> None:
    """Measure what the arguments name."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("query", choices=list(QUERIES))
    arguments.add_argument("rate", type=count)
    arguments.add_argument("--broker", required=True)
    arguments.add_argument("--topics", required=True)
    for name in ("--seconds", "--warm-up", "--patience"):
        arguments.add_argument(name, type=float, required=True)
    options = arguments.parse_args()
    when_input_ends(lambda: os._exit(1))
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        found = measure(
            QUERIES[options.query],
            options.rate,
            options.broker,
            options.topics,
            seconds=options.seconds,
            warm_up=options.warm_up,
            patience=options.patience,
        )
    except NoResultsError as error:
        raise SystemExit(str(error)) from None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
