"""Delta tables for tests: made and changed with deltalake, read as a stream without Spark, and logs written by hand."""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from watersmeet.columns import TP_DELTA, TP_TIME
from watersmeet.connectors.delta.changes import Begin, Changes, Place
from watersmeet.connectors.delta.listing import partitions_of
from watersmeet.connectors.delta.log import DeltaLog
from watersmeet.connectors.delta.schema import Declared
from watersmeet.engine.delta import DeltaTable, Ending
from watersmeet.engine.parquet import ParquetRows

FEED = {"delta.enableChangeDataFeed": "true"}
INSTANT = pa.timestamp("us", tz="UTC")
IDS = pa.schema([("id", pa.int64())])
ROWS = pa.schema([("id", pa.int64()), ("v", pa.string())])
Row = dict[str, Any]


def ids(*numbers: int) -> list[Row]:
    """Rows of ``IDS``."""
    return [{"id": number} for number in numbers]


def rows(*given: tuple[int, str | None]) -> list[Row]:
    """Rows of ``ROWS``."""
    return [{"id": number, "v": text} for number, text in given]


def found(read: Iterable[Row]) -> list[int]:
    """The ids of rows."""
    return [row["id"] for row in read]


def make(path: Path, schema: pa.Schema, *, feed: bool = False, by: Sequence[str] = ()) -> Table:
    """A new table without rows."""
    return Table.create(str(path), schema, partition_by=list(by), configuration=FEED if feed else None)


def append(path: Path, rows: Iterable[Row], schema: pa.Schema, **options: Any) -> None:
    """A commit that adds rows."""
    write_deltalake(str(path), pa.Table.from_pylist(list(rows), schema=schema), mode="append", **options)


def commit(path: Path, *actions: dict[str, Any]) -> int:
    """A commit that is written by hand; its version comes back."""
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = len(list(log.glob("*.json")))
    (log / f"{version:020d}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))
    return version


def log_of(table: Path, version: int) -> list[Row]:
    """The actions of a version."""
    return [json.loads(line) for line in (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]


def added(file: Path, partitions: dict[str, str] | None = None, **more: Any) -> Row:
    """What a log says of a file that is added."""
    return {
        "path": file.name,
        "size": file.stat().st_size,
        "partitionValues": partitions or {},
        "modificationTime": 1,
        "dataChange": True,
        **more,
    }


class Stream:
    """A table that is read in batches, without Spark; each batch is planned by what a restart would have.

    ``key`` is the primary key of a changing stream, ``ending`` that of versioned_kv.
    """

    def __init__(
        self,
        path: Path | str,
        schema: pa.Schema,
        *,
        key: Sequence[str] = (),
        ending: Ending | None = None,
        begin: Begin | None = None,
        skips: bool = False,
    ) -> None:
        self.log = DeltaLog(str(path), "T")
        about = self.log.about()
        changes = bool(key)
        self.declared = Declared(schema, "s", "T", changes, about.version)
        self.declared.check(about.metadata, about.version)
        self.declared.check_features(about.features, about.version)
        self.table = DeltaTable(
            "T",
            self.declared.names(about.metadata),
            pa.schema([schema.field(name) for name in key]) if changes else None,
            ending,
        )
        self.schema = pa.schema([*schema, (TP_TIME, INSTANT), *([(TP_DELTA, pa.int8())] if changes else [])])
        self.skips = skips
        begin = begin or Begin(about.version, snapshot=True)
        self.place = Place.first(about.metadata.id, "s", begin)

    def changes(self) -> Changes:
        """What a query has that has just been started."""
        return Changes(self.log, self.declared, skips=self.skips, pairs=self.table.deletes is not None)

    def batch(self, limit: int | None = None) -> list[Row]:
        """The rows of one batch, in the order of their places."""
        end = Place.decoded(json.loads(json.dumps(self.changes().latest(self.place, limit).encoded())))
        rows = self.between(self.place, end)
        self.place = end
        return rows

    def between(self, start: Place, end: Place) -> list[Row]:
        """The rows between two places."""
        partitions = partitions_of(self.changes().files(start, end), cores=1)
        listed = pa.record_batch({"files": pa.array([each.value for each in partitions], pa.string())})
        wanted = ParquetRows(self.schema, numbered=True)
        found = [row for file in self.table.files(listed) for part in file.read(wanted) for row in part.to_pylist()]
        return sorted(found, key=lambda row: row["_seq"])

    def drain(self, limits: Iterator[int | None] | None = None) -> list[Row]:
        """The rows of all batches until nothing is left."""
        found: list[Row] = []
        for _ in range(10_000):
            before = self.place
            found += self.batch(next(limits) if limits is not None else None)
            if self.place == before:
                return found
        raise AssertionError("it has no end")


def values(row: Row) -> tuple[Any, ...]:
    """The declared columns of a row."""
    return tuple(value for name, value in row.items() if not name.startswith("_"))


def changes_of(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The declared columns of rows, with their delta before them."""
    return [(row[TP_DELTA], *values(row)) for row in rows]


def sum_of(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """What changes add up to."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        found[values(row)] += row.get(TP_DELTA, 1)
    return Counter({row: count for row, count in found.items() if count})


def newest(rows: Iterable[Row], key: str, time: Callable[[Row], Any]) -> set[tuple[Any, ...]]:
    """The newest row of each key by time and place, without those that are deleted."""
    last: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda each: (time(each), each["_seq"])):
        last[row[key]] = row
    return {values(row) for row in last.values() if row[TP_DELTA] > 0}


def stored(path: Path) -> Counter[tuple[Any, ...]]:
    """The rows that the table has now, as deltalake reads them."""
    return Counter(tuple(row.values()) for row in pa.table(Table(str(path)).scan().read_all()).to_pylist())


# -- deletion vectors --------------------------------------------------------------------------------------------------


def roaring_array(rows: Sequence[int]) -> bytes:
    """A deletion vector: arrays, bitmaps and runs as they fit."""
    by_high: dict[int, list[int]] = {}
    for row in sorted(rows):
        by_high.setdefault(row >> 32, []).append(row & 0xFFFFFFFF)
    parts = [struct.pack("<Iq", 1681511377, len(by_high))]
    parts += [struct.pack("<I", high) + _roaring(low) for high, low in by_high.items()]
    return b"".join(parts)


def _roaring(rows: Sequence[int]) -> bytes:
    by_key: dict[int, list[int]] = {}
    for row in rows:
        by_key.setdefault(row >> 16, []).append(row & 0xFFFF)
    is_run = [held == list(range(held[0], held[-1] + 1)) for held in by_key.values()]
    bodies = []
    for held, run in zip(by_key.values(), is_run, strict=True):
        if run:
            bodies.append(struct.pack("<HHH", 1, held[0], len(held) - 1))
        elif len(held) <= 4096:
            bodies.append(struct.pack(f"<{len(held)}H", *held))
        else:
            bits = bytearray(8192)
            for each in held:
                bits[each // 8] |= 1 << each % 8
            bodies.append(bytes(bits))
    count, headers = len(by_key), b"".join(struct.pack("<HH", key, len(held) - 1) for key, held in by_key.items())
    if any(is_run):
        flags = bytearray((count + 7) // 8)
        for number, run in enumerate(is_run):
            flags[number // 8] |= run << number % 8
        head = struct.pack("<I", 12347 | (count - 1) << 16) + bytes(flags) + headers
        has_table = count >= 4
    else:
        head, has_table = struct.pack("<II", 12346, count) + headers, True
    table, at = b"", len(head) + (4 * count if has_table else 0)
    for body in bodies:
        table += struct.pack("<I", at)
        at += len(body)
    return head + (table if has_table else b"") + b"".join(bodies)


def write_vector(path: Path, rows: Sequence[int], before: bytes = b"") -> dict[str, Any]:
    """Write a deletion vector behind some bytes; its description with its whole path comes back."""
    data = roaring_array(rows)
    framed = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    path.write_bytes(b"\x01" + before + framed)
    return {
        "storageType": "p",
        "pathOrInlineDv": f"file://{path}",
        "offset": 1 + len(before),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }
