"""The rows of both streams, sent at a steady rate, and what the queries must make of them."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import Producer

from tests.real_time.kill_campaign.job import WINDOW_SECONDS
from tests.support.kafka_broker import Broker

SIDES = ("o", "p")
PARTITIONS = 2
RATE = 40
"""Rows a second, of each side."""
_KEYS = 200
_MOST_DISORDER_MS = 1_500
#: Far behind all windows: rows of no key of the others, which close them.
_END_MS = 3_600_000
_END_KEY = -1


class Load:
    """Sends rows in a thread, from the beginning of the block to its end."""

    def __init__(self, broker: Broker, topics: str) -> None:
        self.rows: dict[str, list[tuple[int, int, int]]] = {side: [] for side in SIDES}
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 5})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def close_windows(self) -> None:
        """Send what lets the frontier pass all windows."""
        at = int(time.time() * 1000) + _END_MS
        for side in SIDES:
            for partition in range(PARTITIONS):
                self._send(side, (-1 - partition, _END_KEY, at), partition)
        assert not self._producer.flush(30), "the broker does not take the rows"

    def pairs_and_padded(self) -> Counter[tuple[int, int | None]]:
        """The left join of all that was sent."""
        return Counter(self._answer("SELECT o.id, p.id FROM o LEFT JOIN p"))

    def counts(self) -> set[tuple[int, int]]:
        """The counts of the inner join."""
        return set(self._answer("SELECT o.k, count(*) FROM o JOIN p", " GROUP BY o.k"))

    def _answer(self, select: str, rest: str = "") -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            for side, rows in self.rows.items():
                columns = zip(*rows, strict=True)
                connection.register(side, pa.table(dict(zip(("id", "k", "ts"), map(list, columns), strict=True))))
            on = f" ON o.k = p.k AND p.ts BETWEEN o.ts - {WINDOW_SECONDS}000 AND o.ts + {WINDOW_SECONDS}000"
            return connection.sql(select + on + rest).fetchall()

    def _run(self) -> None:
        drawn, number = random.Random(1), 0
        while not self._ends.wait(1 / RATE):
            for side in SIDES:
                at = int(time.time() * 1000) - drawn.randrange(_MOST_DISORDER_MS)
                row = (number, drawn.randrange(_KEYS), at)
                self.rows[side].append(row)
                self._send(side, row, number % PARTITIONS)
            number += 1
            self._producer.poll(0)

    def _send(self, side: str, row: tuple[int, int, int], partition: int) -> None:
        value = json.dumps(dict(zip(("id", "k", "ts"), row, strict=True)))
        self._producer.produce(f"{self._topics}-{side}", value, partition=partition)
