"""PostgreSQL's logical replication messages (plugin ``pgoutput``, protocol version 1) as Python values.

Values come as text, in the form that the settings of the session that reads them choose.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

#: Microseconds from 1970 to 2000, where PostgreSQL's clock begins.
_EPOCH = 946_684_800_000_000


class Unsent:
    """Stands for a value that an update did not change and that PostgreSQL did not send (stored out of line)."""

    def __repr__(self) -> str:
        return "UNSENT"


UNSENT: Final = Unsent()
#: A value as text; None is NULL.
Value: TypeAlias = str | Unsent | None


class ProtocolError(ValueError):
    """The bytes are no message that this version of the protocol has."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins: where its commit stands in the log, and when that was, in microseconds since 1970."""

    commit: int
    time: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends; ``end`` is the position after its commit."""

    end: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation: its name, and the id of its type."""

    name: str
    type: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on."""

    id: int
    name: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that was inserted (``new`` alone), updated or deleted (``old`` alone).

    ``old`` is the row before, if the server sends it: whole, or only the columns of its replica identity (``by_key``).
    """

    relation: int
    is_insert: bool
    old: Sequence[Value] | None
    new: Sequence[Value] | None
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of these relations were deleted at once."""

    relations: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Change | Truncate


def parse(data: bytes) -> Message | None:
    """Return the message in ``data``; None for one that says nothing of rows (origins, types, messages of users).

    Raises ``ProtocolError`` for anything else.
    """
    try:
        return _parse(data)
    except ProtocolError:
        raise
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(f"a message of the kind {data[:1]!r} ends too soon or is not UTF-8: {error}") from None


def _parse(data: bytes) -> Message | None:
    kind = data[:1]
    if kind in (b"I", b"U", b"D"):
        return _change(data)
    if kind == b"B":
        commit, time, _ = struct.unpack_from("!QqI", data, 1)
        return Begin(commit, time + _EPOCH)
    if kind == b"C":
        _, _, end, _ = struct.unpack_from("!bQQq", data, 1)
        return Commit(end)
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        count, _ = struct.unpack_from("!ib", data, 1)
        return Truncate(struct.unpack_from(f"!{count}I", data, 6))
    if kind in (b"O", b"Y", b"M"):
        return None
    raise ProtocolError(f"there is no message of the kind {kind!r}")


def _relation(data: bytes) -> Relation:
    (id,) = struct.unpack_from("!I", data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    _, count = struct.unpack_from("!bh", data, at)
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(data, at + 1)
        type, _ = struct.unpack_from("!Ii", data, at)  # and its modifier
        columns.append(RelationColumn(column, type))
        at += 8
    return Relation(id, f"{schema or 'pg_catalog'}.{name}", tuple(columns))


def _change(data: bytes) -> Change:
    (relation,) = struct.unpack_from("!I", data, 1)
    at, old, new, by_key = 5, None, None, False
    part = data[at : at + 1]
    if part in (b"K", b"O"):
        by_key = part == b"K"
        old, at = _tuple(data, at + 1)
        part = data[at : at + 1]
    if part == b"N":
        new, at = _tuple(data, at + 1)
    if (old is None and new is None) or at != len(data):
        raise ProtocolError(f"a change of the kind {data[:1]!r} has no row, or more than it should")
    return Change(relation, data[:1] == b"I", old, new, by_key)


def _tuple(data: bytes, at: int) -> tuple[list[Value], int]:
    (count,) = struct.unpack_from("!h", data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t: text
            (length,) = struct.unpack_from("!i", data, at)
            at += 4
            if at + length > len(data):
                raise ProtocolError("a value ends too soon")
            values.append(data[at : at + length].decode())
            at += length
        elif kind == 0x6E:  # n: NULL
            values.append(None)
        elif kind == 0x75:  # u: unchanged and not sent
            values.append(UNSENT)
        else:
            raise ProtocolError(f"there is no value of the kind {kind:#x}")
    return values, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1
