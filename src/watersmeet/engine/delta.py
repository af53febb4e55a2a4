"""Files of a Delta table as a stream's rows, read in the worker.

The table's log says which files a version has added, removed, or written for its change data feed; a listing names
them, those of a task in a row, as JSON.  Rows of a changing stream get ``_tp_delta``.  Within a version all −1 stand
before all +1: a version holds each row that it retracts, and each that it inserts, in files of any order.

    a version's feed       changelog_kv         versioned_kv
    update_preimage  1 a   -1 a                 (left out: the +1 replaces it)
    update_postimage 1 b   +1 b                 +1 b
    delete           2 c   -1 c                 -1 c, at the time of the version
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import SEQUENCE, TP_DELTA, TP_TIME
from watersmeet.engine.deletion_vectors import deleted_rows
from watersmeet.engine.parquet import ParquetRows, read_columns
from watersmeet.errors import ConnectorError

#: The column of a feed's files that says what a row is.
CHANGE_TYPE = "_change_type"
_DELTAS = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}
_INSTANT = pa.timestamp("us", tz="UTC")


class FileKind(Enum):
    """What a file's rows are."""

    ADDED = "added"
    REMOVED = "removed"
    FEED = "feed"


@dataclass(frozen=True, slots=True)
class Stored:
    """A file: its whole path, and the values of the partition columns, which it does not hold, by name in the log.

    ``deletions`` says which of its rows are deleted (None: none), see ``deletion_vectors``.
    """

    path: str
    values: Mapping[str, str | None]
    deletions: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a version, its ``number`` there, and when the version was committed, in microseconds.

    ``inserts`` are files of the version that may hold a newer row of a key that this one retracts, if that matters.
    """

    stored: Stored
    kind: FileKind
    version: int
    number: int
    time: int
    inserts: tuple[tuple[Stored, FileKind], ...] = ()


def encoded(files: Sequence[ListedFile]) -> str:
    """Return files as a listing has them; what a version inserts stands there once."""
    inserts = {each.version: each.inserts for each in files if each.inserts}
    listed = [asdict(replace(each, inserts=())) for each in files]
    shared = {version: [[asdict(stored), kind] for stored, kind in each] for version, each in inserts.items()}
    return json.dumps({"files": listed, "inserts": shared}, default=lambda kind: kind.value)


def decoded(text: str) -> Iterator[ListedFile]:
    """Yield what ``encoded`` was given."""
    found = json.loads(text)
    inserts = {
        int(version): tuple((Stored(**stored), FileKind(kind)) for stored, kind in each)
        for version, each in found["inserts"].items()
    }
    for file in found["files"]:
        kind = FileKind(file["kind"])
        shared = () if kind is FileKind.ADDED else inserts.get(file["version"], ())
        yield ListedFile(**{**file, "stored": Stored(**file["stored"]), "kind": kind, "inserts": shared})


@dataclass(frozen=True, slots=True)
class Ending:
    """A −1 of a versioned_kv stream ends its key, unless its version inserts another row of it.

    It does so at the time of the version, in the event-time ``column``, which counts ``scale`` microseconds (None: no
    time, so its own stays).
    """

    column: str
    scale: int | None


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """How the files of a table are read, which messages call ``shown``.

    - ``names``: what declared columns are called in the files and the log, by lower-case name.
    - ``key``: the primary key, as fields; None in an append-only stream.
    - ``deletes``: how a −1 ends a key (None: each retracts a row, and has its own time).
    """

    shown: str
    names: Mapping[str, str]
    key: pa.Schema | None = None
    deletes: Ending | None = None

    def files(self, batch: pa.RecordBatch) -> Iterator[DeltaFile]:
        """The files that a batch of a listing names."""
        for text in batch.column(0):
            keys: dict[int, pa.Table] = {}
            for listed in decoded(text.as_py()):
                yield DeltaFile(self, listed, keys)

    def columns(self, listed: ListedFile, stored: Stored, schema: pa.Schema) -> Iterator[pa.Table]:
        """Columns of a file; its partition values are texts in the log."""
        values: dict[str, pa.Scalar] = {TP_TIME: pa.scalar(listed.time, _INSTANT)}
        for column in schema:
            name = self.names.get(column.name.lower(), column.name)
            if name in stored.values:
                values[column.name.lower()] = _partition_value(stored.values[name], column.type)
        try:
            yield from read_columns(stored.path, schema, values, self.names)
        except FileNotFoundError:
            raise ConnectorError(
                f"version {listed.version} of the Delta table {self.shown} names a file that is not there: "
                f"{stored.path}",
                hint="VACUUM has removed it, or this machine does not see the table's folder; the query cannot go on "
                "from there: start it anew, without its checkpoint, and keep "
                "delta.deletedFileRetentionDuration above the time that it may be behind",
            ) from None


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """One file of a table, as a listing names it; ``keys`` are those that versions insert, as far as they were read."""

    table: DeltaTable
    listed: ListedFile
    keys: dict[int, pa.Table] = field(default_factory=dict)

    def read(self, wanted: ParquetRows) -> Iterator[pa.Table]:
        """Yield its rows, see ``RowFile``; rows that change nothing are left out."""
        columns = [field for field in wanted.schema if field.name != TP_DELTA]
        if self._pairs and self.table.key is not None:
            columns += [field for field in self.table.key if field.name not in wanted.schema.names]
        inserted = self._inserted_keys()
        for rows, deltas, numbers in self._changes(self.listed.stored, self.listed.kind, pa.schema(columns)):
            if self.table.key is not None:
                rows, deltas, numbers = self._applied(rows, deltas, numbers, inserted, wanted.schema)
            rows = rows.select([field.name for field in wanted.schema])
            yield rows.append_column(SEQUENCE, self._places(deltas, numbers)) if wanted.numbered else rows

    def _changes(
        self, stored: Stored, kind: FileKind, schema: pa.Schema
    ) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
        """Columns of a file's rows that are not deleted, the delta of each, and its number in the file."""
        if kind is FileKind.FEED:
            schema = schema.append(pa.field(CHANGE_TYPE, pa.string()))
        deleted = None if stored.deletions is None else deleted_rows(stored.deletions)
        first = 0
        for rows in self.table.columns(self.listed, stored, schema):
            numbers = np.arange(first, first + rows.num_rows)
            first += rows.num_rows
            if deleted is not None:
                kept = ~np.isin(numbers, deleted, assume_unique=True)
                rows, numbers = rows.filter(pa.array(kept)), numbers[kept]
            if kind is FileKind.FEED:
                yield rows.drop_columns([CHANGE_TYPE]), _deltas(rows[CHANGE_TYPE], stored.path), numbers
            else:
                yield rows, np.full(rows.num_rows, -1 if kind is FileKind.REMOVED else 1, np.int8), numbers

    # -- changing streams ------------------------------------------------------------------------------------------

    @property
    def _pairs(self) -> bool:
        """Whether a −1 counts only if its version inserts no row of its key."""
        return self.table.deletes is not None and self.listed.kind is not FileKind.ADDED

    def _inserted_keys(self) -> pa.Table | None:
        """The keys of all rows that the version inserts; None where they do not matter."""
        if not self._pairs:
            return None
        assert self.table.key is not None
        if self.listed.version not in self.keys:
            found = [
                rows.filter(pa.array(deltas > 0))
                for stored, kind in self.listed.inserts
                for rows, deltas, _ in self._changes(stored, kind, self.table.key)
            ]
            self.keys.clear()
            self.keys[self.listed.version] = pa.concat_tables([self.table.key.empty_table(), *found])
        return self.keys[self.listed.version]

    def _applied(
        self, rows: pa.Table, deltas: np.ndarray, numbers: np.ndarray, inserted: pa.Table | None, wanted: pa.Schema
    ) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """The rows that are changes, with ``_tp_delta`` where it is wanted."""
        if inserted is not None:
            assert self.table.key is not None
            kept = (deltas > 0) | ~_are_in(rows.select(self.table.key.names), inserted)
            rows, deltas, numbers = rows.filter(pa.array(kept)), deltas[kept], numbers[kept]
            rows = self._dated(rows, deltas)
        if TP_DELTA in wanted.names:
            field = wanted.field(TP_DELTA)
            rows = rows.append_column(field, pa.array(deltas).cast(field.type))
        return rows, deltas, numbers

    def _dated(self, rows: pa.Table, deltas: np.ndarray) -> pa.Table:
        """The rows, with the time of the version in those that end a key."""
        assert self.table.deletes is not None
        column, scale = self.table.deletes.column, self.table.deletes.scale
        place = next((at for at, name in enumerate(rows.column_names) if name.lower() == column.lower()), None)
        if place is None or scale is None or not (deltas < 0).any():
            return rows
        field = rows.schema.field(place)
        time = pa.scalar(self.listed.time // scale, pa.int64())
        if pa.types.is_timestamp(field.type):
            ended = time.cast(pa.timestamp("us")).cast(field.type)
        else:
            ended = time.cast(field.type) if _fits(time.as_py(), field.type) else pa.scalar(None, field.type)
        return rows.set_column(place, field, pc.if_else(pa.array(deltas < 0), ended, rows[place]))

    def _places(self, deltas: np.ndarray, numbers: np.ndarray) -> pa.Array:
        """The places of rows: version, −1 before +1, file and row, as bytes that sort like numbers."""
        listed = self.listed
        place = np.zeros(len(numbers), dtype=[("version", ">u8"), ("sign", "u1"), ("file", ">u4"), ("row", ">u8")])
        place["version"], place["sign"], place["file"], place["row"] = (
            listed.version,
            deltas > 0,
            listed.number,
            numbers,
        )
        width = place.dtype.itemsize
        return pa.Array.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(place)]).cast(pa.binary())


def _deltas(types: pa.ChunkedArray, path: str) -> np.ndarray:
    encoded = types.combine_chunks().dictionary_encode()
    known = encoded.dictionary.to_pylist()
    if encoded.null_count or not set(known) <= set(_DELTAS):
        found = ", ".join(sorted({str(each) for each in known} - set(_DELTAS))) or "NULL"
        raise ConnectorError(
            f"{path}: {CHANGE_TYPE} is {found}", hint=f"a change data feed has {', '.join(_DELTAS)} there"
        )
    deltas = np.array([_DELTAS[each] for each in known], np.int8)
    return deltas[encoded.indices.to_numpy()] if known else np.zeros(0, np.int8)


def _are_in(keys: pa.Table, among: pa.Table) -> np.ndarray:
    """Return which keys are among others."""
    names = [f"k{number}" for number in range(keys.num_columns)]
    same = " AND ".join(f"b.{name} IS NOT DISTINCT FROM a.{name}" for name in names)
    numbered = keys.rename_columns(names).append_column("n", pa.array(np.arange(keys.num_rows)))
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.register("a", numbered)
        connection.register("b", among.rename_columns(names))
        found = connection.sql(f"SELECT n FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {same})").to_arrow_table()
    mask = np.zeros(keys.num_rows, bool)
    mask[found["n"].to_numpy()] = True
    return mask


def _fits(value: int, kind: pa.DataType) -> bool:
    bits = kind.bit_width - 1
    return bool(-(2**bits) <= value < 2**bits)


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value of the log; an empty text is NULL there."""
    if not text:
        return pa.scalar(None, kind)
    if pa.types.is_binary(kind):
        raise ConnectorError(
            "a Delta table is partitioned by a BINARY column, of which writers keep different texts in the log",
            hint="leave the column out of the stream",
        )
    if pa.types.is_timestamp(kind):
        plain = text.removesuffix("Z").replace("T", " ")
        return pa.scalar(plain, pa.string()).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(text, pa.string()).cast(kind)
