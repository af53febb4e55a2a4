"""A change of a table as rows of its stream, and where a relation of the log has the declared columns.

In mode ``versioned_kv`` an update is the key's new row, after a delete of the key that the row had before, if that is
another.  In mode ``changelog_kv`` it is a retraction of the old row and the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import same_name
from watersmeet.connectors.postgres.failures import ANEW
from watersmeet.connectors.postgres.table import Declared, Table, TableColumn, fits
from watersmeet.errors import ConnectorError
from watersmeet.expressions.type_names import spark_type
from watersmeet.records.pgoutput import UNSENT, Change, Relation, Unsent, Value

_UNSENT = (
    "an update left {} unchanged, and the server did not send it, as it is stored out of line: "
    "ALTER TABLE … REPLICA IDENTITY FULL"
)
_NO_OLD_ROW = "an update or a delete without the row before: ALTER TABLE … REPLICA IDENTITY FULL"
#: PostgreSQL's own types by their ids: the name, and the name of an array's elements.
_BUILT_IN = {
    16: "bool",
    17: "bytea",
    20: "int8",
    21: "int2",
    23: "int4",
    25: "text",
    26: "oid",
    700: "float4",
    701: "float8",
    1042: "bpchar",
    1043: "varchar",
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
    1700: "numeric",
}
_ARRAYS = {
    1000: "bool",
    1001: "bytea",
    1005: "int2",
    1007: "int4",
    1009: "text",
    1014: "bpchar",
    1015: "varchar",
    1016: "int8",
    1021: "float4",
    1022: "float8",
    1115: "timestamp",
    1182: "date",
    1185: "timestamptz",
    1231: "numeric",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a change: values in declared order. ``reason``: it cannot be used."""

    delta: int
    values: Sequence[str | None]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a relation has the declared columns, and which of these are the key."""

    names: tuple[str, ...]
    places: tuple[int, ...]
    key: tuple[bool, ...]
    keeps_old: bool

    def rows(self, change: Change) -> list[Row]:
        """Return the rows of a change, in the order in which they hold."""
        old = None if change.old is None else self._declared(change.old)
        new = None if change.new is None else self._declared(change.new)
        if new is not None and old is not None and not change.by_key:
            new = [before if after is UNSENT else after for before, after in zip(old, new, strict=True)]
        if self.keeps_old:
            if change.old is None:
                assert new is not None
                return [self._new(new)] if change.is_insert else [self._wrong(new, _NO_OLD_ROW)]
            assert old is not None
            if change.by_key:
                return [self._wrong(old if new is None else new, _NO_OLD_ROW)]
            return [Row(-1, _texts(old)), *([] if new is None else [self._new(new)])]
        rows = []
        if old is not None and (new is None or self._key_of(old) != self._key_of(new)):
            rows.append(self._deleted(old, whole=not change.by_key))
        if new is not None:
            rows.append(self._new(new))
        return rows

    def _new(self, values: Sequence[Value]) -> Row:
        unsent = [name for name, value in zip(self.names, values, strict=True) if value is UNSENT]
        if unsent:
            return self._wrong(values, _UNSENT.format(", ".join(unsent)))
        return Row(1, _texts(values))

    def _deleted(self, values: Sequence[Value], *, whole: bool) -> Row:
        if whole:
            return Row(-1, _texts(values))
        known = [value if is_key else None for value, is_key in zip(values, self.key, strict=True)]
        return Row(-1, _texts(known))

    def _wrong(self, values: Sequence[Value], reason: str) -> Row:
        return Row(1, _texts(values), reason=reason)

    def _key_of(self, values: Sequence[Value]) -> list[Value]:
        return [value for value, is_key in zip(values, self.key, strict=True) if is_key]

    def _declared(self, values: Sequence[Value]) -> list[Value]:
        return [values[place] for place in self.places]


def _texts(values: Sequence[Value]) -> list[str | None]:
    return [None if isinstance(value, Unsent) else value for value in values]


def layout_of(relation: Relation, table: Table, declared: Declared) -> Layout:
    """Return where a relation has the declared columns; ``ConnectorError`` where it has them no more as they were."""
    names = [column.name for column in relation.columns]
    places = []
    for field_ in declared.schema:
        known = table.columns[field_.name]
        actual = same_name(known.name, names)
        if actual is None:
            raise ConnectorError(
                f"column {known.name} of table {relation.name} was dropped or renamed; {declared.stream} declares it",
                hint=f"define the stream without it, or with its new name, and {ANEW}",
            )
        place = names.index(actual)
        if not _still_fits(relation.columns[place].type, known, field_.type):
            raise ConnectorError(
                f"the type of column {actual} of table {relation.name} was changed (it was {known.words}): it is "
                f"no longer one for {spark_type(field_.type)}",
                hint=f"define the stream with the new type, and {ANEW}",
            )
        places.append(place)
    key = tuple(name in declared.key for name in declared.schema.names)
    return Layout(tuple(declared.schema.names), tuple(places), key, declared.needs_whole_rows)


def _still_fits(type: int, known: TableColumn, declared: pa.DataType) -> bool:
    if type == known.type:
        return True
    return fits(declared, _BUILT_IN.get(type, "another"), _ARRAYS.get(type))
