"""The input of a campaign: rows by seed, written as files or records, and kept for the answer."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.support.jobs import write_lines

Row = tuple[int, int | None, int]
NAMES = ("id", "v", "ts")
ROWS = 24
"""Of each stream in a file."""
KEYS, HOT_KEY = 16, 3
PARTITIONS = 2
#: Seconds of event time from one file to the next, and from the rows of one round to those of the next.
_FILE, _GAP = 2 * ROWS, 1_000
#: The streams whose rows close windows; the others are changing ones.
APPEND_ONLY = "op"
#: The streams of files, with their formats; those of topics have the rows of o and p.  d is a table whose changes are
#: read; a row without a value is a delete.
FORMATS = {"o": "json", "p": "parquet", "r": "json", "s": "json", "d": "delta"}
_SCHEMA = pa.schema([(name, pa.int64()) for name in NAMES])


class Load:
    """Writes the next rows of every stream; ``rows`` are those that the answer is computed from."""

    def __init__(self, seed: int, folder: Path | None, send: Callable[[str, int, list[Row]], None] | None) -> None:
        self.rows: dict[str, list[Row]] = {name: [] for name in FORMATS}
        #: The records that are no rows: each must be set aside once, by every query that reads its stream.
        self.malformed: dict[str, Counter[str]] = {name: Counter() for name in FORMATS}
        self.files = 0
        #: Where else the rows of a stream go.
        self.copy: Callable[[str, list[Row]], None] = lambda name, rows: None
        self._seed, self._folder, self._send = seed, folder, send
        self._time = 0
        for name, format in FORMATS.items():
            if format == "delta" and folder is not None:
                (folder / name).mkdir(parents=True, exist_ok=True)
                DeltaTable.create(folder / name, _SCHEMA, configuration={"delta.enableChangeDataFeed": "true"})

    def feed(self, files: int = 1, changed: str = "") -> None:
        """Write so many files of every stream; ``changed`` says how their records differ from what was declared."""
        for _ in range(files):
            for name in FORMATS:
                self._write(name, self._next_rows(name), changed)
            self._time += _FILE
            self.files += 1

    def close_windows(self) -> None:
        """Write a row of each stream after all windows: it has a negative id, and no partner."""
        for place, name in enumerate(APPEND_ONLY):
            id = -2 * self.files - 1 - place
            for partition in range(PARTITIONS if self._send else 1):
                self._write(name, [(id, 0, self._time + _GAP // 2)], "", partition)
        self._time += _GAP
        self.files += 1

    def path_of(self, name: str, number: int) -> Path:
        """The file of a stream with a number."""
        assert self._folder is not None
        return self._folder / name / f"{number:05}.{FORMATS[name]}"

    def reorder(self, files: int) -> None:
        """Put the rows of the last so many files in another order.

        A batch that has not been committed then stores other bytes when it runs again, as it does where partitions or
        threads bring rows in another order; the results must be the same.  Files that have been read already
        are not read again.
        """
        if self._folder is None:
            return
        chance = random.Random(f"{self._seed} {self.files}")
        for number in range(max(self.files - files, 0), self.files):
            for name, format in FORMATS.items():
                path = self.path_of(name, number)
                if format == "json" and path.exists():
                    lines = path.read_text().splitlines()
                    write_lines(path, chance.sample(lines, len(lines)), age=number)
                elif format == "parquet" and path.exists():
                    table = pq.read_table(path)
                    _write_table(path, table.take(chance.sample(range(table.num_rows), table.num_rows)), age=number)

    def _next_rows(self, name: str) -> list[Row]:
        """Rows, each with a time of its own, out of order by at most nine seconds."""
        chance = random.Random(f"{self._seed} {name} {self.files}")
        times = [self._time + 2 * number + chance.randrange(2) for number in range(ROWS)]
        for start in range(0, ROWS, 4):
            part = times[start : start + 4]
            chance.shuffle(part)
            times[start : start + 4] = part
        first = self.files * ROWS
        return [
            (HOT_KEY if chance.random() < 0.2 else chance.randrange(KEYS), first + number, time)
            for number, time in enumerate(times)
        ]

    def _write(self, name: str, rows: list[Row], changed: str, partition: int | None = None) -> None:
        if self._send is not None:
            if name in APPEND_ONLY:
                self.rows[name] += rows
                self._send(name, 0 if partition is None else partition, rows)
        elif FORMATS[name] == "delta":
            self._merge(name, rows)
        elif FORMATS[name] == "parquet":
            self.rows[name] += rows
            self._write_parquet(name, rows, more=changed == "more columns")
        else:
            self._write_json(name, rows, changed)

    def _write_parquet(self, name: str, rows: list[Row], *, more: bool) -> None:
        table = pa.table(dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True)))
        if more:
            table = table.append_column("more", pa.array(["x"] * table.num_rows))
        _write_table(self.path_of(name, self.files), table, age=self.files)

    def _merge(self, name: str, rows: list[Row]) -> None:
        """Change a table: the newest row of each key replaces the one there is, and then some keys are deleted."""
        assert self._folder is not None
        path = str(self._folder / name)
        by_key = {row[0]: row for row in sorted(rows, key=lambda row: row[2])}
        newest = sorted(by_key.values(), key=lambda row: row[2])
        source = pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in newest], schema=_SCHEMA)
        merging = DeltaTable(path).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()
        gone = [row[0] for row in newest if row[0] % 5 == self.files % 5]
        DeltaTable(path).delete(f"id IN ({', '.join(map(str, [*gone, -1]))})")
        if self.files % 4 == 0:
            DeltaTable(path).optimize.compact()
        self.rows[name] += [*newest, *((id, None, self._time + _FILE) for id in gone)]

    def _write_json(self, name: str, rows: list[Row], changed: str) -> None:
        lines, before = [], len(self.rows[name])
        for number, row in enumerate(rows):
            record: dict[str, object] = dict(zip(NAMES, row, strict=True))
            if changed == "more columns":
                record["more"] = {"x": number}
            elif changed == "a column less" and number % 2:
                del record["v"]
                row = (row[0], None, row[2])
            elif changed == "another type" and number % 2:
                record["v"] = f"text {number}"
                self.malformed[name][json.dumps(record)] += 1
                lines.append(json.dumps(record))
                continue
            self.rows[name].append(row)
            lines.append(json.dumps(record))
        if self.files % 3 == 0 and rows[0][0] >= 0:
            lines.insert(1, f"no row {name} {self.files}")
            self.malformed[name][lines[1]] += 1
        write_lines(self.path_of(name, self.files), lines, age=self.files)
        self.copy(name, self.rows[name][before:])


def _write_table(path: Path, table: pa.Table, *, age: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    pq.write_table(table, hidden)
    os.utime(hidden, (1_700_000_000 + age, 1_700_000_000 + age))
    hidden.rename(path)


def sending(address: str, topics: str) -> Callable[[str, int, list[Row]], None]:
    """What sends rows to the topics of the streams, and waits until they are there."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2, "log_level": 0})

    def send(name: str, partition: int, rows: list[Row]) -> None:
        for row in rows:
            value = json.dumps(dict(zip(NAMES, row, strict=True)))
            to = partition if row[0] < 0 else (row[1] or 0) % PARTITIONS
            producer.produce(f"{topics}-{name}", value, partition=to)
        assert not producer.flush(120), "the broker does not take the rows"

    return send
