"""PostgreSQL's messages, built here byte by byte; tests of connectors read a real server's."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.records.pgoutput import (
    UNSENT,
    Begin,
    Change,
    Commit,
    ProtocolError,
    Relation,
    RelationColumn,
    Truncate,
    Value,
    parse,
)


def row(values: list[Value]) -> bytes:
    parts = [struct.pack("!h", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is UNSENT:
            parts.append(b"u")
        else:
            assert isinstance(value, str)
            parts.append(b"t" + struct.pack("!i", len(value.encode())) + value.encode())
    return b"".join(parts)


def relation(id: int, name: str, columns: list[tuple[str, int]]) -> bytes:
    described = b"".join(b"\1" + each.encode() + b"\0" + struct.pack("!Ii", type, -1) for each, type in columns)
    head = b"R" + struct.pack("!I", id) + b"public\0" + name.encode() + b"\0"
    return head + struct.pack("!bh", ord("d"), len(columns)) + described


VALUES = st.lists(st.one_of(st.none(), st.just(UNSENT), st.text()), max_size=6)
IDS = st.integers(0, 2**32 - 1)


@given(IDS, VALUES, VALUES, st.booleans())
def test_changes(id: int, old: list[Value], new: list[Value], by_key: bool) -> None:
    head, part = struct.pack("!I", id), b"K" if by_key else b"O"
    assert parse(b"I" + head + b"N" + row(new)) == Change(id, True, None, new)
    assert parse(b"U" + head + b"N" + row(new)) == Change(id, False, None, new)
    assert parse(b"U" + head + part + row(old) + b"N" + row(new)) == Change(id, False, old, new, by_key)
    assert parse(b"D" + head + part + row(old)) == Change(id, False, old, None, by_key)


def test_transactions_and_relations() -> None:
    assert parse(b"B" + struct.pack("!QqI", 2**40 + 7, 1_000_000, 9)) == Begin(2**40 + 7, 946_684_801_000_000)
    assert parse(b"C" + struct.pack("!bQQq", 0, 5, 2**63 + 6, 0)) == Commit(2**63 + 6)
    columns = (RelationColumn("id", 23), RelationColumn("é", 25))
    assert parse(relation(7, "t", [("id", 23), ("é", 25)])) == Relation(7, "public.t", columns)
    assert parse(b"T" + struct.pack("!ibII", 2, 0, 7, 2**32 - 1)) == Truncate((7, 2**32 - 1))
    for other in (b"O" + bytes(8) + b"elsewhere\0", b"Y" + bytes(4) + b"\0mood\0", b"M" + bytes(20)):
        assert parse(other) is None


@pytest.mark.parametrize(
    "whole",
    [
        b"B" + bytes(20),
        b"C" + bytes(25),
        relation(7, "t", [("id", 23), ("v", 25)]),
        b"I" + bytes(4) + b"N" + row(["abc", None, UNSENT]),
        b"U" + bytes(4) + b"K" + row(["1"]) + b"N" + row(["2"]),
        b"T" + struct.pack("!ibI", 1, 0, 7),
    ],
    ids=lambda whole: chr(whole[0]),
)
def test_what_ends_too_soon_is_told(whole: bytes) -> None:
    parse(whole)
    a_delete = b"U" + bytes(4) + b"K" + row(["1"])  # the same bytes are one in a message of another kind
    for end in range(len(whole)):
        if whole[:end] != a_delete:
            with pytest.raises(ProtocolError):
                parse(whole[:end])


@pytest.mark.parametrize("data", [b"", b"X", b"I" + bytes(4) + b"N" + row(["a"]) + b"?", b"D" + bytes(4) + b"Z"])
def test_what_is_no_message_is_told(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(data)


def test_text_that_is_not_utf8_is_told() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        parse(b"I" + bytes(4) + b"N" + struct.pack("!h", 1) + b"t" + struct.pack("!i", 1) + b"\xff")
